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
// after the other on one store. With -update it writes them again.
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
		if storetest.IsPoor() {
			if strings.Contains(block, "$ twill ipam split") {
				clitest.Contains(t, got, "has no transactions") // and nothing after it has to do with it
				continue
			}
			got, block = revision.ReplaceAllString(got, "$1…"), revision.ReplaceAllString(block, "$1…")
		}
		if *update {
			parts[i] = "console\n" + got
			continue
		}
		clitest.Equal(t, clitest.Ageless(ofTheMoment.ReplaceAllString(got, "…")), clitest.Ageless(ofTheMoment.ReplaceAllString(block, "…")))
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

// transcript runs the lines that begin with "$ twill".
func transcript(c *clitest.CLI, block string) string {
	c.T.Helper()
	var b strings.Builder
	for line := range strings.Lines(block) {
		args, ok := strings.CutPrefix(strings.TrimSpace(line), "$ twill ")
		if !ok {
			continue
		}
		code, out, errs := c.Run("", clitest.Words(args)...)
		fmt.Fprintf(&b, "$ twill %s\n%s%s", args, out, errs)
		if code != 0 {
			fmt.Fprintf(&b, "[exit code %d]\n", code)
		}
	}
	return b.String()
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
