package chaostest_test

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var mutants = flag.Bool("mutants", false, "run TestEachMutantOfALoopIsCaught, which builds twill once for each")

// mutant is one line of source made wrong, and the faults that must show it.
type mutant struct{ name, file, old, new, kinds string }

// readMutants reads testdata/mutants.txt: blocks of five lines (# name, file, old, new, kinds of faults).
func readMutants(t *testing.T) []mutant {
	t.Helper()
	b, err := os.ReadFile("testdata/mutants.txt")
	must(t, err)
	var out []mutant
	for block := range strings.SplitSeq(strings.TrimSpace(string(b)), "\n\n") {
		lines := strings.Split(block, "\n")
		if len(lines) != 5 || !strings.HasPrefix(lines[0], "# ") {
			t.Fatalf("mutants.txt: want a name, a file, an old and a new line, and kinds, got %q", block)
		}
		out = append(out, mutant{lines[0][2:], lines[1], strings.TrimPrefix(lines[2], "- "), strings.TrimPrefix(lines[3], "+ "), lines[4]})
	}
	return out
}

// TestEachMutantOfALoopIsCaught plants a fault in a loop of twill, and wants a short run of chaos with the proper faults to
// fail: not before the first of them, and not since a fault could not be made.
func TestEachMutantOfALoopIsCaught(t *testing.T) {
	planted := readMutants(t)
	if len(planted) < 10 {
		t.Errorf("%d mutants, want 10", len(planted))
	}
	root, err := filepath.Abs("../..")
	must(t, err)
	known := map[string]bool{}
	for _, f := range all() {
		known[f.kind] = true
	}
	for _, m := range planted {
		t.Run(m.name, func(t *testing.T) {
			path := filepath.Join(root, m.file)
			src, err := os.ReadFile(path)
			must(t, err)
			if n := strings.Count(string(src), m.old); n != 1 {
				t.Fatalf("%s has %d times %q; correct mutants.txt", m.file, n, m.old)
			}
			for kind := range strings.SplitSeq(m.kinds, ",") {
				if !known[kind] {
					t.Errorf("no kind of fault is %s", kind)
				}
			}
			if !*mutants {
				return // the list is at least true to the source
			}
			wrong := filepath.Join(t.TempDir(), filepath.Base(m.file))
			must(t, os.WriteFile(wrong, []byte(strings.Replace(string(src), m.old, m.new, 1)), 0o600))
			overlay := filepath.Join(t.TempDir(), "overlay.json")
			text, err := json.Marshal(map[string]any{"Replace": map[string]string{path: wrong}})
			must(t, err)
			must(t, os.WriteFile(overlay, text, 0o600))
			exe := build(t, "-overlay", overlay)
			self, err := os.Executable()
			must(t, err)
			// The seed is one that has policy change where the fault leaves it to chance.
			out, err := exec.CommandContext(t.Context(), self, "-test.run=^TestChaos$", "-test.v", "-kinds="+m.kinds, "-seed=1", "-patience=15s", "-twill="+exe, "-bundle="+t.TempDir()).CombinedOutput()
			output := string(out)
			switch {
			case err == nil:
				t.Errorf("survived:\n%s", output)
			case !strings.Contains(output, "--- FAIL: TestChaos"), strings.Contains(output, notBitten), strings.Contains(output, "before the first fault"):
				t.Errorf("it was not the mutant that failed:\n%s", output)
			default:
				for line := range strings.Lines(output) {
					if strings.Contains(line, "FAILED") {
						t.Log(strings.TrimSpace(line))
					}
				}
			}
		})
	}
}
