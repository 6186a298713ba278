package nodekeep

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/datastore/storetest"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/nodeaddr"
)

// TestMain runs all of it on a store without transactions, leases and an order, too.
func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

var nodesPrefix = api.KeyPrefix(api.KindNode, "")

// bench is a controller of node h1 on a store in memory, whose host is what the test says, in virtual time.
type bench struct {
	*testing.T
	store storetest.InMemory
	mu    sync.Mutex
	log   bytes.Buffer
	addrs []string // of eth0
	tell  chan<- struct{}
}

func (b *bench) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.Write(p)
}

func (b *bench) logged() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.String()
}

func (b *bench) look(context.Context) (nodeaddr.Host, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := nodeaddr.Interface{Name: "eth0", Up: true}
	for _, a := range b.addrs {
		i.Addrs = append(i.Addrs, nodeaddr.Addr{Prefix: netip.MustParsePrefix(a)})
	}
	return nodeaddr.Host{Interfaces: []nodeaddr.Interface{i}}, nil
}

func (b *bench) watch(ctx context.Context, tell chan<- struct{}) error {
	b.tell = tell
	<-ctx.Done()
	return ctx.Err()
}

// has gives the host addresses, and waits until that has been looked at.
func (b *bench) has(addrs ...string) {
	b.mu.Lock()
	b.addrs = addrs
	b.mu.Unlock()
	b.tell <- struct{}{}
	<-time.After(2 * time.Second) // virtual
	storetest.Delivered()
}

func (b *bench) put(name, doc string) {
	b.Helper()
	if err := datastore.Put(b.Context(), b.store, api.Update{Key: nodesPrefix + name, Value: []byte(doc)}); err != nil {
		b.Fatal(err)
	}
	storetest.Delivered()
}

// node is what is stored.
func (b *bench) node(name string) string {
	u, err := b.store.Get(b.Context(), nodesPrefix+name)
	if errors.Is(err, datastore.ErrNotFound) {
		return ""
	}
	if err != nil {
		b.Fatal(err)
	}
	return string(u.Value)
}

func (b *bench) want(step, text string) {
	b.Helper()
	if got := b.node("h1"); !strings.Contains(got, text) {
		b.Errorf("%s: stored is %s; want %s in it\nlog: %s", step, got, text, b.logged())
	}
}

func (b *bench) wantLogged(step, text string) {
	b.Helper()
	if !strings.Contains(b.logged(), text) {
		b.Errorf("%s: the log has no %q:\n%s", step, text, b.logged())
	}
}

// run runs a test with a controller that is configured with ip, in virtual time.
func run(t *testing.T, ip string, change func(*Config), steps func(*bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		b := &bench{T: t, store: storetest.New(t), addrs: []string{"192.0.2.1/24"}}
		w, err := nodeaddr.ParseWant(nodeaddr.V4, ip, "")
		if err != nil {
			t.Fatal(err)
		}
		cfg := Config{
			Node: "h1", Wants: []nodeaddr.Want{w}, Store: b.store, Look: b.look, Watch: b.watch, Log: slog.New(slog.NewTextHandler(b, nil)),
		}
		if change != nil {
			change(&cfg)
		}
		done := make(chan error)
		go func() { done <- New(cfg).Run(ctx) }()
		synctest.Wait()
		steps(b)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run = %v", err)
		}
	})
}

func TestAnAddressIsFoundAndFollowed(t *testing.T) {
	as := api.ASNumber(64999)
	run(t, "", func(c *Config) { c.AS = &as }, func(b *bench) {
		b.want("at the start", `"spec":{"bgp":{"asNumber":64999,"ipv4Address":"192.0.2.1/24"},"interfaces":[{"name":"eth0","addresses":["192.0.2.1"]}]}`)
		b.want("at the start", `"annotations":{"twill.net/detected-addresses":"192.0.2.1/24"}`)
		b.has("192.0.2.7/24")
		b.want("another address", `"ipv4Address":"192.0.2.7/24"`)
		b.want("another address", `"interfaces":[{"name":"eth0","addresses":["192.0.2.7"]}]`)
		b.has()
		b.want("none", `"interfaces":[{"name":"eth0"}]`)
		b.want("none", `"ipv4Address":"192.0.2.7/24"`)
		b.wantLogged("none", "The Node keeps 192.0.2.7/24")
		b.put("h1", `{"kind":"Node","apiVersion":"projectcalico.org/v3","metadata":{"name":"h1"},"spec":{"bgp":{"ipv4Address":"198.51.100.1/24"},"future":1},"status":{}}`)
		b.has("192.0.2.8/24")
		b.want("by hand", `"ipv4Address":"198.51.100.1/24"`)
		b.want("what another version wrote", `"future":1`)
		if err := b.store.Delete(b.Context(), nodesPrefix+"h1", api.Revision{}); err != nil {
			b.Fatal(err)
		}
		storetest.Delivered()
		b.want("the Node was deleted", `"ipv4Address":"192.0.2.8/24"`)
	})
}

// TestANodeOfAMirrorIsWrittenAgainAsItWas: with what others wrote into it, such as the addresses of tunnels, which nobody else knows.
func TestANodeOfAMirrorIsWrittenAgainAsItWas(t *testing.T) {
	const stored = `{"kind":"Node","apiVersion":"projectcalico.org/v3","metadata":{"name":"h1"},"spec":{"bgp":{"ipv4Address":"192.0.2.1/24"},"ipv4VXLANTunnelAddr":"10.65.0.1"},"status":{}}`
	for _, ip := range []string{"", "none"} { // whether the address is looked for, or given by somebody else
		for _, lasting := range []bool{true, false} {
			run(t, ip, func(c *Config) { c.Lasting = lasting }, func(b *bench) {
				b.put("h1", stored)
				<-time.After(2 * time.Second) // virtual
				for range 2 {
					if err := b.store.Delete(b.Context(), nodesPrefix+"h1", api.Revision{}); err != nil && (lasting || ip == "") {
						b.Fatal(err)
					}
					storetest.Delivered()
					<-time.After(2 * time.Second)
					switch got := b.node("h1"); {
					case lasting != strings.Contains(got, `"ipv4VXLANTunnelAddr":"10.65.0.1"`):
						b.Errorf("ip %q, lasting %v: stored is %s", ip, lasting, got)
					case (lasting || ip == "") != strings.Contains(got, `"ipv4Address":"192.0.2.1/24"`):
						b.Errorf("ip %q, lasting %v: stored is %s", ip, lasting, got)
					}
				}
			})
		}
	}
}

// TestAChangeThatNobodyTellsOfIsSeenWithinAMinute: of routes, and of what can be reached, the kernel tells nobody.
func TestAChangeThatNobodyTellsOfIsSeenWithinAMinute(t *testing.T) {
	run(t, "", func(c *Config) { storetest.Steady(c.Store) }, func(b *bench) {
		b.mu.Lock()
		b.addrs = []string{"192.0.2.7/24"}
		b.mu.Unlock()
		<-time.After(59 * time.Second) // virtual
		b.want("before", `"ipv4Address":"192.0.2.1/24"`)
		<-time.After(3 * time.Second)
		b.want("after", `"ipv4Address":"192.0.2.7/24"`)
	})
}

func TestAnExplicitAddressIsNotFollowed(t *testing.T) {
	run(t, "192.0.2.1", nil, func(b *bench) {
		b.want("at the start", `"ipv4Address":"192.0.2.1/24"`)
		b.has("192.0.2.7/24")
		b.want("the host has another", `"ipv4Address":"192.0.2.1/24"`)
		if strings.Contains(b.node("h1"), "detected") {
			b.Errorf("an address that was asked for is taken for found: %s", b.node("h1"))
		}
	})
}

func TestAnAddressThatIsTakenIsNotWritten(t *testing.T) {
	other := func(ip string) string {
		return fmt.Sprintf(`{"kind":"Node","metadata":{"name":"h2"},"spec":{"bgp":{"ipv4Address":"%s"}}}`, ip)
	}
	run(t, "", nil, func(b *bench) {
		b.put("h2", other("192.0.2.7"))
		b.has("192.0.2.7/24")
		b.want("taken", `"ipv4Address":"192.0.2.1/24"`)
		b.wantLogged("taken", "the Node is not given 192.0.2.7/24: 192.0.2.7 is also that of node h2 (spec.bgp.ipv4Address); give one of the two another address (--ip,")
		b.put("h2", other("192.0.2.99"))
		b.want("free again", `"ipv4Address":"192.0.2.7/24"`)
		b.put("h2", other("192.0.2.7/24"))
		b.want("taken later", `"ipv4Address":"192.0.2.7/24"`)
		b.wantLogged("taken later", `level=WARN msg="the node's address" err="192.0.2.7 is also that of node h2`)
	})
	run(t, "", func(c *Config) { c.Anyway = true }, func(b *bench) {
		b.put("h2", other("192.0.2.7"))
		b.has("192.0.2.7/24")
		b.want("unchecked", `"ipv4Address":"192.0.2.7/24"`)
	})
}

// TestTheNameInKubernetesIsWritten, for who watches its nodes; a Node that has the name is left alone, and so is what others know of it.
func TestTheNameInKubernetesIsWritten(t *testing.T) {
	run(t, "", func(c *Config) { c.NodeRef = "kube-1" }, func(b *bench) {
		b.has("192.0.2.2/24")
		b.want("written", `"orchRefs":[{"nodeName":"kube-1","orchestrator":"k8s"}]`)
	})
	run(t, "", nil, func(b *bench) {
		b.put("h1", `{"metadata":{"name":"h1"},"spec":{"orchRefs":[{"nodeName":"kube-2","orchestrator":"k8s"}]}}`)
		b.has("192.0.2.2/24")
		b.want("kept", `"orchRefs":[{"nodeName":"kube-2","orchestrator":"k8s"}]`)
	})
	for _, ref := range []string{"", "kube-1"} {
		if idle := (Config{NodeRef: ref}).Idle(); idle != (ref == "") {
			t.Errorf("%q: idle %t", ref, idle)
		}
	}
}

func TestWhatCannotBeFoundOrWrittenIsTriedAgain(t *testing.T) {
	run(t, "", nil, func(b *bench) {
		if err := b.store.Delete(b.Context(), nodesPrefix+"h1", api.Revision{}); err != nil {
			b.Fatal(err)
		}
		b.has("fe80::1/64")
		if err := b.store.Delete(b.Context(), nodesPrefix+"h1", api.Revision{}); err != nil && !errors.Is(err, datastore.ErrNotFound) {
			b.Fatal(err)
		}
		synctest.Wait()
		if got := b.node("h1"); got != "" {
			b.Errorf("a Node without an address is of no use: %s", got)
		}
		b.wantLogged("nothing is found", "level=ERROR")
		b.wantLogged("nothing is found", "eth0 has no IPv4 address")
		b.store.Fail(func(op memstore.Op) error {
			if op.Verb == "create" {
				return datastore.ErrUnavailable
			}
			return nil
		})
		b.has("192.0.2.3/24")
		b.wantLogged("the store is away", "write Node h1")
		b.store.Fail(nil)
		<-time.After(2 * time.Second) // virtual
		storetest.Delivered()
		b.want("it is back", `"ipv4Address":"192.0.2.3/24"`)
	})
}

// TestWhatDoesNotGoAwayIsReported to who waits for the Node; a datastore that is away is not.
func TestWhatDoesNotGoAwayIsReported(t *testing.T) {
	for _, tt := range []struct {
		name, node string
		err        error
		want       string // empty: nothing is reported
	}{
		{"the store is away", "h1", datastore.ErrUnavailable, ""},
		{"a right is missing", "h1", datastore.ErrUnauthorized, "write Node h1"},
		{"a name that no Node can have", "web_1", nil, "Node web_1 is not written"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var failed []error
			change := func(c *Config) { c.Node, c.Failed = tt.node, func(err error) { failed = append(failed, err) } }
			run(t, "", change, func(b *bench) {
				b.store.Fail(func(op memstore.Op) error {
					if op.Verb == "update" || op.Verb == "create" {
						return tt.err
					}
					return nil
				})
				b.has("192.0.2.3/24")
				if got := errors.Join(failed...); tt.want == "" && got != nil || tt.want != "" && (got == nil || !strings.Contains(got.Error(), tt.want)) {
					t.Errorf("reported %v, want %q", got, tt.want)
				}
			})
		})
	}
}

func TestNothingIsWrittenWhileTheDatastoreIsNotReady(t *testing.T) {
	key := api.KeyPrefix(api.KindClusterInformation, "") + "default"
	run(t, "", nil, func(b *bench) {
		set := func(ready bool) {
			if err := datastore.Put(b.Context(), b.store, api.Update{Key: key, Value: fmt.Appendf(nil, `{"spec":{"datastoreReady":%v}}`, ready)}); err != nil {
				b.Fatal(err)
			}
			storetest.Delivered()
		}
		set(false)
		b.has("192.0.2.5/24")
		b.want("frozen", `"ipv4Address":"192.0.2.1/24"`)
		set(true)
		b.want("ready again", `"ipv4Address":"192.0.2.5/24"`)
	})
}

func TestANodeThatWouldBeWrongIsNotWritten(t *testing.T) {
	named := func(name string) func(*Config) { return func(c *Config) { c.Node = name } }
	run(t, "", named("web_1"), func(b *bench) {
		b.has("192.0.2.2/24")
		if got := b.node("web_1"); got != "" {
			t.Errorf("a Node of a name that none can have was written: %s", got)
		}
		b.wantLogged("a name that no Node can have", `Node web_1 is not written: metadata.name: is \"web_1\"`)
		if n := strings.Count(b.logged(), "is not written"); n != 1 {
			t.Errorf("it is logged %d times, want once", n)
		}
		b.put("web_1", `{"kind":"Node","apiVersion":"projectcalico.org/v3","metadata":{"name":"web_1"},"spec":{}}`)
		b.has("192.0.2.3/24")
		if got := b.node("web_1"); !strings.Contains(got, `"ipv4Address":"192.0.2.3/24"`) {
			t.Errorf("a Node that somebody gave such a name is not kept: %s", got)
		}
	})
	run(t, "", nil, func(b *bench) {
		b.put("h1", `{"metadata":{},"spec":{"orchRefs":[{"nodeName":"x"}]}}`)
		b.has("192.0.2.2/24")
		b.want("what was wrong before does not stand in the way", `"ipv4Address":"192.0.2.2/24"`)
	})
}

// TestTheKernelsAddressesAreFollowed is on a real kernel, in real time.
func TestTheKernelsAddressesAreFollowed(t *testing.T) {
	ns := netnstest.New(t)
	ns.Veth("docker0", "peer0")
	ns.Veth("eth0", "peer1")
	ns.Addr("docker0", "172.17.0.1/16")
	ns.Addr("peer1", "203.0.113.1/24")
	ns.Addr("eth0", "192.0.2.1/24", "2001:db8::1/64")
	store := storetest.New(t)
	var wants []nodeaddr.Want
	for f, method := range map[nodeaddr.Family]string{nodeaddr.V4: "can-reach=192.0.2.9", nodeaddr.V6: "interface=eth.*"} {
		w, err := nodeaddr.ParseWant(f, "autodetect", method)
		if err != nil {
			t.Fatal(err)
		}
		wants = append(wants, w)
	}
	ctx, cancel := context.WithCancel(t.Context())
	k := New(Config{
		Node: "h1", Wants: wants, Store: store, Settle: time.Millisecond, Poll: 50 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
		Look:  func(ctx context.Context) (nodeaddr.Host, error) { return Look(ctx, ns.Rtnl()) },
		Watch: func(ctx context.Context, tell chan<- struct{}) error { return Watch(ctx, ns.Rtnl(), tell) },
	})
	done := make(chan error)
	go func() { done <- k.Run(ctx) }()
	awaitNode(t, store, `"ipv4Address":"192.0.2.1/24","ipv6Address":"2001:db8::1/64"`)
	awaitNode(t, store, `"interfaces":[{"name":"eth0","addresses":["192.0.2.1","2001:db8::1"]},{"name":"peer1","addresses":["203.0.113.1"]}]`)
	ns.Run("ip", "addr", "del", "192.0.2.1/24", "dev", "eth0")
	ns.Run("ip", "addr", "add", "192.0.2.200/25", "dev", "eth0")
	ns.Route("192.0.2.0/25 dev eth0") // no event that is listened to: the next poll sees it
	awaitNode(t, store, `"ipv4Address":"192.0.2.200/25","ipv6Address":"2001:db8::1/64"`)
	ns.Run("ip", "addr", "add", "2001:db8:7::1/64", "dev", "eth0") // the kernel lists it first
	awaitNode(t, store, `"addresses":["192.0.2.200","2001:db8:7::1","2001:db8::1"]`)
	awaitNode(t, store, `"ipv4Address":"192.0.2.200/25","ipv6Address":"2001:db8::1/64"`)
	ns.Run("ip", "addr", "del", "2001:db8::1/64", "dev", "eth0")
	awaitNode(t, store, `"ipv6Address":"2001:db8:7::1/64"`)
	ns.Run("ip", "addr", "del", "203.0.113.1/24", "dev", "peer1")
	awaitNode(t, store, `"interfaces":[{"name":"eth0","addresses":["192.0.2.200","2001:db8:7::1"]},{"name":"peer1"}]`)
	ns.Run("ip", "link", "del", "peer1")
	awaitNode(t, store, `"ipv6Address":"2001:db8:7::1/64"}},"status"`) // with its other end, eth0
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v", err)
	}
}

// TestAVirtualAddressDoesNotBecomeTheNodes is on a real kernel: of IPv6 it lists the newest address first, and of IPv4 a virtual one once
// the interface's own has gone and come back, as with a lease.
func TestAVirtualAddressDoesNotBecomeTheNodes(t *testing.T) {
	ns := netnstest.New(t)
	ns.Veth("eth0", "peer0")
	ns.Addr("eth0", "192.0.2.1/24", "2001:db8::1/64")
	for _, a := range []string{"192.0.2.9/32", "192.0.2.8/24", "2001:db8::9/128"} {
		ns.Run("ip", "addr", "add", a, "dev", "eth0")
	}
	ns.Run("ip", "addr", "del", "192.0.2.1/24", "dev", "eth0") // with its secondary
	ns.Run("ip", "addr", "add", "192.0.2.1/24", "dev", "eth0")
	ns.Run("ip", "addr", "add", "192.0.2.8/24", "dev", "eth0")
	for f, want := range map[nodeaddr.Family]string{nodeaddr.V4: "192.0.2.1/24", nodeaddr.V6: "2001:db8::1/64"} {
		w, err := nodeaddr.ParseWant(f, "autodetect", "interface=eth0")
		if err != nil {
			t.Fatal(err)
		}
		host, err := Look(t.Context(), ns.Rtnl())
		if err != nil {
			t.Fatal(err)
		}
		if c, err := w.Choose(host); c.Addr.String() != want || err != nil {
			t.Errorf("%s: got %v, %v; want %s of %+v", f.Name, c, err, want, host.Interfaces)
		}
	}
}

// awaitNode waits until what is stored has a text.
func awaitNode(t *testing.T, store datastore.Store, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for last := ""; ; {
		if u, err := store.Get(ctx, nodesPrefix+"h1"); err == nil {
			last = string(u.Value)
		}
		if strings.Contains(last, text) {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("stored is %s; want %s in it", last, text)
		case <-tick.C:
		}
	}
}

// TestAWrongIntervalIsTheDefault, as with upstream: a node with a mistake in it starts.
func TestAWrongIntervalIsTheDefault(t *testing.T) {
	for value, want := range map[string]time.Duration{"": time.Minute, "10s": 10 * time.Second, "soon": time.Minute, "60": time.Minute, "0s": time.Minute, "-1m": time.Minute} {
		var out bytes.Buffer
		k := New(Config{Interval: value, Log: slog.New(slog.NewTextHandler(&out, nil))})
		if warned := strings.Contains(out.String(), "level=WARN") && strings.Contains(out.String(), "value="+value); k.cfg.Poll != want || warned != (value != "" && value != "10s") {
			t.Errorf("%q: %s, and the log has %q; want %s", value, k.cfg.Poll, out.String(), want)
		}
	}
}
