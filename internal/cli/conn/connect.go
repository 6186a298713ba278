package conn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/stores"
	"github.com/twillnet/twill/internal/resources"
)

// DefaultEndpoint is where `twill etcd` listens, and clients look, when nothing else is named: a socket in a directory that
// only root may enter (decision 020).
const DefaultEndpoint = "unix:///run/twill/etcd/client.sock"

// Connection says how to reach the datastore: flags, and where a flag is not
// given, the environment variables that calicoctl reads.
type Connection struct {
	Endpoints, User, password, Cert, Key, Ca string
	Timeout                                  time.Duration
	Plugin                                   bool // of kubectl: where nothing says which datastore, it is the Kubernetes API
	kube                                     kubeFlags
	path                                     string // of the configuration file; empty: where calicoctl has it
	file                                     fileSpec
	// open is how to get a store; nil opens the one that is configured. Tests have one in memory.
	Open func(context.Context) (datastore.Store, func(), error)
	// waiting shows that a command waits for something, until the function it returns is called; nil: it shows nothing.
	waiting func(what string) (end func())
}

// wait shows that the command waits for the datastore, until the function it returns is called.
func (c *Connection) wait() func() {
	if c.waiting == nil {
		return func() {}
	}
	return c.waiting("waiting for " + c.place())
}

// Kubernetes reports whether the datastore is Kubernetes' API, from flags, the environment and calicoctl's file.
func (c *Connection) Kubernetes() (bool, error) {
	err := c.readFile()
	return c.isKubernetes(), err
}

func (c *Connection) isKubernetes() bool {
	switch cmp.Or(os.Getenv("DATASTORE_TYPE"), c.file.DatastoreType) {
	case typeKubernetes:
		return true
	case "":
		return c.Plugin && !c.flags().named() && !ofEnvironment().named() && !c.file.named()
	}
	return false
}

// place is what the datastore is called in messages.
func (c *Connection) place() string {
	if c.isKubernetes() {
		return Place(datastore.Config{Type: typeKubernetes})
	}
	return Place(c.etcd())
}

func (c *Connection) addFlags(f *pflag.FlagSet) {
	f.StringVar(&c.Endpoints, "etcd", "", "etcd endpoints, separated by commas (ETCD_ENDPOINTS; default "+DefaultEndpoint+")")
	f.StringVar(&c.User, "etcd-user", "", "etcd user name (ETCD_USERNAME; the password is taken from ETCD_PASSWORD)")
	f.StringVar(&c.Cert, "etcd-cert", "", "client certificate file (ETCD_CERT_FILE)")
	f.StringVar(&c.Key, "etcd-key", "", "key file of the client certificate (ETCD_KEY_FILE)")
	f.StringVar(&c.Ca, "etcd-ca", "", "CA certificate file (ETCD_CA_CERT_FILE)")
	c.kube.addFlags(f)
	f.StringVarP(&c.path, "config", "c", "", "file that says where the datastore is, in calicoctl's form (default "+calicoctlConfig+", if it exists)")
	f.Bool("allow-version-mismatch", false, "accepted for calicoctl's sake; versions never stand in the way")
	f.DurationVar(&c.Timeout, "timeout", cmp.Or(c.Timeout, 10*time.Second), "how long to wait for the datastore")
}

// Config merges flags, environment, file and defaults.
func (c *Connection) Config() (datastore.Config, error) {
	if c.isKubernetes() {
		return c.kube.kubernetes(c.file.kubeSpec)
	}
	return c.etcd(), nil
}

// WithCluster is how a daemon of a cluster reaches the datastore, and Kubernetes, which may be the same.
func (c *Connection) WithCluster() (store, cluster datastore.Config, err error) {
	if err := errors.Join(checkType("DATASTORE_TYPE", os.Getenv("DATASTORE_TYPE")), checkEnvironment()); err != nil {
		return store, cluster, err
	}
	if cluster, err = c.kube.kubernetes(kubeSpec{}); err != nil {
		return store, cluster, err
	}
	store, err = c.Config()
	return store, cluster, err
}

// etcd is how to reach etcd, by the proxy of this host if it has one.
func (c *Connection) etcd() datastore.Config { return throughProxy(c.direct(), c.flags()) }

// direct is how to reach the members themselves.
func (c *Connection) direct() datastore.Config {
	return etcdOf(c.flags(), ofEnvironment(), c.file.etcdSpec)
}

// flags are what flags say of etcd.
func (c *Connection) flags() etcdSpec {
	return etcdSpec{Endpoints: c.Endpoints, Username: c.User, Password: c.password, CertFile: c.Cert, KeyFile: c.Key, CAFile: c.Ca}
}

// With opens the datastore for one command and gives it a deadline. If reading takes long, the user sees that the command waits.
func (c *Connection) With(ctx context.Context, do func(context.Context, datastore.Store) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	return c.Watching(ctx, func(ctx context.Context, s datastore.Store) error {
		w := &waitedFor{s, c.wait}
		if txn, ok := s.(datastore.Transactional); ok {
			return do(ctx, &waitedForTxn{w, txn})
		}
		return do(ctx, w)
	})
}

// Long is with for a command that may have much to do: each call has the deadline. It says itself how far it is.
func (c *Connection) Long(ctx context.Context, do func(context.Context, datastore.Store) error) error {
	return c.Watching(ctx, func(ctx context.Context, s datastore.Store) error {
		t := &timed{s, c.Timeout}
		if txn, ok := s.(datastore.Transactional); ok {
			return do(ctx, &timedTxn{t, txn})
		}
		return do(ctx, t)
	})
}

// Etcd is for a command that looks after etcd itself. It says how far it is, and what of it may take how long.
func (c *Connection) Etcd(ctx context.Context, do func(context.Context, datastore.Config) error) error {
	kubernetes, err := c.Kubernetes()
	if err != nil {
		return err
	}
	if kubernetes {
		return errors.New("the datastore is Kubernetes' API: its etcd is the cluster's, which looks after it; name another one with --etcd or ETCD_ENDPOINTS, and DATASTORE_TYPE=etcdv3")
	}
	cfg := orProxy(c.direct(), c.flags()) // members themselves, where they are named
	cfg.DialTimeout = c.Timeout
	return c.explainAt(cfg, do(ctx, cfg))
}

// timedTxn is timed for a store with transactions.
type timedTxn struct {
	*timed
	txn datastore.Transactional
}

// Transact is part of datastore.Transactional.
func (s *timedTxn) Transact(ctx context.Context, t datastore.Txn) (api.Revision, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.txn.Transact(ctx, t)
}

// timed gives each call to a store a deadline.
type timed struct {
	datastore.Store
	timeout time.Duration
}

// Unwrap is the store that has an order, if there is one.
func (s *timed) Unwrap() datastore.Store { return s.Store }

// Get is part of datastore.Store.
func (s *timed) Get(ctx context.Context, key string) (api.Update, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.Store.Get(ctx, key)
}

// List is part of datastore.Store.
func (s *timed) List(ctx context.Context, prefix string) (datastore.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.Store.List(ctx, prefix)
}

// Create is part of datastore.Store.
func (s *timed) Create(ctx context.Context, kv api.Update) (api.Update, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.Store.Create(ctx, kv)
}

// Update is part of datastore.Store.
func (s *timed) Update(ctx context.Context, kv api.Update) (api.Update, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.Store.Update(ctx, kv)
}

// Delete is part of datastore.Store.
func (s *timed) Delete(ctx context.Context, key string, revision api.Revision) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.Store.Delete(ctx, key, revision)
}

// Watching is with for a command that stays, and takes care of its own deadlines.
func (c *Connection) Watching(ctx context.Context, do func(context.Context, datastore.Store) error) error {
	if err := c.readFile(); err != nil {
		return err
	}
	open := c.Open
	if open == nil {
		open = c.open
	}
	opened := c.wait()
	store, closeStore, err := open(ctx)
	opened()
	if err != nil {
		return c.explain(err)
	}
	defer closeStore()
	return c.explain(do(ctx, resources.WithViews(store)))
}

func (c *Connection) open(ctx context.Context) (datastore.Store, func(), error) {
	cfg, err := c.Config()
	if err != nil {
		return nil, nil, err
	}
	cfg.DialTimeout = c.Timeout
	store, err := stores.Open(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	return store, func() { _ = store.Close() }, nil
}

// explain adds what to do to an error of the connection.
func (c *Connection) explain(err error) error { return c.explainAt(c.etcd(), err) }

func (c *Connection) explainAt(cfg datastore.Config, err error) error {
	if err == nil {
		return nil
	}
	switch {
	case c.isKubernetes():
		return err // which says what is wrong with the cluster, or the way to it
	case errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0:
		return fmt.Errorf("%w\nThe datastore of this host is root's alone: run this as root, or name another one with --etcd or ETCD_ENDPOINTS.", err)
	case IsUnreachable(err):
		at := cmp.Or(cfg.DiscoverySRV, strings.Join(cfg.Endpoints, ","))
		return fmt.Errorf("%w\nNo datastore answers at %s. Start one with `twill etcd` or `twill lab up`, or name yours with --etcd or ETCD_ENDPOINTS.", err, at)
	default:
		return err
	}
}

func IsUnreachable(err error) bool {
	return errors.Is(err, datastore.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}
