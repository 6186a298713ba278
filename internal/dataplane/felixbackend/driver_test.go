package felixbackend

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/twillnet/twill/internal/dataplane"
	"github.com/twillnet/twill/internal/intent"
)

// started is a driver with a program that does something. It has no timers that a test waits for: a program that ended begins again at once.
func started(t *testing.T, does string) (*Driver, string) {
	t.Helper()
	path, log := program(t, does)
	d := New(Config{Program: path, Node: "h1", Backoff: time.Millisecond, MaxBackoff: time.Millisecond, Patience: 300 * time.Millisecond})
	d.Configure(map[string]string{"InterfacePrefix": "cali"})
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		_ = d.Run(ctx)
	}()
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-d.Drift():
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ran
		if c := d.running; c != nil && syscall.Kill(c.PID(), 0) == nil {
			t.Error("the program outlives its agent")
		}
	})
	return d, log
}

// until calls Apply until it returns what a test wants, and collects the last outcome of each intent.
func until(t *testing.T, d *Driver, done func(error) bool) map[intent.Key]intent.Outcome {
	t.Helper()
	last, errs := map[intent.Key]intent.Outcome{}, map[string]bool{}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		out, err := d.Apply(t.Context())
		for _, o := range out {
			last[o.Key] = o
		}
		if errs[errText(err)] = true; done(err) {
			return last
		}
	}
	t.Fatalf("it never came to that, but to %q", slices.Collect(maps.Keys(errs)))
	return nil
}

func noError(err error) bool { return err == nil }

var (
	web    = intent.PolicyID{Kind: "NetworkPolicy", Namespace: "prod", Name: "web"}
	prof   = intent.PolicyID{Kind: "Profile", Name: "kns.prod"}
	webPod = intent.EndpointID{Kind: intent.Workload, Namespace: "prod", Name: "h1-k8s-web--0-eth0"}
	eth0   = intent.EndpointID{Kind: intent.Host, Name: "h1-eth0"}
)

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// whole is a first state: a workload with a policy that names a set, and a profile.
func whole() intent.Batch {
	return intent.Batch{
		IPSets: []intent.IPSet{{ID: "s:clients", Members: []intent.Member{{Prefix: prefix("10.65.2.7/32")}}}},
		Policies: []intent.Policy{
			{ID: web, Tier: "default", Ingress: []intent.Rule{{Action: intent.Allow, Protocol: 6, Src: intent.Peer{Sets: []intent.SetID{"s:clients"}}, Dst: intent.Peer{Ports: []intent.PortRange{{Min: 80, Max: 80}}}}}},
			{ID: prof, Ingress: []intent.Rule{{Action: intent.Allow}}},
		},
		Endpoints: []intent.Endpoint{{
			ID: webPod, Link: "cali1", MAC: "ee:ee:ee:ee:ee:ee", Addrs: []netip.Addr{netip.MustParseAddr("10.65.1.5")},
			Group: intent.GroupOf(intent.Stages{Normal: []intent.Tier{{Name: "default", Default: intent.Deny, Ingress: []intent.PolicyID{web}}}}, prof),
		}},
		Routes: []intent.Route{{Dst: prefix("10.65.1.5/32"), Kind: intent.RouteLink, Link: "cali1"}},
		Host:   &intent.HostSettings{},
		InSync: true,
	}
}

// kinds are the numbers of messages' payloads, in their order.
func kinds(messages [][]byte) (out []int) {
	for _, m := range messages {
		for n := protowire.Number(1); n < 40; n++ {
			if _, is := at(m, n); is && n != 15 {
				out = append(out, int(n))
			}
		}
	}
	return out
}

// TestADriverHasAllThenInSync: a program that knows the protocol by its numbers alone gets a workload, its policy and its set, says that it is up, and
// that is the outcome.
func TestADriverHasAllThenInSync(t *testing.T) {
	d, log := started(t, "ok")
	if out, err := d.Apply(t.Context()); out != nil || err != nil || d.program != nil {
		t.Fatal("it begins before all is known")
	}
	d.Merge(whole())
	last := until(t, d, noError)
	for _, k := range []intent.Key{webPod, web, prof, intent.SetID("s:clients"), intent.RouteID{Prefix: prefix("10.65.1.5/32")}} {
		if o, is := last[k]; !is || o != (intent.Outcome{Key: k}) {
			t.Errorf("%s: %+v", k, o)
		}
	}
	got := receivedAll(t, log, 1)
	if want := []int{13, 30, 2, 7, 7, 5, 11, 23, 1}; !slices.Equal(kinds(got), want) {
		t.Fatalf("payloads %v, want %v", kinds(got), want)
	}
	for n, m := range got {
		if s := value(m, 15); s != strconv.Itoa(n) && (s != "" || n > 0) {
			t.Errorf("message %d has number %q", n, s)
		}
	}
	set, policy, endpoint := got[2], got[4], got[6]
	for _, c := range []struct {
		what string
		in   []byte
		path []protowire.Number
		want string
	}{
		{"a setting's name", got[0], []protowire.Number{13, 1, 1}, "InterfacePrefix"},
		{"its value", got[0], []protowire.Number{13, 1, 2}, "cali"},
		{"the set", set, []protowire.Number{2, 1}, "s:clients"},
		{"its member", set, []protowire.Number{2, 2}, "10.65.2.7/32"},
		{"its type, NET", set, []protowire.Number{2, 3}, "2"},
		{"the policy's name", policy, []protowire.Number{7, 1, 2}, "web"},
		{"its namespace", policy, []protowire.Number{7, 1, 3}, "prod"},
		{"its kind", policy, []protowire.Number{7, 1, 4}, "NetworkPolicy"},
		{"its tier", policy, []protowire.Number{7, 2, 8}, "default"},
		{"the action", policy, []protowire.Number{7, 2, 1, 1}, "allow"},
		{"the protocol", policy, []protowire.Number{7, 2, 1, 3, 1}, "6"},
		{"the source", policy, []protowire.Number{7, 2, 1, 10}, "s:clients"},
		{"the first port", policy, []protowire.Number{7, 2, 1, 7, 1}, "80"},
		{"the last port", policy, []protowire.Number{7, 2, 1, 7, 2}, "80"},
		{"the profile", got[5], []protowire.Number{5, 1, 1}, "kns.prod"},
		{"the orchestrator", endpoint, []protowire.Number{11, 1, 2}, "k8s"},
		{"the workload", endpoint, []protowire.Number{11, 1, 3}, "prod/web-0"},
		{"the endpoint", endpoint, []protowire.Number{11, 1, 4}, "eth0"},
		{"its state", endpoint, []protowire.Number{11, 5, 1}, "active"},
		{"its interface", endpoint, []protowire.Number{11, 5, 2}, "cali1"},
		{"its profile", endpoint, []protowire.Number{11, 5, 4}, "kns.prod"},
		{"its address", endpoint, []protowire.Number{11, 5, 5}, "10.65.1.5/32"},
		{"its tier", endpoint, []protowire.Number{11, 5, 7, 1}, "default"},
		{"its policy", endpoint, []protowire.Number{11, 5, 7, 2, 2}, "web"},
		{"the end of its tier", endpoint, []protowire.Number{11, 5, 7, 4}, "Deny"},
		{"the route", got[7], []protowire.Number{23, 3}, "10.65.1.5/32"},
		{"its type, LOCAL_WORKLOAD", got[7], []protowire.Number{23, 12}, "4"},
	} {
		if v := value(c.in, c.path...); v != c.want {
			t.Errorf("%s is %q, want %q", c.what, v, c.want)
		}
	}
}

// TestWhatADriverSaysIsTheOutcome: a workload counts as in force when the program says so, and at no other time.
func TestWhatADriverSaysIsTheOutcome(t *testing.T) {
	for _, tt := range []struct {
		does, failed, reason string
		whole                bool // the state counts as in force
	}{
		{does: "ok", whole: true},
		{does: "nonsense", whole: true},
		{does: "flood", whole: true},
		{does: "down", reason: "down", whole: true},
		{does: "error", failed: `"error"`, whole: true},
		{does: "odd", failed: `"fine?"`, whole: true},
		{does: "in sync", failed: "has not said", whole: true},
		{does: "silent", failed: "has not said"},
	} {
		t.Run(tt.does, func(t *testing.T) {
			d, _ := started(t, tt.does)
			d.Merge(whole())
			done := noError
			if !tt.whole {
				done = func(err error) bool { return err != nil && strings.Contains(err.Error(), "has not spoken of") }
			}
			o := until(t, d, done)[webPod]
			if err := errText(o.Err); !strings.Contains(err, tt.failed) || (err == "") != (tt.failed == "") {
				t.Errorf("error %q, want %q", err, tt.failed)
			}
			if !strings.Contains(o.Reason, tt.reason) || (o.Reason == "") != (tt.reason == "") {
				t.Errorf("reason %q, want %q", o.Reason, tt.reason)
			}
		})
	}
}

// TestAPolicyThatCannotBeSent is an error that no trial mends, and in force as far as it can be.
func TestAPolicyThatCannotBeSent(t *testing.T) {
	d, log := started(t, "ok")
	b := whole()
	b.Policies[0].Ingress[0] = intent.Rule{Action: intent.Allow, Src: intent.Peer{NotPortSets: []intent.SetID{"p:http"}}}
	d.Merge(b)
	if o := until(t, d, noError)[web]; !o.Final || !strings.Contains(errText(o.Err), "Ingress rule 0") {
		t.Errorf("%+v", o)
	}
	if policy := receivedAll(t, log, 1)[4]; value(policy, 7, 1, 2) != "web" || len(all(all(policy, 7)[0], 2)) != 1 || len(all(all(all(policy, 7)[0], 2)[0], 1)) != 0 {
		t.Errorf("%q", policy)
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestAHostileDriver: whatever a program does, Apply returns with the reason, and holds nobody up.
func TestAHostileDriver(t *testing.T) {
	for _, tt := range []struct{ does, want string }{
		{"exits", "exit status 3"},
		{"garbage", "that are no message"},
		{"huge", "and more than"},
		{"closes", "has closed the descriptor"},
		{"deaf", "has not read a change"},
	} {
		t.Run(tt.does, func(t *testing.T) {
			d, _ := started(t, tt.does)
			b := whole()
			for n := range 100_000 { // more than a pipe holds
				b.IPSets[0].Members = append(b.IPSets[0].Members, intent.Member{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), 32)})
			}
			d.Merge(b)
			until(t, d, func(err error) bool {
				_, awaits := errors.AsType[dataplane.Awaiting](err)
				return awaits && strings.Contains(err.Error(), tt.want)
			})
		})
	}
}

// TestWhatChangesIsSentAlone: a setting, an endpoint, and what goes; and the key that the program has is passed on.
func TestWhatChangesIsSentAlone(t *testing.T) {
	d, log := started(t, "ok")
	keys := map[intent.TunnelKind]string{}
	d.cfg.Keys = func(k intent.TunnelKind, public string) { keys[k] = public }
	d.Merge(whole())
	until(t, d, noError)
	first := len(receivedAll(t, log, 1))
	other := whole().Endpoints[0]
	other.ID.Name = "h1-k8s-db-eth0"
	d.Merge(intent.Batch{Endpoints: []intent.Endpoint{other}})
	up := false
	until(t, d, func(error) bool { up = up || d.words[other.ID] == "up"; return up })
	d.Configure(map[string]string{"InterfacePrefix": "tap"})
	d.Merge(intent.Batch{Removed: []intent.Key{other.ID}})
	until(t, d, func(err error) bool { return err == nil && len(received(t, log)) >= first+3 })
	got := received(t, log)[first:]
	if !slices.Equal(kinds(got), []int{11, 13, 12}) || value(got[1], 13, 1, 2) != "tap" {
		t.Errorf("sent %v", kinds(got))
	}
	if keys[intent.WireGuard6] != publicKey || len(keys) != 1 {
		t.Errorf("keys %v", keys)
	}
}

// TestAnEndpointInErrorIsSentAgain by Retry, and one that the program has not spoken of is not.
func TestAnEndpointInErrorIsSentAgain(t *testing.T) {
	for does, more := range map[string][]int{"error": {11}, "in sync": nil} {
		d, log := started(t, does)
		d.Merge(whole())
		until(t, d, noError)
		first := len(receivedAll(t, log, 1))
		d.Retry()
		d.Merge(intent.Batch{Removed: []intent.Key{prof}}) // which is sent in any case
		until(t, d, noError)
		until(t, d, func(error) bool { return len(received(t, log)) > first+len(more) })
		if got := kinds(received(t, log)[first:]); !slices.Equal(got, append(more, 6)) {
			t.Errorf("%s: sent %v", does, got)
		}
	}
}

// TestAProgramThatDiesIsGivenEverything: it is started again, and what was not in force before is in force with the next one.
func TestAProgramThatDiesIsGivenEverything(t *testing.T) {
	d, log := started(t, "ok")
	d.Merge(whole())
	until(t, d, noError)
	first := len(receivedAll(t, log, 1))
	kill(t, log)
	until(t, d, func(err error) bool {
		return err != nil && strings.Contains(err.Error(), "what it programmed stays: signal: killed")
	})
	d.Merge(intent.Batch{Members: []intent.MemberDelta{{Set: "s:clients", Added: []intent.Member{{Prefix: prefix("10.65.2.8/32")}}}}})
	until(t, d, noError)
	second := receivedAll(t, log, 2)[first:]
	if !slices.Equal(kinds(second), []int{13, 30, 2, 7, 7, 5, 11, 23, 1}) || !reflect.DeepEqual(all(all(second[2], 2)[0], 2), [][]byte{[]byte("10.65.2.7/32"), []byte("10.65.2.8/32")}) {
		t.Errorf("the next one was sent %v", kinds(second))
	}
}

func kill(t *testing.T, log string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(filepath.Dir(log), "pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || syscall.Kill(pid, syscall.SIGKILL) != nil {
		t.Fatal("cannot kill", string(b), err)
	}
}

// TestAProgramThatKeepsEndingIsStartedSeldom: each end that comes soon doubles the wait, and one after a while counts as the first.
func TestAProgramThatKeepsEndingIsStartedSeldom(t *testing.T) {
	d := New(Config{Program: "/nowhere", Node: "h1"})
	d.Merge(whole())
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		_, err := d.Apply(t.Context())
		if w, is := errors.AsType[dataplane.Awaiting](err); !is || w.RetryWithin() != want*time.Second || !strings.Contains(err.Error(), "/nowhere: no such file") {
			t.Errorf("%v, want %d s", err, want)
		}
		if _, err := d.Apply(t.Context()); !strings.Contains(errText(err), "is started again in") {
			t.Errorf("at once: %v", err)
		}
		d.again = time.Time{}
	}
	d.program = &conn{began: time.Now().Add(-2 * lived), err: errors.New("an end")}
	if w, _ := errors.AsType[dataplane.Awaiting](d.lose()); w.RetryWithin() != time.Second {
		t.Errorf("after a while: %s", w.RetryWithin())
	}
}
