package node

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/etcdproxy"
	"github.com/twillnet/twill/internal/node"
)

// etcdProxy is whether this host has a proxy of etcd, which all that it runs uses.
type etcdProxy struct {
	text  string // what a flag or the environment says
	child *node.Child
}

func (p *etcdProxy) addFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.text, "etcd-proxy", os.Getenv(conn.ProxyVariable), "true: also run twill etcd proxy, and reach etcd by it alone; left out where a member of etcd is on this host ("+conn.ProxyVariable+")")
	cmd.Flags().Lookup("etcd-proxy").NoOptDefVal = "true"
}

// begin decides whether there is a proxy, and returns how the others reach the datastore. Own is where this host's own member listens, if it has one.
func (p *etcdProxy) begin(ctx context.Context, direct datastore.Config, own []string, log *slog.Logger) (datastore.Config, error) {
	on, err := conn.ReadProxy(p.text)
	switch {
	case err != nil:
		return direct, console.Usage("node: --etcd-proxy: %v", err)
	case !on && os.Getenv(conn.EndpointsFileVariable) != "":
		return direct, console.Usage("node: %s is read by the etcd proxy alone: add --etcd-proxy", conn.EndpointsFileVariable)
	case !on:
		return direct, nil
	case direct.Type == "kubernetes":
		return direct, console.Usage("node: --etcd-proxy: DATASTORE_TYPE is kubernetes: its API server is the datastore, and no etcd has a part in it")
	}
	const lookUp = 5 * time.Second
	bounded, cancel := context.WithTimeout(ctx, lookUp)
	defer cancel()
	local := ""
	if len(own) > 0 {
		local = own[0]
	} else if os.Getenv(conn.EndpointsFileVariable) == "" {
		local = etcdproxy.Local(bounded, direct)
	}
	if local != "" {
		log.Info("no etcd proxy: a member of etcd is on this host, which its daemons use", "member", local)
		return direct, nil
	}
	p.child = &node.Child{Name: "etcd-proxy", Args: append([]string{"etcd", "proxy"}, storeArgs(direct)...)}
	log.Info("etcd is reached by the proxy of this host", "socket", conn.ProxySocket())
	return conn.Proxied(), nil
}

// env is the variable by which children know whether to use the proxy: what they inherit says what was wanted, not what there is.
func (p *etcdProxy) env() []string {
	if cmp.Or(p.text, os.Getenv(conn.ProxyVariable)) == "" {
		return nil
	}
	return []string{conn.ProxyVariable + "=" + strconv.FormatBool(p.child != nil)}
}
