package node

import (
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/relay/discovery"
	"github.com/twillnet/twill/internal/relay/process"
)

func (c *command) relayCmd() *cobra.Command {
	var o relayOptions
	cmd := &cobra.Command{
		Use:   "relay",
		Short: "Watch the datastore once, for many agents",
		Long: `Reads the datastore, follows it, and hands it on to hosts that have typhaAddr
(FELIX_TYPHAADDR) or typhaK8sServiceName set to this relay, so that the datastore has
one reader in the place of hundreds: all to agents, to "twill bgp" and "twill node" what
they need. What hosts write, they write to the datastore itself.

Agents must show a certificate that --tls-ca signed, and are shown --tls-cert, unless
the address is of this machine alone (a loopback address, or unix://PATH). The files are
read again at each connection.

/readiness is 503 until all of the datastore is read. While the datastore is away,
agents are told so, and keep what is in force. On SIGTERM the relay ends the
connections of its agents one by one within --drain, so that they do not all come to
the next relay at once.

A relay that knows how many there are (--relays, or the ready endpoints of
--relay-service) has a share: what the cluster's Nodes make of clients, times 1.2, by
the number of relays. One that has more sends a client to another relay each
--move-interval, down to its share and never below --min-clients. With --max-clients,
one more is refused, and asks another relay.

Exit code: 0 asked to end, 1 something failed, 2 wrong usage.`,
		Example: `  twill relay --etcd https://192.0.2.1:2379 --tls-cert relay.crt --tls-key relay.key --tls-ca ca.crt
  twill relay --listen unix:///run/twill/relay.sock
  twill relay --tls-cert relay.crt --tls-key relay.key --tls-ca ca.crt --relay-service kube-system/calico-typha`,
		Args: console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conn.IgnoreHangup()
			cfg, err := o.config()
			if err != nil {
				return err
			}
			cfg.Store, cfg.Service.Cluster, err = c.Conn.WithCluster()
			if err == nil {
				cfg.Store.Masters, err = conn.Masters()
			}
			if err != nil {
				return err
			}
			cfg.Log = c.Log()
			return process.Run(cmd.Context(), cfg)
		},
	}
	o.addFlags(cmd.Flags())
	cmd.AddCommand(c.relayClientsCmd())
	return cmd
}

// relayOptions are what flags say.
type relayOptions struct {
	process.Config
	service string
	least   int
}

func (o *relayOptions) addFlags(f *pflag.FlagSet) {
	env := os.Getenv
	f.StringVar(&o.Listen, "listen", ":5473", "where agents reach it: HOST:PORT or unix://PATH")
	f.StringVar(&o.TLS.CertFile, "tls-cert", env("TYPHA_SERVERCERTFILE"), "its certificate (TYPHA_SERVERCERTFILE)")
	f.StringVar(&o.TLS.KeyFile, "tls-key", env("TYPHA_SERVERKEYFILE"), "key of the certificate (TYPHA_SERVERKEYFILE)")
	f.StringVar(&o.TLS.CAFile, "tls-ca", env("TYPHA_CAFILE"), "authority of agents' certificates (TYPHA_CAFILE)")
	f.StringVar(&o.TLS.CN, "client-cn", env("TYPHA_CLIENTCN"), "common name that agents' certificates must have, or else --client-uri-san (TYPHA_CLIENTCN)")
	f.StringVar(&o.TLS.URISAN, "client-uri-san", env("TYPHA_CLIENTURISAN"), "URI that they must have (TYPHA_CLIENTURISAN)")
	f.BoolVar(&o.Plaintext, "plaintext", false, "no TLS: whoever reaches the address reads the datastore")
	f.StringVar(&o.Health, "health", "127.0.0.1:9098", "address at which health is served over HTTP (/liveness, /readiness); empty: nowhere")
	f.StringVar(&o.Socket, "socket", conn.RelaySocket(), "where \"twill relay clients\" asks; empty: nowhere (TWILL_RELAY_SOCKET)")
	f.StringVar(&o.Metrics, "metrics", "", "address at which metrics are served over HTTP, such as :9093; empty: nowhere")
	f.DurationVar(&o.Signs.Ping, "ping-interval", 10*time.Second, "for how long an agent may say nothing until it is asked for a sign of life")
	f.DurationVar(&o.Signs.Pong, "pong-timeout", 10*time.Second, "for how long that is waited for")
	f.DurationVar(&o.Signs.Handshake, "handshake-timeout", 10*time.Second, "for how long a new connection may take to say who it is")
	f.IntVar(&o.Relays, "relays", 0, "how many relays there are, this one among them; 0: --relay-service says it, or no client is sent away")
	f.StringVar(&o.service, "relay-service", "", "NAMESPACE/NAME of a Service of Kubernetes whose ready endpoints are the relays")
	f.StringVar(&o.Service.Port, "relay-port-name", discovery.PortName, "name of its port, unless it has only one")
	f.IntVar(&o.Limits.Most, "max-clients", 10_000, "how many clients it takes, each a program of a host; one more asks another relay")
	f.IntVar(&o.least, "min-clients", 400, "with so many or fewer clients none is sent to another relay")
	f.DurationVar(&o.Limits.Every, "move-interval", time.Second, "time between two clients that are sent to another relay")
	f.DurationVar(&o.Drain, "drain", 10*time.Second, "time within which agents are sent elsewhere at the end")
}

// config is what they mean.
func (o *relayOptions) config() (process.Config, error) {
	cfg := o.Config
	namespace, name, ok := strings.Cut(o.service, "/")
	switch {
	case o.service != "" && (!ok || namespace == "" || name == "" || strings.Contains(name, "/")):
		return cfg, console.Usage("relay: --relay-service is %q: want NAMESPACE/NAME", o.service)
	case o.service != "" && o.Relays != 0:
		return cfg, console.Usage("relay: --relays and --relay-service: leave one of them out")
	case o.Relays < 0 || o.least < 0:
		return cfg, console.Usage("relay: --relays and --min-clients: want 0 or more")
	case o.Limits.Most <= 0 || o.Limits.Most < o.least:
		return cfg, console.Usage("relay: --max-clients is %d: want more than 0, and no less than --min-clients, %d", o.Limits.Most, o.least)
	}
	for flag, d := range map[string]time.Duration{
		"ping-interval": o.Signs.Ping, "pong-timeout": o.Signs.Pong, "handshake-timeout": o.Signs.Handshake, "move-interval": o.Limits.Every, "drain": o.Drain + 1,
	} {
		if d <= 0 {
			return cfg, console.Usage("relay: --%s: want more than 0", flag)
		}
	}
	cfg.Service.Namespace, cfg.Service.Name = namespace, name
	if cfg.Limits.Least = o.least; o.least == 0 {
		cfg.Limits.Least = -1 // there is no limit
	}
	return cfg, nil
}
