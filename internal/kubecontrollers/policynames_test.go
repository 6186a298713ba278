package kubecontrollers

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
)

const (
	olderPolicy = `{"kind":"GlobalNetworkPolicy","metadata":{"name":"default.a"},"spec":{"order":1}}`
	newerPolicy = `{"kind":"GlobalNetworkPolicy","metadata":{"name":"a","annotations":{"projectcalico.org/metadata":"{\"name\":\"a\"}"}},"spec":{"order":2}}`
)

// naming is run with the controller of policies' names, and with what agents of n1 and n2 report.
func naming(t *testing.T, reports bool, test func(*bench, *policyNames)) {
	t.Helper()
	run(t, false, func(b *bench) {
		if reports {
			b.report("n1")
			b.report("n2")
		}
		p := newPolicyNames(policyNamesConfig{
			Store: b.store, Settings: func() Settings { b.mu.Lock(); defer b.mu.Unlock(); return b.settings },
			Turn: func(string, error) {}, Log: slog.New(slog.NewTextHandler(b, nil)),
		})
		ctx, cancel := context.WithCancel(b.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = p.loop.Run(ctx) }()
		b.stops = append(b.stops, func() { cancel(); <-done })
		test(b, p)
	})
}

// report is what an agent of Twill's that lives says of itself.
func (b *bench) report(node string) {
	b.Helper()
	key := api.Root + "felix/v2/no-region/host/" + node + "/status"
	if _, err := b.store.Create(b.Context(), api.Update{Key: key, Value: []byte(`{"time":"2026-01-02T03:04:05Z","version":"dev"}`)}); err != nil {
		b.Fatal(err)
	}
}

// policies are the names under which global policies are stored.
func (b *bench) policies() string {
	b.Helper()
	prefix := api.KeyPrefix(api.KindGlobalNetworkPolicy, "")
	snap, err := b.store.List(b.Context(), prefix)
	if err != nil {
		b.Fatal(err)
	}
	var out []string
	for _, u := range snap.Sorted() {
		out = append(out, strings.TrimPrefix(u.Key, prefix))
	}
	return strings.Join(out, " ")
}

func TestPoliciesOfOlderVersionsAreRenamed(t *testing.T) {
	naming(t, true, func(b *bench, p *policyNames) {
		b.put("globalnetworkpolicies/default.a", olderPolicy)
		b.put("globalnetworkpolicies/sec.b", `{"kind":"GlobalNetworkPolicy","metadata":{"name":"sec.b"},"spec":{"tier":"sec"}}`)
		b.after(time.Minute)
		if has := b.policies(); has != "a sec.b" {
			b.Errorf("stored are %s", has)
		}
		b.put("globalnetworkpolicies/default.c", strings.ReplaceAll(olderPolicy, "default.a", "default.c")) // an older tool is still in use
		b.after(time.Minute)
		if has := b.policies(); has != "a c sec.b" {
			b.Errorf("stored are %s", has)
		}
		quiet := b.store.Revision()
		b.after(time.Hour)
		if b.store.Revision() != quiet {
			b.Error("something was written, and nothing had changed")
		}
	})
}

func TestPoliciesKeepTheirNamesIfSettingsSaySo(t *testing.T) {
	naming(t, true, func(b *bench, p *policyNames) {
		b.mu.Lock()
		b.settings.PolicyNames = false
		b.mu.Unlock()
		b.put("globalnetworkpolicies/default.a", olderPolicy)
		b.after(time.Hour)
		if has := b.policies(); has != "default.a" {
			b.Errorf("stored are %s", has)
		}
		b.mu.Lock()
		b.settings.PolicyNames = true
		b.mu.Unlock()
		p.again()
		b.after(time.Minute)
		if has := b.policies(); has != "a" {
			b.Errorf("stored are %s once they are turned on", has)
		}
	})
}

func TestPoliciesKeepTheirNamesWhileOlderAgentsMayRun(t *testing.T) {
	naming(t, false, func(b *bench, _ *policyNames) {
		b.report("n1")
		b.put("globalnetworkpolicies/default.a", olderPolicy)
		b.after(time.Hour)
		if has := b.policies(); has != "default.a" {
			b.Errorf("stored are %s", has)
		}
		if n := strings.Count(b.log.String(), "policies keep their older names for now"); n != 1 || !strings.Contains(b.log.String(), "on n2,") {
			b.Errorf("logged %d times: %s", n, b.log.String())
		}
		b.report("n2")
		b.after(time.Minute)
		if has := b.policies(); has != "a" {
			b.Errorf("stored are %s once Twill runs everywhere", has)
		}
	})
}

// TestPoliciesKeepTheirNamesOnceAnOlderAgentMayRunAgain: a node went back to Calico after others were renamed.
func TestPoliciesKeepTheirNamesOnceAnOlderAgentMayRunAgain(t *testing.T) {
	naming(t, true, func(b *bench, _ *policyNames) {
		b.put("globalnetworkpolicies/default.a", olderPolicy)
		b.after(time.Minute)
		if err := b.store.Delete(b.Context(), api.Root+"felix/v2/no-region/host/n2/status", api.Revision{}); err != nil {
			b.Fatal(err)
		}
		b.put("globalnetworkpolicies/default.c", strings.ReplaceAll(olderPolicy, "default.a", "default.c"))
		b.after(time.Hour)
		if has := b.policies(); has != "a default.c" || !strings.Contains(b.log.String(), "on n2,") {
			b.Errorf("stored are %s", has)
		}
		b.report("n2")
		b.after(time.Minute)
		if has := b.policies(); has != "a c" {
			b.Errorf("stored are %s once Twill runs everywhere", has)
		}
	})
}

func TestAPolicyWithANameThatIsTakenIsNamedOnce(t *testing.T) {
	naming(t, true, func(b *bench, _ *policyNames) {
		b.put("globalnetworkpolicies/default.a", olderPolicy)
		b.put("globalnetworkpolicies/a", newerPolicy)
		b.after(time.Minute)
		b.put("globalnetworkpolicies/z", `{"kind":"GlobalNetworkPolicy","metadata":{"name":"z"},"spec":{}}`) // brings another turn
		b.after(time.Hour)
		if n := strings.Count(b.log.String(), "a policy keeps its older name"); n != 1 || b.policies() != "a default.a z" {
			b.Errorf("logged %d times, stored are %s: %s", n, b.policies(), b.log.String())
		}
		b.remove(b.store, "globalnetworkpolicies/a")
		b.after(time.Minute)
		if has := b.policies(); has != "a z" {
			b.Errorf("stored are %s once the name is free", has)
		}
	})
}
