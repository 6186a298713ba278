package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

const (
	policyChanges = 1001
	kills         = 5
	changeEvery   = 5 * time.Millisecond
)

// testLab is a lab of its own, with the binary of this tree.
func testLab(t testing.TB, s Spec) *Lab {
	t.Helper()
	exe := testBinary(t)
	s.Prefix = fmt.Sprintf("twt%d.%d-", os.Getpid(), scenarios.Add(1))
	l := &Lab{Dir: t.TempDir(), Exe: exe, Spec: s}
	t.Cleanup(func() {
		if t.Failed() {
			keepLogs(t, l)
		}
		if err := l.Down(); err != nil {
			t.Error(err)
		}
	})
	if err := l.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	return l
}

// keepLogs copies the logs of all hosts to a directory that outlives the test, and shows how each ends. All of them would
// bury what failed, where only the end of the output is kept, as in CI.
func keepLogs(t testing.TB, l *Lab) {
	t.Helper()
	dir, err := os.MkdirTemp("", "twill-lab-logs-")
	if err != nil {
		t.Error(err)
		return
	}
	for _, h := range l.Spec.Hosts {
		log, err := os.ReadFile(filepath.Join(l.Dir, h.Name, "node.log"))
		whole := filepath.Join(dir, h.Name+".log")
		if err = errors.Join(err, os.WriteFile(whole, log, 0o600)); err != nil {
			t.Error(err)
		}
		lines := bytes.SplitAfter(log, []byte("\n"))
		t.Logf("the last lines of %d of %s, whole in %s:\n%s", len(lines), h.Name, whole, bytes.Join(lines[max(0, len(lines)-15):], nil))
	}
}

// await asks until it is so, or fails the test.
func await(t testing.TB, what string, is func() bool) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // some wait when their test is over
	if err := until(ctx, func(context.Context) error {
		if !is() {
			return errors.New("not so")
		}
		return nil
	}); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// policy allows client → server on both ports, and differs in what does not matter to them.
func policy(n int) api.Update {
	return api.Update{Key: "/calico/resources/v3/projectcalico.org/networkpolicies/demo/server", Value: fmt.Appendf(nil,
		`{"kind":"NetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":"server","namespace":"demo","annotations":{"projectcalico.org/metadata":"{\"name\":\"server\"}"}},"spec":{"tier":"default","order":100,"selector":"app == \"server\"","types":["Ingress","Egress"],`+
			`"ingress":[{"action":"Allow","protocol":"UDP","source":{"nets":["203.0.113.%d/32"]}},{"action":"Allow","source":{"selector":"app in {\"client\",\"x%d\"}"}}],"egress":[{"action":"Allow","destination":{"selector":"app in {\"client\",\"y%d\"}"}}]}}`,
		n%250, n, n%7)}
}

func restartSpec() Spec {
	full := Demo()
	s := Spec{Hosts: full.Hosts[:1]}
	for i, name := range []string{"client", "server", "stranger"} {
		s.Workloads = append(s.Workloads, Workload{
			Namespace: "demo", Name: name, Host: "h1", Port: 80, Labels: map[string]string{"app": name},
			V4: netip.MustParseAddr(fmt.Sprintf("10.65.1.%d", i+2)), V6: netip.MustParseAddr(fmt.Sprintf("fd65:0:0:1::%d", i+2)),
		})
	}
	s.Manifests = []byte(`{"kind":"Profile","apiVersion":"projectcalico.org/v3","metadata":{"name":"kns.demo"},"spec":{"ingress":[{"action":"Allow"}],"egress":[{"action":"Allow"}]}}`)
	return s
}

func TestAgentKilledAmongChangesLosesNothingAndOpensNothing(t *testing.T) {
	l := testLab(t, restartSpec())
	ctx, cancel := context.WithTimeout(t.Context(), 5*scenarioPatience)
	defer cancel()
	store, err := l.store(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if _, err := store.Create(ctx, policy(0)); err != nil {
		t.Fatal(err)
	}
	client, server, stranger := &l.Spec.Workloads[0], &l.Spec.Workloads[1], &l.Spec.Workloads[2]
	for _, v6 := range []bool{false, true} {
		await(t, "the client reaches the server", func() bool { ok, err := l.Reach("client", "server", 80, v6); return ok && err == nil })
		silent := 0 // times in a row, while another is answered: once may be the machine's
		await(t, "the stranger does not", func() bool {
			ok, err := l.Reach("stranger", "server", 80, v6)
			other, err2 := l.Reach("client", "server", 80, v6)
			if silent++; ok || !other || err != nil || err2 != nil {
				silent = 0
			}
			return silent == 2
		})
	}
	var streams []*stream
	for _, v6 := range []bool{false, true} {
		streams = append(streams,
			startUDP(t, l, client, server, v6, true), startUDP(t, l, server, client, v6, true),
			startUDP(t, l, stranger, server, v6, false), startUDP(t, l, server, stranger, v6, false),
			startTCP(t, l, client, server, v6), startTCP(t, l, server, client, v6))
	}
	changeAndKill(ctx, t, l, store)
	for _, s := range streams {
		s.stop(t)
	}
	sameAsFresh(t, l)
}

// changeAndKill changes the policy many times and kills the agent among them.
func changeAndKill(ctx context.Context, t *testing.T, l *Lab, store datastore.Store) {
	pace := time.NewTicker(changeEvery) // so that agents live among changes, and die among them
	defer pace.Stop()
	for n := 1; n <= policyChanges; n++ {
		<-pace.C
		if _, err := store.Update(ctx, policy(n)); err != nil {
			t.Fatal(err)
		}
		if n%(policyChanges/kills) == policyChanges/kills/2 {
			var pid int
			await(t, "an agent runs", func() bool { pid = l.agentPID(l.Spec.Hosts[0]); return pid != 0 })
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	await(t, "the agent is back", func() bool { return l.agentPID(l.Spec.Hosts[0]) != 0 })
}

// sameAsFresh compares the kernel with what an agent makes that finds nothing.
func sameAsFresh(t *testing.T, l *Lab) {
	host := l.Spec.hostNS(l.Spec.Hosts[0])
	table := func() string {
		text, err := table(host)
		if err != nil {
			return err.Error()
		}
		return text
	}
	// The kernel shows the last change: its rule has this address, and no change before it for a long while.
	last := regexp.MustCompile(fmt.Sprintf(`\b(203\.0\.113\.%d|%x)\b`, policyChanges%250, []byte{203, 0, 113, policyChanges % 250})) // in a map, or in a rule
	var after string
	await(t, "the last change is in the kernel, and its flows were judged", func() bool {
		after = table()
		return last.MatchString(after) && !strings.Contains(after, "recheck-")
	})
	await(t, "the table of a killed agent is deleted", func() bool {
		// Until its socket is closed the table is the agent's, and the next one takes it over at once.
		if pid := l.agentPID(l.Spec.Hosts[0]); pid != 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		err := inside(host, func() error {
			conn, err := nftables.Open()
			if err != nil {
				return err
			}
			defer conn.Close()
			var b nftables.Batch
			b.PurgeTable(kernel.TableName)
			return conn.Commit(&b)
		})
		if owned := new(nftables.OwnedError); err != nil && !errors.As(err, &owned) {
			t.Fatal(err)
		}
		return err == nil
	})
	var fresh string
	await(t, "a fresh start makes the same table", func() bool { fresh = table(); return fresh == after })
}
