package node

import (
	"cmp"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/cni"
)

func (c *command) cniCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cni",
		Short: "Put the CNI plugin where container runtimes find it",
		Long: `This binary is also a CNI plugin: a container runtime calls it by the name of
twill, or calico, and as an IPAM plugin by twill-ipam, or calico-ipam. It needs
no credentials: it asks the agent of this host over its socket, and returns when
routes and policy of the container are in force.`,
		RunE: console.SubcommandWanted,
		Args: cobra.ArbitraryArgs,
	}
	in := cni.Install{Out: c.Stdio.Out}
	var mtu int
	var v4, v6 bool
	install := &cobra.Command{
		Use:   "install",
		Short: "Install the plugin and a network, or upgrade it",
		Long: `Write this binary to where runtimes look for plugins, under its four names, and
then a network that uses it, each at once, so that nobody sees half of it.

Environment, as upstream's installer has it: CNI_NET_DIR, CNI_CONF_NAME,
CNI_NETWORK_CONFIG, CNI_NETWORK_CONFIG_FILE, CNI_MTU, SKIP_CNI_BINARIES,
UPDATE_CNI_BINARIES. In a network that is given, __CNI_MTU__,
__KUBERNETES_NODE_NAME__ and their like are filled in.

Exit code: 0 installed, 1 something could not be written or is no network, 2 usage.`,
		Example: "  twill cni install\n  twill cni install --ipv6 --mtu 8950\n  CNI_NETWORK_CONFIG_FILE=/etc/calico/net.conflist twill cni install --conf 10-calico.conflist",
		Args:    console.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := fromEnvironment(&in, &mtu); err != nil {
				return err
			}
			if in.Network == nil {
				in.Network = in.DefaultNetwork(mtu, v4, v6)
			}
			return in.Install()
		},
	}
	install.Flags().IntVar(&mtu, "mtu", 0, "of containers' interfaces, in bytes (CNI_MTU; default what the agent says)")
	install.Flags().BoolVar(&v4, "ipv4", true, "containers get an IPv4 address")
	install.Flags().BoolVar(&v6, "ipv6", false, "containers get an IPv6 address")
	for _, sub := range []*cobra.Command{install, cniUninstall(&in)} {
		f := sub.Flags()
		f.StringVar(&in.BinDir, "bin-dir", cni.DefaultBinDir, "where runtimes look for plugins")
		f.StringVar(&in.ConfDir, "conf-dir", cmp.Or(os.Getenv("CNI_NET_DIR"), cni.DefaultConfDir), "where runtimes look for networks (CNI_NET_DIR)")
		f.StringVar(&in.Conf, "conf", cmp.Or(os.Getenv("CNI_CONF_NAME"), cni.DefaultConf), "name of the network's file (CNI_CONF_NAME)")
		f.BoolVar(&in.DryRun, "dry-run", false, "only say what would be done")
		cmd.AddCommand(sub)
	}
	return cmd
}

func cniUninstall(in *cni.Install) *cobra.Command {
	return &cobra.Command{
		Use:     "uninstall",
		Short:   "Remove the network, and then the plugin",
		Long:    "Remove the network, so that no container is begun any more, and then those of the\nbinaries that are this one. Containers that run stay attached.\n\nExit code: 0 removed, 1 something could not be, 2 usage.",
		Example: "  twill cni uninstall --dry-run\n  twill cni uninstall",
		Args:    console.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return in.Uninstall()
		},
	}
}

// fromEnvironment reads the environment variables of upstream's installer.
func fromEnvironment(in *cni.Install, mtu *int) (err error) {
	in.Upgrade = true
	if text := os.Getenv("UPDATE_CNI_BINARIES"); text != "" {
		if in.Upgrade, err = strconv.ParseBool(text); err != nil {
			return console.Usage("UPDATE_CNI_BINARIES is %q: want true or false", text)
		}
	}
	if text := os.Getenv("SKIP_CNI_BINARIES"); text != "" {
		in.Skip = strings.Split(text, ",")
	}
	if text := os.Getenv("CNI_MTU"); text != "" && *mtu == 0 {
		if *mtu, err = strconv.Atoi(text); err != nil {
			return console.Usage("CNI_MTU is %q: want a number of bytes", text)
		}
	}
	switch name := os.Getenv("CNI_NETWORK_CONFIG_FILE"); {
	case name != "":
		in.Network, err = console.ReadFile(name)
	case os.Getenv("CNI_NETWORK_CONFIG") != "":
		in.Network = []byte(os.Getenv("CNI_NETWORK_CONFIG"))
	}
	in.Network = filled(in.Network, *mtu)
	return err
}

// filled has what the names stand for that upstream's installer fills in. Where Twill has no such thing, or no use for it, as for the
// file of credentials, it is what the key's absence would be; that a key has no effect is said of the network that results.
func filled(network []byte, mtu int) []byte {
	if network == nil {
		return nil
	}
	return []byte(strings.NewReplacer(
		"__CNI_MTU__", strconv.Itoa(mtu),
		"__KUBERNETES_NODE_NAME__", os.Getenv("KUBERNETES_NODE_NAME"),
		"__KUBERNETES_SERVICE_HOST__", os.Getenv("KUBERNETES_SERVICE_HOST"),
		"__KUBERNETES_SERVICE_PORT__", os.Getenv("KUBERNETES_SERVICE_PORT"),
		"__LOG_LEVEL__", cmp.Or(os.Getenv("LOG_LEVEL"), "info"),
		"__ETCD_ENDPOINTS__", os.Getenv("ETCD_ENDPOINTS"),
		"__KUBECONFIG_FILEPATH__", "", "__SERVICEACCOUNT_TOKEN__", "", "__ETCD_KEY_FILE__", "", "__ETCD_CERT_FILE__", "", "__ETCD_CA_CERT_FILE__", "",
	).Replace(string(network)))
}
