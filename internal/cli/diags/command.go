package diags

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
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

Nothing is changed, and no part takes longer than 30 seconds.

Exit code: 0 written, 1 not, 2 usage.`,
		Example: "  twill node diags\n  twill node diags --file /tmp/h1.tar.gz --log-dir /var/log/twill\n  tar -xzOf /tmp/h1.tar.gz --wildcards '*/index.txt'",
		Args:    console.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.run(cmd) },
	}
	cmd.Flags().StringVar(&c.file, "file", "", "the archive (default twill-diags-HOST-TIME.tar.gz, in this directory)")
	cmd.Flags().StringVar(&c.logDir, "log-dir", os.Getenv("TWILL_LOG_DIR"), "where log files are: *.log, and NAME/current (TWILL_LOG_DIR)")
	c.output.AddFlag(cmd)
	return cmd
}

// written is the archive.
type written struct {
	File  string `json:"file"`
	Bytes int64  `json:"bytes"`
	Parts []part `json:"parts"`
}

func (c *command) run(cmd *cobra.Command) error {
	host, _ := os.Hostname()
	base := "twill-diags-" + cmp.Or(host, "host") + "-" + time.Now().UTC().Format("20060102T150405Z")
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
	var logs []string
	if c.logDir != "" {
		logs = []string{filepath.Join(c.logDir, "*.log"), filepath.Join(c.logDir, "*", "current")}
	}
	file := cmp.Or(c.file, base+".tar.gz")
	fmt.Fprintf(c.Err, "Collecting into %s:\n", file)
	w, err := write(cmd.Context(), from, file, base, sources(logs))
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
