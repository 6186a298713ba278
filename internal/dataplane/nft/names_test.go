package nft

import (
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
)

// collide makes all names that end alike collide: those of a same prefix whose last readable bytes are the same.
func collide(t *testing.T) {
	hash := rules.Hash
	t.Cleanup(func() { rules.Hash = hash })
	rules.Hash = func(string) []byte { return []byte{1} }
}

func TestNamesCarry128BitsOfHash(t *testing.T) {
	if n := len(rules.Hash("x")) * 8; n < 128 {
		t.Errorf("names carry %d bits", n)
	}
}

// wantOutcome applies, and wants the outcome of an intent to be an error with that text, or none.
func wantOutcome(t *testing.T, d *Driver, key intent.Key, want string) {
	t.Helper()
	for _, o := range apply(t, d) {
		switch {
		case o.Key != key:
		case want == "" && o.Err == nil, want != "" && o.Err != nil && strings.Contains(o.Err.Error(), want):
			return
		default:
			t.Errorf("outcome of %s: %v, want %q", key, o.Err, want)
			return
		}
	}
	t.Errorf("no outcome of %s", key)
}

// TestASecondOwnerOfANameIsRefused: whoever came first keeps the name, the other is closed and says why, and comes into force
// when the name is free. "tail" is what people read of both names.
func TestASecondOwnerOfANameIsRefused(t *testing.T) {
	collide(t)
	const tail = "-the-same-end-of-a-long-enough-name"
	allow := func(ns string, port uint16) intent.Policy {
		return intent.Policy{ID: intent.PolicyID{Kind: "NetworkPolicy", Namespace: ns + tail, Name: "p"}, Tier: "t", Ingress: []intent.Rule{
			{Action: intent.Allow, Protocol: 6, Dst: intent.Peer{Ports: []intent.PortRange{{Min: port, Max: port}}}},
		}}
	}
	workload := func(name, link string, policies ...intent.PolicyID) intent.Endpoint {
		return intent.Endpoint{ID: intent.EndpointID{Kind: intent.Workload, Namespace: "n", Name: name}, Link: link, Group: intent.GroupOf(intent.Stages{Normal: []intent.Tier{{Name: "t", Default: intent.Deny, Ingress: policies}}})}
	}
	p, q := allow("a", 1111), allow("b", 2222)
	first, second := workload("x"+tail, "cali1"), workload("y"+tail, "cali2")
	set := func(id, member string) intent.IPSet {
		return intent.IPSet{ID: intent.SetID(id + tail), Members: []intent.Member{{Prefix: prefix(member)}, {Prefix: prefix("192.0.2.0/24")}}}
	}
	uses := func(name string, s intent.IPSet) intent.Policy {
		return intent.Policy{ID: np(name), Tier: "t", Ingress: []intent.Rule{{Action: intent.Allow, Src: intent.Peer{Sets: []intent.SetID{s.ID}}}}}
	}
	s, r := set("s", "10.0.0.1/32"), set("r", "10.0.0.2/32")
	host := func(name, link string) intent.Endpoint {
		return intent.Endpoint{ID: intent.EndpointID{Kind: intent.Host, Name: name + tail}, Link: link}
	}
	g, h := host("g", "eth0"), host("h", "eth1")
	hostMark := func(link string) string { return `iifname "` + link + `" goto` }

	for _, tt := range []struct {
		name   string
		both   [2]intent.Batch
		keys   [2]intent.Key
		inText [2]string // what the table says only if the one, or the other, is in force
	}{
		{
			"policies",
			[2]intent.Batch{{Policies: []intent.Policy{p}, Endpoints: []intent.Endpoint{workload("1", "cali1", p.ID)}}, {Policies: []intent.Policy{q}, Endpoints: []intent.Endpoint{workload("2", "cali2", q.ID)}}},
			[2]intent.Key{p.ID, q.ID},
			[2]string{"dport 1111 ", "dport 2222 "},
		},
		{
			"workloads' endpoints",
			[2]intent.Batch{{Endpoints: []intent.Endpoint{first}}, {Endpoints: []intent.Endpoint{second}}},
			[2]intent.Key{first.ID, second.ID},
			[2]string{`"cali1" : goto`, `"cali2" : goto`},
		},
		{
			"sets",
			[2]intent.Batch{
				{IPSets: []intent.IPSet{s}, Policies: []intent.Policy{uses("s", s)}, Endpoints: []intent.Endpoint{workload("1", "cali1", np("s"))}},
				{IPSets: []intent.IPSet{r}, Policies: []intent.Policy{uses("r", r)}, Endpoints: []intent.Endpoint{workload("2", "cali2", np("r"))}},
			},
			[2]intent.Key{s.ID, r.ID},
			[2]string{"10.0.0.1", "10.0.0.2"},
		},
		{
			"host endpoints",
			[2]intent.Batch{{Endpoints: []intent.Endpoint{g}}, {Endpoints: []intent.Endpoint{h}}},
			[2]intent.Key{g.ID, h.ID},
			[2]string{hostMark("eth0"), hostMark("eth1")},
		},
	} {
		for _, order := range [][2]int{{0, 1}, {1, 0}} {
			name := tt.name + map[int]string{0: "", 1: ", in the other order"}[order[0]]
			if strings.HasPrefix(name, "host endpoints,") {
				continue // theirs are made all at once: the smaller name keeps it, whoever came first
			}
			t.Run(name, func(t *testing.T) {
				k := newKernel(t)
				d := New(k, Config{})
				one, two := order[0], order[1]
				d.Merge(intent.Batch{InSync: true})
				d.Merge(tt.both[one])
				wantOutcome(t, d, tt.keys[one], "")
				d.Merge(tt.both[two])
				wantOutcome(t, d, tt.keys[two], "collides with that of "+tt.keys[one].String())
				text := k.ns.Run("nft", "list", "ruleset")
				if !strings.Contains(text, tt.inText[one]) || strings.Contains(text, tt.inText[two]) {
					t.Errorf("want %q and not %q in\n%s", tt.inText[one], tt.inText[two], text)
				}
				gone := tt.keys[one]
				d.Merge(intent.Batch{Removed: []intent.Key{gone}})
				wantOutcome(t, d, tt.keys[two], "")
				text = k.ns.Run("nft", "list", "ruleset")
				if strings.Contains(text, tt.inText[one]) || !strings.Contains(text, tt.inText[two]) {
					t.Errorf("after the first has gone, want %q and not %q in\n%s", tt.inText[two], tt.inText[one], text)
				}
				fresh := New(k, Config{})
				for _, b := range []intent.Batch{{InSync: true}, tt.both[two], tt.both[one], {Removed: []intent.Key{gone}}} {
					fresh.Merge(b)
				}
				if diff, err := fresh.Differences(t.Context()); err != nil || len(diff) > 0 {
					t.Errorf("a fresh driver would have it otherwise: %v, %v", diff, err)
				}
			})
		}
	}
}
