package member_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/etcdstore"
	"github.com/twillnet/twill/internal/datastore/member"
	"github.com/twillnet/twill/internal/kernel/machinetest"
)

// patience bounds what a test waits for.
const patience = 2 * time.Minute

func start(t *testing.T, cfg member.Config) *member.Member {
	t.Helper()
	cfg.StartTimeout = patience
	m, err := member.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// socket returns a path short enough for a socket's name.
func socket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "etcd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

func TestMemberKeepsDataAcrossRestarts(t *testing.T) {
	path := socket(t)
	cfg := member.Config{Dir: filepath.Join(t.TempDir(), "new", "etcd"), ListenClient: []string{"unix://" + path}}
	for round := range 3 {
		begin := time.Now()
		m := start(t, cfg)
		t.Logf("round %d: ready after %s", round, time.Since(begin).Round(time.Millisecond))
		s, err := etcdstore.New(t.Context(), datastore.Config{Endpoints: m.Endpoints(), RequestTimeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Create(t.Context(), api.Update{Key: fmt.Sprint("/k", round), Value: []byte("v")}); err != nil {
			t.Fatal(err)
		}
		snap, err := s.List(t.Context(), "/")
		if err != nil || len(snap.Items) != round+1 {
			t.Errorf("round %d: %d keys, error %v", round, len(snap.Items), err)
		}
		s.Close()
		m.Close()
		select {
		case <-m.Done():
		default:
			t.Error("closed, but not done")
		}
	}
}

// TestAClosedMemberLeavesItsDirectory also while somebody else has its files: a program that was started has those of its parent until it begins.
func TestAClosedMemberLeavesItsDirectory(t *testing.T) {
	cfg := member.Config{Dir: filepath.Join(t.TempDir(), "etcd"), ListenClient: []string{"unix://" + socket(t)}}
	m := start(t, cfg)
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	held := 0
	for _, fd := range fds {
		if at, err := os.Readlink(fd); err != nil || at != filepath.Join(cfg.Dir, "lock") {
			continue
		}
		n, err := strconv.Atoi(filepath.Base(fd))
		if err != nil {
			t.Fatal(err)
		}
		if n, err = syscall.Dup(n); err != nil {
			t.Fatal(err)
		}
		defer syscall.Close(n)
		held++
	}
	if held != 1 {
		t.Fatalf("%d files are the lock of the directory, want one", held)
	}
	m.Close()
	start(t, cfg)
}

func TestOnlyTheOwnerMayUseWhatAMemberMakes(t *testing.T) {
	path, dir := filepath.Join(filepath.Dir(socket(t)), "made", "s"), filepath.Join(t.TempDir(), "etcd")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	start(t, member.Config{Dir: dir, ListenClient: []string{"unix://" + path}})
	for file, want := range map[string]os.FileMode{dir: 0o700, path: 0o600, filepath.Dir(path): 0o700} {
		st, err := os.Stat(file)
		if err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: mode %v, error %v, want %v", file, st.Mode().Perm(), err, want)
		}
	}
}

func TestStartRefusesWhatIsTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	path, dir := socket(t), t.TempDir()
	start(t, member.Config{Dir: dir, ListenClient: []string{"unix://" + path}})
	plain := socket(t)
	if err := os.WriteFile(plain, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		cfg  member.Config
		want string
	}{
		{"a directory in use", member.Config{Dir: dir, ListenClient: []string{"unix://" + socket(t)}}, dir + ": in use by another member"},
		{"a socket in use", member.Config{Dir: t.TempDir(), ListenClient: []string{"unix://" + path}}, path + ": address already in use"},
		{"a port in use", member.Config{Dir: t.TempDir(), ListenClient: []string{"http://" + taken.Addr().String()}}, "address already in use"},
		{"a file that is no socket", member.Config{Dir: t.TempDir(), ListenClient: []string{"unix://" + plain}}, "is no socket"},
		{"a URL that is none", member.Config{Dir: t.TempDir(), ListenClient: []string{"localhost:2379"}}, "want http://HOST:PORT"},
		{"no directory", member.Config{ListenClient: []string{"unix:///s"}}, "no data directory"},
		{"no address", member.Config{Dir: t.TempDir()}, "no address to listen on"},
		{"https without a certificate", member.Config{Dir: t.TempDir(), ListenClient: []string{"https://127.0.0.1:0"}}, "TLS key/cert"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, err := member.Start(t.Context(), tt.cfg)
			if err == nil {
				m.Close()
				t.Fatal("started")
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %q, want it to say %q", err, tt.want)
			}
		})
	}
	if got, _ := os.ReadFile(plain); string(got) != "precious" {
		t.Errorf("the file became %q", got)
	}
}

func TestAStaleSocketIsNoHindrance(t *testing.T) {
	path := socket(t)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	start(t, member.Config{Dir: t.TempDir(), ListenClient: []string{"unix://" + path}})
}

// Nodes of older versions listened on loopback; now a socket is the default. The data directory is the same.
func TestAMemberMovesFromAPortToASocket(t *testing.T) {
	dir, path := t.TempDir(), socket(t)
	for round, url := range []string{"http://" + machinetest.Address(t), "unix://" + path} {
		m := start(t, member.Config{Dir: dir, ListenClient: []string{url}})
		s, err := etcdstore.New(t.Context(), datastore.Config{Endpoints: []string{url}, RequestTimeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Create(t.Context(), api.Update{Key: fmt.Sprint("/k", round), Value: []byte("v")}); err != nil {
			t.Fatal(err)
		}
		if snap, err := s.List(t.Context(), "/"); err != nil || len(snap.Items) != round+1 {
			t.Errorf("on %s: %d keys, error %v", url, len(snap.Items), err)
		}
		s.Close()
		m.Close()
	}
}
