package statusfile_test

import (
	"bytes"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/status"
	"github.com/twillnet/twill/internal/status/statusfile"
)

func workload(namespace, name string) intent.EndpointID {
	return intent.EndpointID{Kind: intent.Workload, Namespace: namespace, Name: name}
}

// The names are those for which upstream's CNI plugin waits: its orchestrator, NAMESPACE/WORKLOAD and endpoint, escaped as parts of a path.
func TestNamesAreThoseThatUpstreamsPluginWaitsFor(t *testing.T) {
	for _, c := range []struct {
		id   intent.EndpointID
		want string // empty: no file
	}{
		{workload("default", "node--1-k8s-testpod1-eth0"), "k8s default%2Ftestpod1 eth0"},
		{workload("shop", "host-k8s-web--0-eth0"), "k8s shop%2Fweb-0 eth0"},
		{workload("openstack", "h1-openstack-vm%201-tap1"), "openstack openstack%2Fvm%25201 tap1"},
		{workload("default", "no"), ""},
		{intent.EndpointID{Kind: intent.Host, Name: "h1-k8s-testpod1-eth0"}, ""},
	} {
		got, _ := statusfile.Name(c.id)
		if got != c.want {
			t.Errorf("%s: file %q, want %q", c.id, got, c.want)
		}
	}
}

// running is a Writer that runs, and what it logs.
type running struct {
	*statusfile.Writer
	log *bytes.Buffer
}

func run(t *testing.T) running {
	var log bytes.Buffer
	w := statusfile.New(slog.New(slog.NewTextHandler(&log, nil)))
	go func() { _ = w.Run(t.Context()) }()
	return running{w, &log}
}

func (r running) endpoint(id intent.EndpointID, addrs ...string) {
	e := intent.Endpoint{ID: id, Link: "cali1", MAC: "02:00:00:00:00:01"}
	for _, a := range addrs {
		e.Addrs = append(e.Addrs, netip.MustParseAddr(a))
	}
	r.Sent(intent.Batch{Endpoints: []intent.Endpoint{e}})
}

func (r running) become(id intent.EndpointID, state string) {
	r.Set(map[intent.EndpointID]status.Endpoint{id: {Status: state}})
}

// holds waits until the Writer has nothing to do, and compares the directory's files, by name.
func holds(t *testing.T, prefix string, want map[string]string) {
	t.Helper()
	synctest.Wait()
	got := map[string]string{}
	entries, err := os.ReadDir(filepath.Join(prefix, statusfile.Directory))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, _ := os.ReadFile(filepath.Join(prefix, statusfile.Directory, e.Name()))
		got[e.Name()] = string(text)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("files (-want +got):\n%s", d)
	}
}

const (
	web     = "k8s shop%2Fweb eth0"
	webUp   = `{"ifaceName":"cali1","mac":"02:00:00:00:00:01","ipv4Nets":["10.65.0.1/32"],"ipv6Nets":["fd00::1/128"]}`
	webMove = `{"ifaceName":"cali1","mac":"02:00:00:00:00:01","ipv4Nets":["10.65.0.2/32"]}`
)

var webID = workload("shop", "h1-k8s-web-eth0")

func TestAFileIsThereWhileAWorkloadIsUp(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "not", "there", "yet")
	synctest.Test(t, func(t *testing.T) {
		w := run(t)
		w.endpoint(webID, "10.65.0.1", "fd00::1")
		w.become(webID, status.Up)
		w.Configure(prefix)
		holds(t, prefix, map[string]string{web: webUp})
		w.endpoint(webID, "10.65.0.2")
		holds(t, prefix, map[string]string{web: webMove})
		w.become(webID, status.Error)
		holds(t, prefix, map[string]string{})
		w.become(webID, status.Up)
		holds(t, prefix, map[string]string{web: webMove})
		w.Sent(intent.Batch{Removed: []intent.Key{webID}})
		holds(t, prefix, map[string]string{})
		host := intent.EndpointID{Kind: intent.Host, Name: "h1-eth0"}
		w.endpoint(host, "192.0.2.1")
		w.become(host, status.Up)
		holds(t, prefix, map[string]string{})
		if w.log.Len() > 0 {
			t.Errorf("logged: %s", w.log)
		}
	})
}

// A former agent's files stay until this one knows better: of a workload that it knows, whether it is up; of others, that there are none.
// What no agent wrote stays for ever.
func TestFilesOfAFormerAgent(t *testing.T) {
	prefix := t.TempDir()
	dir := filepath.Join(prefix, statusfile.Directory)
	if err := os.MkdirAll(filepath.Join(dir, "a b c"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{web, "k8s shop%2Fgone eth0", "README"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		w := run(t)
		w.Configure(prefix)
		holds(t, prefix, map[string]string{web: "{}", "k8s shop%2Fgone eth0": "{}", "README": "{}", "a b c": ""})
		w.endpoint(webID, "10.65.0.2")
		holds(t, prefix, map[string]string{"k8s shop%2Fgone eth0": "{}", "README": "{}", "a b c": ""})
		w.become(webID, status.Up)
		w.Complete()
		holds(t, prefix, map[string]string{web: webMove, "README": "{}", "a b c": ""})
	})
}

func TestTheDirectoryMoves(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := run(t)
		w.endpoint(webID, "10.65.0.2")
		w.become(webID, status.Up)
		w.Configure(from)
		holds(t, from, map[string]string{web: webMove})
		w.Configure(to)
		holds(t, from, map[string]string{})
		holds(t, to, map[string]string{web: webMove})
		w.Configure("")
		holds(t, to, map[string]string{})
		if left, _ := os.ReadDir(to); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
}

// What cannot be written is logged once, and tried again until it can; a directory that somebody removes is made again then.
func TestWhatCannotBeWrittenIsTriedAgain(t *testing.T) {
	root := t.TempDir()
	prefix := filepath.Join(root, "prefix")
	if err := os.WriteFile(prefix, nil, 0o600); err != nil { // a file in the directory's place
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		w := run(t)
		w.Configure(prefix)
		w.endpoint(webID, "10.65.0.2")
		w.become(webID, status.Up)
		<-time.After(10 * time.Minute)
		if n := strings.Count(w.log.String(), "level=ERROR"); n != 1 {
			t.Errorf("%d errors logged, want 1:\n%s", n, w.log)
		}
		if err := os.Remove(prefix); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Minute)
		holds(t, prefix, map[string]string{web: webMove})
		if err := os.RemoveAll(prefix); err != nil {
			t.Fatal(err)
		}
		other := workload("shop", "h1-k8s-other-eth0")
		w.endpoint(other)
		w.become(other, status.Up)
		<-time.After(time.Minute)
		holds(t, prefix, map[string]string{web: webMove, "k8s shop%2Fother eth0": `{"ifaceName":"cali1","mac":"02:00:00:00:00:01"}`})
	})
}
