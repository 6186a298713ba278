package cli_test

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli"
	"github.com/twillnet/twill/internal/cli/conn"
)

// TestAFormatThatIsNoneIsRefusedEverywhere walks all commands there are.
func TestAFormatThatIsNoneIsRefusedEverywhere(t *testing.T) {
	c, walked := newCLI(t), 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		if cmd.Flags().ShorthandLookup("o") == nil {
			return
		}
		walked++
		path := strings.Fields(cmd.CommandPath())[1:]
		for _, format := range []string{"nonsense", "JSON", "json=x", "yam"} {
			code, out, errs := c.Run("", append(path, "-o", format)...)
			if code != 2 || out != "" || !strings.Contains(errs, `"`+format+`"`) || !strings.Contains(errs, "want ") || !strings.Contains(errs, "json") {
				t.Errorf("twill %s -o %s: exit code %d\n%s%s", strings.Join(path, " "), format, code, out, errs)
			}
		}
	}
	walk(cli.Root(&conn.Env{}))
	if walked < 12 {
		t.Errorf("%d commands have -o; there were more", walked)
	}
}
