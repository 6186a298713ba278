package node

import (
	"cmp"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/libnetwork"
)

func (c *command) dockerCmd() *cobra.Command {
	var cfg libnetwork.Config
	var texts dockerTexts
	cmd := &cobra.Command{
		Use:   "docker-plugin",
		Short: "Attach Docker's containers to this host's agent",
		Long: `Docker's network driver "calico" and IPAM driver "calico-ipam", as upstream names
them: dockerd finds them by their sockets in --plugins-dir. Containers get addresses of
IPPools, and each has a WorkloadEndpoint, whose policy is in force before the container
starts. It needs no credentials: it asks the agent of this host over its socket.

It must run in the network namespace of dockerd, as root, and may be started again at
any time: containers that run do not notice.`,
		Example: `  twill docker-plugin
  twill docker-plugin --profiles=false --interface-prefix eth`,
		Args: console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conn.IgnoreHangup()
			if err := texts.into(&cfg); err != nil {
				return err
			}
			cfg.Log = c.Log()
			return libnetwork.Run(cmd.Context(), cfg)
		},
	}
	env := os.Getenv
	f := cmd.Flags()
	f.StringVar(&cfg.Agent, "socket", conn.AgentSocket(), "the agent's socket (TWILL_SOCKET)")
	f.StringVar(&cfg.Dir, "plugins-dir", libnetwork.DefaultDir, "where dockerd looks for plugins' sockets")
	f.StringVar(&cfg.Docker, "docker-socket", "/var/run/docker.sock", "the socket of Docker's API, which knows networks' names")
	f.StringVar(&cfg.State, "state-dir", "/var/lib/twill/docker", "where it keeps what it must know after a restart")
	f.StringVar(&cfg.IfPrefix, "interface-prefix", cmp.Or(env("CALICO_LIBNETWORK_IFPREFIX"), "cali"), "what the name of a container's interface begins with (CALICO_LIBNETWORK_IFPREFIX)")
	f.StringVar(&texts.mtu, "mtu", env("CALICO_LIBNETWORK_VETH_MTU"), "of containers' interfaces, in bytes (CALICO_LIBNETWORK_VETH_MTU; default what the agent says)")
	f.StringVar(&texts.profiles, "profiles", cmp.Or(env("CALICO_LIBNETWORK_CREATE_PROFILES"), "true"), "endpoints have the profile of their network's name, which is made if it is not there (CALICO_LIBNETWORK_CREATE_PROFILES)")
	f.StringVar(&texts.labels, "labels", cmp.Or(env("CALICO_LIBNETWORK_LABEL_ENDPOINTS"), "false"), "endpoints get the labels of their containers that begin with org.projectcalico.label. (CALICO_LIBNETWORK_LABEL_ENDPOINTS)")
	f.DurationVar(&cfg.CollectAfter, "collect-after", 5*time.Minute, "after how long what is left of an endpoint that Docker has no more is taken away")
	return cmd
}

// dockerTexts are flags that may be of the environment.
type dockerTexts struct{ mtu, profiles, labels string }

// into reads them, and refuses what upstream's plugin has and this one has not.
func (d dockerTexts) into(cfg *libnetwork.Config) (err error) {
	if d.mtu != "" {
		if cfg.MTU, err = strconv.Atoi(d.mtu); err != nil || cfg.MTU < 68 || cfg.MTU > 65535 {
			return console.Usage("--mtu (CALICO_LIBNETWORK_VETH_MTU) is %q: want 68 to 65535", d.mtu)
		}
	}
	with, err := strconv.ParseBool(d.profiles)
	if err != nil {
		return console.Usage("--profiles (CALICO_LIBNETWORK_CREATE_PROFILES) is %q: want true or false", d.profiles)
	}
	cfg.NoProfiles = !with
	if cfg.Labels, err = strconv.ParseBool(d.labels); err != nil {
		return console.Usage("--labels (CALICO_LIBNETWORK_LABEL_ENDPOINTS) is %q: want true or false", d.labels)
	}
	if cfg.CollectAfter < time.Second {
		return console.Usage("--collect-after is %s: want 1s at least", cfg.CollectAfter)
	}
	if ns := os.Getenv("CALICO_LIBNETWORK_NAMESPACE"); ns != "" && ns != "default" {
		return console.Usage("CALICO_LIBNETWORK_NAMESPACE is %q: endpoints of Docker's are in the namespace default, and in no other", ns)
	}
	return nil
}
