package kube

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/datastore/kubestore/crds"
	"github.com/twillnet/twill/internal/datastore/kubestore/form"
	"github.com/twillnet/twill/internal/kubecontrollers"
)

// nodeSet is what flags say of the DaemonSet.
type nodeSet struct {
	crds.NodeSet
	pools   []string
	network string // a file
}

func (n *nodeSet) addFlags(f *pflag.FlagSet) {
	f.StringVar(&n.Backend, "backend", "bird", "calico_backend of the ConfigMap: bird (routes by BGP, Twill's own), vxlan or none (no BGP)")
	f.IntVar(&n.MTU, "mtu", 0, "veth_mtu of the ConfigMap: of all links, in bytes; 0: found out")
	f.StringVar(&n.network, "cni-network-config", "", "file with cni_network_config of the ConfigMap, a network in place of Twill's own, such as that of Calico's manifest")
	f.StringSliceVar(&n.pools, "pool", nil, "prefix of the first pool, one of each family; default: none is made")
	f.StringVar(&n.PodLinks, "pod-links", "", "policy alone, of pods that another CNI plugin attaches: what names of their interfaces begin with (eni: Amazon's VPC, azv: Azure's, gke: Google's); there is no CNI plugin of ours and no BGP then")
}

// policyAlone checks flags of a cluster whose pods another plugin attaches.
func (n *nodeSet) policyAlone() error {
	switch {
	case !linkPrefix.MatchString(n.PodLinks):
		return console.Usage("--pod-links %q: want what names of interfaces begin with, of at most ten letters and digits, such as eni", n.PodLinks)
	case n.PodLinks == "cali":
		return console.Usage("--pod-links cali: these are ours, and Calico's, and need no flag")
	case n.Backend == "vxlan" || len(n.pools) > 0 || n.network != "":
		return console.Usage("--pod-links: whose plugin attaches pods has their addresses and routes: leave out --pool, --cni-network-config and --backend")
	}
	n.Backend = "none"
	return nil
}

// noPools is the variable with which a node makes no pool.
var noPools = [][2]string{{"NO_DEFAULT_POOLS", "true"}}

var linkPrefix = regexp.MustCompile(`^[a-z][a-z0-9]{0,9}$`)

// complete checks the flags.
func (n *nodeSet) complete(g form.Group, namespace string) error {
	n.Namespace, n.Group = namespace, g
	if !slices.Contains(backends, n.Backend) {
		return console.Usage("--backend %q: want bird, vxlan or none", n.Backend)
	}
	if n.MTU < 0 {
		return console.Usage("--mtu %d: want a number of bytes", n.MTU)
	}
	if n.PodLinks != "" {
		if err := n.policyAlone(); err != nil {
			return err
		}
	}
	n.Pools = nil
	if len(n.pools) == 0 {
		n.Pools = noPools
	}
	for _, text := range n.pools {
		p, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			return console.Usage("--pool %q: want a prefix, such as 10.244.0.0/16", text)
		}
		name := "CALICO_IPV4POOL_CIDR"
		if p.Addr().Is6() {
			name = "CALICO_IPV6POOL_CIDR"
		}
		for _, have := range n.Pools {
			if have[0] == name {
				return console.Usage("--pool %q: there is one of its family already: %s", text, have[1])
			}
		}
		n.Pools = append(n.Pools, [2]string{name, p.String()})
	}
	if n.network != "" {
		text, err := os.ReadFile(n.network)
		if err != nil {
			return fmt.Errorf("--cni-network-config: %w", err)
		}
		if !json.Valid(text) {
			return console.Usage("--cni-network-config %s: is not JSON", n.network)
		}
		n.Network = string(text)
	}
	return nil
}

// backends are the values of calico_backend.
var backends = []string{"bird", "vxlan", "none"}

// manifest is all that a cluster needs; secrets are those that nodes may read.
func manifest(g form.Group, n crds.NodeSet, secrets ...string) []map[string]any {
	return slices.Concat(definitions(g, true), crds.Node(g, n.Namespace, secrets...), crds.NodeDaemonSet(n), crds.Controllers(g, n.Namespace, kubecontrollers.LeaseName),
		[]map[string]any{crds.ControllersDeployment(n.Namespace, n.Image, defaultHealth)})
}

func (c *command) installCmd() *cobra.Command {
	var n nodeSet
	var secrets []string
	definition := true
	group, namespace := string(form.V3), "kube-system"
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Print all that a cluster needs to run Twill, for kubectl apply",
		Long: `Install prints one manifest: the definitions of resources, the accounts of nodes
and controllers with the rights that they use and no others, a DaemonSet that
installs the CNI plugin and runs "twill node" on each node, the ConfigMap that it
reads, by the keys of upstream's manifest (calico_backend, veth_mtu,
cni_network_config), and a Deployment of controllers. Nothing is sent anywhere.
Applied again, with another image for one, it upgrades node by node.

The image has twill and twill-cni in its path: "make image" packs one.

Exit code: 0 printed, 1 standard output cannot be written, 2 usage.`,
		Example: `  twill kube install --image registry.example/twill:1 --pool 10.244.0.0/16 | kubectl apply --server-side -f -
  twill kube install --image registry.example/twill:1 --pool 10.244.0.0/16,fd00:10:244::/56 > twill.yaml
  twill kube install --image registry.example/twill:1 --group crd.projectcalico.org/v1 --backend none > twill.yaml
  twill kube install --image registry.example/twill:1 --pod-links eni | kubectl apply --server-side -f -`,
		Args: console.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			g := form.Group(group)
			if g != form.V3 && g != form.V1 {
				return console.Usage("--group %q: want %s or %s", group, form.V3, form.V1)
			}
			if n.Image == "" {
				return console.Usage("--image: say which image nodes run; `make image` packs one")
			}
			if err := n.complete(g, namespace); err != nil {
				return err
			}
			all := manifest(g, n.NodeSet, secrets...)
			if !definition {
				all = all[len(definitions(g, true)):]
			}
			return documents(c.Out, all)
		},
	}
	n.addFlags(cmd.Flags())
	cmd.Flags().BoolVar(&definition, "definitions", definition, "with the definitions of resources, and what judges them (twill kube crds)")
	cmd.Flags().StringVar(&n.Image, "image", "", "that nodes and controllers run")
	cmd.Flags().StringVar(&group, "group", group, "of the cluster's resources: projectcalico.org/v3 or crd.projectcalico.org/v1")
	cmd.Flags().StringVarP(&namespace, "namespace", "n", namespace, "of accounts, ConfigMap, DaemonSet and Deployment")
	cmd.Flags().StringSliceVar(&secrets, "bgp-secrets", nil, "Secrets with passwords of BGP, by name, which nodes may read")
	return cmd
}

func (c *command) uninstallCmd() *cobra.Command {
	var image string
	namespace := "kube-system"
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Print what takes Twill off the nodes of a cluster, for kubectl apply",
		Long: `Uninstall prints a DaemonSet of the same name as that of "twill kube install". Applied,
it takes its place node by node: the agent ends, and then the CNI plugin and its
network, the nftables table, routes and tunnels are taken out. Settings of the kernel,
such as ip_forward, stay, since another network needs them, too.

A node is not Ready from then on, until another network is installed. Pods that run keep
their addresses and links, but have no way to pods of other nodes, and no policy protects
them: delete them once there is another network.

When "kubectl rollout status" says that all are done, take the rest out of the cluster:
what install prints, which with --definitions=false leaves the resources themselves.
Annotations of Nodes (projectcalico.org/…) stay. Nothing is sent anywhere.

Exit code: 0 printed, 1 standard output cannot be written, 2 usage.`,
		Example: `  twill kube uninstall --image registry.example/twill:1 | kubectl apply --server-side -f -
  kubectl -n kube-system rollout status daemonset/twill-node
  twill kube install --image registry.example/twill:1 --definitions=false | kubectl delete -f -`,
		Args: console.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if image == "" {
				return console.Usage("--image: say which image nodes run: the one that they run now will do")
			}
			return documents(c.Out, []map[string]any{crds.Uninstaller(namespace, image)})
		},
	}
	cmd.Flags().StringVar(&image, "image", "", "that nodes run")
	cmd.Flags().StringVarP(&namespace, "namespace", "n", namespace, "of the DaemonSet")
	return cmd
}
