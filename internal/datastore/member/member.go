// Package member runs an etcd member inside this process.
//
// In: a [Config]. Out: a running [Member] with endpoints that any etcd client
// can use. It is what makes one host a working network with nothing else to
// install.
package member

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	etcd "go.etcd.io/etcd/server/v3/embed"
)

// Config configures a member: its data directory, and who may connect.
type Config struct {
	Dir             string   // data directory, made with mode 0700
	ListenClient    []string // http://HOST:PORT, https://HOST:PORT or unix://PATH
	AdvertiseClient []string // addresses for clients, as members announce them; empty means ListenClient
	Name            string   // name of this member; empty means twill

	// ListenPeer and Cluster make a member of several; empty: it is alone and
	// opens no port for peers.
	ListenPeer    []string // http://HOST:PORT or https://HOST:PORT
	AdvertisePeer []string // how the others reach it; empty means ListenPeer
	Cluster       string   // all members as NAME=PEER-URL,NAME=PEER-URL
	Join          bool     // the cluster runs already, and this member was added to it

	// Certificate, key and, if clients must show certificates too, the
	// authority for theirs. They serve https:// endpoints.
	CertFile, KeyFile, ClientCAFile string

	// The same among members, with https:// for peers. Each presents its
	// certificate to the others, so the authority is not optional, and should
	// not be the clients': whoever it signs for may join.
	PeerCertFile, PeerKeyFile, PeerCAFile string

	Quota     int64 // bytes of the database; zero means 2 GiB
	Retention int64 // revisions kept when history is compacted, every five minutes; zero means 10000, negative all

	// StartTimeout bounds the start of a member that is alone; zero means 30s.
	// One of several waits for the others until ctx ends, and says so.
	StartTimeout time.Duration

	Logger *slog.Logger // nil: silent
}

// Member is a running member.
type Member struct {
	etcd      *etcd.Etcd
	lock      *os.File
	endpoints []string
	once      sync.Once
}

// Start starts a member and returns when it serves. A member of several serves
// only once most of them run. ctx bounds Start only.
func Start(ctx context.Context, cfg Config) (*Member, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	server, err := cfg.server()
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	lock, err := lockDir(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("etcd: data directory %s: %w", cfg.Dir, err)
	}
	m := &Member{lock: lock, endpoints: slices.Clone(cfg.ListenClient)}
	if err := m.start(ctx, cfg, server); err != nil {
		if m.etcd != nil {
			m.etcd.Server.Stop() // else Close waits for listeners that only a member which is ready opens
		}
		m.Close()
		return nil, fmt.Errorf("etcd: %w", err)
	}
	return m, nil
}

func (m *Member) start(ctx context.Context, cfg Config, server *etcd.Config) error {
	if err := freeSockets(server.ListenClientUrls); err != nil {
		return err
	}
	var err error
	if m.etcd, err = etcd.StartEtcd(server); err != nil {
		return err
	}
	if err := restrictSockets(server.ListenClientUrls); err != nil {
		return err
	}
	if len(cfg.ListenPeer) > 0 {
		go m.abreast(cfg.Logger)
	}
	if err := m.ready(ctx, cfg); err != nil {
		return err
	}
	m.announce(ctx, cfg)
	go func() {
		for err := range m.etcd.Err() { // closed by Close
			cfg.Logger.Error("etcd member", "err", err)
		}
	}()
	return nil
}

// ready waits until the member serves.
func (m *Member) ready(ctx context.Context, cfg Config) error {
	patience := time.NewTicker(cmp.Or(cfg.StartTimeout, 30*time.Second))
	defer patience.Stop()
	for {
		select {
		case <-m.etcd.Server.ReadyNotify():
			return nil
		case err := <-m.etcd.Err():
			return err
		case <-m.etcd.Server.StopNotify():
			return errors.New("stopped while starting")
		case <-patience.C:
			if len(cfg.ListenPeer) == 0 {
				return errors.New("not ready in time")
			}
			cfg.Logger.Warn("etcd waits for most members of the cluster to run", "cluster", cfg.Cluster)
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w", ctx.Err())
		}
	}
}

// Endpoints returns what clients should connect to.
func (m *Member) Endpoints() []string { return slices.Clone(m.endpoints) }

// Done is closed when the member has stopped, by Close or by itself.
func (m *Member) Done() <-chan struct{} { return m.etcd.Server.StopNotify() }

// Close stops the member and frees its directory and ports.
func (m *Member) Close() {
	m.once.Do(func() {
		if m.etcd != nil {
			m.etcd.Close()
		}
		unlock(m.lock)
	})
}

func (c *Config) server() (*etcd.Config, error) {
	if c.Dir == "" {
		return nil, errors.New("no data directory is given")
	}
	s := etcd.NewConfig()
	s.Name = cmp.Or(c.Name, "twill")
	s.Dir = filepath.Join(c.Dir, "member-data")
	if err := c.addresses(s); err != nil {
		return nil, err
	}
	s.QuotaBackendBytes = cmp.Or(c.Quota, 2<<30)
	s.AutoCompactionMode = etcd.CompactorModeRevision
	s.AutoCompactionRetention = fmt.Sprint(max(cmp.Or(c.Retention, 10000), 0)) // "0" keeps all
	s.ClientTLSInfo = transport.TLSInfo{
		CertFile: c.CertFile, KeyFile: c.KeyFile,
		TrustedCAFile: c.ClientCAFile, ClientCertAuth: c.ClientCAFile != "",
	}
	s.PeerTLSInfo = transport.TLSInfo{
		CertFile: c.PeerCertFile, KeyFile: c.PeerKeyFile,
		TrustedCAFile: c.PeerCAFile, ClientCertAuth: c.PeerCAFile != "",
	}
	// Small, since it shares the host with an agent: less of the log in memory, no JSON gateway.
	s.SnapshotCatchUpEntries = 1000
	s.EnableGRPCGateway = false
	// Clients ask for progress every few seconds, and an idle one pings.
	s.GRPCKeepAliveMinTime = time.Second
	if len(c.ListenPeer) == 0 {
		// A single member need not wait for an election.
		s.TickMs, s.ElectionMs = 50, 500
	}
	s.ZapLoggerBuilder = etcd.NewZapLoggerBuilder(logTo(c.Logger))
	s.LogLevel = "warn"
	return s, s.Validate()
}

// addresses fills in the member's addresses and name.
func (c *Config) addresses(s *etcd.Config) (err error) {
	for _, l := range []struct {
		texts []string
		urls  *[]url.URL
	}{
		{c.ListenClient, &s.ListenClientUrls},
		{c.AdvertiseClient, &s.AdvertiseClientUrls},
		{c.ListenPeer, &s.ListenPeerUrls},
		{c.AdvertisePeer, &s.AdvertisePeerUrls},
	} {
		if *l.urls, err = urls(l.texts); err != nil {
			return err
		}
	}
	if len(s.ListenClientUrls) == 0 {
		return errors.New("no address to listen on is given")
	}
	if len(s.AdvertiseClientUrls) == 0 {
		s.AdvertiseClientUrls = s.ListenClientUrls
	}
	if len(s.AdvertisePeerUrls) == 0 {
		s.AdvertisePeerUrls = s.ListenPeerUrls
	}
	if len(s.ListenPeerUrls) == 0 {
		if c.Cluster != "" || c.Join {
			return errors.New("a member of several needs an address to listen on for its peers")
		}
		s.AdvertisePeerUrls = etcd.NewConfig().AdvertisePeerUrls // only a name; nothing listens there
	}
	for _, u := range s.ListenPeerUrls {
		if u.Scheme == "https" && (c.PeerCertFile == "" || c.PeerKeyFile == "" || c.PeerCAFile == "") {
			return fmt.Errorf("peers on %s need a certificate, its key and the peers' authority", u.String())
		}
	}
	s.InitialCluster = cmp.Or(c.Cluster, s.InitialClusterFromName(s.Name))
	if c.Join {
		s.ClusterState = etcd.ClusterStateFlagExisting
	}
	return nil
}

func urls(texts []string) ([]url.URL, error) {
	var us []url.URL
	for _, text := range texts {
		u, err := url.Parse(text)
		if err != nil {
			return nil, err
		}
		switch {
		case (u.Scheme == "http" || u.Scheme == "https") && u.Host != "":
		case u.Scheme == "unix" && u.Host+u.Path != "":
		default:
			return nil, fmt.Errorf("address %q: want http://HOST:PORT, https://HOST:PORT or unix://PATH", text)
		}
		us = append(us, *u)
	}
	return us, nil
}

// lockDir makes the directory and claims it. etcd itself would wait for ever
// for a database that another process has open.
func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = errors.New("in use by another member")
		}
		return nil, err
	}
	return f, nil
}

// unlock frees a directory at once. Closing alone would not, where a program that this process starts just then has the file, too, until it begins.
func unlock(f *os.File) {
	_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN) // what is closed is freed at last anyway
	f.Close()
}

// freeSockets refuses sockets that someone answers on: etcd would remove the
// file and take the name of a member that runs. It also makes their directories:
// the one that holds a socket is the owner's alone, since between bind and chmod
// a socket has the mode that the umask leaves it.
func freeSockets(us []url.URL) error {
	for _, path := range sockets(us) {
		dir := filepath.Dir(path)
		if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
			return err
		}
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		conn, err := net.Dial("unix", path)
		if err == nil {
			conn.Close()
			return fmt.Errorf("listen unix %s: address already in use", path)
		}
		if st, err := os.Lstat(path); err == nil && st.Mode()&os.ModeSocket == 0 {
			return fmt.Errorf("listen unix %s: the file exists and is no socket", path)
		}
	}
	return nil
}

// restrictSockets lets only the owner connect: etcd does not authenticate clients
// of a socket.
func restrictSockets(us []url.URL) error {
	for _, path := range sockets(us) {
		if err := os.Chmod(path, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func sockets(us []url.URL) []string {
	var paths []string
	for _, u := range us {
		if strings.HasPrefix(u.Scheme, "unix") {
			paths = append(paths, u.Host+u.Path)
		}
	}
	return paths
}
