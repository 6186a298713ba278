package packaging_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/node"
	"github.com/twillnet/twill/internal/cli/packaging"
)

// TestAPackageHasAPageForEachCommand, of two with equal names as well.
func TestAPackageHasAPageForEachCommand(t *testing.T) {
	root := &cobra.Command{Use: "twill", Short: "all of it"}
	root.AddCommand(node.Commands(&conn.Env{})...)
	twin := &cobra.Command{Use: "node-install", Short: "its twin", Long: "Its twin.", Run: func(*cobra.Command, []string) {}}
	root.AddCommand(twin)
	files, err := packaging.Files(root)
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]string{}
	for _, f := range files {
		if _, twice := pages[f.Path]; twice {
			t.Errorf("%s is there twice", f.Path)
		}
		pages[f.Path] = string(f.Content)
	}
	const man = "root/usr/share/man/man1/"
	for path, want := range map[string]string{
		man + "twill.1":                                       "all of it",
		man + "twill-node.1":                                  "twill node",
		man + "twill-node-install.1":                          "its twin",
		man + "twill-node_install.1":                          "",
		man + "twill-node-package.1":                          "prerm       it removes them", // a table, as it is
		"root/usr/share/bash-completion/completions/twill":    "complete ",
		"root/usr/share/zsh/vendor-completions/_twill":        "#compdef twill",
		"root/usr/share/fish/vendor_completions.d/twill.fish": "complete ",
		"root/usr/lib/systemd/system/twill-node.service":      "ExecStart=/usr/bin/twill node\n",
		"root/usr/lib/systemd/system/twill-boot.service":      "ExecStart=/usr/bin/twill node boot\n",
		"postinst": "/usr/bin/twill node install",
		"prerm":    "/usr/bin/twill node uninstall",
		"postrm":   "purge",
	} {
		// What is no letter may be escaped in a page.
		if text, there := pages[path]; !there || !strings.Contains(strings.ReplaceAll(text, `\`, ""), want) {
			t.Errorf("%s has no %q: %.300s", path, want, text)
		}
	}
	if unnamed := regexp.MustCompile(`[A-Z]+_UNIT|JOURNAL|BINARY|STATE|KEPT|CONF|SETTINGS|SERVICE`); unnamed.MatchString(pages["postinst"] + pages["prerm"] + pages["postrm"]) {
		t.Error("a script has a name of the template")
	}
}
