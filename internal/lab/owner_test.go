package lab

import (
	"fmt"
	"testing"

	"github.com/twillnet/twill/api"
)

const (
	meddlings = 20 // of each kind
	handovers = 10
)

// TestTheTableChangesHandsAndNoPacketDoes is under allowed streams, of which no
// word is lost, and denied ones, of which none passes: somebody deletes and
// flushes a table that has an owner, the setting goes to and fro, agents die,
// and one that starts finds a table as an older version leaves it.
func TestTheTableChangesHandsAndNoPacketDoes(t *testing.T) {
	g := newGround(t)
	a, b, c := &g.Spec.Workloads[0], &g.Spec.Workloads[1], &g.Spec.Workloads[2]
	g.put(t, api.KindNetworkPolicy, "demo", "p", `{"selector":"app == \"b\"","ingress":[{"action":"Allow","source":{"namespaceSelector":"team == \"other\""}}]}`)
	g.want(t, "a -> b no", "c -> b yes")
	g.awaitOwner(t, true)
	var streams []*stream
	for range 3 { // three thousand denied packets a second
		streams = append(streams, startUDP(t, g.Lab, a, b, false, false), startUDP(t, g.Lab, a, b, true, false))
	}
	streams = append(streams, startUDP(t, g.Lab, c, b, false, true), startUDP(t, g.Lab, c, b, true, true), startTCP(t, g.Lab, c, b, false), startTCP(t, g.Lab, c, b, true))
	own := func(owned bool) {
		t.Helper()
		g.put(t, api.KindFelixConfiguration, "", "default", fmt.Sprintf(`{"nftablesTableOwnerEnabled":%v}`, owned))
	}
	was := g.repairs(t, "event")
	for range meddlings {
		if err := g.tryInHost("nft delete table inet twill"); err == nil {
			t.Error("somebody has deleted the table")
		}
		g.inHost(t, "nft flush ruleset")
	}
	if now := g.repairs(t, "event"); now != was {
		t.Errorf("%d repairs of what the kernel refuses", now-was)
	}
	for range handovers {
		own(false)
		g.awaitOwner(t, false)
		own(true)
		g.awaitOwner(t, true)
	}
	g.killAgent(t)
	g.awaitOwner(t, true)
	own(false)
	g.awaitOwner(t, false)
	g.killAgent(t)
	own(true)
	g.awaitOwner(t, true)
	stopAll(t, streams)
	g.verified(t)
	g.want(t, "a -> b no", "c -> b yes")
}
