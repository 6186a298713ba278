package resources

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/cli/manifests"
	"github.com/twillnet/twill/internal/cli/show"
)

func (c *command) validateCmd() *cobra.Command {
	var files manifests.Files
	cmd := &cobra.Command{
		Use:     "validate -f FILE…",
		Short:   "Check files of resources without a datastore",
		Long:    "Check files, directories or standard input as `twill apply` would, without a\ndatastore. Fields that Calico has and that have no effect here are warned of on standard\nerror; with --strict they are errors.\n\nExit code: 0 all is valid, 1 something is not: file, resource, field and reason are printed.",
		Example: "  twill validate -f policies/ -R\n  kubectl get … -o yaml | twill validate -f -",
		Args:    console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			files.ReadNamespace(cmd)
			ms, err := manifests.Load(c.Stdio, files)
			if files.Skips(err) {
				return nil
			}
			if err != nil {
				return err
			}
			if err := errors.Join(manifests.WarnFields(c.Stdio, ms, files), manifests.WarnInterfaces(cmd.Context(), c.Stdio, nil, ms)); err != nil {
				return err
			}
			counts := map[string]int{}
			var names []string
			for _, m := range ms {
				if counts[m.File]++; counts[m.File] == 1 {
					names = append(names, m.File)
				}
			}
			for _, f := range names {
				fmt.Fprintf(c.Stdio.Out, "%s: %s valid\n", f, console.Count(counts[f], "resource"))
			}
			return nil
		},
	}
	files.AddFlags(cmd)
	files.AddStrict(cmd)
	files.AddNamespace(cmd)
	show.Complete(&c.Conn).Flags(cmd)
	return cmd
}
