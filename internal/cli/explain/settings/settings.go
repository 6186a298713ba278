// Package settings prints the reference of settings, and what an agent reports because of some.
package settings

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/config"
)

// Params is the command that prints the reference.
func Params(out io.Writer) *cobra.Command {
	return &cobra.Command{
		Use: "params", Short: "Print the reference of all settings, as Markdown", Args: console.NoArgs,
		Long:    "Print a page of all settings: what each does, its default, and by which names a file, the\nenvironment and a FelixConfiguration have it.\n\nExit code: 0 printed, 2 usage.",
		Example: "  twill config params > settings.md",
		RunE:    func(*cobra.Command, []string) error { return config.Reference(out) },
	}
}
