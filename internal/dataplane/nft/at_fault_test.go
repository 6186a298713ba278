package nft

import (
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/twillnet/twill/internal/dataplane/desired"
	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/intenttest"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

// picky stands for a kernel that refuses each transaction with some part of the tables.
type picky struct {
	*kernelConn
	driver *Driver
	named  bool                                            // it says which operation it refuses, of those for the tables or of stages
	rule   func(chain string, r nftables.Rule) bool        // such a rule; nil: none
	elem   func(set nftables.Set, e nftables.Element) bool // or such an element
	checks int
}

func (n *picky) refuse(b *nftables.Batch) error {
	p := n.driver.trying
	bad := false
	for _, k := range p.ksets {
		for e := range p.incoming(k) {
			bad = bad || k.wanted && n.elem != nil && n.elem(k.spec, e)
		}
	}
	for _, c := range p.chains {
		for _, r := range p.askedRules(c) {
			bad = bad || c.wanted && n.rule != nil && p.concerns(c.owner) && n.rule(c.name, r)
		}
	}
	if !bad {
		return nil
	}
	at := -1
	for i := range b.Len() {
		if n.named && (p.owner(i) == desired.Tables || p.owner(i) == desired.HostEndpoints) {
			at = i
		}
	}
	return &nftables.BatchError{Ops: []nftables.OpError{{Op: "test", Index: at, Err: syscall.ENOMEM}}}
}

func (n *picky) Commit(b *nftables.Batch) error {
	if err := n.refuse(b); err != nil {
		return err
	}
	return n.kernelConn.Commit(b)
}

func (n *picky) Check(b *nftables.Batch) error {
	n.checks++
	if err := n.refuse(b); err != nil {
		return err
	}
	return n.kernelConn.Check(b)
}

const crowd = 32 // workloads

// crowded is workloads with a policy of their own, one that all have, and a profile; some of each are in a code's chain.
func crowded() intent.Batch {
	all := intent.IPSet{ID: "all"}
	common, open := np("common"), intent.PolicyID{Kind: "Profile", Name: "open"}
	b := intent.Batch{InSync: true}
	from := func(set intent.SetID, srcPort uint16) intent.Peer {
		p := intent.Peer{Sets: []intent.SetID{set}}
		if srcPort > 0 {
			p.Ports = []intent.PortRange{{Min: srcPort, Max: srcPort}}
		}
		return p
	}
	for i := range crowd {
		s := intent.IPSet{ID: intent.SetID(fmt.Sprint("set", i))}
		for j := range 3 {
			m := intent.Member{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), 0, byte(j)}), 32)}
			if s.Members = append(s.Members, m); j != 1 { // else its class would be because of both
				all.Members = append(all.Members, m)
			}
		}
		port := uint16(4000 + i)
		to := intent.Peer{Ports: []intent.PortRange{{Min: port, Max: port}}}
		p := intent.Policy{ID: np(fmt.Sprint("p", i)), Tier: "t", Ingress: []intent.Rule{
			{Action: intent.Deny, Protocol: 6, Src: from(s.ID, 1), Dst: to}, {Action: intent.Allow, Protocol: 6, Src: from(s.ID, 0), Dst: to},
		}}
		e := wl(fmt.Sprint("w", i), fmt.Sprint("cali", i))
		intenttest.Normal(&e, tier("t", intent.Deny, []intent.PolicyID{common, p.ID}, nil))
		intenttest.Profiles(&e, open)
		b.IPSets, b.Policies, b.Endpoints = append(b.IPSets, s), append(b.Policies, p), append(b.Endpoints, e)
	}
	b.IPSets = append(b.IPSets, all)
	b.Policies = append(b.Policies,
		intent.Policy{ID: common, Tier: "t", Ingress: []intent.Rule{{Action: intent.Deny, Protocol: 6, Src: from("all", 7)}}},
		intent.Policy{ID: open, Ingress: []intent.Rule{anything}, Egress: []intent.Rule{anything}})
	return compiledBatch(b)
}

// TestOneBecauseOfWhichATableIsRefusedIsFound: of what the tables are made of nothing is a policy's own, and yet the policy because of which
// the kernel refuses a part of them is left out alone, and closed.
func TestOneBecauseOfWhichATableIsRefusedIsFound(t *testing.T) {
	guilty := np("p17")
	inSet := func(name string, key []byte) func(nftables.Set, nftables.Element) bool {
		return func(s nftables.Set, e nftables.Element) bool {
			return strings.HasPrefix(s.Name, name) && strings.Contains(string(e.Key), string(key))
		}
	}
	for _, tt := range []struct {
		name string
		rule func(chain string, r nftables.Rule) bool
		elem func(nftables.Set, nftables.Element) bool
	}{
		{"a rule of a code's chain", func(chain string, r nftables.Rule) bool {
			return strings.HasPrefix(chain, "code-") && strings.Contains(r.Comment, "prod/p17 ingress[0]")
		}, nil},
		{"an entry of a program", nil, inSet(mapPorts, nftables.KeyPort(4017))},
		{"the class of an address", nil, inSet("class4", []byte{10, 17, 0, 1})},
	} {
		for _, named := range []bool{false, true} {
			for _, running := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, named %v, running %v", tt.name, named, running), func(t *testing.T) {
					n := &picky{kernelConn: newKernel(t), named: named}
					n.driver = New(n, Config{})
					d := n.driver
					d.Merge(intent.Batch{InSync: true})
					apply(t, d)
					b := crowded()
					if running { // all but the one is in force already
						without := b
						without.Policies = slices.Concat(b.Policies[:17], b.Policies[18:])
						without.Endpoints = slices.Concat(b.Endpoints[:17], b.Endpoints[18:])
						d.Merge(without)
						apply(t, d)
					}
					n.rule, n.elem = tt.rule, tt.elem
					d.Merge(b)
					failed := map[intent.Key]error{}
					for _, o := range apply(t, d) {
						if o.Err != nil {
							failed[o.Key] = o.Err
						}
					}
					if !errors.Is(failed[guilty], syscall.ENOMEM) || failed[b.Endpoints[17].ID] == nil || len(failed) != 2 {
						t.Errorf("what fails: %v", failed)
					}
					if most := 4 + 2*bits.Len(3*crowd); n.checks > most {
						t.Errorf("%d checks, want at most %d", n.checks, most)
					}
					if got := strings.Count(n.ns.Run("nft", "list map inet twill wl-in"), ": goto"); got != crowd-1 {
						t.Errorf("%d workloads are in force, want all but one of %d", got, crowd)
					}
					if got := n.ns.Run("nft", "list set inet twill wl-closed"); !strings.Contains(got, `"cali17"`) {
						t.Errorf("the workload is not closed: %s", got)
					}
					n.rule, n.elem = nil, nil
					d.Retry()
					must(t, d.Resync(t.Context()))
					for _, o := range apply(t, d) {
						if o.Err != nil {
							t.Errorf("once it is well: %s: %v", o.Key, o.Err)
						}
					}
					if got := strings.Count(n.ns.Run("nft", "list map inet twill wl-in"), ": goto"); got != crowd {
						t.Errorf("once it is well %d workloads are in force", got)
					}
				})
			}
		}
	}
}

// TestAHostEndpointBecauseOfWhichAStageIsRefusedIsFound: it is closed, and the others go on.
func TestAHostEndpointBecauseOfWhichAStageIsRefusedIsFound(t *testing.T) {
	for i := range 4 {
		named, compiled := i%2 == 0, i < 2
		t.Run(fmt.Sprintf("named %v, compiled %v", named, compiled), func(t *testing.T) {
			bad := intent.Endpoint{ID: intent.EndpointID{Kind: intent.Host, Name: "bad"}, Link: "eth0"}
			good := intent.Endpoint{ID: intent.EndpointID{Kind: intent.Host, Name: "good"}, Link: "eth1"}
			for _, e := range []*intent.Endpoint{&bad, &good} {
				intenttest.Normal(e, tier("t", intent.Deny, []intent.PolicyID{np("p")}, nil))
			}
			n := &picky{kernelConn: newKernel(t), named: named}
			n.driver = New(n, Config{})
			chain := rules.HostChain(bad.ID, rules.HostNormal, intent.Ingress)
			asks := rules.PolicyChain(np("p"), intent.Ingress)
			if compiled {
				asks = "in-hep-in-"
			}
			n.rule = func(name string, r nftables.Rule) bool {
				return name == chain && strings.Contains(fmt.Sprint(r.Exprs), asks)
			}
			n.driver.Merge(intent.Batch{Policies: []intent.Policy{pol("p", []intent.Rule{anything}, nil)}, Endpoints: []intent.Endpoint{bad, good}, InSync: true, Host: &intent.HostSettings{Compiled: compiled}})
			out := apply(t, n.driver)
			if err := outcomeOf(out, bad.ID).Err; !errors.Is(err, syscall.ENOMEM) || outcomeOf(out, good.ID).Err != nil || outcomeOf(out, np("p")).Err != nil {
				t.Errorf("outcomes %v", out)
			}
			if got := n.ns.Run("nft", "list chain inet twill "+chain); !strings.Contains(got, "drop") || strings.Contains(got, asks) {
				t.Errorf("the one is not closed: %s", got)
			}
			if got := n.ns.Run("nft", "list chain inet twill "+rules.HostChain(good.ID, rules.HostNormal, intent.Ingress)); !strings.Contains(got, asks) {
				t.Errorf("the other asks no policy: %s", got)
			}
		})
	}
}
