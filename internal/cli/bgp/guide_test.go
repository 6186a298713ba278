package bgp_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/kernel/machinetest"
)

// logTime is what lines of the log begin with; the guide leaves it out.
var logTime = regexp.MustCompile(`(?m)^time=\S+ `)

const guide = "../../../docs/confd.md"

// TestTheGuideOfTemplatesSaysWhatHappens does what the console blocks of docs/confd.md show, one after the other, on a real etcd: the files
// that cat shows below /etc/twill/confd are there, and all else is compared. With -update the guide is written again.
func TestTheGuideOfTemplatesSaysWhatHappens(t *testing.T) {
	machinetest.Program(t, "bird")
	e := startEtcd(t, "guide.yaml")
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	t.Setenv("TWILL_CONFDIR", filepath.Join(root, "etc/twill/confd"))
	t.Setenv("TWILL_BIRD_CONF", filepath.Join(root, "etc/bird/bird.conf"))
	if err := os.MkdirAll(filepath.Join(root, "etc/bird"), 0o755); err != nil {
		t.Fatal(err)
	}
	parts, commands := strings.Split(string(text), "```"), 0
	for i, block := range parts {
		block, console := strings.CutPrefix(block, "console\n")
		if !console || i%2 == 0 {
			continue
		}
		parts[i] = "console\n"
		for _, command := range strings.Split("\n"+block, "\n$ ")[1:] {
			commands++
			line, shown, _ := strings.Cut(strings.TrimSuffix(command, "\n"), "\n")
			got := e.guided(root, strings.Fields(line), shown)
			if !*update && strings.TrimSpace(got) != strings.TrimSpace(shown) {
				t.Errorf("$ %s\n%s\nthe guide has\n%s", line, got, shown)
			}
			parts[i] += strings.TrimRight("$ "+line+"\n"+got, "\n") + "\n"
		}
	}
	if commands < 9 {
		t.Errorf("%d commands are too few: are blocks marked ```console?", commands)
	}
	if *update {
		write(t, guide, strings.Join(parts, "```"))
	}
}

// guided does one command of the guide, with its files below root, and returns what it shows.
func (e etcd) guided(root string, command []string, shown string) string {
	e.Helper()
	rooted := func(text string) string { return strings.ReplaceAll(text, "/etc/", root+"/etc/") }
	switch {
	case len(command) == 2 && command[0] == "cat" && strings.HasPrefix(command[1], "/etc/twill/confd/"):
		write(e.T, rooted(command[1]), rooted(shown)+"\n")
		return shown
	case len(command) == 2 && command[0] == "cat":
		text, err := os.ReadFile(rooted(command[1]))
		if err != nil {
			e.Fatal(err)
		}
		return string(text)
	case command[0] == "twill":
		code, out := e.twill(command[1:]...)
		if code != 0 {
			out += fmt.Sprintf("[exit code %d]\n", code)
		}
		return logTime.ReplaceAllString(strings.ReplaceAll(out, root, ""), "")
	}
	e.Fatalf("the guide has a command that this test does not know: %q", command)
	return ""
}
