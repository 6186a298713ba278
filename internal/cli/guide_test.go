package cli_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/cli"
	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/datastore/storetest"
)

var update = flag.Bool("update", false, "write docs and testdata again; read them before you commit them")

var ofTheMoment = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|[0-9a-f]{8}-[0-9a-f-]{27}|\b[0-9a-f]{32}\b`)

// revision is that of a resource, or the position of a list, which are numbers in the guides, and other texts in other stores.
var revision = regexp.MustCompile(`(resourceVersion(?: is|"?:) |Revision: +)"?\w+"?`)

// TestTheGuideSaysWhatCommandsSay runs the ```console blocks of guides, those of one
// after the other on one store, and compares what each command says. With -update it writes them again.
func TestTheGuideSaysWhatCommandsSay(t *testing.T) {
	for _, guide := range []string{"cli.md", "ipam.md"} {
		t.Run(guide, func(t *testing.T) { followGuide(t, guide) })
	}
}

func followGuide(t *testing.T, guide string) {
	path, err := filepath.Abs("../../docs/" + guide)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir("testdata")
	c := newCLI(t)
	parts := strings.Split(string(text), "```")
	blocks := 0
	for i, p := range parts {
		block, ok := strings.CutPrefix(p, "console\n")
		if !ok || i%2 == 0 {
			continue
		}
		blocks++
		got := transcript(c, block)
		if *update {
			parts[i] = "console\n" + strings.Join(got, "")
			continue
		}
		if storetest.IsPoor() && strings.Contains(block, "$ twill ipam split") {
			clitest.Contains(t, strings.Join(got, ""), "has no transactions") // and nothing after it has to do with it
			continue
		}
		want := strings.Split("\n"+block, "\n$ ")[1:]
		if len(got) != len(want) {
			t.Fatalf("%d commands ran, of %d in\n%s", len(got), len(want), block)
		}
		for i, says := range got {
			name, _, _ := strings.Cut(want[i], "\n")
			t.Run(name, func(t *testing.T) { clitest.Equal(t, asInEveryStore(says), asInEveryStore("$ "+want[i])) })
		}
	}
	if blocks < 5 {
		t.Errorf("%d blocks are too few: are they marked ```console?", blocks)
	}
	if *update {
		if err := os.WriteFile(path, []byte(strings.Join(parts, "```")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// asInEveryStore is text without what differs from run to run, and from store to store.
func asInEveryStore(text string) string {
	if storetest.IsPoor() {
		text = revision.ReplaceAllString(text, "$1…")
	}
	return clitest.Ageless(ofTheMoment.ReplaceAllString(text, "…"))
}

// transcript runs the lines that begin with "$ twill", and returns what each says.
func transcript(c *clitest.CLI, block string) (all []string) {
	c.T.Helper()
	for line := range strings.Lines(block) {
		args, ok := strings.CutPrefix(strings.TrimSpace(line), "$ twill ")
		if !ok {
			continue
		}
		if export, ok := strings.CutPrefix(args, "datastore import -f "); ok && clitest.OnAPIServer() {
			c.Fill(strings.TrimSpace(export))
			all = append(all, line+"20 keys imported, and read again: it is as exported; the datastore is locked: twill datastore unlock starts the cluster\n"+
				"twill: address management has 5 problems; twill ipam check names what it is\n")
			continue
		}
		code, out, errs := c.Run("", clitest.Words(args)...)
		says := "$ twill " + args + "\n" + out + errs
		if code != 0 {
			says += fmt.Sprintf("[exit code %d]\n", code)
		}
		all = append(all, says)
	}
	return all
}

// TestTheGuideHasEveryCommand is about those on resources.
func TestTheGuideHasEveryCommand(t *testing.T) {
	text, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, cmd := range cli.Root(&conn.Env{}).Commands() {
		if cmd.GroupID == "resources" {
			clitest.Contains(t, string(text), "`twill "+cmd.Name())
		}
	}
}
