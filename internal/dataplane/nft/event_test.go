package nft

import (
	"fmt"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/intenttest"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

// cluster is a node of one, as labels make it: remote endpoints of 50 applications, each in two environments and four tiers, and 100
// workloads of these applications, of which each has the policies that select its application, and one that all have.
type cluster struct {
	remotes, policies int
}

const (
	apps   = 50
	probed = intent.SetID("role=prober")
)

func byEnv(app, env int) intent.SetID {
	return intent.SetID(fmt.Sprintf("app=%d,env=%d", app%apps, env%2))
}

func byTier(app, tier int) intent.SetID {
	return intent.SetID(fmt.Sprintf("app=%d,tier=%d", app%apps, tier%4))
}

// policy is the j-th; port: another rule goes before its own.
func (c cluster) policy(j int, port uint16) intent.Policy {
	allow := func(proto uint8, src, dst intent.SetID, ports ...uint16) intent.Rule {
		r := intent.Rule{Action: intent.Allow, Protocol: proto}
		for _, p := range ports {
			r.Dst.Ports = append(r.Dst.Ports, intent.PortRange{Min: p, Max: p})
		}
		if src != "" {
			r.Src.Sets = []intent.SetID{src}
		}
		if dst != "" {
			r.Dst.Sets = []intent.SetID{dst}
		}
		return r
	}
	p := intent.Policy{ID: np(fmt.Sprintf("np-%d", j)), Tier: "default"}
	if j == c.policies {
		p.Ingress = []intent.Rule{allow(17, probed, "", 7000)}
		p.Egress = []intent.Rule{allow(17, "", probed)}
		return p
	}
	base := uint16(8000 + j%500)
	if port != 0 {
		p.Ingress = append(p.Ingress, allow(17, probed, "", port))
	}
	p.Ingress = append(p.Ingress, allow(6, byEnv(j*3+1, j), "", base), allow(6, byEnv(j*3+7, j+1), "", base+1, base+2))
	p.Egress = []intent.Rule{allow(6, "", byTier(j*5+2, j), base)}
	return p
}

func (c cluster) endpoint(i int) intent.Endpoint {
	e := wl(fmt.Sprintf("pod-%d", i), fmt.Sprintf("cali%d", i))
	var ids []intent.PolicyID
	for j := i % apps; j < c.policies; j += apps {
		ids = append(ids, np(fmt.Sprintf("np-%d", j)))
	}
	ids = append(ids, np(fmt.Sprintf("np-%d", c.policies)))
	intenttest.Normal(&e, tier("default", intent.Deny, ids, ids))
	return e
}

// setsOf are the sets that a remote endpoint is in, by its labels.
func setsOf(i int) []intent.SetID {
	return []intent.SetID{byEnv(i, i/apps), byTier(i, i/(apps*2))}
}

func (c cluster) batch() intent.Batch {
	b := intent.Batch{InSync: true, Host: &intent.HostSettings{Compiled: true}}
	sets := map[intent.SetID][]intent.Member{probed: {host(0)}}
	for app := range apps {
		for n := range 4 {
			sets[byEnv(app, n)], sets[byTier(app, n)] = nil, nil
		}
	}
	for i := range c.remotes {
		for _, id := range setsOf(i) {
			sets[id] = append(sets[id], host(i))
		}
	}
	for id, members := range sets {
		b.IPSets = append(b.IPSets, intent.IPSet{ID: id, Members: members})
	}
	for j := range c.policies + 1 {
		b.Policies = append(b.Policies, c.policy(j, 0))
	}
	for i := range 100 {
		b.Endpoints = append(b.Endpoints, c.endpoint(i))
	}
	return b
}

// remote is a remote endpoint that comes, or goes.
func (c cluster) remote(k int, comes bool) intent.Batch {
	var b intent.Batch
	for _, id := range append(setsOf(k*7), probed) {
		d := intent.MemberDelta{Set: id, Added: []intent.Member{host(9_000_000 + k)}}
		if !comes {
			d.Added, d.Removed = nil, d.Added
		}
		b.Members = append(b.Members, d)
	}
	return b
}

// counting counts what the kernel is told.
type counting struct {
	Conn
	transactions, messages, bytes int
	last                          time.Duration
}

func (c *counting) Commit(b *nftables.Batch) error {
	c.transactions++
	c.messages += b.Len()
	c.bytes += b.Size()
	began := time.Now()
	err := c.Conn.Commit(b)
	c.last += time.Since(began)
	return err
}

// sent returns how many transactions and messages the kernel is told for a change, until nothing rests of it.
func sent(t *testing.T, k *counting, d *Driver, b intent.Batch) (transactions, messages int) {
	t.Helper()
	k.transactions, k.messages = 0, 0
	d.Merge(b)
	apply(t, d)
	rested(t, d)
	return k.transactions, k.messages
}

// TestAnEventTellsTheKernelWhatItChanges: what the kernel is told of one event does not depend on how much there is.
func TestAnEventTellsTheKernelWhatItChanges(t *testing.T) {
	const groups = apps
	for _, c := range []cluster{{1000, 100}, {4000, 400}} {
		k := &counting{Conn: newKernel(t)}
		d := New(k, Config{})
		d.Merge(c.batch())
		apply(t, d)
		rested(t, d)
		at := func(i int, comes bool) intent.Batch {
			b := c.remote(i, comes)
			b.Members = b.Members[:2] // no prober
			return b
		}
		local := c.endpoint(7)
		local.ID.Name, local.Link = "new", "new"
		for _, x := range []struct {
			what                   string
			change                 intent.Batch
			transactions, messages int
		}{
			{"an address comes that is like others", at(1, true), 1, 1},
			{"it goes", at(1, false), 1, 1},
			// Its class, in each group that asks for it, in both directions; a program that is new for some of them, and its cells.
			{"an address comes that is like no other", c.remote(1, true), 1, 2*groups + 8},
			{"it goes", c.remote(1, false), 2, 1 + 2*groups + 8},
			{"a rule changes", intent.Batch{Policies: []intent.Policy{c.policy(5, 20_000)}}, 2, 10},
			{"a workload comes that is like others", intent.Batch{Endpoints: []intent.Endpoint{local}}, 1, 3},
			{"it goes", intent.Batch{Removed: []intent.Key{local.ID}}, 1, 3},
		} {
			if transactions, messages := sent(t, k, d, x.change); transactions > x.transactions || messages > x.messages || messages == 0 {
				t.Errorf("%d addresses, %d policies: %s: %d transactions, %d messages; at most %d, %d", c.remotes, c.policies, x.what, transactions, messages, x.transactions, x.messages)
			}
		}
	}
}

// TestSetsOfOneEventAreFoundSoon: the kernel finds a set by comparing its name with that of each before it, so those that many events
// concern are before the others, and have short names.
func TestSetsOfOneEventAreFoundSoon(t *testing.T) {
	k := newKernel(t)
	d := New(k, Config{})
	d.Merge(cluster{1000, 100}.batch())
	apply(t, d)
	rs, err := k.List(d.cfg.Table)
	if err != nil {
		t.Fatal(err)
	}
	last := 0
	for _, s := range rs.Sets {
		ks := d.ksets[s.Name]
		if ks == nil {
			continue
		}
		if ks.rank() < last {
			t.Errorf("%s comes after sets of less events", s.Name)
		}
		last = ks.rank()
		if len(s.Name) > 18 {
			t.Errorf("%s is a long name", s.Name)
		}
	}
	if last == 0 {
		t.Error("the listing has no sets of tables")
	}
}

// TestVerdictsAreOfWorkloadsAlone: when a chain or a verdict comes, the kernel walks all verdicts of maps. So they are as many as workloads, whatever
// policies there are.
func TestVerdictsAreOfWorkloadsAlone(t *testing.T) {
	k := newKernel(t)
	c := cluster{1000, 500}
	d := New(k, Config{})
	d.Merge(c.batch())
	apply(t, d)
	rs, err := k.List(d.cfg.Table)
	if err != nil {
		t.Fatal(err)
	}
	verdicts := 0
	for _, s := range rs.Sets {
		if s.Data == nftables.TypeVerdict {
			verdicts += len(s.Elements)
		}
	}
	if want := 2 * len(c.batch().Endpoints); verdicts != want {
		t.Errorf("%d verdicts, want %d", verdicts, want)
	}
}
