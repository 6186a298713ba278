package agreetest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/calc"
	"github.com/twillnet/twill/internal/calc/calctest"
	"github.com/twillnet/twill/internal/dataplane/desired"
	"github.com/twillnet/twill/internal/dataplane/iptables"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/seedtest"
	"github.com/twillnet/twill/internal/verdict/world"
)

// iptablesWorlds are few: to load the texts of one takes eight processes.
const iptablesWorlds = 40

// TestTextsOfIptablesAgree: what is desired, said by package iptables and loaded by its tools, does to packets what the resources say.
// Reports and answers are not compared: the texts have none of the first, and reject in table filter alone.
func TestTextsOfIptablesAgree(t *testing.T) {
	seed := seedtest.New(t)
	for _, backend := range []string{"nft", "legacy"} {
		t.Run(backend, func(t *testing.T) {
			machinetest.Program(t, "ipset")
			machinetest.Program(t, "iptables-"+backend+"-restore")
			n := newNode(t)
			asked, allowed := 0, 0
			for i := range min(iptablesWorlds, *worlds) {
				rng := rand.New(rand.NewPCG(seed, uint64(i)))
				w := calctest.Random(rng, calctest.Config{Workloads: workloads, Unlimited: true})
				for range rng.IntN(30) {
					w.Step()
				}
				a, b := n.textsAgree(backend, w, rng)
				asked, allowed = asked+a, allowed+b
				if t.Failed() {
					t.Fatalf("world %d", i)
				}
			}
			if !*brief && (asked < 10*min(iptablesWorlds, *worlds) || allowed < asked/5) {
				t.Errorf("%d packets, of which %d are allowed: too few to show anything", asked, allowed)
			}
		})
	}
}

func (n *node) textsAgree(backend string, w *calctest.Cluster, rng *rand.Rand) (asked, allowed int) {
	n.t.Helper()
	g := calc.New(nodeName)
	g.Update(w.State())
	g.SetInSync()
	b := g.Flush()
	n.loadTexts(backend, b)
	n.setRoutes(b.Routes)
	qs := asker{node: n, world: w, rng: rng, oracle: world.New(w.State()), links: linksOf(b)}.questions(*each)
	ps := make([]sending, len(qs))
	for i := range qs {
		ps[i] = qs[i].sending
	}
	f := n.deliver(ps)
	for i, q := range qs {
		link, passed := f.out[ps[i].Mark]
		passed = passed && (strings.HasPrefix(link, q.out) && q.out != "" || link == q.out)
		if asked++; q.allowed {
			allowed++
		}
		if passed != q.allowed {
			n.t.Errorf("%+v in by %q, out by %q: kernel %v (out by %q), world %v (%+v)", ps[i].Packet, q.link, q.out, passed, link, q.allowed, q.answer.Decided)
		}
	}
	return asked, allowed
}

// loadTexts makes the kernel what a batch from an empty start says.
func (n *node) loadTexts(backend string, b intent.Batch) {
	n.t.Helper()
	s := desired.New(desired.Config{})
	s.Links([]desired.Addrs{{Link: uplink, Addrs: []netip.Addr{netip.MustParseAddr(ownV4), netip.MustParseAddr(ownV6)}}})
	s.Merge(b)
	var now iptables.Node
	now.Take(s.Changes())
	host, _ := s.Host()
	families := map[intent.Family]string{intent.IPv4: "iptables-", intent.IPv6: "ip6tables-"}
	for _, tool := range families { // what the last world left goes, and then its sets
		for _, table := range []iptables.Table{iptables.Raw, iptables.Mangle, iptables.NAT, iptables.Filter} {
			n.feed(fmt.Sprintf("*%s\nCOMMIT\n", table), tool+backend+"-restore", "-w", "10")
		}
	}
	n.host.Run("ipset", "destroy")
	for f, tool := range families {
		texts, err := now.Render(f, host.Log)
		must(n.t, err)
		n.feed(iptables.RestoreSets(f, b.IPSets), "ipset", "restore")
		for _, x := range texts {
			var calls strings.Builder
			for _, c := range x.Calls {
				fmt.Fprintf(&calls, "-A %s -j %s\n", c.Hook, c.Chain)
			}
			n.feed(strings.Replace(x.Restore, "COMMIT\n", calls.String()+"COMMIT\n", 1), tool+backend+"-restore", "--noflush", "-w", "10")
		}
	}
}

// feed gives a program of the host a text.
func (n *node) feed(text, program string, args ...string) {
	n.t.Helper()
	cmd := exec.Command(program, args...)
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(text), &out, &out
	err := n.host.Handle().Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		n.t.Fatalf("%s: %v\n%s\nof\n%s", program, err, &out, text)
	}
}
