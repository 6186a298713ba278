package agreetest

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	mutants = flag.Bool("mutants", false, "run TestEachMutantIsCaught; it compiles this package once for each")
	every   = flag.Int("every", 1, "of mutants: the first of every so many in the list, always the same, which is the sample of CI")
	memory  = flag.Bool("memory", false, "of mutants: only those that are seen without a kernel, by TestMemoryAgrees alone")
)

// mutant is one line of source made wrong.
type mutant struct {
	name, file, old, new string
}

// readMutants reads a list of testdata: blocks of four lines (# name, file, old, new) with blank lines between.
func readMutants(t *testing.T, list string) []mutant {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", list))
	must(t, err)
	var out []mutant
	for block := range strings.SplitSeq(strings.TrimSpace(string(b)), "\n\n") {
		lines := strings.Split(block, "\n")
		if len(lines) != 4 || !strings.HasPrefix(lines[0], "# ") {
			t.Fatalf("%s: want a name, a file, an old and a new line, got %q", list, block)
		}
		out = append(out, mutant{lines[0][2:], lines[1], strings.TrimPrefix(lines[2], "- "), strings.TrimPrefix(lines[3], "+ ")})
	}
	return out
}

// mutantsOfRejects are no faults in iptables, which rejects in table filter alone: these are about other tables.
var mutantsOfRejects = []string{"desired: policies reject before conntrack", "desired: what the host sends is asked of chains that reject"}

// isOf reports whether a dataplane does what a mutant does wrong. Policy as look-ups, and flows that are decided again at their next packet, are
// in nftables alone.
func (m mutant) isOf(dataplane string) bool {
	const in = "internal/dataplane/"
	ofOne := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return strings.HasPrefix(m.file, part) })
	}
	if dataplane == inNftables {
		return !ofOne(in + "iptables/")
	}
	return !slices.Contains(mutantsOfRejects, m.name) && !ofOne(in+"nft/", in+"classify/", in+"desired/recheck.go", in+"desired/hosttables.go", "internal/kernel/nftables/")
}

// TestEachMutantIsCaught makes a binary of each mutant and runs it: of this package or, of those that the list has under "iptables alone", of the tests
// of iptables, whose rules have more lists than those of a world. It runs as many at a time as there are cores (-parallel): what a run waits
// for, in kernels, leaves the next one's compiler its core.
func TestEachMutantIsCaught(t *testing.T) {
	root, err := filepath.Abs("../..")
	must(t, err)
	listed := map[bool]int{} // of all, how many the dataplane has
	for _, m := range append(readMutants(t, "mutants.txt"), readMutants(t, "mutants-iptables.txt")...) {
		asked := m.isOf(*on)
		i := listed[asked]
		listed[asked]++
		t.Run(m.name, func(t *testing.T) {
			path := filepath.Join(root, m.file)
			src, err := os.ReadFile(path)
			must(t, err)
			if n := strings.Count(string(src), m.old); n != 1 {
				t.Fatalf("%s has %d times %q; correct testdata/mutants*.txt", m.file, n, m.old)
			}
			if !*mutants || !asked || i%*every != 0 {
				return // the list is at least true to the source
			}
			if *memory && !m.decides() {
				return
			}
			t.Parallel()
			wrong := strings.Replace(string(src), m.old, m.new, 1)
			if strings.HasPrefix(m.name, "iptables alone:") {
				m.caught(t, m.build(t, "../dataplane/iptables", path, wrong), "TestKernelAgreesWithVerdict", [][]string{{"-test.run=TestKernelAgreesWithVerdict"}})
				return
			}
			binary := m.build(t, ".", path, wrong)
			if m.decides() && *on == inNftables {
				m.caught(t, binary, "TestMemoryAgrees", [][]string{{inMemory, "-worlds=100"}, {inMemory, "-worlds=5000"}}, "-brief")
			}
			if !*memory {
				m.caught(t, binary, "TestKernelAgrees", m.inKernel(), "-brief", "-on="+*on)
			}
		})
	}
	if listed[true] < 30 {
		t.Errorf("%d mutants of %s, want 30", listed[true], *on)
	}
}

const inMemory, anyPath, anyWorld = "-test.run=TestMemoryAgrees$", "-test.run=TestKernelAgreesOnAnyPath", "-test.run=TestKernelAgrees$"

// decides reports whether a mutant is of what decides, and not of what makes it so in a kernel: then it must be seen without one, too. Established
// flows and tables are in a kernel alone.
func (m mutant) decides() bool {
	if m.file == "internal/dataplane/desired/recheck.go" || m.file == "internal/dataplane/desired/hosttables.go" {
		return false
	}
	inKernel := strings.HasPrefix(m.file, "internal/dataplane/") || strings.HasPrefix(m.file, "internal/kernel/")
	return !inKernel || strings.HasPrefix(m.file, "internal/dataplane/rules/") || strings.HasPrefix(m.file, "internal/dataplane/desired/")
}

// inKernel are the runs that must see a mutant by packets. Paths first: they are quicker to see what a few worlds show, and some faults only
// they can see. The last two are for what is seen in one world of a hundred: 500 of them miss it once in 150 runs.
func (m mutant) inKernel() [][]string {
	if strings.HasPrefix(m.file, "internal/dataplane/revoke/") {
		return [][]string{{anyPath, "-paths=300"}} // no flow of a world lives long enough to be revoked
	}
	if *on != inNftables { // a path takes as long there as ten worlds
		return [][]string{{anyWorld, "-worlds=60"}, {anyPath, "-paths=12"}, {anyWorld, "-worlds=500"}, {anyPath, "-paths=100"}}
	}
	return [][]string{{anyPath, "-paths=12"}, {anyWorld, "-worlds=500"}, {anyPath, "-paths=300"}, {anyWorld, "-worlds=2500"}}
}

// caught demands that one of some runs fails, and by a test of that name. All have some flags.
func (m mutant) caught(t *testing.T, binary, test string, runs [][]string, flags ...string) {
	t.Helper()
	for _, run := range runs {
		out, err := exec.CommandContext(t.Context(), binary, append(run, flags...)...).CombinedOutput()
		switch {
		case err == nil:
			continue
		case !strings.Contains(string(out), "--- FAIL: "+test):
			t.Errorf("did not run:\n%s", out)
		}
		t.Logf("caught with %s: %s", strings.Join(run, " "), caughtAt.Find(out)) // what is caught late may survive a run
		return
	}
	t.Errorf("survived: %v saw nothing wrong", runs)
}

// caughtAt is how far a run came until it saw that something is wrong.
var caughtAt = regexp.MustCompile(`(path|world) [0-9]+`)

// build makes the tests of a package with a file that is wrong.
func (m mutant) build(t *testing.T, pkg, path, wrong string) string {
	t.Helper()
	dir := t.TempDir()
	file, overlay, binary := filepath.Join(dir, filepath.Base(m.file)), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "agreetest.test")
	must(t, os.WriteFile(file, []byte(wrong), 0o600))
	b, err := json.Marshal(map[string]any{"Replace": map[string]string{path: file}})
	must(t, err)
	must(t, os.WriteFile(overlay, b, 0o600))
	out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-o", binary, pkg).CombinedOutput()
	if err != nil {
		t.Fatalf("does not compile: %v\n%s", err, out)
	}
	return binary
}
