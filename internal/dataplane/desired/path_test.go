package desired_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/dataplane/desired"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/seedtest"
)

// world is the intents that are in force.
type world struct {
	*rand.Rand
	sets      map[intent.SetID]intent.IPSet
	policies  map[intent.PolicyID]intent.Policy
	endpoints map[intent.EndpointID]intent.Endpoint
	host      intent.HostSettings
	addrs     map[string][]netip.Addr
}

func (w *world) one(of ...string) string { return of[w.IntN(len(of))] }

// earliest is the one early stage at which a policy may be asked, by its name: calc sends none for two.
func (w *world) some(stage int) (out []intent.PolicyID) {
	for i := range 6 {
		if w.IntN(3) == 0 && min(i, 2) == min(stage, 2) {
			out = append(out, np(fmt.Sprint("p", i)))
		}
	}
	return out
}

func (w *world) tiers(stage int) []intent.Tier {
	return []intent.Tier{{Name: "a", Default: intent.Pass, Ingress: w.some(stage)}, {Name: "b", Ingress: w.some(stage), Egress: w.some(stage)}}
}

func (w *world) set() intent.SetID { return intent.SetID(fmt.Sprint("s", w.IntN(5))) }

func (w *world) rules() (rs []intent.Rule) {
	for range w.IntN(3) {
		r := intent.Rule{Action: intent.Action(w.IntN(4)), Reject: w.IntN(2) == 0}
		if w.IntN(2) == 0 {
			r.Src.Sets = []intent.SetID{w.set()}
		}
		if w.IntN(4) == 0 {
			r.Dst.NotPortSets = []intent.SetID{w.set()}
		}
		rs = append(rs, r)
	}
	return rs
}

// step makes one change, of what there is or of what there is not yet.
func (w *world) step() (b intent.Batch) {
	switch w.IntN(6) {
	case 0:
		s := intent.IPSet{ID: w.set(), Kind: intent.SetKind(w.IntN(4) / 3)}
		w.sets[s.ID] = s
		b.IPSets = append(b.IPSets, s)
	case 1:
		p := intent.Policy{ID: np(fmt.Sprint("p", w.IntN(6))), Tier: "t", Ingress: w.rules(), Egress: w.rules(), Closed: w.one("", "", "", "cannot be read")}
		w.policies[p.ID] = p
		b.Policies = append(b.Policies, p)
	case 2:
		e := intent.Endpoint{ID: intent.EndpointID{Namespace: "prod", Name: w.one("a", "b", "c")}, Link: w.one("cali0", "cali1", ""), Group: intent.GroupOf(intent.Stages{Normal: w.tiers(2)}), Closed: w.one("", "", "is wrong")}
		if w.IntN(3) == 0 {
			e.QoS = intent.QoS{In: intent.Limits{Connections: uint32(w.IntN(3))}, Out: intent.Limits{PacketRate: uint32(w.IntN(3)), PacketBurst: 1}}
		}
		if w.IntN(2) == 0 {
			e = intent.Endpoint{
				ID: intent.EndpointID{Kind: intent.Host, Name: w.one("a", "b", "c")}, Link: w.one("*", "eth0", "", "eth1"), Addrs: w.addr(), Closed: e.Closed, Group: intent.GroupOf(intent.Stages{Untracked: w.tiers(0), PreDNAT: w.tiers(1), Normal: w.tiers(2), Forward: w.tiers(3)}, w.some(2)...),
			}
		}
		w.endpoints[e.ID] = e
		b.Endpoints = append(b.Endpoints, e)
	case 3:
		w.host = intent.HostSettings{
			EndpointToHost: intent.ToHost(w.IntN(3)), VXLAN: intent.VXLANSettings{Port: []uint16{0, 8472}[w.IntN(2)]}, AllowInvalid: w.IntN(2) == 0, DNS: w.IntN(2) == 0, AllowVXLAN: w.IntN(2) == 0, ReportAllowed: w.IntN(2) == 0,
			Prefixes: []string{w.one("cali", "tap")}, Exclude: []string{w.one("eth0", "/^eth/", "x")}, Log: intent.LogSettings{Prefix: w.one("", "%t")},
			FailsafeIn:   []intent.Failsafe{{Protocol: 6, Port: uint16(w.IntN(3))}},
			ServiceLoops: intent.ServiceLoops(w.IntN(3)),
		}
		if w.IntN(2) == 0 {
			w.host.Services = intent.ServicePrefixes{Cluster: []netip.Prefix{netip.MustParsePrefix(w.one("10.96.0.0/12", "fd96::/112", "0.0.0.0/0"))}}
		}
		h := w.host
		b.Host = &h
	case 4:
		b.Removed = append(b.Removed, w.removal())
	case 5:
		w.addrs[w.one("eth0", "eth1")] = w.addr()
	}
	return b
}

func (w *world) addr() []netip.Addr {
	return []netip.Addr{netip.MustParseAddr(w.one("192.0.2.1", "192.0.2.2"))}
}

func (w *world) removal() intent.Key {
	var all []intent.Key
	for id := range w.sets {
		all = append(all, id)
	}
	for id := range w.policies {
		all = append(all, id)
	}
	for id := range w.endpoints {
		all = append(all, id)
	}
	if len(all) == 0 {
		return intent.SetID("none")
	}
	slices.SortFunc(all, func(a, b intent.Key) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	k := all[w.IntN(len(all))]
	maps.DeleteFunc(w.sets, func(id intent.SetID, _ intent.IPSet) bool { return id == k })
	maps.DeleteFunc(w.policies, func(id intent.PolicyID, _ intent.Policy) bool { return id == k })
	maps.DeleteFunc(w.endpoints, func(id intent.EndpointID, _ intent.Endpoint) bool { return id == k })
	return k
}

// TestAnyPathIsAFreshStart: whatever changed before, and whatever the backend refused for a while, what is desired follows from the
// intents that there are; and at no time does anything dangle, however much of it was refused.
func TestAnyPathIsAFreshStart(t *testing.T) {
	seed := seedtest.New(t)
	for run := range uint64(60) {
		w := &world{
			Rand: rand.New(rand.NewPCG(seed, run)), sets: map[intent.SetID]intent.IPSet{}, policies: map[intent.PolicyID]intent.Policy{},
			endpoints: map[intent.EndpointID]intent.Endpoint{}, addrs: map[string][]netip.Addr{},
		}
		n := newNode(t, desired.Config{}).apply(intent.Batch{Host: &w.host, InSync: true})
		for step := range 100 {
			n.Merge(w.step())
			for link, addrs := range w.addrs {
				n.Links([]desired.Addrs{{Link: link, Addrs: addrs}})
			}
			if w.IntN(4) == 0 && len(w.policies) > 0 {
				n.refused[slices.Collect(maps.Keys(w.policies))[0]] = errors.New("no memory")
			}
			if w.IntN(3) == 0 {
				continue // several changes at once
			}
			n.apply()
			if step%10 != 9 {
				continue
			}
			clear(n.refused)
			if err := n.Resync(t.Context()); err != nil {
				t.Fatal(err)
			}
			n.apply()
			fresh := newNode(t, desired.Config{})
			for link, addrs := range w.addrs {
				fresh.Links([]desired.Addrs{{Link: link, Addrs: addrs}})
			}
			fresh.apply(intent.Batch{
				IPSets: slices.Collect(maps.Values(w.sets)), Policies: slices.Collect(maps.Values(w.policies)), Endpoints: slices.Collect(maps.Values(w.endpoints)),
				Host: &w.host, InSync: true,
			})
			if err := n.Same(fresh.Dataplane); err != nil {
				t.Fatalf("run %d, step %d: %v", run, step, err)
			}
		}
	}
}
