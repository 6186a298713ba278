package ctl

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

func (c *command) validateCmd() *cobra.Command {
	var files fileOptions
	cmd := &cobra.Command{
		Use:     "validate -f FILE…",
		Short:   "Check files of resources without a datastore",
		Long:    "Check files, directories or standard input as `twill apply` would, without a\ndatastore. Fields that Calico has and that have no effect here are warned of on standard\nerror; with --strict they are errors.\n\nExit code: 0 all is valid, 1 something is not: file, resource, field and reason are printed.",
		Example: "  twill validate -f policies/ -R\n  kubectl get … -o yaml | twill validate -f -",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			files.readNamespace(cmd)
			ms, err := c.load(files)
			if files.skips(err) {
				return nil
			}
			if err != nil {
				return err
			}
			if err := errors.Join(c.warnFields(ms, files), c.warnInterfaces(cmd.Context(), nil, ms)); err != nil {
				return err
			}
			counts := map[string]int{}
			var names []string
			for _, m := range ms {
				if counts[m.file]++; counts[m.file] == 1 {
					names = append(names, m.file)
				}
			}
			for _, f := range names {
				fmt.Fprintf(c.stdio.Out, "%s: %s valid\n", f, count(counts[f], "resource"))
			}
			return nil
		},
	}
	files.addFlags(cmd)
	files.addStrict(cmd)
	files.addNamespace(cmd)
	c.completeFlags(cmd)
	return cmd
}

// count is a number with its noun: 1 resource, 2 resources.
func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
