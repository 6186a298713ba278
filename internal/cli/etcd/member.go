package etcd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/datastore/member"
	"github.com/twillnet/twill/internal/datastore/member/certs"
)

func (c *command) memberCmd() *cobra.Command {
	cfg := member.Config{}
	var dir string
	cmd := &cobra.Command{
		Use:   "etcd",
		Short: "Run an embedded etcd member",
		Long: `Run an etcd member inside this process: a datastore for one host, for a lab, or
one of several members, with nothing else to install. Any etcd client works on it.
By default it listens on a socket that only root may use. A port asks for no
password: whoever reaches an http:// address may read and write everything.

With --certs DIR the member takes the files that "twill etcd certs" made for it,
and speaks TLS to clients and peers. docs/etcd.md builds a cluster of three.`,
		Example: `  twill etcd
  twill etcd --data-dir /tmp/etcd --listen unix:///tmp/etcd.sock
  twill etcd --name h1 --certs /etc/twill/pki/h1 --listen https://192.0.2.1:2379 --listen-peer https://192.0.2.1:2380 \
    --cluster h1=https://192.0.2.1:2380,h2=https://192.0.2.2:2380,h3=https://192.0.2.3:2380`,
		Args: console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			nameIt(&cfg)
			withCerts(&cfg, dir)
			return c.serve(cmd.Context(), cfg, nil)
		},
	}
	f := cmd.Flags()
	identityFlags(f, &cfg, &dir)
	servingFlags(f, &cfg)
	f.StringVar(&cfg.Cluster, "cluster", "", "all members at the first start: NAME=URL,…")
	f.BoolVar(&cfg.Join, "join", false, "join a running cluster, to which this member was added by other means (`twill etcd join` adds it itself)")
	return cmd
}

// identityFlags say which member of which cluster it is.
func identityFlags(f *pflag.FlagSet, cfg *member.Config, certDir *string) {
	f.StringVar(&cfg.Name, "name", "", "name of this member in --cluster (default the host's name)")
	f.StringSliceVar(&cfg.ListenPeer, "listen-peer", nil, "URLs to listen on for the other members")
	f.StringSliceVar(&cfg.AdvertisePeer, "advertise-peer", nil, "URLs by which the other members reach this one (default those of --listen-peer)")
	f.StringVar(certDir, "certs", "", "directory of this member's certificates, as made by `twill etcd certs`")
}

// servingFlags say where its data are, and how clients reach it.
func servingFlags(f *pflag.FlagSet, cfg *member.Config) {
	f.StringVar(&cfg.Dir, "data-dir", "/var/lib/twill/etcd", "where the data is kept")
	f.StringSliceVar(&cfg.ListenClient, "listen", []string{conn.DefaultEndpoint}, "URLs to listen on for clients: http://ADDRESS:PORT, https://… or unix://PATH")
	f.StringSliceVar(&cfg.AdvertiseClient, "advertise", nil, "URLs by which clients reach this member (default those of --listen)")
	f.Int64Var(&cfg.Quota, "quota", 2<<30, "bytes that the data may take; when it is full, writes fail until it is compacted and defragmented")
}

// serve runs a member until the context ends. Once it serves, meanwhile is called, if there is something to do; it ends with the context that it is given.
func (c *command) serve(ctx context.Context, cfg member.Config, meanwhile func(context.Context)) error {
	conn.IgnoreHangup()
	log := c.Log()
	cfg.Logger = log
	m, err := member.Start(ctx, cfg)
	if err != nil {
		return err
	}
	defer m.Close()
	log.Info("etcd is ready", "endpoints", m.Endpoints(), "dir", cfg.Dir)
	if meanwhile != nil {
		bounded, cancel := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			meanwhile(bounded)
		}()
		defer func() {
			cancel()
			<-done
		}()
	}
	select {
	case <-ctx.Done():
		return nil
	case <-m.Done():
		return fmt.Errorf("the etcd member has stopped; its log lines above say why")
	}
}

// nameIt gives a member of several the name of its host, unless it has one.
func nameIt(cfg *member.Config) {
	if cfg.Name == "" && cfg.Cluster != "" {
		cfg.Name, _ = os.Hostname()
	}
}

// withCerts has a member take the files that `twill etcd certs` made for it.
func withCerts(cfg *member.Config, dir string) {
	if dir == "" {
		return
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	cfg.CertFile, cfg.KeyFile, cfg.ClientCAFile = in("server.crt"), in("server.key"), in("ca.crt")
	cfg.PeerCertFile, cfg.PeerKeyFile, cfg.PeerCAFile = in("peer.crt"), in("peer.key"), in("peer-ca.crt")
}

func (c *command) certsCmd() *cobra.Command {
	var dir string
	var members, clients []string
	var days int
	cmd := &cobra.Command{
		Use:   "certs",
		Short: "Make the certificates of an etcd cluster",
		Long: `Make an authority for clients, another for members among themselves, and a
directory for each member and client with all that it needs to have, and no more.
What is there already is kept: run it again to add a member or a client, or,
after removing a certificate that expires, to renew it. Keep the directory itself
(ca.key, peer-ca.key) off the hosts.

Exit code: 0 all is there, 1 it could not be made, 2 usage.`,
		Example: `  twill etcd certs --dir pki --member h1=192.0.2.1 --member h2=192.0.2.2 --member h3=192.0.2.3 --client agent
  scp -r pki/h1 root@h1:/etc/twill/pki/`,
		Args: console.NoArgs,
		RunE: func(_ *cobra.Command, _ []string) error {
			cfg := certs.Config{Dir: dir, Clients: clients, Validity: time.Duration(days) * 24 * time.Hour}
			for _, m := range members {
				name, names, ok := strings.Cut(m, "=")
				if !ok || name == "" || names == "" {
					return console.Usage("--member %s: want NAME=ADDRESS, or NAME=ADDRESS,ADDRESS…", m)
				}
				cfg.Members = append(cfg.Members, certs.Host{Name: name, Names: strings.Split(names, ",")})
			}
			if len(members)+len(clients) == 0 {
				return console.Usage("name at least one --member NAME=ADDRESS or --client NAME")
			}
			wrote, err := certs.Make(cfg)
			for _, f := range wrote {
				fmt.Fprintln(c.Stdio.Out, f)
			}
			if err == nil && len(wrote) == 0 {
				fmt.Fprintln(c.Stdio.Err, "All of it was there already.")
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&dir, "dir", "pki", "where to make them")
	f.StringArrayVar(&members, "member", nil, "a member and the addresses and names by which others reach it: NAME=ADDRESS,…")
	f.StringSliceVar(&clients, "client", nil, "names of clients, such as agent")
	f.IntVar(&days, "days", 1095, "how long certificates of members and clients are valid")
	return cmd
}
