package conn

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/mirror"
)

// defaultConfigFile is read if it is there.
const defaultConfigFile = "/etc/twill/twill.conf"

// Local is what is known of an agent's settings without the datastore.
type Local struct {
	File, Node string
	Dir        string // where `twill node` keeps data of this host, its name among them
	prefixes   []string
	Layers     []config.Layer
	Settings   config.Settings
	Problems   []config.Problem
	masters    []string
}

// MastersVariable names those of whom the datastore is a mirror: what reads it to act on it waits while one of them rebuilds its part. See docs/etcd.md.
const MastersVariable = "TWILL_DATASTORE_MASTERS"

// Masters are what it says.
func Masters() ([]string, error) {
	out, err := mirror.Masters(os.Getenv(MastersVariable))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", MastersVariable, err)
	}
	return out, nil
}

func (l *Local) AddFlags(cmd *cobra.Command) {
	l.AddNodeFlags(cmd)
	cmd.Flags().StringSliceVar(&l.prefixes, "interface-prefix", nil, "what names of workload interfaces begin with (default cali)")
}

// AddNodeFlags adds those that say which node this is, and where its settings and data are.
func (l *Local) AddNodeFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&l.Node, "node", "", "name of this node in the datastore (NODENAME; default: what it was before, else the host's name)")
	f.StringVar(&l.Dir, "data-dir", "/var/lib/twill", "where this host keeps its data, and the name that it had before")
	f.StringVar(&l.File, "config", "", "file of settings, lines of name = value (TWILL_CONFIG; default "+defaultConfigFile+", if it is there)")
}

// Values of the variable that says whether what is known without the datastore wins over it.
const (
	OrderVariable = "TWILL_SETTINGS_ORDER"
	LocalLast     = "local-last"     // as upstream's
	DatastoreLast = "datastore-last" // decision 003, and the default
)

func localWins() (bool, error) {
	switch order := os.Getenv(OrderVariable); order {
	case "", DatastoreLast:
		return false, nil
	case LocalLast:
		return true, nil
	default:
		return false, fmt.Errorf("%s is %q: want %s or %s", OrderVariable, order, LocalLast, DatastoreLast)
	}
}

// Read works out the local settings: defaults < file < environment < flags, and whether they win over the datastore.
func (l *Local) Read() error {
	if err := checkEnvironment(); err != nil {
		return err
	}
	file, inFile, err := settingsFile(l.File)
	if err != nil {
		return err
	}
	env, inEnv := config.FromEnv(os.Environ())
	if err := (etcdSpec{ // TWILL_… and FELIX_… are of the environment, too
		Endpoints: env.Values["etcdEndpoints"], KeyFile: env.Values["etcdKeyFile"], CertFile: env.Values["etcdCertFile"], CAFile: env.Values["etcdCaFile"],
		Discovery: os.Getenv("ETCD_DISCOVERY_SRV"), Key: os.Getenv("ETCD_KEY"), Cert: os.Getenv("ETCD_CERT"), CA: os.Getenv("ETCD_CA_CERT"),
	}).contradiction(); err != nil {
		return err
	}
	flags := config.Layer{Name: "command line", Values: map[string]string{}}
	if len(l.prefixes) > 0 {
		flags.Values["interfacePrefix"] = strings.Join(l.prefixes, ",")
	}
	if l.Node != "" {
		flags.Values["nodeName"] = l.Node
	}
	over, err := localWins()
	if err != nil {
		return err
	}
	file.Over, env.Over, flags.Over = over, over, over
	l.Layers = []config.Layer{file, env, flags}
	e := config.New("", l.Layers...).Resolve()
	l.Settings, l.Problems = e.Settings, append(append(inFile, inEnv...), e.Problems...)
	for _, p := range e.Problems {
		if p.Name == "datastoreType" {
			return fmt.Errorf("%s %s", p.Name, p.Reason)
		}
	}
	if l.Settings.DatastoreType == typeKubernetes {
		if _, err := (kubeFlags{}).kubernetes(kubeSpec{}); err != nil {
			return err
		}
	}
	if l.masters, err = Masters(); err == nil && len(l.masters) > 0 && l.Settings.DatastoreType == typeKubernetes {
		err = fmt.Errorf("%s: the datastore is the Kubernetes API, which is the master itself: leave it out", MastersVariable)
	}
	if err != nil {
		return err
	}
	if l.Node = l.Settings.Node; l.Node == "" {
		l.Node = nodeName(l.Dir)
	}
	return nil
}

// settingsFile reads a file of settings, or the one that the environment names, or the default one, which need not be there.
func settingsFile(name string) (config.Layer, []config.Problem, error) {
	name = cmp.Or(name, os.Getenv("TWILL_CONFIG"))
	content, err := os.ReadFile(cmp.Or(name, defaultConfigFile))
	if err != nil && (name != "" || !errors.Is(err, fs.ErrNotExist)) {
		return config.Layer{}, nil, fmt.Errorf("read settings: %w", err)
	}
	file, problems := config.FromFile(cmp.Or(name, defaultConfigFile), string(content))
	return file, problems, nil
}

// Kubernetes reports whether the datastore is Kubernetes.
func (l *Local) Kubernetes() bool { return l.Settings.DatastoreType == typeKubernetes }

// Cluster is how to reach the Kubernetes of which this host is a node, whatever the datastore is; false: the environment names none.
func (l *Local) Cluster(c *Connection) (datastore.Config, bool) {
	if l.Kubernetes() {
		return l.Direct(c), true
	}
	if !slices.ContainsFunc([]string{"KUBECONFIG", "K8S_API_ENDPOINT", "KUBERNETES_SERVICE_HOST"}, func(v string) bool { return os.Getenv(v) != "" }) {
		return datastore.Config{}, false
	}
	cfg, err := c.kube.kubernetes(kubeSpec{})
	return cfg, err == nil
}

// Followed is Store for who acts on what the datastore says: a mirror answers only while it is complete.
func (l *Local) Followed(c *Connection) datastore.Config { return l.Follow(l.Store(c)) }

// Follow is Followed, by a way to the datastore that is given.
func (l *Local) Follow(cfg datastore.Config) datastore.Config {
	cfg.Masters = l.masters
	return cfg
}

// Store says how to reach the datastore: flags first, then what the settings say, which know ETCD_… too.
func (l *Local) Store(c *Connection) datastore.Config {
	if l.Settings.DatastoreType == typeKubernetes {
		return l.Direct(c)
	}
	return throughProxy(l.Direct(c), c.flags())
}

// Direct is the same without the proxy of this host.
func (l *Local) Direct(c *Connection) datastore.Config {
	if l.Settings.DatastoreType == typeKubernetes {
		cfg, _ := c.kube.kubernetes(kubeSpec{}) // Read has said what is wrong with it
		cfg.PodLinks = podLinks(l.Settings.InterfacePrefixes)
		return cfg
	}
	e, env := l.Settings.Etcd, ofEnvironment()
	env = etcdSpec{Discovery: env.Discovery, Key: env.Key, Cert: env.Cert, CA: env.CA} // settings have the rest, of the environment too
	return etcdOf(c.flags(), env, etcdSpec{
		Endpoints: strings.Join(e.Endpoints, ","), Username: e.Username, Password: e.Password, CertFile: e.CertFile, KeyFile: e.KeyFile, CAFile: e.CACertFile,
	})
}

// LogAs is the log in one of the formats that settings know.
func (c *Env) LogAs(format string) *slog.Logger {
	if format == "json" {
		return slog.New(slog.NewJSONHandler(c.Stdio.Err, &slog.HandlerOptions{Level: &c.Level}))
	}
	return c.Log()
}

// UpstreamsNameFile holds the name that this node had under upstream's agent.
var UpstreamsNameFile = "/var/lib/calico/nodename"

// nameFile holds the name that this node had before, among its data.
func nameFile(dir string) string { return filepath.Join(dir, "nodename") }

// nodeName is the name of a node that nobody names: what it was before, as its data says or upstream's, then the host's. A host
// that is given another name stays the node that it was.
func nodeName(dir string) string {
	for _, file := range []string{nameFile(dir), UpstreamsNameFile} {
		if b, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(b)) != "" {
			return strings.TrimSpace(string(b))
		}
	}
	host, _ := os.Hostname()
	return strings.ToLower(cmp.Or(strings.TrimSpace(os.Getenv("HOSTNAME")), host))
}

// KeepUpstreamsName writes the name down where upstream's node does, and its plugin of CNI reads it. Its directory is a volume of the
// node's container; where that is not, neither is it made.
func KeepUpstreamsName(name string) error {
	err := os.WriteFile(UpstreamsNameFile, []byte(name), 0o644)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// KeepName writes the name down for the next start.
func KeepName(dir, name string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(nameFile(dir), []byte(name+"\n"), 0o644)
}
