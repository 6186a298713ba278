package policysync

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/twillnet/twill/api/felixpb"
	"github.com/twillnet/twill/internal/intent"
)

// place is a server below a directory of its own.
type place struct {
	*testing.T
	dir  string
	s    *Server
	sent chan map[intent.EndpointID]bool
	stop func()
}

func serving(t *testing.T, cfg Config) *place {
	p := &place{T: t, dir: t.TempDir(), sent: make(chan map[intent.EndpointID]bool, 100)}
	p.must(os.Mkdir(filepath.Join(p.dir, "creds"), 0o755))
	cfg.Poll, cfg.Patience = 5*time.Millisecond, cmp.Or(cfg.Patience, 2*time.Minute)
	cfg.Proxied = func(_ context.Context, is map[intent.EndpointID]bool) error { p.sent <- is; return nil }
	p.s = New(cfg)
	p.s.Configure(p.dir, func() intent.Batch { return intent.Batch{} })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = p.s.Run(ctx) }()
	p.stop = func() { cancel(); <-ended }
	t.Cleanup(p.stop)
	return p
}

func (p *place) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func (p *place) path(parts ...string) string {
	return filepath.Join(append([]string{p.dir}, parts...)...)
}

// volume is what a driver for volumes does for a pod.
func (p *place) volume(name, text string) {
	p.Helper()
	p.must(os.MkdirAll(p.path("mount", name), 0o777))
	p.must(os.WriteFile(p.path("new"), []byte(text), 0o600))
	p.must(os.Rename(p.path("new"), p.path("creds", name+".json")))
}

func credentialsOf(pod string) string {
	return fmt.Sprintf(`{"UID":"1","Workload":%q,"Namespace":"shop","ServiceAccount":"default"}`, pod)
}

// until waits for something that polling finds.
func (p *place) until(what string, done func() bool) {
	p.Helper()
	deadline := time.After(time.Minute)
	for tick := time.Tick(2 * time.Millisecond); !done(); {
		select {
		case <-deadline:
			p.Fatalf("%s: not within a minute", what)
		case <-tick:
		}
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// dial connects to the socket of a volume.
func (p *place) dial(name string) pb.PolicySyncClient {
	p.Helper()
	c, err := grpc.NewClient("unix://"+p.path("mount", name, "socket"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	p.must(err)
	p.Cleanup(func() { _ = c.Close() })
	return pb.NewPolicySyncClient(c)
}

// sync reads until InSync.
func (p *place) sync(name string) (grpc.ServerStreamingClient[pb.ToDataplane], *reader) {
	p.Helper()
	stream, err := p.dial(name).Sync(p.Context(), &pb.SyncRequest{}, grpc.WaitForReady(true))
	p.must(err)
	r := newReader()
	p.read(stream, r, func() bool { return r.inSync > 0 })
	return stream, r
}

func (p *place) read(stream grpc.ServerStreamingClient[pb.ToDataplane], r *reader, done func() bool) {
	p.Helper()
	for !done() {
		m, err := stream.Recv()
		p.must(err)
		if problem := r.apply(m); problem != "" {
			p.Fatal(problem)
		}
	}
}

// batch has two workloads with a policy each.
func batch() intent.Batch {
	b := intent.Batch{InSync: true}
	for n, name := range []string{"web", "db"} {
		id := policyName(n + 1)
		b.IPSets = append(b.IPSets, intent.IPSet{ID: setName(n), Members: []intent.Member{{Prefix: netip.MustParsePrefix(fmt.Sprintf("10.0.%d.0/24", n))}}})
		b.Policies = append(b.Policies, intent.Policy{ID: id, Tier: "default", Ingress: []intent.Rule{{Action: intent.Allow, Src: intent.Peer{Sets: []intent.SetID{setName(n)}}}}})
		b.Endpoints = append(b.Endpoints, intent.Endpoint{ID: pod(name), Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 1, byte(n)})}, Group: intent.GroupOf(intent.Stages{Normal: []intent.Tier{{Name: "default", Ingress: []intent.PolicyID{id}}}})})
	}
	return b
}

// TestEachSocketHasItsWorkloadsShare: a client of each socket has the share of the workload that its file names, follows changes, and is disconnected when the file goes, and
// with it the socket.
func TestEachSocketHasItsWorkloadsShare(t *testing.T) {
	p := serving(t, Config{})
	p.volume("csi-1", credentialsOf("web"))
	p.volume("csi-2", credentialsOf("db"))
	p.s.InForce(batch(), false)
	web, has := p.sync("csi-1")
	_, other := p.sync("csi-2")
	for _, one := range []struct {
		*reader
		set, policy string
	}{{has, "s0", "p1"}, {other, "s1", "p2"}} {
		if _, there := one.policies["NetworkPolicy/shop/"+one.policy]; !there || len(one.policies) != 1 || len(one.sets) != 1 || one.sets[one.set] == nil {
			t.Errorf("got %+v, want policy %s and set %s alone", one.reader, one.policy, one.set)
		}
	}
	p.s.InForce(intent.Batch{Members: []intent.MemberDelta{{Set: "s1", Added: []intent.Member{{Prefix: netip.MustParsePrefix("10.9.0.0/16")}}}, {Set: "s0", Added: []intent.Member{{Prefix: netip.MustParsePrefix("10.8.0.0/16")}}}}}, false)
	p.read(web, has, func() bool { return has.sets["s0"]["10.8.0.0/16"] })
	p.s.InForce(intent.Batch{Removed: []intent.Key{setName(0), policyName(1), pod("web")}}, false)
	p.read(web, has, func() bool { return has.endpoint == "" && len(has.policies)+len(has.sets) == 0 })

	p.must(os.Remove(p.path("creds", "csi-1.json")))
	if m, err := web.Recv(); err == nil {
		t.Errorf("a client whose file is gone got %v", m)
	}
	p.until("the socket goes", func() bool { return !exists(p.path("mount", "csi-1", "socket")) })
	p.stop()
	if exists(p.path("mount", "csi-2", "socket")) || exists(p.path("policysync")) {
		t.Error("sockets stay after the end")
	}
}

// TestWhatWasInForceBefore the setting names a directory is served, and without one nothing is kept in memory.
func TestWhatWasInForceBefore(t *testing.T) {
	p := serving(t, Config{})
	kept := func() int {
		p.s.hub.mu.Lock()
		defer p.s.hub.mu.Unlock()
		m := &p.s.hub.model
		return len(m.endpoints) + len(m.policies) + len(m.sets)
	}
	p.volume("csi-1", credentialsOf("web"))
	p.s.InForce(batch(), false)
	p.until("policy is known", func() bool { return kept() > 0 })
	p.s.Configure("", nil)
	p.until("policy is forgotten", func() bool { return kept() == 0 && !exists(p.path("mount", "csi-1", "socket")) })
	p.s.InForce(batch(), false)
	p.s.hub.work()
	if n := kept(); n > 0 {
		t.Errorf("nobody wants policy, and %d items are kept", n)
	}
	p.s.Configure(p.dir, batch)
	if _, has := p.sync("csi-1"); len(has.policies) != 1 || len(has.sets) != 1 || has.endpoint == "" {
		t.Errorf("got %+v", has)
	}
}

// TestAProxyThatComesBeforeItsWorkload: it is in sync with nothing, and has its share when the workload comes.
func TestAProxyThatComesBeforeItsWorkload(t *testing.T) {
	p := serving(t, Config{})
	p.volume("csi-1", credentialsOf("web"))
	p.s.InForce(intent.Batch{InSync: true}, false)
	web, has := p.sync("csi-1")
	if has.endpoint != "" {
		t.Errorf("got %s", has.endpoint)
	}
	p.s.InForce(batch(), false)
	p.read(web, has, func() bool { return has.endpoint != "" })
	if got := <-p.sent; !maps.Equal(got, map[intent.EndpointID]bool{pod("web"): true}) {
		t.Errorf("proxied are %v", got)
	}
	if r, err := p.dial("csi-1").Report(t.Context(), &pb.DataplaneStats{}); err != nil || r.GetSuccessful() {
		t.Errorf("report: %v, %v", r, err)
	}
}

// TestAFileThatChangesIsAnotherWorkload: the client of the one before is disconnected.
func TestAFileThatChangesIsAnotherWorkload(t *testing.T) {
	p := serving(t, Config{})
	p.volume("csi-1", credentialsOf("web"))
	p.s.InForce(batch(), false)
	web, _ := p.sync("csi-1")
	p.volume("csi-1", credentialsOf("db"))
	if m, err := web.Recv(); err == nil {
		t.Errorf("got %v", m)
	}
	p.until("the socket is db's", func() bool {
		_, has := p.sync("csi-1")
		return strings.Contains(has.endpoint, "shop/db")
	})
}

// TestTricksOfPaths: what a workload or a file's name makes of paths reaches nothing outside of the workload's own directory.
func TestTricksOfPaths(t *testing.T) {
	p := serving(t, Config{})
	outside := filepath.Join(t.TempDir(), "file")
	p.must(os.WriteFile(outside, []byte("as it was"), 0o600))
	for name, text := range map[string]string{
		"..": credentialsOf("web"), ".": credentialsOf("web"), ".hidden": credentialsOf("web"), "sp ace": credentialsOf("web"), "bad-json": "{", "no-name": "{}", "list": "[]",
		"slash": `{"Workload":"../../web","Namespace":"shop"}`, "other-namespace": `{"Workload":"web","Namespace":"shop/x"}`, "control": `{"Workload":"web\n","Namespace":"shop"}`,
		"large": credentialsOf("web") + strings.Repeat(" ", maxCredentials),
	} {
		p.must(os.MkdirAll(p.path("mount", name), 0o777))
		p.must(os.WriteFile(p.path("creds", name+".json"), []byte(text), 0o600))
	}
	p.must(os.MkdirAll(p.path("mount", "linked-file"), 0o777))
	p.must(os.Symlink(outside, p.path("creds", "linked-file.json")))
	p.must(os.WriteFile(p.path("creds", "linked-mount.json"), []byte(credentialsOf("web")), 0o600))
	p.must(os.Symlink(filepath.Dir(outside), p.path("mount", "linked-mount")))
	p.must(os.MkdirAll(p.path("mount", "full", "socket", "x"), 0o777)) // no file can take its place
	p.must(os.WriteFile(p.path("creds", "full.json"), []byte(credentialsOf("web")), 0o600))
	p.must(os.MkdirAll(p.path("mount", "link"), 0o777)) // as a workload may
	p.must(os.Symlink(outside, p.path("mount", "link", "socket")))
	p.volume("link", credentialsOf("web"))
	p.volume("z-last", credentialsOf("web")) // files are read in their order
	p.s.InForce(batch(), false)
	p.sync("z-last")
	p.sync("link")
	if text, err := os.ReadFile(outside); err != nil || string(text) != "as it was" {
		t.Errorf("the file outside has %q, %v", text, err)
	}
	if info, err := os.Stat(outside); err != nil || info.Mode() != 0o600 {
		t.Errorf("the file outside is %v, %v", info.Mode(), err)
	}
	p.must(filepath.WalkDir(p.dir, func(path string, d os.DirEntry, err error) error {
		in, _ := filepath.Rel(p.dir, path)
		switch {
		case err != nil || d.Type()&os.ModeSocket == 0 || in == "mount/link/socket" || in == "mount/z-last/socket":
		case filepath.Dir(in) == stagingDir: // it is tried again to put one where no file can be
			p.until("it is removed", func() bool { return !exists(path) })
		default:
			t.Errorf("there is a socket %s", in)
		}
		return err
	}))
}

// TestAProxyThatDoesNotReadIsDisconnected: and holds up no other one meanwhile.
func TestAProxyThatDoesNotReadIsDisconnected(t *testing.T) {
	p := serving(t, Config{Patience: 5 * time.Second}) // the quick one is no slower on a busy machine
	p.volume("csi-1", credentialsOf("web"))
	p.volume("csi-2", credentialsOf("db"))
	p.s.InForce(batch(), false)
	slow, _ := p.sync("csi-1")
	quick, has := p.sync("csi-2")
	var large []intent.Member
	for n := range 200_000 {
		large = append(large, intent.Member{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{11, byte(n >> 16), byte(n >> 8), byte(n)}), 32)})
	}
	p.s.InForce(intent.Batch{Members: []intent.MemberDelta{{Set: "s0", Added: large}, {Set: "s1", Added: large[:1]}}}, false)
	p.read(quick, has, func() bool { return has.sets["s1"]["11.0.0.0/32"] })
	p.until("it has no share any more", func() bool {
		p.s.hub.mu.Lock()
		defer p.s.hub.mu.Unlock()
		return len(p.s.hub.model.shares) == 1
	})
	for {
		if _, err := slow.Recv(); err != nil {
			break
		}
	}
}

// TestClientsAreBounded: a workload cannot take the agent's descriptors.
func TestClientsAreBounded(t *testing.T) {
	p := serving(t, Config{})
	p.volume("csi-1", credentialsOf("web"))
	p.s.InForce(batch(), false)
	p.sync("csi-1")
	path, refused := p.path("mount", "csi-1", "socket"), 0
	for range 3 * connsAtOnce {
		c, err := net.Dial("unix", path)
		p.must(err)
		p.Cleanup(func() { _ = c.Close() })
		p.must(c.SetReadDeadline(time.Now().Add(time.Minute)))
		if n, err := c.Read(make([]byte, 1)); n == 0 && err != nil && !os.IsTimeout(err) {
			refused++ // else the server greets
		}
	}
	if refused != 2*connsAtOnce+1 {
		t.Errorf("%d connections were refused, want %d", refused, 2*connsAtOnce+1)
	}
}

// TestWhoHasAProxyIsKept: a workload counts as one with a proxy for a while after the proxy, or the agent, went.
func TestWhoHasAProxyIsKept(t *testing.T) {
	cfg := Config{Note: filepath.Join(t.TempDir(), "note"), Hold: time.Hour}
	p := serving(t, cfg)
	p.volume("csi-1", credentialsOf("web"))
	p.s.InForce(batch(), false)
	web, _ := p.sync("csi-1")
	want := map[intent.EndpointID]bool{pod("web"): true}
	if got := <-p.sent; !maps.Equal(got, want) {
		t.Fatalf("proxied are %v", got)
	}
	p.must(os.Remove(p.path("creds", "csi-1.json")))
	if _, err := web.Recv(); err == nil {
		t.Fatal("it is connected")
	}
	p.stop()
	if got := p.s.Held(); !maps.Equal(got, want) || len(p.sent) > 0 {
		t.Errorf("after the proxy went: %v", got)
	}
	if got := New(cfg).Held(); !maps.Equal(got, want) {
		t.Errorf("the next agent begins with %v", got)
	}
	cfg.Hold = time.Nanosecond
	if got := <-serving(t, cfg).sent; len(got) > 0 {
		t.Errorf("after the while there are %v", got)
	}
	if got := New(cfg).Held(); len(got) > 0 {
		t.Errorf("kept are %v", got)
	}
	p.must(os.WriteFile(cfg.Note, []byte("not JSON"), 0o600))
	if got := New(cfg).Held(); len(got) > 0 {
		t.Errorf("of nonsense are kept %v", got)
	}
}
