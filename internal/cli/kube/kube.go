// Package kube is `twill kube`, what a Kubernetes cluster needs to hold resources, and `twill kube-controllers`.
//
// In: arguments. Out: objects for `kubectl apply`.
package kube

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/datastore/kubestore/crds"
	"github.com/twillnet/twill/internal/datastore/kubestore/form"
)

type command struct{ *conn.Env }

// Commands are the commands of this package.
func Commands(e *conn.Env) []*cobra.Command {
	c := &command{e}
	cmd := &cobra.Command{
		Use:   "kube",
		Short: "What a Kubernetes cluster needs to hold resources",
		Args:  cobra.ArbitraryArgs,
		RunE:  console.SubcommandWanted,
	}
	cmd.AddCommand(c.installCmd(), c.chartCmd(), c.uninstallCmd(), c.monitoringCmd(), c.crdsCmd(), c.agentCmd(), c.nodeCmd(), c.controllersCmd())
	return []*cobra.Command{cmd}
}

func (c *command) crdsCmd() *cobra.Command {
	group, rbac := "projectcalico.org/v3", true
	cmd := &cobra.Command{
		Use:   "crds",
		Short: "Print the custom resource definitions, for kubectl apply",
		Long: `Crds prints the definitions of the resources that Twill keeps in a cluster's API
server. Nothing is sent anywhere. Applied again, they replace older ones, and no
resource is lost.

A new cluster gets projectcalico.org/v3, for which Kubernetes 1.31 or newer is
needed: its API server refuses what "twill apply" would refuse, as far as a
definition can say it, and fills in defaults. Beside them come policies of the API
server, ValidatingAdmissionPolicies: built-in tiers stay, and a policy is written
only by who may write policies of its tier, by Calico's tiered RBAC
(tier.networkpolicies and its like). --tiered-rbac=false leaves out the latter;
where it was applied before, delete it:
kubectl delete validatingadmissionpolicy,validatingadmissionpolicybinding tiered-rbac.twill.net

One that runs Calico now has its own definitions, which Twill reads and writes as
they are: it needs nothing but the definition of records (twill.net), in which
agents report.

Exit code: 0 printed, 1 standard output cannot be written, 2 no such group.`,
		Example: `  twill kube crds | kubectl apply --server-side -f -
  twill kube crds --tiered-rbac=false | kubectl apply --server-side -f -
  twill kube crds --group crd.projectcalico.org/v1 > crds.yaml
  twill kube crds --group twill.net/v1 | kubectl apply --server-side -f -`,
		Args: console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("tiered-rbac") && form.Group(group) != form.V3 {
				return console.Usage("--tiered-rbac: is possible with --group %s only; elsewhere Calico's API server judges tiers", form.V3)
			}
			return write(c.Out, group, rbac)
		},
	}
	cmd.Flags().BoolVar(&rbac, "tiered-rbac", rbac, "who writes policies needs a right to their tier")
	cmd.Flags().StringVar(&group, "group", group, "projectcalico.org/v3, crd.projectcalico.org/v1 or twill.net/v1, which is in the others")
	return cmd
}

func (c *command) agentCmd() *cobra.Command {
	return c.accountCmd(crds.Agent, &cobra.Command{
		Use:   "agent",
		Short: "Print the service account of agents and its rights, for kubectl apply",
		Long: `Agent prints a service account and the role that lets "twill agent" do what it
must, and nothing more: for hosts that run the agent alone. Nothing is sent
anywhere.

Exit code: 0 printed, 1 standard output cannot be written, 2 no such group.`,
		Example: `  twill kube agent | kubectl apply --server-side -f -
  twill kube agent --group crd.projectcalico.org/v1 --namespace calico-system > agent.yaml`,
	})
}

func (c *command) nodeCmd() *cobra.Command {
	var secrets []string
	objects := func(g form.Group, namespace string) []map[string]any { return crds.Node(g, namespace, secrets...) }
	cmd := c.accountCmd(objects, &cobra.Command{
		Use:   "node",
		Short: "Print the service account of nodes and its rights, for kubectl apply",
		Long: `Node prints a service account and the role that lets "twill node" do what it must,
and nothing more: what an agent may do, write the node's address, make the pools
that its environment asks for, and report the state of BGP. With --bgp-secrets it
may also read these Secrets of its namespace, and no others: those that BGPPeer
and BGPConfiguration name for passwords. Nothing is sent anywhere.

Exit code: 0 printed, 1 standard output cannot be written, 2 no such group.`,
		Example: `  twill kube node | kubectl apply --server-side -f -
  twill kube node --bgp-secrets bgp,tor | kubectl apply --server-side -f -
  twill kube node --group crd.projectcalico.org/v1 --namespace calico-system > node.yaml`,
	})
	cmd.Flags().StringSliceVar(&secrets, "bgp-secrets", nil, "Secrets with passwords of BGP, by name, which nodes may read")
	return cmd
}

// accountCmd is a command that prints a service account with its role.
func (c *command) accountCmd(objects func(form.Group, string) []map[string]any, cmd *cobra.Command) *cobra.Command {
	group, namespace := string(form.V3), "kube-system"
	cmd.Args = console.NoArgs
	cmd.RunE = func(*cobra.Command, []string) error {
		g := form.Group(group)
		if g != form.V3 && g != form.V1 {
			return console.Usage("--group %q: want %s or %s", group, form.V3, form.V1)
		}
		return documents(c.Out, objects(g, namespace))
	}
	cmd.Flags().StringVar(&group, "group", group, "of the cluster's resources: projectcalico.org/v3 or crd.projectcalico.org/v1")
	cmd.Flags().StringVarP(&namespace, "namespace", "n", namespace, "of the service account")
	return cmd
}

// write prints the definitions of a group, and what judges its objects, with who may write to which tier, or without.
func write(out io.Writer, group string, rbac bool) error {
	switch g := form.Group(group); g {
	case form.V3, form.V1:
		return documents(out, definitions(g, rbac))
	case form.Own:
		return documents(out, crds.Own())
	}
	return console.Usage("--group %q: want %s, %s or %s", group, form.V3, form.V1, form.Own)
}

func definitions(g form.Group, rbac bool) []map[string]any {
	all := crds.Definitions(g)
	if g == form.V3 {
		all = append(all, crds.BuiltinTiers()...)
		if rbac {
			all = append(all, crds.TieredRBAC()...)
		}
	}
	return all
}

// documents prints objects as documents of YAML.
func documents(out io.Writer, all []map[string]any) error {
	for _, d := range all {
		text, err := yaml.Marshal(d)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "---\n%s", text); err != nil {
			return err
		}
	}
	return nil
}
