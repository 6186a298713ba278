package etcd

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/datastore/etcdproxy"
	"github.com/twillnet/twill/internal/health"
	"github.com/twillnet/twill/internal/serve"
)

func (c *command) proxyCmd() *cobra.Command {
	var cfg etcdproxy.Config
	var at string
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Be between this host's clients of etcd and its members",
		Long: `Listen on a socket that only root may use, and pass what clients of etcd on this host ask
on to the members of a cluster elsewhere. The members have one client a host in the place of
one for each daemon: equal watches are one there, requests are spread over all members, and
the certificate, user and password are the proxy's alone: who may use the socket is that
user. A client that logs in as another user stays that one.

"twill node --etcd-proxy" runs it, and has all that it runs use it. By hand, clients are
given TWILL_ETCD_PROXY=true, or tools of others ETCD_ENDPOINTS=unix:///run/twill/etcd-proxy.sock.

The members are those of --etcd (ETCD_ENDPOINTS), of SRV records (ETCD_DISCOVERY_SRV), or of
a file that is read again every 30 seconds. From then on the proxy asks them who the members
are, every 30 seconds: new ones are used, and those that are taken out are not. An endpoint of
another cluster is never used.

The proxy answers nothing from memory in the place of a member, and says of no watch that it
is up to date: members do. While none answers, clients get an error with the reason. What is
about one member (defrag, move of the leader) is refused: "twill etcd" asks members directly.

/readiness is 503 until a member answers; /watches says how many watches clients have, and by
how many watches of the cluster they are served. Why not etcd's own grpc-proxy: decision 090.

Exit code: 0 asked to end, 1 something failed, such as a password that etcd refuses, 2 usage.`,
		Example: `  twill etcd proxy --etcd https://192.0.2.1:2379,https://192.0.2.2:2379 --etcd-ca ca.crt --etcd-cert client.crt --etcd-key client.key
  twill etcd proxy --endpoints-file /etc/twill/etcd-endpoints
  TWILL_ETCD_PROXY=true twill get nodes`,
		Args: console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conn.IgnoreHangup()
			local := conn.Local{Dir: "/var/lib/twill"}
			if err := local.Read(); err != nil {
				return err
			}
			if local.Settings.DatastoreType == "kubernetes" {
				return console.Usage("etcd proxy: DATASTORE_TYPE is kubernetes: no etcd has a part in it")
			}
			cfg.Store, cfg.Log = local.Direct(&c.Conn), c.Log()
			return runProxy(cmd.Context(), cfg, at)
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Listen, "socket", "", "socket to listen on (default etcd-proxy.sock in the directory of the agent's, /run/twill)")
	f.StringVar(&cfg.EndpointsFile, "endpoints-file", os.Getenv(conn.EndpointsFileVariable), "file with the endpoints, separated by commas or line ends, in the place of --etcd; it is read again when it changes ("+conn.EndpointsFileVariable+")")
	f.StringVar(&at, "health", "127.0.0.1:9097", "address at which health is served over HTTP (/liveness, /readiness, /watches); empty: nowhere")
	return cmd
}

// runProxy runs a proxy and what says how it is, until the context ends.
func runProxy(ctx context.Context, cfg etcdproxy.Config, at string) error {
	cfg.Listen = cmp.Or(cfg.Listen, conn.ProxySocket())
	p := etcdproxy.New(cfg)
	mux := http.NewServeMux()
	mux.Handle("/", health.New(p.NotReady).Handler())
	mux.HandleFunc("GET /watches", func(w http.ResponseWriter, _ *http.Request) {
		clients, upstream := p.Watches()
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, "{\"clients\":%d,\"cluster\":%d}\n", clients, upstream)
	})
	checks := serve.New("health", mux, cfg.Log)
	if at != "" {
		checks.Move(serve.At{Network: "tcp", Address: at})
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- checks.Run(ctx) }()
	err := p.Run(ctx)
	cancel()
	<-ended // of that it was asked to end
	return err
}
