package nft

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/intenttest"
	"github.com/twillnet/twill/internal/kernel/nftables"
	"github.com/twillnet/twill/internal/seedtest"
)

// world is the intents that are in force, and makes random changes of them.
type world struct {
	r         *rand.Rand
	sets      map[intent.SetID]map[intent.Member]bool
	kinds     map[intent.SetID]intent.SetKind
	policies  map[intent.PolicyID]intent.Policy
	endpoints map[intent.EndpointID]intent.Endpoint
	host      intent.HostSettings
}

func newWorld(seed uint64) *world {
	return &world{
		r: rand.New(rand.NewPCG(seed, 3)), sets: map[intent.SetID]map[intent.Member]bool{}, kinds: map[intent.SetID]intent.SetKind{},
		policies: map[intent.PolicyID]intent.Policy{}, endpoints: map[intent.EndpointID]intent.Endpoint{},
	}
}

func (w *world) chance(n int) bool { return w.r.IntN(n) == 0 }

func (w *world) member(k intent.SetKind) intent.Member {
	p := randomPrefix(w.r, w.chance(2))
	if k == intent.SetPorts {
		return intent.Member{Prefix: netip.PrefixFrom(p.Addr(), p.Addr().BitLen()), Proto: 6, Port: uint16(80 + w.r.IntN(3))}
	}
	if w.chance(2) {
		p = netip.PrefixFrom(p.Addr(), p.Addr().BitLen())
	}
	return intent.Member{Prefix: p}
}

func (w *world) someSets(k intent.SetKind) []intent.SetID {
	var out []intent.SetID
	for _, id := range slices.Sorted(maps.Keys(w.sets)) {
		if w.kinds[id] == k && w.chance(4) {
			out = append(out, id)
		}
	}
	return out
}

func (w *world) peer() intent.Peer {
	var p intent.Peer
	for _, nets := range []*[]netip.Prefix{&p.Nets, &p.NotNets} {
		for w.chance(3) {
			*nets = append(*nets, randomPrefix(w.r, w.chance(2)))
		}
	}
	for _, ports := range []*[]intent.PortRange{&p.Ports, &p.NotPorts} {
		for w.chance(3) {
			low := uint16(w.r.IntN(100))
			*ports = append(*ports, intent.PortRange{Min: low, Max: low + uint16(w.r.IntN(3))})
		}
	}
	p.Sets, p.NotSets = w.someSets(intent.SetAddrs), w.someSets(intent.SetAddrs)
	p.PortSets, p.NotPortSets = w.someSets(intent.SetPorts), w.someSets(intent.SetPorts)
	return p
}

func (w *world) rules() []intent.Rule {
	var out []intent.Rule
	for range w.r.IntN(4) {
		r := intent.Rule{Action: intent.Action(w.r.IntN(4)), Void: w.chance(9), Protocol: []uint8{6, 17, 132}[w.r.IntN(3)], Src: w.peer(), Dst: w.peer()}
		r.Reject = w.chance(3)
		if w.chance(4) {
			r = intent.Rule{Action: r.Action, Protocol: []uint8{1, 58}[w.r.IntN(2)], ICMP: &intent.ICMP{Type: 8, AnyCode: w.chance(2)}}
		}
		out = append(out, r)
	}
	return out
}

func (w *world) somePolicies() []intent.PolicyID {
	var out []intent.PolicyID
	for _, id := range slices.SortedFunc(maps.Keys(w.policies), func(a, b intent.PolicyID) int { return strings.Compare(a.Name, b.Name) }) {
		if w.chance(2) {
			out = append(out, id)
		}
	}
	return out
}

// step makes one change.
func (w *world) step() intent.Batch {
	var b intent.Batch
	switch w.r.IntN(8) {
	case 0: // a new set
		id := intent.SetID(fmt.Sprintf("s:%d", w.r.IntN(8)))
		if w.sets[id] == nil {
			w.sets[id], w.kinds[id] = map[intent.Member]bool{}, intent.SetKind(w.r.IntN(2))
			in := intent.IPSet{ID: id, Kind: w.kinds[id], Comment: "set " + string(id)}
			for range w.r.IntN(5) {
				m := w.member(in.Kind)
				if !w.sets[id][m] {
					w.sets[id][m] = true
					in.Members = append(in.Members, m)
				}
			}
			b.IPSets = append(b.IPSets, in)
		}
	case 1, 2, 3: // members come and go
		for _, id := range slices.Sorted(maps.Keys(w.sets)) {
			delta := intent.MemberDelta{Set: id}
			m := w.member(w.kinds[id])
			if w.sets[id][m] {
				delete(w.sets[id], m)
				delta.Removed = append(delta.Removed, m)
			} else {
				w.sets[id][m] = true
				delta.Added = append(delta.Added, m)
			}
			b.Members = append(b.Members, delta)
		}
	case 4: // a policy comes or changes
		id := np(fmt.Sprintf("np-%d", w.r.IntN(5)))
		p := intent.Policy{ID: id, Tier: "default", Ingress: w.rules(), Egress: w.rules()}
		if w.chance(6) {
			p.Closed = "cannot be read"
		}
		w.policies[id] = p
		b.Policies = append(b.Policies, p)
	case 5: // an endpoint comes or changes
		if w.chance(2) {
			e := w.hostEndpoint()
			w.endpoints[e.ID] = e
			b.Endpoints = append(b.Endpoints, e)
			break
		}
		e := wl(fmt.Sprintf("ep-%d", w.r.IntN(4)), fmt.Sprintf("cali%d", w.r.IntN(4)))
		intenttest.Normal(&e, tier("a", intent.Pass, w.somePolicies(), w.somePolicies()), tier("b", intent.Deny, w.somePolicies(), w.somePolicies()))
		intenttest.Profiles(&e, w.somePolicies()...)
		if w.chance(4) {
			e.Closed = "is wrong"
		}
		if w.chance(4) {
			e.Spoofable = []netip.Prefix{randomPrefix(w.r, w.chance(2))}
			e.QoS.In = intent.Limits{PacketRate: 9, PacketBurst: 1 + w.r.Uint32N(9), Connections: w.r.Uint32N(3)}
		}
		if w.chance(4) {
			e.QoS.Out, e.QoS.DSCP = intent.Limits{Connections: 1 + w.r.Uint32N(3)}, intent.DSCP(1+w.r.IntN(64))
		}
		w.endpoints[e.ID] = e
		b.Endpoints = append(b.Endpoints, e)
	case 6: // something goes, whoever still asks for it
		b.Removed = w.removal()
	case 7:
		w.host.EndpointToHost, w.host.Compiled = intent.ToHost(w.r.IntN(3)), !w.chance(3)
		h := w.host
		b.Host = &h
	}
	return b
}

// hostEndpoint has policy at each stage. A policy is asked at one early stage or none: calc sends no other.
func (w *world) hostEndpoint() intent.Endpoint {
	e := intent.Endpoint{ID: intent.EndpointID{Kind: intent.Host, Name: fmt.Sprintf("h-%d", w.r.IntN(2))}, Link: []string{"*", "eth0"}[w.r.IntN(2)]}
	tiers := func(stage int) []intent.Tier {
		some := func() []intent.PolicyID {
			return slices.DeleteFunc(w.somePolicies(), func(id intent.PolicyID) bool { return min(int(id.Name[len("np-")]-'0'), 2) != stage })
		}
		return []intent.Tier{tier("a", intent.Pass, some(), some()), tier("b", intent.Deny, some(), some())}
	}
	intenttest.Untracked(&e, tiers(0)...)
	intenttest.PreDNAT(&e, tiers(1)...)
	intenttest.Forward(&e, tiers(2)...)
	intenttest.Normal(&e, tiers(2)...)
	if w.chance(9) {
		e.Closed = "is wrong"
	}
	return e
}

// inOrder are the keys of a map in an order that a seed repeats.
func inOrder[K comparable, V any](m map[K]V) []K {
	return slices.SortedFunc(maps.Keys(m), func(a, b K) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
}

func (w *world) removal() []intent.Key {
	switch w.r.IntN(3) {
	case 0:
		for _, id := range inOrder(w.endpoints) {
			delete(w.endpoints, id)
			return []intent.Key{id}
		}
	case 1:
		for _, id := range inOrder(w.policies) {
			delete(w.policies, id)
			return []intent.Key{id}
		}
	case 2:
		for _, id := range inOrder(w.sets) {
			delete(w.sets, id)
			return []intent.Key{id}
		}
	}
	return nil
}

// whole is all that is in force, as a node that starts would receive it.
func (w *world) whole() intent.Batch {
	b := intent.Batch{InSync: true, Host: &w.host}
	for id, members := range w.sets {
		b.IPSets = append(b.IPSets, intent.IPSet{ID: id, Kind: w.kinds[id], Comment: "set " + string(id), Members: slices.Collect(maps.Keys(members))})
	}
	b.Policies = slices.Collect(maps.Values(w.policies))
	b.Endpoints = slices.Collect(maps.Values(w.endpoints))
	return b
}

func TestAnyPathMakesTheTableOfAFreshStart(t *testing.T) {
	seed := seedtest.New(t)
	compiled, hosts, all := 0, 0, 0
	defer func() {
		if !t.Failed() && (compiled == 0 || compiled == all || hosts == 0) {
			t.Errorf("%d of %d tables were compiled, %d with host endpoints", compiled, all, hosts)
		}
		t.Logf("%d of %d tables were compiled, %d with host endpoints", compiled, all, hosts)
	}()
	for run := range uint64(6) {
		w := newWorld(seed + run)
		w.host.Compiled = run%2 == 0
		k := newKernel(t)
		d := New(k, Config{})
		host := w.host
		d.Merge(intent.Batch{InSync: true, Host: &host}) // calc's first batch has the settings
		for step := range 150 {
			d.Merge(w.step())
			if w.chance(3) {
				continue // several changes in one transaction
			}
			// What refers to something that is gone fails by itself, and nothing else does.
			for _, o := range apply(t, d) {
				if o.Err != nil && !strings.Contains(o.Err.Error(), "was not sent") && !strings.Contains(o.Err.Error(), "does not hold") {
					t.Fatalf("run %d, step %d: %v: %v", run, step, o.Key, o.Err)
				}
			}
			if step%10 != 9 {
				continue
			}
			all++
			fresh := newKernel(t)
			f := New(fresh, Config{})
			f.used = d.used // what a family once had is not in the world any more
			f.Merge(w.whole())
			_, _ = f.Apply(t.Context())
			rested(t, d)
			got, want := k.canonical(t), fresh.canonical(t)
			if got != want {
				t.Fatalf("run %d, step %d: + not in a fresh one, - only there\n%s", run, step, lineDiff(want, got))
			}
			if d.state.Compiled() {
				compiled++
			}
			if strings.Contains(got, "-hep-") {
				hosts++
			}
			gen := k.genID(t)
			f = New(connect(t, k.ns), Config{})
			f.Merge(w.whole())
			_, _ = f.Apply(t.Context())
			if k.genID(t) != gen {
				t.Fatalf("run %d, step %d: a restart changed the table", run, step)
			}
		}
	}
}

// rested applies until nothing waits for a grace period any more.
func rested(t *testing.T, d *Driver) {
	t.Helper()
	for d.tables != nil && len(d.tables.since) > 0 {
		note := <-d.Drift()
		note()
		apply(t, d)
	}
}

// refusing stands for a kernel that refuses what is for some intents.
type refusing struct {
	*kernelConn
	driver  *Driver
	bad     map[intent.Key]bool
	why     error // what it says of them; nil: EINVAL
	commits int
}

func mustResync(t *testing.T, d *Driver) {
	t.Helper()
	if err := d.Resync(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (r *refusing) Commit(b *nftables.Batch) error {
	p := r.driver.trying
	r.commits++
	var ops []nftables.OpError
	for i := range b.Len() {
		if r.bad[p.owner(i)] {
			ops = append(ops, nftables.OpError{Op: "test", Index: i, Err: cmp.Or(r.why, error(syscall.EINVAL))})
		}
	}
	if len(ops) > 0 {
		return &nftables.BatchError{Ops: ops}
	}
	return r.kernelConn.Commit(b)
}

func TestOneThatTheKernelRefusesDoesNotStopTheOthers(t *testing.T) {
	k := newKernel(t)
	conn := &refusing{kernelConn: k, bad: map[intent.Key]bool{np("np-b"): true}}
	d := New(conn, Config{})
	conn.driver = d
	b := everything()
	other := wl("other-0", "cali2")
	intenttest.Profiles(&other, intent.PolicyID{Kind: "Profile", Name: "kns.prod"})
	b.Endpoints = append(b.Endpoints, other)
	d.Merge(b)
	for range 2 { // the second try fails alike, and changes nothing
		mustResync(t, d)
		d.Retry()
		failed := map[string]bool{}
		for _, o := range apply(t, d) {
			failed[o.Key.String()] = errors.Is(o.Err, syscall.EINVAL)
		}
		if !failed["NetworkPolicy/prod/np-b"] || !failed["workload/prod/web-0"] || failed["workload/prod/other-0"] || failed["NetworkPolicy/prod/np-web"] {
			t.Errorf("outcomes %v", failed)
		}
		text := k.canonical(t)
		for _, want := range []string{"ep-in-other-0", "pol-in-prod.np-web"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s is not in force", want)
			}
		}
		for _, bad := range []string{"ep-in-web-0", "pol-in-prod.np-b"} {
			if strings.Contains(text, bad) {
				t.Errorf("%s is there, although its policy is not", bad)
			}
		}
	}
	if got := k.ns.Run("nft", "list set inet twill wl-closed"); !strings.Contains(got, "cali1") {
		t.Errorf("the endpoint is not closed: %s", got)
	}
	commits := conn.commits
	d.Merge(intent.Batch{Policies: b.Policies[:1]})
	if out := apply(t, d); slices.ContainsFunc(out, func(o intent.Outcome) bool { return o.Err != nil }) || conn.commits != commits {
		t.Errorf("another policy's change tried what had failed: %v", out)
	}
	d.Merge(intent.Batch{Policies: slices.Clone(b.Policies[1:2])})
	if out := apply(t, d); !slices.ContainsFunc(out, func(o intent.Outcome) bool { return o.Err != nil }) || conn.commits == commits {
		t.Errorf("its own change did not: %v", out)
	}
	conn.bad = nil
	mustResync(t, d)
	d.Retry()
	apply(t, d)
	fresh := newKernel(t)
	f := New(fresh, Config{})
	f.Merge(b)
	apply(t, f)
	if got, want := k.canonical(t), fresh.canonical(t); got != want {
		t.Error(lineDiff(want, got))
	}
}

// TestWhatIsRefusedIsTriedAgainAfterRetryOnly: however often the table is read, since somebody changed it, or since the kernel's
// answer could mean that the cached state is wrong.
func TestWhatIsRefusedIsTriedAgainAfterRetryOnly(t *testing.T) {
	for _, why := range []error{syscall.EINVAL, syscall.ENOENT} {
		t.Run(why.Error(), func(t *testing.T) {
			k := newKernel(t)
			bad := np("np-b")
			conn := &refusing{kernelConn: k, bad: map[intent.Key]bool{bad: true}, why: why}
			d := New(conn, Config{})
			conn.driver = d
			b := everything()
			d.Merge(b)
			if out := apply(t, d); !slicesHas(out, bad) {
				t.Fatalf("outcomes %v, want that it is refused", out)
			}
			commits := conn.commits
			d.Merge(intent.Batch{Policies: b.Policies[:1]})
			apply(t, d)
			k.ns.Run("nft", "add chain inet twill theirs")
			d.drift.notified = true
			if out := apply(t, d); slicesHas(out, bad) || conn.commits != commits+1 {
				t.Errorf("%d transactions to undo one change, and %v", conn.commits-commits, out)
			}
			if d.Retry(); !slicesHas(apply(t, d), bad) {
				t.Error("it is not tried when the loop says so")
			}
			conn.bad = nil
			d.Retry()
			if out := apply(t, d); slicesHas(out, bad) {
				t.Errorf("it is refused no more, and %v", out)
			}
		})
	}
}
