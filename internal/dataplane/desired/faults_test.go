package desired_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/twillnet/twill/internal/dataplane/desired"
	"github.com/twillnet/twill/internal/dataplane/sim"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/intenttest"
)

// TestAHostEndpointThatTheBackendRefusesIsClosedAlone: its own chains are its own, and deny in the place of those that were refused.
func TestAHostEndpointThatTheBackendRefusesIsClosedAlone(t *testing.T) {
	allow := intent.Rule{Action: intent.Allow, Protocol: 6}
	bad, good := hep("bad", "eth0"), hep("good", "eth1")
	intenttest.Normal(&bad, ask("web")...)
	intenttest.Normal(&good, ask("web")...)
	boom := errors.New("boom")
	n := newNode(t, desired.Config{})
	n.refused[bad.ID] = boom
	n.apply(intent.Batch{
		Policies: []intent.Policy{pol("web", allow)}, Endpoints: []intent.Endpoint{bad, good}, InSync: true,
		Host: &intent.HostSettings{FailsafeIn: []intent.Failsafe{{Protocol: 6, Port: 22}}},
	})
	in := func(link string, port uint16) string {
		f := n.Judge(sim.Packet{In: link, Src: netip.MustParseAddr("192.0.2.9"), Dst: netip.MustParseAddr("192.0.2.1"), Proto: 6, SrcPort: 999, DstPort: port})
		if f.Allowed {
			return "passes"
		}
		return f.By.Reason
	}
	if !errors.Is(n.outcomes[bad.ID].Err, boom) || n.outcomes[good.ID].Err != nil || n.outcomes[np("web")].Err != nil {
		t.Errorf("outcomes %v", n.outcomes)
	}
	if in("eth0", 80) != intent.ReasonClosed || in("eth0", 22) != "passes" || in("eth1", 80) != "passes" {
		t.Errorf("by the refused one: %s, failsafe: %s, by the other: %s", in("eth0", 80), in("eth0", 22), in("eth1", 80))
	}
	// What changes elsewhere does not try it again, and does not forget it.
	if n.apply(intent.Batch{Endpoints: []intent.Endpoint{good}}); in("eth0", 80) != intent.ReasonClosed {
		t.Errorf("after a change of another: %s", in("eth0", 80))
	}
	delete(n.refused, bad.ID)
	if n.apply(intent.Batch{Endpoints: []intent.Endpoint{bad}}); n.outcomes[bad.ID].Err != nil || in("eth0", 80) != "passes" {
		t.Errorf("once it is taken: %v, %s", n.outcomes[bad.ID].Err, in("eth0", 80))
	}
}

// TestAStageThatCannotBeRenderedIsReportedUntilItCan: other settings that the backend carries out do not make it well. In its place is one that denies, but where nothing
// is decided: that accepts nothing.
func TestAStageThatCannotBeRenderedIsReportedUntilItCan(t *testing.T) {
	h := hep("h", "eth0")
	for name, does := range map[string]desired.Step{"host-in": desired.Drop, "forward-to-workload": desired.Drop, "input-accepted": desired.Return, "output-accepted": desired.Return} {
		t.Run(name, func(t *testing.T) {
			s := desired.New(desired.Config{Shared: true})
			boom := errors.New("boom")
			reported := func() error {
				for _, o := range s.Outcomes() {
					if o.Key == intent.Key(intent.HostID("")) {
						return o.Err
					}
				}
				return errors.New("nothing")
			}
			s.Merge(intent.Batch{Endpoints: []intent.Endpoint{h}, Host: &intent.HostSettings{}, InSync: true})
			for _, c := range s.Changes().Chains {
				if c.Name == name {
					if c = s.Broken(c, boom); len(c.Guards) != 1 || c.Guards[0].Do != does {
						t.Errorf("in its place is %+v", c)
					}
				}
			}
			if err := reported(); !errors.Is(err, boom) {
				t.Fatalf("reported is %v", err)
			}
			s.Settled(nil)
			if err := reported(); !errors.Is(err, boom) {
				t.Errorf("after the backend has carried out other settings, reported is %v", err)
			}
			s.Restate()
			s.Changes() // renders all again
			if err := reported(); err != nil {
				t.Errorf("once it is rendered, reported is %v", err)
			}
		})
	}
}
