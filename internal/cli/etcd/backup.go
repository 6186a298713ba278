package etcd

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/datastore/etcdadmin"
	"github.com/twillnet/twill/internal/datastore/member"
)

func (c *command) snapshotCmd() *cobra.Command {
	var output console.Output
	cmd := &cobra.Command{
		Use:   "snapshot FILE",
		Short: "Write all that etcd has into a file",
		Long: `Write the database of one member, as it is at one moment, into a file: a backup that
"twill etcd restore" and etcd's own tools take. The file has its name only once it is
complete, on the disk, and was read again and found whole; one that exists is not
overwritten. It is its owner's alone: it holds all that is in etcd, users' passwords among it.

Exit code: 0 written, 1 not, 2 usage.`,
		Example: "  twill etcd snapshot /var/backups/etcd-today.db",
		Args:    oneFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.with(cmd.Context(), func(ctx context.Context, a *etcdadmin.Admin) error {
				p, end := c.Working("reading etcd", 0)
				s, err := a.Save(ctx, args[0], func(n int64) { p.Now(console.Bytes(n)) })
				end()
				if err != nil {
					return err
				}
				return c.Answer(output, console.Answer{Doc: s, Name: ".file", Table: func(w io.Writer, _ bool) error {
					_, err := fmt.Fprintf(w, "%s: %s of revision %d, %s, hash %s\n", s.File, console.Count(s.Keys, "key"), s.Revision, console.Bytes(s.Size), s.Hash)
					return err
				}})
			})
		},
	}
	output.AddFlag(cmd)
	return cmd
}

// oneFile wants the name of a file.
func oneFile(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return console.Usage("%s: name one file", cmd.CommandPath())
	}
	return nil
}

func (c *command) restoreCmd() *cobra.Command {
	var output console.Output
	cfg := member.Config{}
	var certDir string
	cmd := &cobra.Command{
		Use:   "restore FILE --data-dir DIR",
		Short: "Make the data directory of a member from a backup",
		Long: `Make the data directory of a member from what "twill etcd snapshot" has written, or etcd's own
tools. Nothing runs meanwhile that needs the directory; one that exists and is not empty is
refused: stop the member, and move its directory away.

For a member of several, do it on each host, from the same file, with the flags with which the
member is started: --name, --listen-peer or --advertise-peer, and --cluster. The members are a
new cluster with the old data: none of the old one may run.

What was written after the backup is lost. The revision is set forward by 2^30, further than
the old cluster came, and the history before it is forgotten, so that agents, wherever they
were, notice and read everything again.

Exit code: 0 made, 1 not, 2 usage.`,
		Example: `  systemctl stop twill-node && mv /var/lib/twill/etcd /var/lib/twill/etcd.old
  twill etcd restore /var/backups/etcd.db --data-dir /var/lib/twill/etcd && systemctl start twill-node
  twill etcd restore etcd.db --data-dir /var/lib/twill/etcd --name h1 --certs /etc/twill/pki/h1 --listen-peer https://192.0.2.1:2380 \
    --cluster h1=https://192.0.2.1:2380,h2=https://192.0.2.2:2380,h3=https://192.0.2.3:2380`,
		Args: oneFile,
		RunE: func(_ *cobra.Command, args []string) error {
			if cfg.Dir == "" {
				return console.Usage("etcd restore: name the directory to make with --data-dir")
			}
			nameIt(&cfg)
			withCerts(&cfg, certDir)
			_, end := c.Working("restoring", 0)
			r, err := etcdadmin.Restore(args[0], cfg)
			end()
			if err != nil {
				return err
			}
			return c.Answer(output, console.Answer{Doc: r, Name: ".dir", Table: func(w io.Writer, _ bool) error { return sayRestored(w, r, cfg) }})
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Dir, "data-dir", "", "directory to make")
	identityFlags(f, &cfg, &certDir)
	f.StringVar(&cfg.Cluster, "cluster", "", "all members: NAME=URL,…")
	output.AddFlag(cmd)
	return cmd
}

// sayRestored says what was made, and how to go on.
func sayRestored(w io.Writer, r etcdadmin.Restored, cfg member.Config) error {
	start := "`twill node` with the flags and settings that it had, or `twill etcd --data-dir " + r.Dir + "`"
	if cfg.Cluster != "" {
		start = "`twill etcd --data-dir " + r.Dir + " --name " + r.Name + " --cluster " + r.Cluster + "` with its other flags, once every member's directory is made from the same file"
	}
	_, err := fmt.Fprintf(w, "%s: %s of revision %d, as member %s at revision %d\nStart %s.\n",
		r.Dir, console.Count(r.Snapshot.Keys, "key"), r.Snapshot.Revision, r.Name, r.Revision, start)
	return err
}
