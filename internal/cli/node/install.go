package node

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/agent"
	bgpdaemon "github.com/twillnet/twill/internal/bgp/daemon"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/node"
)

func (c *command) installCmd() *cobra.Command {
	in := node.Install{Found: agent.Found}
	var noStart bool
	var name string
	var env []string
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install Twill on this host, or upgrade it",
		Long: `Install this binary as /usr/local/bin/twill, two systemd units, and commented
examples of settings in /etc/twill, and start it.

When the host boots, twill-boot.service blocks the interfaces of workloads until
twill-node.service, the supervisor of the daemons, has their policy in force.

Where a package of the distribution has brought the files, it changes settings that
flags name and starts the node, and writes nothing else.

To upgrade, run the new binary's "node install". Settings are kept, except those
that flags name, which are changed in /etc/twill/node.env. No packet is lost while
the daemons restart. "twill node uninstall" restores the host as it was.

Exit code: 0 installed, 1 it could not be done, 2 usage.`,
		Example: `  twill node install
  twill node install --etcd https://192.0.2.1:2379 --etcd-ca /etc/twill/pki/agent/ca.crt
  twill node install --kubeconfig /etc/kubernetes/twill.conf   # a node of that cluster
  twill node install --env IP6=autodetect --env TWILL_LOG_DIR=/var/log/twill
  twill node install --dry-run
  twill node install --root /mnt/image --no-start`,
		Args: console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			in.Start = !noStart && in.Root == ""
			if in.Root != "" || in.DryRun {
				in.Found = nil // an image's kernel is not this one
			}
			if err := assignments(env); err != nil {
				return err
			}
			in.Env = slices.Concat(env, c.connection(name))
			_, end := c.Working("installing", 0)
			in.Out = c.Stdio.Out
			err := in.Install(cmd.Context())
			end()
			if err != nil {
				return err
			}
			if in.Start && !in.DryRun {
				fmt.Fprintln(c.Stdio.Out, "Installed. Check with `twill status`; the log is `journalctl -u twill-node`.")
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.BoolVar(&in.DryRun, "dry-run", false, "only say what would be done")
	f.BoolVar(&noStart, "no-start", false, "write the files, and start nothing")
	f.StringVar(&in.Root, "root", "", "install into this directory, such as a mounted image, and start nothing")
	f.StringVar(&name, "node", "", "name of this node in the datastore (default the host's name)")
	f.StringArrayVar(&env, "env", nil, "NAME=value: a variable that /etc/twill/node.env is to have; may be given more than once")
	return cmd
}

// assignments refuses a line that is none of an environment file.
func assignments(lines []string) error {
	for _, line := range lines {
		if name, _, ok := strings.Cut(line, "="); !ok || name == "" || strings.ContainsAny(line, "\n\r\x00") {
			return console.Usage("node install: --env %q: want NAME=value, in one line", line)
		}
	}
	return nil
}

// connection is what flags say of the datastore and of the node's name, as lines of an environment file.
func (c *command) connection(node string) (lines []string) {
	for _, v := range []struct{ name, value string }{
		{"ETCD_ENDPOINTS", c.Conn.Endpoints},
		{"ETCD_CA_CERT_FILE", c.Conn.Ca},
		{"ETCD_CERT_FILE", c.Conn.Cert},
		{"ETCD_KEY_FILE", c.Conn.Key},
		{"ETCD_USERNAME", c.Conn.User},
		{"NODENAME", node},
	} {
		if v.value != "" {
			lines = append(lines, v.name+"="+v.value)
		}
	}
	return append(lines, c.Conn.KubernetesLines()...)
}

func (c *command) uninstallCmd() *cobra.Command {
	in := node.Install{Leave: agent.Leave}
	var purge bool
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Leave this host as it was found",
		Long: `Stop the daemons, take the nftables table and the routes out of the kernel, give
back the kernel's settings as they were before "node install", and remove the
files that it wrote. Workloads' interfaces stay, and are not guarded any more.

What the daemons kept, the data of an embedded datastore above all, stays unless
--purge is given. It is looked for in /var/lib/twill, where the unit's --data-dir
says, and where this command's does.

Exit code: 0 removed, 1 it could not be done, or nothing was installed, 2 usage.`,
		Example: "  twill node uninstall --dry-run\n  twill node uninstall --purge",
		Args:    console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if in.Root != "" {
				in.Leave = nil
			}
			_, end := c.Working("removing", 0)
			defer end()
			in.Out = c.Stdio.Out
			return in.Uninstall(cmd.Context(), purge)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&in.DryRun, "dry-run", false, "only say what would be done")
	f.BoolVar(&purge, "purge", false, "remove the datastore's data too, and all else that the daemons kept")
	f.StringSliceVar(&in.Data, "data-dir", nil, "where the node kept its data, besides /var/lib/twill and what its unit says")
	f.StringVar(&in.Root, "root", "", "the directory into which it was installed")
	return cmd
}

func (c *command) cleanupCmd() *cobra.Command {
	var agentAt, bgpAt string
	var stay bool
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Take out of the kernel what Twill's daemons put there",
		Long: `Delete the nftables table "twill" and the routes of the agent and of BGP, on a host where
the daemons are stopped and were not installed by "node install" (else: "node uninstall",
which does this too). Nothing guards workloads from then on, unless another agent does.

Where an upstream agent runs already, routes of protocol 80 are its own by then, and
stay. Settings of the kernel stay: another agent needs the same.

Exit code: 0 removed, 1 a daemon of ours still runs, or it could not be done, 2 usage.`,
		Example: "  systemctl stop my-twill && twill node cleanup",
		Args:    console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), conn.AskFor)
			defer cancel()
			if _, err := agent.Ask(ctx, agentAt); err == nil {
				return fmt.Errorf("the agent answers at %s, and would put it all back: stop it first", agentAt)
			}
			if _, err := bgpdaemon.Report(ctx, bgpAt); err == nil {
				return fmt.Errorf("the BGP daemon answers at %s, and would put its routes back: stop it first", bgpAt)
			}
			did, err := agent.Leave(cmd.Context(), nil)
			for _, d := range did {
				fmt.Fprintln(c.Stdio.Out, d)
			}
			if err == nil && stay {
				<-cmd.Context().Done()
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&stay, "stay", false, "then wait to be asked to end, as a container of a DaemonSet has to (twill kube uninstall)")
	cmd.Flags().StringVar(&agentAt, "socket", conn.AgentSocket(), "the agent's socket (TWILL_SOCKET)")
	cmd.Flags().StringVar(&bgpAt, "bgp-socket", conn.BgpSocket(), "the BGP daemon's socket (TWILL_BGP_SOCKET)")
	return cmd
}

func (c *command) bootCmd() *cobra.Command {
	var l conn.Local
	cmd := &cobra.Command{
		Use:   "boot",
		Short: "Close this host until its agent has programmed it",
		Long: `Load the table of nftables in which an interface of a workload carries nothing.
twill-boot.service runs this before the network is up. It needs no datastore,
and changes nothing if the table is there, or the rules of an upstream agent: then
the agent takes over in one step.

Exit code: 0 it is closed or guarded, 1 it could not be done, 2 usage.`,
		Example: "  twill node boot",
		Args:    console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := l.Read(); err != nil {
				return err
			}
			done, err := agent.Boot(cmd.Context(), agent.Config{Node: l.Node, Local: l.Layers})
			if err == nil && !done {
				fmt.Fprintln(c.Stdio.Out, "The table is there already, or an upstream agent's rules guard workloads; nothing is changed.")
			}
			return err
		},
	}
	l.AddFlags(cmd)
	return cmd
}
