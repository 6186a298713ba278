package node

import (
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/relay/process"
)

func (c *command) relayCmd() *cobra.Command {
	var cfg process.Config
	cmd := &cobra.Command{
		Use:   "relay",
		Short: "Watch the datastore once, for many agents",
		Long: `Reads the datastore, follows it, and hands it on to hosts that have typhaAddr
(FELIX_TYPHAADDR) set to this relay, so that the datastore has one reader in the place
of hundreds: all to agents, to "twill bgp" and "twill node" what they need. What hosts
write, they write to the datastore itself.

Agents must show a certificate that --tls-ca signed, and are shown --tls-cert, unless
the address is of this machine alone (a loopback address, or unix://PATH). The files are
read again at each connection.

/readiness is 503 until all of the datastore is read. While the datastore is away,
agents are told so, and keep what is in force. On SIGTERM the relay ends the
connections of its agents one by one within --drain, so that they do not all come to
the next relay at once.

Exit code: 0 asked to end, 1 something failed.`,
		Example: `  twill relay --etcd https://192.0.2.1:2379 --tls-cert relay.crt --tls-key relay.key --tls-ca ca.crt
  twill relay --listen unix:///run/twill/relay.sock`,
		Args: console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conn.IgnoreHangup()
			store, err := c.Conn.Config()
			if err == nil {
				store.Masters, err = conn.Masters()
			}
			if err != nil {
				return err
			}
			cfg.Store, cfg.Log = store, c.Log()
			return process.Run(cmd.Context(), cfg)
		},
	}
	f, env := cmd.Flags(), os.Getenv
	f.StringVar(&cfg.Listen, "listen", ":5473", "where agents reach it: HOST:PORT or unix://PATH")
	f.StringVar(&cfg.TLS.CertFile, "tls-cert", env("TYPHA_SERVERCERTFILE"), "its certificate (TYPHA_SERVERCERTFILE)")
	f.StringVar(&cfg.TLS.KeyFile, "tls-key", env("TYPHA_SERVERKEYFILE"), "key of the certificate (TYPHA_SERVERKEYFILE)")
	f.StringVar(&cfg.TLS.CAFile, "tls-ca", env("TYPHA_CAFILE"), "authority of agents' certificates (TYPHA_CAFILE)")
	f.StringVar(&cfg.TLS.CN, "client-cn", env("TYPHA_CLIENTCN"), "common name that agents' certificates must have, or else --client-uri-san (TYPHA_CLIENTCN)")
	f.StringVar(&cfg.TLS.URISAN, "client-uri-san", env("TYPHA_CLIENTURISAN"), "URI that they must have (TYPHA_CLIENTURISAN)")
	f.BoolVar(&cfg.Plaintext, "plaintext", false, "no TLS: whoever reaches the address reads the datastore")
	f.StringVar(&cfg.Health, "health", "127.0.0.1:9098", "address at which health is served over HTTP (/liveness, /readiness); empty: nowhere")
	f.StringVar(&cfg.Metrics, "metrics", "", "address at which metrics are served over HTTP, such as :9093; empty: nowhere")
	f.DurationVar(&cfg.Signs.Ping, "ping-interval", 10*time.Second, "for how long an agent may say nothing until it is asked for a sign of life")
	f.DurationVar(&cfg.Signs.Pong, "pong-timeout", 10*time.Second, "for how long that is waited for")
	f.DurationVar(&cfg.Signs.Handshake, "handshake-timeout", 10*time.Second, "for how long a new connection may take to say who it is")
	f.DurationVar(&cfg.Drain, "drain", 10*time.Second, "time within which agents are sent elsewhere at the end")
	return cmd
}
