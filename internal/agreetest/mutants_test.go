package agreetest

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var mutants = flag.Bool("mutants", false, "run TestEachMutantIsCaught; it compiles this package once for each")

// mutant is one line of source made wrong.
type mutant struct {
	name, file, old, new string
}

// readMutants reads testdata/mutants.txt: blocks of four lines (# name, file, old, new) with blank lines between.
func readMutants(t *testing.T) []mutant {
	t.Helper()
	b, err := os.ReadFile("testdata/mutants.txt")
	must(t, err)
	var out []mutant
	for block := range strings.SplitSeq(strings.TrimSpace(string(b)), "\n\n") {
		lines := strings.Split(block, "\n")
		if len(lines) != 4 || !strings.HasPrefix(lines[0], "# ") {
			t.Fatalf("mutants.txt: want a name, a file, an old and a new line, got %q", block)
		}
		out = append(out, mutant{lines[0][2:], lines[1], strings.TrimPrefix(lines[2], "- "), strings.TrimPrefix(lines[3], "+ ")})
	}
	return out
}

func TestEachMutantIsCaught(t *testing.T) {
	all := readMutants(t)
	if len(all) < 30 {
		t.Errorf("%d mutants, want 30", len(all))
	}
	root, err := filepath.Abs("../..")
	must(t, err)
	for _, m := range all {
		t.Run(m.name, func(t *testing.T) {
			path := filepath.Join(root, m.file)
			src, err := os.ReadFile(path)
			must(t, err)
			if n := strings.Count(string(src), m.old); n != 1 {
				t.Fatalf("%s has %d times %q; mend mutants.txt", m.file, n, m.old)
			}
			if !*mutants {
				return // the list is at least true to the source
			}
			wrong := filepath.Join(t.TempDir(), filepath.Base(m.file))
			must(t, os.WriteFile(wrong, []byte(strings.Replace(string(src), m.old, m.new, 1)), 0o600))
			overlay := filepath.Join(t.TempDir(), "overlay.json")
			b, err := json.Marshal(map[string]any{"Replace": map[string]string{path: wrong}})
			must(t, err)
			must(t, os.WriteFile(overlay, b, 0o600))
			cmd := exec.CommandContext(t.Context(), "go", "test", "-overlay", overlay, "-count=1", "-run", "TestKernelAgrees", ".", "-brief", "-worlds=500")
			out, err := cmd.CombinedOutput()
			switch {
			case err == nil:
				t.Error("survived: 500 worlds saw nothing wrong")
			case !strings.Contains(string(out), "--- FAIL: TestKernelAgrees"):
				t.Errorf("did not run:\n%s", out)
			}
		})
	}
}
