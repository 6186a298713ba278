package lab

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/member/certs"
	"github.com/twillnet/twill/internal/kernel/machinetest"
	relayprocess "github.com/twillnet/twill/internal/relay/process"
)

// relays are three of them, one on each host of a lab, by which all agents read the datastore.
type relays struct {
	*Lab
	t       *testing.T
	store   datastore.Client
	pki     string
	runs    [3]*process
	version int // of the policy
}

func relayedSpec() Spec {
	s := Spec{Hosts: Demo().Hosts, Manifests: restartSpec().Manifests}
	for i, name := range []string{"client", "server", "stranger"} {
		s.Workloads = append(s.Workloads, Workload{
			Namespace: "demo", Name: name, Host: s.Hosts[i].Name, Port: 80, Labels: map[string]string{"app": name},
			V4: netip.MustParseAddr(fmt.Sprintf("10.65.%d.2", i+1)), V6: netip.MustParseAddr(fmt.Sprintf("fd65:0:0:%d::2", i+1)),
		})
	}
	return s
}

// TestThreeRelaysAreRestartedUnderStreams one after the other, gracefully, by a kill, and frozen, with policy that changes meanwhile: each change comes to
// each of three agents, whose kernels are right after it. No agent ends, no word of an allowed connection is lost, and of a denied one none passes.
func TestThreeRelaysAreRestartedUnderStreams(t *testing.T) {
	settings := filepath.Join(t.TempDir(), "twill.conf")
	must(t, os.WriteFile(settings, nil, 0o600))
	t.Setenv("TWILL_CONFIG", settings)
	r := &relays{Lab: testLab(t, relayedSpec()), t: t, pki: t.TempDir()}
	var members []certs.Host
	var addresses []string
	for _, h := range r.Spec.Hosts {
		members = append(members, certs.Host{Name: h.Name, Names: []string{h.V4.String()}})
		addresses = append(addresses, netip.AddrPortFrom(h.V4, 5473).String())
	}
	_, err := certs.Make(certs.Config{Dir: r.pki, Members: members, Clients: []string{"agent"}})
	must(t, err)
	r.store, err = r.Lab.store(t.Context())
	must(t, err)
	t.Cleanup(func() { _ = r.store.Close() })
	_, err = r.store.Create(t.Context(), everybodys(0))
	must(t, err)
	for i := range r.runs {
		r.start(i)
	}
	file := func(name string) string { return filepath.Join(r.pki, "agent", name) }
	must(t, os.WriteFile(settings, fmt.Appendf(nil, "typhaAddr = %s\ntyphaCAFile = %s\ntyphaCertFile = %s\ntyphaKeyFile = %s\n", strings.Join(addresses, ","), file("ca.crt"), file("client.crt"), file("client.key")), 0o600))
	r.restartAgents()
	agents := r.agents()
	r.change()

	client, server, stranger := &r.Spec.Workloads[0], &r.Spec.Workloads[1], &r.Spec.Workloads[2]
	var streams []*stream
	for _, v6 := range []bool{false, true} {
		streams = append(streams, startTCP(t, r.Lab, client, server, v6), startUDP(t, r.Lab, client, server, v6, true), startUDP(t, r.Lab, stranger, server, v6, false))
	}
	for i := range r.runs {
		must(t, r.runs[i].stop())
		r.change()
		r.start(i)
		r.change()
	}
	for i := range r.runs {
		must(t, r.runs[i].cmd.Process.Kill())
		<-r.runs[i].ended
		r.change()
		r.start(i)
	}
	// A frozen one is noticed by its clients, which go to the others.
	i := r.mostUsed()
	machinetest.Freeze(t, r.runs[i].cmd.Process.Pid)
	r.change()
	must(t, r.runs[i].cmd.Process.Signal(syscall.SIGCONT))
	r.change()
	for _, s := range streams {
		s.stop(t)
	}
	if now := r.agents(); !maps.Equal(now, agents) {
		t.Errorf("agents were %v, and are %v", agents, now)
	}
}

// start runs a host's relay, and returns when it is ready.
func (r *relays) start(i int) {
	r.t.Helper()
	h := r.Spec.Hosts[i]
	file := func(name string) string { return filepath.Join(r.pki, h.Name, name) }
	log := filepath.Join(r.Dir, fmt.Sprint("relay-", h.Name, ".log"))
	p, err := launch(r.Spec.hostNS(h), r.Exe, log, nil, []string{
		"relay", "--etcd", r.etcdURL(), "--listen", netip.AddrPortFrom(h.V4, 5473).String(), "--tls-cert", file("server.crt"), "--tls-key", file("server.key"), "--tls-ca", file("ca.crt"),
		"--client-cn", "agent", "--relays", "3", "--drain", "1s", "--socket", r.socket(i),
	})
	must(r.t, err)
	r.runs[i] = p
	r.t.Cleanup(func() {
		_ = p.stop()
		if b, _ := os.ReadFile(log); r.t.Failed() {
			r.t.Logf("the relay's log of %s:\n%s", h.Name, b)
		}
	})
	await(r.t, "the relay of "+h.Name+" is ready", func() bool {
		st, err := relayprocess.Ask(r.t.Context(), r.socket(i))
		return err == nil && len(st.NotReady) == 0
	})
}

func (r *relays) socket(i int) string { return filepath.Join(r.Dir, fmt.Sprint("relay-", i, ".sock")) }

// restartAgents has all agents read their settings again, and returns once the relays have them as clients.
func (r *relays) restartAgents() {
	r.t.Helper()
	for host, pid := range r.agents() {
		must(r.t, syscall.Kill(pid, syscall.SIGKILL))
		await(r.t, "another agent runs on "+host, func() bool { now := r.agents()[host]; return now != 0 && now != pid })
	}
	await(r.t, "relays have three agents", func() bool {
		all := map[string]bool{}
		for i := range r.runs {
			st, err := relayprocess.Ask(r.t.Context(), r.socket(i))
			must(r.t, err)
			for _, c := range st.Clients {
				if c.Program == "agent" {
					all[c.Node] = true
				}
			}
		}
		return len(all) == 3
	})
}

// agents are those of the hosts, by their process ids.
func (r *relays) agents() map[string]int {
	out := map[string]int{}
	for _, h := range r.Spec.Hosts {
		out[h.Name] = r.agentPID(h)
	}
	return out
}

// mostUsed is the relay with the most clients.
func (r *relays) mostUsed() (most int) {
	r.t.Helper()
	clients := -1
	for i := range r.runs {
		st, err := relayprocess.Ask(r.t.Context(), r.socket(i))
		must(r.t, err)
		if len(st.Clients) > clients {
			most, clients = i, len(st.Clients)
		}
	}
	return most
}

// everybodys is a policy of all workloads, which allows what client and server send, and differs in what matters to no packet of the test.
func everybodys(n int) api.Update {
	return api.Update{Key: key(api.KindNetworkPolicy, "demo", "everybody"), Value: fmt.Appendf(nil,
		`{"kind":"NetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":"everybody","namespace":"demo"},"spec":{"tier":"default","order":100,"selector":"all()","types":["Ingress","Egress"],`+
			`"ingress":[{"action":"Allow","protocol":"UDP","source":{"nets":["203.0.113.%d/32"]}},{"action":"Allow","source":{"selector":"app in {\"client\",\"server\"}"}}],"egress":[{"action":"Allow"}]}}`, n)}
}

// change writes another policy, and returns when all kernels have it.
func (r *relays) change() {
	r.t.Helper()
	r.version++
	_, err := r.store.Update(r.t.Context(), everybodys(r.version))
	must(r.t, err)
	var hosts errgroup.Group
	for _, h := range r.Spec.Hosts {
		hosts.Go(func() error { return r.verified(h) })
	}
	if err := hosts.Wait(); err != nil {
		r.t.Fatalf("change %d: %v", r.version, err)
	}
}

// verified waits until a host's kernel is what the datastore asks for: a frozen relay is cut off after 20 s.
func (r *relays) verified(h Host) error {
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*scenarioPatience)
	defer cancel()
	return inside(r.Spec.hostNS(h), func() error {
		for {
			out, err := exec.CommandContext(ctx, r.Exe, "verify", "--node", h.Name, "--etcd", r.etcdURL(), "--patience", "10s").CombinedOutput()
			if err == nil {
				return nil
			}
			if ctx.Err() != nil {
				return fmt.Errorf("verify on %s: %w\n%s", h.Name, err, out)
			}
		}
	})
}
