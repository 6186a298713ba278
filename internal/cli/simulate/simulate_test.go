package simulate_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/cli"
	"github.com/twillnet/twill/internal/cli/clitest"
)

var update = flag.Bool("update", false, "write the transcript of docs/scale.md anew; read it before you commit it")

func TestMain(m *testing.M) { clitest.Main(m) }

func TestWrongCallsSayWhat(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"--nodes 0", "--nodes: want at least 1"},
		{"--nodes 200 --check", "--nodes: --check calculates every node in full, so want at most 100"},
		{"--sample 3 --nodes 2", "--sample: want from 1 to as many as there are nodes"},
		{"--duration 1ns", "no change would happen"},
		{"100", "takes no arguments"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			c := clitest.New(t, cli.Execute)
			clitest.Contains(t, c.Want(2, "", append([]string{"simulate"}, strings.Fields(tt.args)...)...), tt.want)
		})
	}
}

// TestAClusterBeyondThisMachineIsRefusedAtOnce: no machine that runs tests has what these would need.
func TestAClusterBeyondThisMachineIsRefusedAtOnce(t *testing.T) {
	c := clitest.New(t, cli.Execute)
	out := c.Want(1, "", "simulate", "--policies", "1000000000")
	clitest.Contains(t, out, "TB of memory")
	clitest.Contains(t, out, "are available: say fewer --endpoints, --policies or --nodes")
}

// TestTheTranscriptOfThePageOnScale runs what docs/scale.md shows. What is measured differs at each run, and is left out.
func TestTheTranscriptOfThePageOnScale(t *testing.T) {
	path, err := filepath.Abs("../../docs/scale.md")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path) //nolint:gosec // a page
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(text), "```console\n$ twill simulate ")
	was, after, ok2 := strings.Cut(rest, "```")
	call, want, ok3 := strings.Cut(was, "\n")
	if !ok1 || !ok2 || !ok3 {
		t.Fatalf("%s has no transcript", path)
	}
	c := clitest.New(t, cli.Execute)
	code, got, _ := c.Run("", clitest.Words("simulate "+call)...)
	if code != 0 {
		t.Fatalf("exit code %d:\n%s", code, got)
	}
	if *update {
		if err := os.WriteFile(path, []byte(before+"```console\n$ twill simulate "+call+"\n"+got+"```"+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	clitest.Equal(t, lasting(t, got), lasting(t, want))
}

var (
	columns = regexp.MustCompile(` {2,}`)
	limit   = regexp.MustCompile(`(First used up:).*`)
	state   = regexp.MustCompile(`state [0-9a-f]{16}\b`) // the same for one seed, but other when the agent has other fields
)

// lasting is a table without what was measured.
func lasting(t *testing.T, text string) string {
	t.Helper()
	var out []string
	left := 0
	for line := range strings.Lines(text) {
		cells := columns.Split(strings.TrimSpace(line), -1)
		if i := slices.IndexFunc(cells, func(c string) bool { return c == "measured" || c == "modelled" }); i > 0 {
			cells = append(cells[:1], cells[i:]...)
			left++
		}
		out = append(out, state.ReplaceAllString(limit.ReplaceAllString(strings.Join(cells, "  "), "$1 …"), "state …"))
	}
	if left < 10 {
		t.Errorf("%d figures are measured: is it -o wide?\n%s", left, text)
	}
	return strings.Join(out, "\n")
}
