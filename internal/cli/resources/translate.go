package resources

import (
	"github.com/spf13/cobra"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/cli/manifests"
	"github.com/twillnet/twill/internal/cli/show"
	"github.com/twillnet/twill/internal/resources"
)

func (c *command) translateCmd() *cobra.Command {
	var o show.Options
	var files manifests.Files
	cmd := &cobra.Command{
		Use:   "translate -f FILE…",
		Short: "Say what Kubernetes' objects mean, as resources",
		Long: `Print the projectcalico.org/v3 resources that Kubernetes' objects mean, without a
cluster and without a datastore: NetworkPolicy, Namespace, ServiceAccount, Pod,
Service and EndpointSlice. Resources in the same files are printed as they are.

"twill why --files" answers questions about the same files. In a cluster it is the
Kubernetes datastore that translates; what is printed here need not be applied.

Exit code: 0 translated, 1 something cannot be read, 2 usage.`,
		Example: "  twill translate -f policies/ -R\n  kubectl get namespaces,pods,networkpolicies -A -o yaml | twill translate -f -",
		Args: func(cmd *cobra.Command, args []string) (err error) {
			if err = o.Parse(); err != nil {
				return err
			}
			return console.NoArgs(cmd, args)
		},
		RunE: func(*cobra.Command, []string) error {
			ms, err := manifests.LoadMixed(c.Stdio, files.Paths, files.Recursive)
			if files.Skips(err) {
				return nil
			}
			if err != nil {
				return err
			}
			us, err := manifests.Stored(resources.InOrder(ms))
			if err != nil {
				return err
			}
			var out []show.Found
			for _, u := range us {
				ref, _ := api.ParseKey(u.Key) // it was made by stored
				kind, _ := api.LookupKind(ref.Kind)
				out = append(out, show.ReadFound(kind, u))
			}
			return show.Print(c.Stdio, out, o, false)
		},
	}
	files.AddFlags(cmd)
	o.Output.Default("yaml")
	o.Output.AddFlag(cmd)
	return cmd
}
