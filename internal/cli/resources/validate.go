package resources

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/cli/manifests"
	"github.com/twillnet/twill/internal/cli/show"
)

// validFile is a file, and how many resources it holds.
type validFile struct {
	File      string `json:"file"`
	Resources int    `json:"resources"`
}

func (c *command) validateCmd() *cobra.Command {
	var files manifests.Files
	var output console.Output
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
			var out []validFile
			for _, m := range ms {
				if i := slices.IndexFunc(out, func(f validFile) bool { return f.File == m.File }); i >= 0 {
					out[i].Resources++
					continue
				}
				out = append(out, validFile{m.File, 1})
			}
			return c.Answer(output, console.Answer{Doc: out, Name: ".file", Table: func(w io.Writer, _ bool) error {
				for _, f := range out {
					fmt.Fprintf(w, "%s: %s valid\n", f.File, console.Count(f.Resources, "resource"))
				}
				return nil
			}})
		},
	}
	files.AddFlags(cmd)
	output.AddFlag(cmd)
	files.AddStrict(cmd)
	files.AddNamespace(cmd)
	show.Complete(&c.Conn).Flags(cmd)
	return cmd
}
