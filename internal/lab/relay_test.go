package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore/member/certs"
	"github.com/twillnet/twill/internal/kernel/machinetest"
	relayprocess "github.com/twillnet/twill/internal/relay/process"
)

// TestAnAgentBehindARelay: its host's policy comes by a relay that shows a certificate, and is shown one. Without the relay what is in force stays,
// also over a restart of the agent, however the datastore changes; once there is a relay again, all of it counts. No packet notices any of it.
func TestAnAgentBehindARelay(t *testing.T) {
	settings := filepath.Join(t.TempDir(), "twill.conf")
	must(t, os.WriteFile(settings, nil, 0o600))
	t.Setenv("TWILL_CONFIG", settings)
	pki := t.TempDir()
	_, err := certs.Make(certs.Config{Dir: pki, Members: []certs.Host{{Name: "relay", Names: []string{"127.0.0.1"}}}, Clients: []string{"agent"}})
	must(t, err)
	g := newGround(t)
	relay := g.startRelay(t, pki)
	file := func(name string) string { return filepath.Join(pki, "agent", name) }
	must(t, os.WriteFile(settings, fmt.Appendf(nil, "typhaAddr = 127.0.0.1:5473\ntyphaCAFile = %s\ntyphaCertFile = %s\ntyphaKeyFile = %s\n", file("ca.crt"), file("client.crt"), file("client.key")), 0o600))
	g.killAgent(t)
	g.awaitLog(t, "the datastore is read by a relay", 1)
	g.beat(t)
	g.awaitClient(t)

	deny := `{"selector":"app == \"b\"","types":["Ingress"]}`
	g.put(t, api.KindNetworkPolicy, "demo", "p", deny)
	g.want(t, "a -> b no", "c -> d yes")
	a, b, c, d := &g.Spec.Workloads[0], &g.Spec.Workloads[1], &g.Spec.Workloads[2], &g.Spec.Workloads[3]
	allowed, denied := startTCP(t, g.Lab, c, d, false), startUDP(t, g.Lab, a, b, false, false)

	// Killed: what is denied stays denied, and what is allowed allowed, whatever is written.
	must(t, relay.cmd.Process.Kill())
	<-relay.ended
	g.awaitLog(t, "relay 127.0.0.1:5473", 1)
	must(t, g.store.Delete(t.Context(), key(api.KindNetworkPolicy, "demo", "p"), api.Revision{}))
	g.put(t, api.KindNetworkPolicy, "other", "q", `{"selector":"app == \"c\"","types":["Ingress"]}`)
	g.still(t, "a -> b no", "c -> d yes", "d -> c yes")
	g.killAgent(t)
	g.awaitLog(t, "the datastore is read by a relay", 2)
	g.still(t, "a -> b no", "c -> d yes", "d -> c yes")
	denied.stop(t)

	// Another one: what was written meanwhile counts.
	relay = g.startRelay(t, pki)
	g.want(t, "a -> b yes", "c -> d yes", "d -> c no")

	// Frozen, it is cut off; asked to end, it sends the agent away. Each time the agent comes back to a relay that has not the same past.
	machinetest.Freeze(t, relay.cmd.Process.Pid)
	g.put(t, api.KindNetworkPolicy, "demo", "p", deny)
	g.still(t, "a -> b yes", "c -> d yes")
	must(t, relay.cmd.Process.Signal(syscall.SIGCONT))
	g.want(t, "a -> b no")
	must(t, relay.stop())
	must(t, g.store.Delete(t.Context(), key(api.KindNetworkPolicy, "demo", "p"), api.Revision{}))
	g.startRelay(t, pki)
	g.want(t, "a -> b yes", "d -> c no")
	must(t, g.store.Delete(t.Context(), key(api.KindNetworkPolicy, "other", "q"), api.Revision{}))
	g.want(t, "d -> c yes")
	allowed.stop(t)
	g.verified(t)
}

// awaitClient waits until `twill relay clients` names the agent of this host, with all that it reads.
func (g *ground) awaitClient(t *testing.T) {
	t.Helper()
	name := g.Spec.Hosts[0].Name
	for {
		st, err := relayprocess.Ask(t.Context(), filepath.Join(g.Dir, "relay-status.sock"))
		must(t, err)
		for _, c := range st.Clients {
			if c.Node == name && c.Program == "agent" && c.Version != "" && len(c.Reads) == 2 && c.Reads[0].Behind+c.Reads[1].Behind == 0 && c.SentBytes > 0 {
				return
			}
		}
	}
}

// startRelay runs a relay on the host, and returns when it is ready.
func (g *ground) startRelay(t *testing.T, pki string) *process {
	t.Helper()
	file := func(name string) string { return filepath.Join(pki, "relay", name) }
	p, err := launch(g.Spec.hostNS(g.Spec.Hosts[0]), g.Exe, filepath.Join(g.Dir, "relay.log"), nil, []string{
		"relay", "--etcd", g.Socket(), "--listen", "127.0.0.1:5473", "--tls-cert", file("server.crt"), "--tls-key", file("server.key"), "--tls-ca", file("ca.crt"), "--client-cn", "agent", "--drain", "1s", "--socket", filepath.Join(g.Dir, "relay-status.sock"),
	})
	must(t, err)
	t.Cleanup(func() {
		_ = p.stop()
		if log, _ := os.ReadFile(filepath.Join(g.Dir, "relay.log")); t.Failed() {
			t.Logf("the relay's log:\n%s", log)
		}
	})
	await(t, "the relay is ready", func() bool { return g.fetch("127.0.0.1:9098/readiness") == "ready\n" })
	return p
}
