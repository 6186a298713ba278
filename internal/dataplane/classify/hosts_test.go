package classify_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/dataplane/classify"
	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/verdict"
)

var hostStages = []rules.Stage{rules.HostNormal, rules.HostForward, rules.PreDNAT, rules.Untracked}

// stageNames are those of verdict.
var stageNames = [...]string{rules.HostNormal: "host", rules.HostForward: "forward", rules.PreDNAT: "pre-DNAT", rules.Untracked: "untracked"}

// compareHosts sends random packets by the interfaces of host endpoints, and asks the tables about each stage at which verdict says that they
// were asked. It counts what was met.
func (n *node) compareHosts(t *testing.T, rng *rand.Rand, count int, met map[string]int) {
	t.Helper()
	hosts := map[intent.EndpointID]intent.Endpoint{}
	for id, e := range n.endpoints {
		if id.Kind == intent.Host && e.Closed == "" {
			hosts[id] = e
		}
	}
	if len(hosts) == 0 {
		return
	}
	own := netip.MustParseAddr("192.0.2.1")
	n.judge.IgnoreHosts = false
	defer func() { n.judge.IgnoreHosts = true }()
	n.judge.SetLink("eth0", []netip.Addr{own, netip.MustParseAddr("2001:db8::1")})
	h := n.hints()
	for range count {
		q := verdict.Packet{InLink: "eth0", OutLink: pick(rng, []string{"", "eth1"}), Src: pick(rng, h.addrs), Dst: pick(rng, h.addrs), Proto: pick(rng, []uint8{6, 6, 17, 132, 1, 58, 47})}
		if rng.IntN(2) == 0 {
			q.InLink, q.OutLink = q.OutLink, q.InLink
		}
		switch q.Proto {
		case 1, 58:
			q.ICMPType, q.ICMPCode = uint8(rng.IntN(10)), uint8(rng.IntN(3))
		case 47:
		default:
			q.SrcPort, q.DstPort = pick(rng, h.ports), pick(rng, h.ports)
		}
		if q.Src.Is4() != q.Dst.Is4() {
			continue
		}
		n.compareSteps(t, hosts, q, n.judge.Judge(q), met)
	}
}

// compareSteps compares what host endpoints decided about a packet at each stage.
func (n *node) compareSteps(t *testing.T, hosts map[intent.EndpointID]intent.Endpoint, q verdict.Packet, v verdict.Verdict, met map[string]int) {
	t.Helper()
	type at struct {
		id    intent.EndpointID
		stage rules.Stage
		dir   intent.Direction
	}
	last := map[at]verdict.Step{}
	for _, step := range v.Trace {
		if stage := slices.Index(stageNames[:], step.Stage); stage >= 0 && hosts[step.Endpoint].ID == step.Endpoint {
			last[at{step.Endpoint, rules.Stage(stage), step.By.Direction}] = step
		}
	}
	p := classify.Packet{Src: q.Src, Dst: q.Dst, Proto: q.Proto, SrcPort: q.SrcPort, DstPort: q.DstPort, ICMPType: q.ICMPType, ICMPCode: q.ICMPCode}
	for _, x := range slices.SortedFunc(maps.Keys(last), func(a, b at) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }) {
		want, peer := last[x], q.Src
		if x.dir == intent.Egress {
			peer = q.Dst
		}
		walk := classify.HostWalkOf(hosts[x.id], x.stage, x.dir)
		way, err := n.tables.Ask(n.groups[fmt.Sprint(walk)].id, peer, p, n.sets)
		if err != nil {
			t.Fatal(err)
		}
		got, action := way.Decided.By, way.Decided.Action
		what := map[rules.Action]string{
			rules.Deny: "denied", rules.Reset: "denied", rules.Reject: "denied", rules.Allow: "allowed", rules.AllowEarly: "allowed",
			rules.AllowUntracked: "allowed", rules.Accept: "open",
		}[action]
		met[stageNames[x.stage]+", "+what]++
		if strings.Contains(want.Outcome, "pass") { // no rule decided
			if action != rules.Accept || got != (intent.Decision{}) {
				t.Fatalf("%+v: nobody decides at %+v; tables: %+v", q, x, way.Decided)
			}
			continue
		}
		early := [...]rules.Action{rules.HostNormal: rules.Allow, rules.HostForward: rules.Allow, rules.PreDNAT: rules.AllowEarly, rules.Untracked: rules.AllowUntracked}[x.stage]
		rejected := action == rules.Reset || action == rules.Reject
		if got.Reason != want.Outcome || got.Rule != want.By || got.Tier != want.Tier || rejected != want.Reject || got.Allowed != (action == early) ||
			got.Endpoint != x.id && got.Rule.Index == intent.NoRule && got.Reason != intent.ReasonPolicyClosed {
			t.Fatalf("%+v at %+v\nverdict: %+v\ntables:  %+v\n%v", q, x, want, way.Decided, walk)
		}
	}
}
