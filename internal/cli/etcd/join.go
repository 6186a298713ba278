package etcd

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/datastore/etcdadmin"
	"github.com/twillnet/twill/internal/datastore/member"
)

func (c *command) joinCmd() *cobra.Command {
	cfg := member.Config{}
	var certDir, replace string
	cmd := &cobra.Command{
		Use:   "join --listen-peer URL",
		Short: "Run an etcd member that joins a running cluster",
		Long: `Run an etcd member, as "twill etcd" does, and have it join the cluster that --etcd or
ETCD_ENDPOINTS name. It is added as one that learns, receives all data, and votes once it has
it; so the majority is never in danger while it comes. Started again, with the same flags, it
is the member that it was; after a crash on the way it goes on.

It is refused while another member is joining, or does not answer, or cannot be reached by
others. With --replace NAME it comes in the place of a member that is dead, which is taken
out first; with the same name and address, and an empty directory, a member comes back whose
disk was lost. A member that is alive is not replaced.

The members need certificates for each other (--certs), unless their addresses are http://.

Exit code: 0 ended by a signal, 1 it could not join, or has stopped, 2 usage.`,
		Example: `  export ETCD_ENDPOINTS=https://192.0.2.1:2379 ETCD_CA_CERT_FILE=pki/agent/ca.crt ETCD_CERT_FILE=pki/agent/client.crt ETCD_KEY_FILE=pki/agent/client.key
  twill etcd join --name h2 --certs /etc/twill/pki/h2 --listen https://192.0.2.2:2379 --listen-peer https://192.0.2.2:2380
  twill etcd join --name h4 --replace h3 --certs /etc/twill/pki/h4 --listen https://192.0.2.4:2379 --listen-peer https://192.0.2.4:2380`,
		Args: console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(cfg.ListenPeer) == 0 {
				return console.Usage("etcd join: name the address at which the other members reach this one with --listen-peer")
			}
			if cfg.Name == "" {
				cfg.Name, _ = os.Hostname()
			}
			withCerts(&cfg, certDir)
			return c.join(cmd.Context(), cfg, replace)
		},
	}
	f := cmd.Flags()
	identityFlags(f, &cfg, &certDir)
	servingFlags(f, &cfg)
	f.StringVar(&replace, "replace", "", "a dead member, in whose place this one comes: its name, or its ID")
	return cmd
}

// join has a member without data added, and runs it until the context ends.
func (c *command) join(ctx context.Context, cfg member.Config, replace string) error {
	id, err := cfg.Identity()
	if err != nil {
		return err
	}
	was, err := cfg.HasData()
	if err != nil {
		return err
	}
	if cfg.Join = true; !was {
		err := c.with(ctx, func(ctx context.Context, a *etcdadmin.Admin) (err error) {
			cfg.Cluster, err = a.Join(ctx, id.Name, id.PeerURLs, replace)
			return err
		})
		if err != nil {
			return err
		}
		c.Log().Info("etcd member is added to the cluster, and does not vote yet", "members", cfg.Cluster)
	}
	return c.serve(ctx, cfg, func(ctx context.Context) {
		err := c.with(ctx, func(ctx context.Context, a *etcdadmin.Admin) error { return a.Promote(ctx, id.PeerURLs) })
		switch {
		case err == nil:
			c.Log().Info("etcd member votes", "name", id.Name)
		case ctx.Err() == nil:
			c.Log().Error("etcd member does not vote; start it again when this is mended", "name", id.Name, "err", err)
		}
	})
}

func (c *command) leaveCmd() *cobra.Command {
	var output console.Output
	cmd := &cobra.Command{
		Use:   "leave NAME",
		Short: "Take a member out of the etcd cluster",
		Long: `Take a member out of the cluster, alive or dead, by its name or its ID. One that runs stops by
itself; end its unit, so that it is not started again, and remove its directory before the
host joins again. It is refused if those that would be left could not go on, and for the last.

From three members to one, take out one after the other. Clients that name the member must
name another one first.

Exit code: 0 it is out, 1 it is not, 2 usage.`,
		Example: "  twill etcd leave h3",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return console.Usage("%s: name one member", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.with(cmd.Context(), func(ctx context.Context, a *etcdadmin.Admin) error {
				if err := a.Leave(ctx, args[0]); err != nil {
					return err
				}
				return c.Answer(output, console.Answer{
					Doc: map[string]any{"name": args[0]}, Name: ".name", Kind: "member",
					Table: func(w io.Writer, _ bool) error {
						_, err := fmt.Fprintf(w, "member %s is out of the cluster; end what runs it, and remove its directory before it joins again\n", args[0])
						return err
					},
				})
			})
		},
	}
	output.AddFlag(cmd)
	return cmd
}
