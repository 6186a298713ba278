package lab

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/kernel/machinetest"
)

// TestTheGuideOfLogsSaysWhatHappens runs the console blocks of docs/log.md as a scenario, on hosts and workloads of the names that `make up` has.
func TestTheGuideOfLogsSaysWhatHappens(t *testing.T) {
	machinetest.Root(t)
	text, err := os.ReadFile("../../docs/log.md")
	must(t, err)
	s := scenarioOf(t, string(text))
	if n := strings.Count(s, "\n"); n < 20 {
		t.Fatalf("%d lines are too few: are blocks marked ```console?\n%s", n, s)
	}
	runScript(t, Runner{Exe: testBinary(t)}, "log.md", s)
}

// ofTheMoment is what differs each time in what a guide shows, each as it is in a pattern.
var ofTheMoment = [][2]string{
	{`\d{4}-\d\d-\d\dT[0-9:]+\\\.\d+Z`, `[0-9T:.+Z-]+`},
	{`\d\d:\d\d:\d\d\\\.\d{3}`, `\d\d:\d\d:\d\d\.\d{3}`},
	{`(10\\\.65\\\.\d\\\.\d):\d{5}\b`, `$1:\d+`},
	{`("srcPort":|spt=)\d+`, `$1\d+`},
	{`\bcali[0-9a-f]{11}\b`, `cali[0-9a-f]{11}`},
	{`twill [0-9a-f]{4} [0-9a-f]{8}`, `twill [0-9a-f]{4} [0-9a-f]{8}`},
	{`packets \d+ bytes \d+`, `packets \d+ bytes \d+`},
}

// patternOf matches a line that a guide shows.
func patternOf(line string) string {
	p := regexp.QuoteMeta(line)
	for _, m := range ofTheMoment {
		p = regexp.MustCompile(m[0]).ReplaceAllString(p, m[1])
	}
	return "^" + p + "$"
}

// scenarioOf makes a scenario of the commands in a guide, each with what it shows. It knows those that guides need.
func scenarioOf(t *testing.T, guide string) string {
	t.Helper()
	demo := Demo()
	var b, documents strings.Builder
	b.WriteString("# What a guide shows.\nhosts h1 h2 h3\n")
	for _, w := range demo.Workloads {
		fmt.Fprintf(&b, "workload %s %s %s %s ns=%s app=%s\n", w.Host, w.Name, w.V4, w.V6, w.Namespace, w.Labels["app"])
	}
	fmt.Fprintf(&documents, "-- demo.yaml --\n%s", demo.Manifests)
	b.WriteString("apply demo.yaml\n")
	for i, block := range strings.Split(guide, "```") {
		block, console := strings.CutPrefix(block, "console\n")
		if !console || i%2 == 0 {
			continue
		}
		for _, command := range strings.Split("\n"+block, "\n$ ")[1:] {
			line, shown, _ := strings.Cut(strings.TrimSuffix(command, "\n"), "\n")
			step(t, &b, &documents, strings.Fields(line), shown)
		}
	}
	return b.String() + documents.String()
}

// step is one command of a guide.
func step(t *testing.T, b, documents *strings.Builder, command []string, shown string) {
	t.Helper()
	is := func(words ...string) bool {
		return len(command) >= len(words) && slices.Equal(command[:len(words)], words)
	}
	switch {
	case is("cat"):
		fmt.Fprintf(documents, "-- %s --\n%s\n", command[1], shown)
	case is("twill", "apply", "-f"):
		fmt.Fprintf(b, "apply %s\nwait settled\n", command[3])
	case is("twill", "lab", "reach"):
		not := ""
		if !strings.HasPrefix(shown, "connected") {
			not = "! "
		}
		_, src, _ := strings.Cut(command[3], "/")
		_, dst, _ := strings.Cut(command[4], "/")
		fmt.Fprintf(b, "%sreach %s %s %s v4\n", not, src, dst, command[5])
	case is("grep", "-o"):
		fmt.Fprintf(b, "wait log h3 '%s'\n", strings.TrimPrefix(patternOf(shown), "^"))
	case is("twill", "lab", "exec", "h3", "--"):
		args := command[5:]
		if pipe := slices.Index(args, "|"); pipe >= 0 {
			args = args[:pipe] // what it filters is looked for in all
		}
		fmt.Fprintf(b, "wait exec h3 %s\n", strings.Join(args, " ")) // the agent reads flows in batches
		for line := range strings.Lines(shown) {
			fmt.Fprintf(b, "stdout '%s'\n", patternOf(strings.TrimSuffix(line, "\n")))
		}
	default:
		t.Fatalf("a guide has a command that this test does not know: %q", command)
	}
}
