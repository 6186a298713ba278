package diags

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/twillnet/twill/internal/bgp/daemon"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
)

type command struct {
	*conn.Env
	file, logDir string
	output       console.Output

	cluster bool
	since   string
	wide    clusterWide
}

// Command is `twill node diags`.
func Command(e *conn.Env) *cobra.Command {
	c := &command{Env: e}
	cmd := &cobra.Command{
		Use:   "diags",
		Short: "Collect what is needed to find a fault of this host in one archive",
		Long: `Collect in one archive (tar, gzip) what this host's daemons say and what its
kernel has: status, doctor, verify, settings, flows, BGP, metrics, the resources that
say what the cluster should be, interfaces, routes, rules of nftables and iptables,
sockets, files of settings, logs. index.txt in it names each part, and what could not
be had.

Passwords, tokens and private keys are replaced by (hidden), by their names and where
their values are known. Addresses, and names of workloads and policies, are in it:
look through it before you give it away. Root alone can read it.

With --cluster it is of a cluster in the place of this host: the resources of its
datastore, IPAM, what all nodes say of themselves, and with kubectl what Kubernetes has
(Secrets are left out), with logs and state of the network's pods.

Nothing is changed, and no part takes longer than 30 seconds.

Exit code: 0 written, 1 not, 2 usage.`,
		Example: "  twill node diags\n  twill node diags --file /tmp/h1.tar.gz --log-dir /var/log/twill\n  twill node diags --cluster --since 1h --focus-nodes h1,h2\n  tar -xzOf /tmp/h1.tar.gz --wildcards '*/index.txt'",
		Args: func(cmd *cobra.Command, args []string) error {
			if err := c.check(cmd); err != nil {
				return console.Usage("node diags: %v", err)
			}
			return console.NoArgs(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd) },
	}
	cmd.Flags().StringVar(&c.file, "file", "", "the archive (default twill-diags-HOST-TIME.tar.gz, in this directory)")
	cmd.Flags().StringVar(&c.logDir, "log-dir", os.Getenv("TWILL_LOG_DIR"), "where log files are: *.log, and NAME/current (TWILL_LOG_DIR)")
	cmd.Flags().BoolVar(&c.cluster, "cluster", false, "of a cluster in the place of this host")
	cmd.Flags().StringVar(&c.since, "since", "", "with --cluster: only what pods logged since then (10m, 5h); default all")
	cmd.Flags().IntVar(&c.wide.maxLogs, "max-logs", 5, "with --cluster: pods of each DaemonSet, Deployment and StatefulSet")
	cmd.Flags().StringSliceVar(&c.wide.focus, "focus-nodes", nil, "with --cluster: nodes whose pods are taken first")
	c.output.AddFlag(cmd)
	return cmd
}

// check reads the flags of --cluster.
func (c *command) check(cmd *cobra.Command) (err error) {
	for _, name := range []string{"since", "max-logs", "focus-nodes"} {
		if cmd.Flags().Changed(name) && !c.cluster {
			return fmt.Errorf("--%s is of --cluster alone", name)
		}
	}
	if c.wide.maxLogs < 0 {
		return fmt.Errorf("--max-logs is %d: want 0 or more", c.wide.maxLogs)
	}
	if c.cluster && cmd.Flags().Changed("log-dir") {
		return errors.New("--log-dir is of this host: not with --cluster")
	}
	c.wide.since, err = parseSince(c.since)
	return err
}

// written is the archive.
type written struct {
	File  string `json:"file"`
	Bytes int64  `json:"bytes"`
	Parts []part `json:"parts"`
}

func (c *command) run(cmd *cobra.Command) error {
	host, _ := os.Hostname()
	now := time.Now().UTC().Format("20060102T150405Z")
	base := "twill-diags-" + cmp.Or(host, "host") + "-" + now
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	from := collector{exe: exe, socket: conn.AgentSocket(), progress: c.Err, within: patient}
	cmd.InheritedFlags().VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			from.flags = append(from.flags, "--"+f.Name+"="+f.Value.String())
		}
	})
	from.secrets = knownSecrets(os.Environ(), []string{"/etc/twill/*", "/etc/calico/*"}, cmp.Or(os.Getenv("TWILL_SECRETS_DIR"), daemon.DefaultSecrets))
	all, err := c.sources(cmd.Context(), from)
	if err != nil {
		return err
	}
	if c.cluster {
		base = cmp.Or(strings.TrimSuffix(filepath.Base(cmp.Or(c.file, ".tar.gz")), ".tar.gz"), "twill-diags-cluster-"+now)
	}
	file := cmp.Or(c.file, base+".tar.gz")
	fmt.Fprintf(c.Err, "Collecting into %s:\n", file)
	w, err := write(cmd.Context(), from, file, base, all)
	if err != nil {
		return fmt.Errorf("node diags: nothing is written: %w", err)
	}
	return c.Answer(c.output, console.Answer{Doc: w, Name: ".file", Table: func(out io.Writer, _ bool) error {
		lacks := 0
		for _, p := range w.Parts {
			if p.Bytes == 0 && p.Result != ok {
				lacks++
			}
		}
		_, err := fmt.Fprintf(out, "%s has %s, %d bytes; what of %s could not be had is in its index.txt.\nIt has names and addresses; look through it before you give it away.\n",
			w.File, console.Count(len(w.Parts), "part"), w.Bytes, console.Count(lacks, "part"))
		return err
	}})
}

// sources are what is collected: of this host, or of the cluster.
func (c *command) sources(ctx context.Context, from collector) ([]source, error) {
	if c.cluster {
		store, cluster, err := c.Conn.WithCluster()
		if err != nil {
			return nil, err
		}
		if is, _ := c.Conn.Kubernetes(); is {
			cluster = store
		}
		c.wide.kubectl = kubectlOf(cluster)
		return c.wide.sources(ctx, from), nil
	}
	if c.logDir == "" {
		return sources(nil), nil
	}
	return sources([]string{filepath.Join(c.logDir, "*.log"), filepath.Join(c.logDir, "*", "current")}), nil
}

// write writes the archive, whole or not at all.
func write(ctx context.Context, from collector, file, dir string, all []source) (out written, err error) {
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*") // 0600
	if err != nil {
		return out, err
	}
	out.File = file
	out.Parts, err = from.archive(ctx, f, dir, all)
	if info, e := f.Stat(); e == nil {
		out.Bytes = info.Size()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return out, errors.Join(err, os.Remove(f.Name()))
	}
	return out, nil
}
