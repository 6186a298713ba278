package agreetest

import (
	"context"
	"flag"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/calc"
	"github.com/twillnet/twill/internal/dataplane/iptables"
	"github.com/twillnet/twill/internal/dataplane/iptables/iptablestest"
	"github.com/twillnet/twill/internal/dataplane/nft"
	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/verdict"
)

// on is which dataplane the tests of a kernel ask.
var on = flag.String("on", inNftables, "where policy is: "+strings.Join(dataplanes, ", "))

const (
	inNftables       = "nftables"
	inIPTablesNFT    = "iptables-nft"
	inIPTablesLegacy = "iptables-legacy"
)

var dataplanes = []string{inNftables, inIPTablesNFT, inIPTablesLegacy, inFar}

// policyDriver is what makes policy so in a kernel.
type policyDriver interface {
	Resync(context.Context) error
	Links([]ifmon.Change)
	Merge(intent.Batch)
	Apply(context.Context) ([]intent.Outcome, error)
}

// checkOn demands a dataplane that there is, and what it needs of the machine.
func checkOn(t *testing.T, dataplane string) {
	t.Helper()
	if !slices.Contains(dataplanes, dataplane) {
		t.Fatalf("no dataplane %q: %s", dataplane, strings.Join(dataplanes, ", "))
	}
	if onIPTables(dataplane) {
		machinetest.Program(t, "ipset")
		machinetest.Program(t, dataplane+"-restore")
	}
}

// onIPTables reports whether policy is in tables of iptables.
func (n *node) onIPTables() bool { return onIPTables(n.on) }

func onIPTables(dataplane string) bool {
	return dataplane == inIPTablesNFT || dataplane == inIPTablesLegacy
}

// driver returns a driver that has read what the kernel has. Recheck: it is the driver that looks again at flows which live.
func (n *node) driver(recheck bool) policyDriver {
	n.t.Helper()
	var d policyDriver
	if backend, iptablesOne := strings.CutPrefix(n.on, "iptables-"); iptablesOne {
		d = iptables.NewDriver(iptablestest.In(n.host, iptables.Host(backend)), iptables.Config{Names: n.names})
	} else if n.far != nil {
		d = n.far.connect()
	} else {
		d = nft.New(n.conn, nft.Config{Names: n.names, Recheck: recheck})
	}
	must(n.t, d.Resync(n.t.Context()))
	return d
}

// inForce makes the kernel have all that the driver was given.
func (n *node) inForce(d policyDriver) {
	n.t.Helper()
	outcomes, err := d.Apply(n.t.Context())
	must(n.t, err)
	for _, o := range outcomes {
		must(n.t, o.Err)
	}
}

// rejects reports whether the dataplane answers the sender of a packet that policy rejects. Iptables does so in table filter alone, and resets no
// TCP that is of no connection; else it drops (docs/dataplanes.md).
func (n *node) rejects(v verdict.Verdict, p verdict.Packet) bool {
	return v.Rejected && (!n.onIPTables() || v.Trace[len(v.Trace)-1].Stage != "pre-DNAT" && (p.Proto != 6 || !untracked(v)))
}

// untracked reports whether an untracked policy let the packet pass, so that it is of no connection.
func untracked(v verdict.Verdict) bool {
	return slices.ContainsFunc(v.Trace, func(s verdict.Step) bool { return s.Stage == "untracked" && s.Outcome == intent.ReasonRule })
}

// TestNoAnswerPassesByPolicy: a reset of what conntrack does not follow is of no connection, and policy of the host's endpoint denies what of it would go
// out. The source of a reset is not the host's, so that no match of iptables tells it from what is forwarded.
func TestNoAnswerPassesByPolicy(t *testing.T) {
	updates := handCase{rules: `{action: Deny, metadata: {annotations: {twill.net/reject: "true"}}}`, more: `
- {kind: HostEndpoint, metadata: {name: a, labels: {hep: a}}, spec: {node: h1, interfaceName: eth0}}
- {kind: GlobalNetworkPolicy, metadata: {name: in}, spec: {selector: hep == "a", doNotTrack: true, applyOnForward: true, types: [Ingress], ingress: [{action: Allow}]}}
- {kind: GlobalNetworkPolicy, metadata: {name: out}, spec: {selector: hep == "a", types: [Egress], egress: [{action: Deny}]}}`}.updates(t)
	for _, dataplane := range dataplanes {
		t.Run(dataplane, func(t *testing.T) {
			n := newNode(t, dataplane)
			g := calc.New(nodeName)
			g.Update(updates)
			g.SetInSync()
			n.program(g.Flush())
			for _, text := range []string{tcp4, tcp6} {
				p, in, _ := handPacket(t, text)
				sent := []sending{{p, in}}
				f := n.deliver(sent)
				if by, dropped := f.dropped[sent[0].Mark]; !dropped || by.Reason != intent.ReasonRule {
					t.Errorf("%s: dropped %v, by %+v; want by the rule", text, dropped, by)
				}
				if out, answered := f.rejected[sent[0].Mark]; answered {
					t.Errorf("%s: answered by %s, though policy of the host's endpoint denies what it sends", text, out)
				}
			}
		})
	}
}

// TestIptablesAgrees: what TestKernelAgrees and TestKernelAgreesOnAnyPath show of nftables is so of a few worlds in both backends of iptables; make
// iptables asks as many there. In the next world another driver begins with what the last one left, as an agent that restarts.
func TestIptablesAgrees(t *testing.T) {
	for _, dataplane := range []string{inIPTablesNFT, inIPTablesLegacy} {
		t.Run(dataplane, func(t *testing.T) {
			kernelAgrees(t, dataplane, min(*worlds, 25))
			anyPathAgrees(t, dataplane, min(*paths, 2))
		})
	}
}
