// Package kubetest runs a real Kubernetes API server for tests: its own program, with RBAC, on an etcd of its own.
//
// In: the programs that make kube-api builds (package binaries). Out: a [Server] on the loopback, with an administrator's kubeconfig,
// one for any service account, and faults to do to it. Its tests run with REQUIRE_KUBE=1, as
// make kube-api sets it, and are skipped else. This package speaks HTTP and knows no client library, so that it may test one.
//
// A package with such tests is in the Makefile's list KUBE (held by internal/archtest), and has
//
//	func TestMain(m *testing.M) { os.Exit(kubetest.Main(m.Run, kubetest.Config{})) }
//
//	func TestX(t *testing.T) {
//		s := kubetest.Start(t)      // one server for all tests of the package
//		ns := s.Namespace(t)        // of this test alone, gone with all that is in it when the test ends
//		s.Apply(t, manifests)       // as kubectl apply --server-side
//		conf := s.KubeconfigFor(t, ns, "agent") // with the rights that manifests gave that account, and no others
//	}
//
// Tests part by what they change. What is in a namespace: [Server.Namespace]. Kinds without one, as most of ours: [Server.Clear],
// which deletes all objects of an API group, or of some of its kinds, and takes milliseconds, so that a contract's many cases can
// each begin empty. Whole servers, with flags or faults of their own: [New], which takes some three seconds and 300 MB. No test has
// a prefix of etcd's keys to itself: an API server knows one prefix only, so a second would be a second server anyway.
package kubetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/datastore/member/certs"
	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/kubetest/binaries"
)

// Config says what runs.
type Config struct {
	// ControllerManager runs Kubernetes' own controllers, too (100 MB). Without them nothing makes the account "default" of a
	// namespace, without which no pod is admitted, nor endpoints of a service, and no deleted namespace goes (but those of
	// Server.Namespace do).
	ControllerManager bool
	Flags             []string // more flags of kube-apiserver; they replace those that Server sets
}

// Server is an API server that runs.
type Server struct {
	URL        string // https://127.0.0.1:PORT, the same for its whole life
	CAFile     string // of who signed its certificate
	Kubeconfig string // the file of an administrator, whom RBAC allows everything

	dir         string
	token       string // the administrator's
	cfg         Config
	programs    binaries.Set
	etcd        *process
	api         *process
	controllers *process // nil: none
}

// shared is what the tests of a package have in common.
var shared struct {
	sync.Mutex
	cfg    *Config // nil: TestMain does not call Main
	server *Server
	err    error
}

// startTimeout bounds the start on a machine that has much else to do; an idle one takes three seconds.
const startTimeout = 3 * time.Minute

// Main runs the tests of a package, and then ends the server that they had in common, which cfg describes. It returns run's code, for
// os.Exit. The etcd of a server is this test binary, started once more: in that one Main runs no tests.
func Main(run func() int, cfg Config) int {
	if dir := os.Getenv(etcdVariable); dir != "" {
		return runEtcd(dir)
	}
	shared.cfg = &cfg
	defer func() {
		if shared.server != nil {
			shared.server.close()
		}
	}()
	return run()
}

// Start is the server of all tests of this package; the first call starts it. Faults that are done to it are those of all tests that
// run at the same time.
func Start(t testing.TB) *Server {
	t.Helper()
	programs := need(t)
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil && shared.err == nil {
		shared.server, shared.err = launch(programs, *shared.cfg)
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}

// New is a server for this test alone. It ends with the test.
func New(t testing.TB, cfg Config) *Server {
	t.Helper()
	s, err := launch(need(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s
}

// Program is the path of one of Kubernetes' programs, such as kubectl.
func Program(t testing.TB, name string) string {
	t.Helper()
	return need(t).Path(name)
}

func need(t testing.TB) binaries.Set {
	t.Helper()
	set, err := binaries.API.Find()
	if err == nil {
		err = set.Ready()
	}
	machinetest.Kubernetes(t, err)
	if shared.cfg == nil {
		t.Fatal("TestMain of this package does not call kubetest.Main")
	}
	return set
}

// launch starts a server. A port that somebody took between our look and the server's is no reason to fail.
func launch(programs binaries.Set, cfg Config) (*Server, error) {
	var err error
	for range 5 {
		var s *Server
		if s, err = launchOnce(programs, cfg); err == nil {
			return s, nil
		}
		if !strings.Contains(err.Error(), "address already in use") {
			break
		}
	}
	return nil, fmt.Errorf("kubetest: %w", err)
}

func launchOnce(programs binaries.Set, cfg Config) (*Server, error) {
	dir, err := os.MkdirTemp("", "kubetest")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, cfg: cfg, programs: programs, token: fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64())}
	if err := s.start(); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *Server) start() error {
	const host = "127.0.0.1"
	names := []string{host, "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	if _, err := certs.Make(certs.Config{Dir: s.dir, Members: []certs.Host{{Name: "apiserver", Names: names}}}); err != nil {
		return err
	}
	port, err := freePort(host)
	if err != nil {
		return err
	}
	s.URL, s.CAFile, s.Kubeconfig = fmt.Sprintf("https://%s:%d", host, port), s.in("ca.crt"), s.in("admin.kubeconfig")
	if err := os.WriteFile(s.in("tokens.csv"), []byte(s.token+",admin,admin,\"system:masters\"\n"), 0o600); err != nil {
		return err
	}
	if err := s.writeKubeconfig(s.Kubeconfig, s.token); err != nil {
		return err
	}
	if err := s.startEtcd(); err != nil {
		return err
	}
	if err := s.startAPI(); err != nil {
		return err
	}
	return s.startControllers()
}

// Etcd is the endpoint of the server's etcd.
func (s *Server) Etcd() string { return "unix://" + s.in("etcd", sock) }

// in is the path of a file of this server.
func (s *Server) in(file ...string) string { return filepath.Join(slices.Insert(file, 0, s.dir)...) }

func (s *Server) startAPI() (err error) {
	_, port, err := net.SplitHostPort(strings.TrimPrefix(s.URL, "https://"))
	if err != nil {
		return err
	}
	cert, key := s.in("apiserver", "server.crt"), s.in("apiserver", "server.key")
	flags := append([]string{
		"--etcd-servers=" + s.Etcd(),
		"--bind-address=127.0.0.1", "--secure-port=" + port,
		// An address of documentation (RFC 5737): endpoints must have one, nobody connects to it, and one of the loopback
		// is refused, so that the server would not be ready for a minute.
		"--advertise-address=192.0.2.1",
		"--tls-cert-file=" + cert, "--tls-private-key-file=" + key, "--cert-dir=" + s.in("certs"),
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + cert, "--service-account-signing-key-file=" + key,
		"--token-auth-file=" + s.in("tokens.csv"), "--authorization-mode=RBAC",
		"--service-cluster-ip-range=10.96.0.0/16", "--allow-privileged=true",
	}, s.cfg.Flags...)
	if s.api, err = startProcess(s.in("apiserver.log"), nil, s.programs.Path("kube-apiserver"), flags...); err != nil {
		return err
	}
	return s.awaitReady()
}

func (s *Server) startControllers() (err error) {
	if !s.cfg.ControllerManager {
		return nil
	}
	s.controllers, err = startProcess(s.in("controllers.log"), nil, s.programs.Path("kube-controller-manager"),
		"--kubeconfig="+s.Kubeconfig, "--authentication-kubeconfig="+s.Kubeconfig, "--authorization-kubeconfig="+s.Kubeconfig,
		"--secure-port=0", "--cert-dir="+s.in("certs"), "--leader-elect=false",
		"--service-account-private-key-file="+s.in("apiserver", "server.key"), "--root-ca-file="+s.CAFile,
		"--service-cluster-ip-range=10.96.0.0/16")
	return err
}

// awaitReady waits until the server calls itself ready: it serves, RBAC's own roles are there, and so are its informers.
func (s *Server) awaitReady() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		err := s.Admin().Call(ctx, "GET", "/readyz", nil, nil)
		if err == nil {
			return nil
		}
		select {
		case <-look.C:
		case <-s.api.ended:
			return fmt.Errorf("kube-apiserver ended: %s", s.api.lastLines())
		case <-s.etcd.ended:
			return fmt.Errorf("etcd ended: %s", s.etcd.lastLines())
		case <-ctx.Done():
			return fmt.Errorf("kube-apiserver is not ready after %v: %w: %s", startTimeout, err, s.api.lastLines())
		}
	}
}

// close ends all that runs. Nothing of it is worth an orderly end: its data go, too.
func (s *Server) close() {
	for _, p := range []*process{s.controllers, s.api, s.etcd} {
		p.kill()
	}
	_ = os.RemoveAll(s.dir)
}

func (s *Server) writeKubeconfig(file, token string) error {
	return s.writeKubeconfigAt(file, fmt.Sprintf("server: %q", s.URL), token)
}

// writeKubeconfigAt is of who finds the server in another way.
func (s *Server) writeKubeconfigAt(file, server, token string) error {
	return os.WriteFile(file, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {%s, certificate-authority: %q}}]
users: [{name: user, user: {token: %q}}]
contexts: [{name: test, context: {cluster: test, user: user}}]
current-context: test
`, server, s.CAFile, token), 0o600)
}

// freePort is a port on which nobody listens now. It is below those that Linux gives to connections (ip_local_port_range): else one of
// these may have it while the server is being started again.
func freePort(host string) (int, error) {
	for range 100 {
		port := 20000 + rand.IntN(10000)
		if l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", host, port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("no port between 20000 and 30000 is free")
}
