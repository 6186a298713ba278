package ctl

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/agent"
	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/datastore"
)

// defaultConfigFile is read if it is there.
const defaultConfigFile = "/etc/twill/twill.conf"

// local is what is known of an agent's settings without the datastore.
type local struct {
	file, node string
	dir        string // where `twill node` keeps data of this host, its name among them
	prefixes   []string
	layers     []config.Layer
	settings   config.Settings
	problems   []config.Problem
}

func (l *local) addFlags(cmd *cobra.Command) {
	l.addNodeFlags(cmd)
	cmd.Flags().StringSliceVar(&l.prefixes, "interface-prefix", nil, "what names of workload interfaces begin with (default cali)")
}

// addNodeFlags adds those that say which node this is, and where its settings and data are.
func (l *local) addNodeFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&l.node, "node", "", "name of this node in the datastore (NODENAME; default: what it was before, else the host's name)")
	f.StringVar(&l.dir, "data-dir", "/var/lib/twill", "where this host keeps its data, and the name that it had before")
	f.StringVar(&l.file, "config", "", "file of settings, lines of name = value (TWILL_CONFIG; default "+defaultConfigFile+", if it is there)")
}

// read works out the local settings: defaults < file < environment < flags.
func (l *local) read() error {
	name := cmp.Or(l.file, os.Getenv("TWILL_CONFIG"))
	content, err := os.ReadFile(cmp.Or(name, defaultConfigFile))
	if err != nil && (name != "" || !errors.Is(err, fs.ErrNotExist)) {
		return fmt.Errorf("read settings: %w", err)
	}
	file, inFile := config.FromFile(cmp.Or(name, defaultConfigFile), string(content))
	env, inEnv := config.FromEnv(os.Environ())
	flags := config.Layer{Name: "command line", Values: map[string]string{}}
	if len(l.prefixes) > 0 {
		flags.Values["interfacePrefix"] = strings.Join(l.prefixes, ",")
	}
	if l.node != "" {
		flags.Values["nodeName"] = l.node
	}
	l.layers = []config.Layer{file, env, flags}
	e := config.New("", l.layers...).Resolve()
	l.settings, l.problems = e.Settings, append(append(inFile, inEnv...), e.Problems...)
	for _, p := range e.Problems {
		if p.Name == "datastoreType" {
			return fmt.Errorf("%s %s: this version keeps its data in etcd only", p.Name, p.Reason)
		}
	}
	if l.node = l.settings.Node; l.node == "" {
		l.node = nodeName(l.dir)
	}
	return nil
}

// store says how to reach the datastore: flags first, then what the settings say, which know ETCD_… too.
func (l *local) store(c *connection) datastore.Config {
	e := l.settings.Etcd
	return datastore.Config{
		Endpoints: strings.Split(cmp.Or(c.endpoints, strings.Join(e.Endpoints, ","), defaultEndpoint), ","),
		Username:  cmp.Or(c.user, e.Username),
		Password:  e.Password,
		CertFile:  cmp.Or(c.cert, e.CertFile),
		KeyFile:   cmp.Or(c.key, e.KeyFile),
		CAFile:    cmp.Or(c.ca, e.CACertFile),
	}
}

func (c *command) agentCmd() *cobra.Command {
	var l local
	var socket string
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Program this host's kernel from the datastore",
		Long: `The agent watches the datastore, decides what this host should be, and makes
the kernel so: an nftables table "twill", routes to local endpoints with
protocol 80, addresses and sysctls of their interfaces. What others change of
that is put right at once.

It may be killed and started again at any time: what is in the kernel stays in
force, and an interface that nobody has programmed carries nothing.

Settings come from a file, the environment (TWILL_…, FELIX_…) and the
FelixConfiguration resources, and are live. See "twill config".`,
		Example: "  twill agent --node h1 --etcd http://192.0.2.10:2379\n  TWILL_LOG_FORMAT=json twill agent --interface-prefix cali,tap",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ignoreHangup()
			if err := l.read(); err != nil {
				return err
			}
			return agent.Run(cmd.Context(), agent.Config{
				Node: l.node, Store: l.store(&c.conn), Local: l.layers, Version: Version, Socket: socket,
				Log: c.logAs(l.settings.LogFormat), Level: &c.level, Problems: l.problems,
			})
		},
	}
	l.addFlags(cmd)
	cmd.Flags().StringVar(&socket, "socket", agentSocket(), "where to answer `twill status` and plugins (TWILL_SOCKET)")
	return cmd
}

// logAs is the log in one of the formats that settings know.
func (c *command) logAs(format string) *slog.Logger {
	if format == "json" {
		return slog.New(slog.NewJSONHandler(c.stdio.Err, &slog.HandlerOptions{Level: &c.level}))
	}
	return c.log()
}

// upstreamsNameFile holds the name that this node had under upstream's agent.
var upstreamsNameFile = "/var/lib/calico/nodename"

// nameFile holds the name that this node had before, among its data.
func nameFile(dir string) string { return filepath.Join(dir, "nodename") }

// nodeName is the name of a node that nobody names: what it was before, as its data says or upstream's, then the host's. A host
// that is given another name stays the node that it was.
func nodeName(dir string) string {
	for _, file := range []string{nameFile(dir), upstreamsNameFile} {
		if b, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(b)) != "" {
			return strings.TrimSpace(string(b))
		}
	}
	host, _ := os.Hostname()
	return strings.ToLower(cmp.Or(os.Getenv("HOSTNAME"), host))
}

// keepName writes the name down for the next start.
func keepName(dir, name string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(nameFile(dir), []byte(name+"\n"), 0o644)
}
