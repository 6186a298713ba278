package lab

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/stores"
	"github.com/twillnet/twill/internal/lab/script"
)

var membersHosts = flag.Int("members-hosts", 5, "hosts of TestMembersComeAndGoUnderAgents, three at least: as many as the machine carries")

// growing is a scenario whose etcd gets more members, beside the first and on none of the hosts.
type growing struct {
	*scenario
	t       *testing.T
	members map[string]*process
	applied int
}

// TestMembersComeAndGoUnderAgents: etcd grows from one member to three and five, and shrinks to three and one, under writes, of which none that was acknowledged is
// lost, and with agents behind proxies of their own: policy changes at each size are in force on each host, no agent and no proxy ends, no word of an
// allowed connection is lost, and of a denied one none passes.
func TestMembersComeAndGoUnderAgents(t *testing.T) {
	r := Runner{Exe: testBinary(t), Proxy: true}
	s, err := script.Parse("members.txt", growingText(*membersHosts))
	must(t, err)
	c, err := r.newScenario(s)
	must(t, err)
	c.kept = &etcd{c: c, peers: true}
	g := &growing{scenario: c, t: t, members: map[string]*process{}}
	t.Cleanup(g.end)
	for _, step := range s.Steps {
		if err := c.step(t.Context(), step); err != nil {
			t.Fatalf("%s: %v", step.Text, err)
		}
	}
	agents, written := g.daemons(), g.writes()
	for _, name := range []string{"m2", "m3", "m4", "m5"} {
		g.join(name)
		g.change()
	}
	g.wantVoters(5)
	for _, name := range []string{"m2", "m4", "m3", "m5"} {
		g.leave(name)
		g.change()
	}
	g.wantVoters(1)
	n := written()
	store, err := c.store(t.Context())
	must(t, err)
	defer store.Close()
	if snap, err := store.List(t.Context(), "/w/"); err != nil || n == 0 || len(snap.Items) < n {
		t.Errorf("%d keys of %d that were written, error %v", len(snap.Items), n, err)
	}
	t.Logf("%d hosts, %d writes", len(c.Spec.Hosts), n)
	if now := g.daemons(); !maps.Equal(now, agents) {
		t.Errorf("agents and proxies were %v, and are %v", agents, now)
	}
}

func growingText(hosts int) string {
	var b strings.Builder
	b.WriteString("hosts")
	for i := range hosts {
		fmt.Fprintf(&b, " h%d", i+1)
	}
	b.WriteString("\nworkload h1 client 10.65.1.2 app=client\nworkload h2 server 10.65.2.2 app=server\nworkload h3 stranger 10.65.3.2 app=stranger\n")
	b.WriteString("apply policy.yaml\nreach client server tcp/80\n! reach stranger server tcp/80\nstream allowed client server tcp/2000\nstream denied stranger server udp/2000\n")
	fmt.Fprintf(&b, "-- policy.yaml --\n%s", growingPolicy(0))
	return b.String()
}

// growingPolicy is of all workloads, and differs in what matters to no packet of the test.
func growingPolicy(n int) string {
	return fmt.Sprintf(`apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: everybody}
spec:
  types: [Ingress, Egress]
  ingress: [{action: Allow, source: {selector: app == "client"}}, {action: Allow, source: {nets: [203.0.113.%d/32]}}]
  egress: [{action: Allow}]
`, n)
}

// at are the addresses of a member: for clients, for members, and a socket that any namespace reaches.
func (g *growing) at(name string) (client, peer, socket string) {
	n := uint16(name[1] - '1')
	at := func(port uint16) string { return "http://" + netip.AddrPortFrom(g.storeAddr(), port).String() }
	return at(2379 + 10*n), at(2380 + 10*n), "unix://" + filepath.Join(g.Dir, name+".sock")
}

func (g *growing) endpoints() string {
	all := []string{"http://" + netip.AddrPortFrom(g.storeAddr(), 2379).String()}
	for name := range g.members {
		client, _, _ := g.at(name)
		all = append(all, client)
	}
	return "ETCD_ENDPOINTS=" + strings.Join(all, ",")
}

// join runs another member, and returns once it votes.
func (g *growing) join(name string) {
	g.t.Helper()
	client, peer, socket := g.at(name)
	must(g.t, os.MkdirAll(filepath.Join(g.Dir, name), 0o700))
	args := []string{"etcd", "join", "--name", name, "--data-dir", filepath.Join(g.Dir, name, "etcd"), "--listen", client, "--listen", socket, "--listen-peer", peer}
	p, err := launch(g.storeNS(), g.Exe, g.logFile(name), []string{g.endpoints()}, args)
	must(g.t, err)
	g.members[name] = p
	g.wantVoters(len(g.members) + 1)
}

// leave takes a member out, and returns once its process has ended.
func (g *growing) leave(name string) {
	g.t.Helper()
	g.until("leave "+name, "out of the cluster", "etcd", "leave", name)
	select {
	case <-g.members[name].ended:
	case <-time.After(scenarioPatience):
		g.t.Fatalf("%s goes on after it was taken out", name)
	}
	delete(g.members, name)
	g.wantVoters(len(g.members) + 1)
}

func (g *growing) wantVoters(n int) {
	g.t.Helper()
	members := "members"
	if n == 1 {
		members = "member"
	}
	g.until("status", fmt.Sprintf("%d voting %s of %d answer", n, members, n), "etcd", "status")
}

// until runs a command beside the members as often as it takes.
func (g *growing) until(what, want string, args ...string) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), 2*scenarioPatience)
	defer cancel()
	var out []byte
	for !strings.Contains(string(out), want) {
		if ctx.Err() != nil {
			g.t.Fatalf("%s: it says\n%s\nwant %q", what, out, want)
		}
		must(g.t, inside(g.storeNS(), func() error {
			cmd := exec.CommandContext(ctx, g.Exe, args...)
			cmd.Env = append(os.Environ(), g.endpoints())
			out, _ = cmd.CombinedOutput() // refused: it is asked again
			return nil
		}))
	}
}

// change applies another policy, waits until each host has it, and judges the streams.
func (g *growing) change() {
	g.t.Helper()
	g.applied++
	g.settled = false
	must(g.t, g.applyText(g.t.Context(), growingPolicy(g.applied)))
	must(g.t, g.settle(g.t.Context()))
	must(g.t, g.checkStream(g.t.Context(), script.StreamCheck{Name: "allowed", Want: "lossless"}))
	must(g.t, g.checkStream(g.t.Context(), script.StreamCheck{Name: "denied", Want: "silent"}))
}

// daemons are the agents and proxies, by their process ids.
func (g *growing) daemons() map[string]int {
	out := map[string]int{}
	for _, h := range g.Spec.Hosts {
		for _, what := range []string{"agent", "proxy"} {
			if out[h.Name+" "+what] = g.daemon(h.Name, what); out[h.Name+" "+what] == 0 {
				g.t.Errorf("%s has no %s", h.Name, what)
			}
		}
	}
	return out
}

// writes writes keys one after the other, by any member that there is or will be, until it is called; then it returns how many writes were acknowledged.
func (g *growing) writes() (end func() int) {
	g.t.Helper()
	cfg := datastore.Config{Endpoints: []string{g.Socket()}, RequestTimeout: 30 * time.Second}
	for _, name := range []string{"m2", "m3", "m4", "m5"} {
		_, _, socket := g.at(name)
		cfg.Endpoints = append(cfg.Endpoints, socket)
	}
	store, err := stores.Open(g.t.Context(), cfg)
	must(g.t, err)
	ctx, cancel := context.WithCancel(g.t.Context())
	done := make(chan int, 1)
	go func() {
		defer store.Close()
		n := 0
		for ctx.Err() == nil {
			// What failed may be done: it is done again, and then counts.
			if err := datastore.Put(ctx, store, api.Update{Key: fmt.Sprintf("/w/%06d", n), Value: []byte("v")}); err == nil {
				n++
			}
		}
		done <- n
	}()
	return func() int { cancel(); return <-done }
}

// end takes all down, and shows the logs of members if something failed.
func (g *growing) end() {
	for _, name := range slices.Sorted(maps.Keys(g.members)) {
		_ = g.members[name].stop()
	}
	if g.t.Failed() {
		g.t.Logf("bundle: %s\n%s", g.bundle(*bundleDir, fmt.Errorf("test failed")), g.log.String())
	}
	g.quiet()
	must(g.t, g.close())
}
