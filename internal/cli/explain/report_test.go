package explain

import (
	"bytes"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/agent"
)

func TestAReportNamesWhatIsWrongFirst(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	since := func(d time.Duration) agent.Since { return agent.Since{State: "in force", Since: now.Add(-d)} }
	r := agent.Report{
		Node: "h1", Version: "v1", Started: now.Add(-50 * time.Hour), NotReady: []string{"nft: boom"}, Unwritten: "datastore is full",
		Datastore: agent.Since{State: "in-sync", Since: now.Add(-90 * time.Minute)}, Kernel: since(3 * time.Second),
		Counts:  agent.Counts{Endpoints: map[string]int{"up": 1, "down": 1}, Policies: 2, Sets: 3, Routes: 4, ByChains: 1},
		Repairs: map[string]int{"nft by event": 2},
		Endpoints: []agent.EndpointReport{
			{Name: "prod/db", Interface: "cali2", Status: "down", Reason: "interface cali2 is absent", Since: now.Add(-time.Minute)},
			{Name: "prod/web", Interface: "cali1", Status: "up", Since: now.Add(-time.Hour), Chains: "too many ports have rules of their own"},
		},
		MTU:       &agent.MTUReport{Interface: "eth0", Carries: 1500, Workloads: 1450, Problems: []string{"prod/web: its interface takes more", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12"}},
		Failed:    []string{"Profile/p: boom"},
		Leftovers: []string{"9 chains of iptables-nft, ip (filter)", "table ip calico"},
		Wrong:     []agent.Finding{{Where: "/calico/x spec.order", Reason: "want a number", Since: now.Add(-time.Hour)}},

		NoEffect: []agent.Finding{{Where: "/calico/x spec.bpfEnabled", Reason: "has no effect: policy is enforced with nftables"}},
	}
	var b bytes.Buffer
	printReport(&b, r, false, now)
	want := `Node h1 is NOT READY; agent v1 has run for 2d.
  because: nft: boom
  datastore  in-sync for 1h30m
             cannot be written to: datastore is full
  kernel     in force for 3s
  endpoints  1 up, 1 down, 0 error
             1 groups of the same policies are asked rule by rule, see below
  in use     2 policies and profiles, 3 sets of addresses, 4 routes
  MTU        1500 between hosts (eth0), 1450 of new workloads
  repaired   2 × nft by event; the log says what

ENDPOINT  INTERFACE  STATUS  FOR  REASON
prod/db   cali2      down    1m   interface cali2 is absent

Not in force:
  Profile/p: boom

Packets may be too large (docs/mtu.md):
  prod/web: its interface takes more
  2
  3
  4
  5
  6
  7
  8
  9
  10
  and 2 more; -o wide lists them

Asked rule by rule, not by look-ups; the verdicts are the same (docs/compiled.md says what to do):
  prod/web: too many ports have rules of their own

Left by an upstream agent, and still at work (twill doctor --fix leftovers):
  9 chains of iptables-nft, ip (filter)
  table ip calico

Wrong in resources and settings:
  /calico/x spec.order: want a number (for 1h0m)

Without effect in resources:
  /calico/x spec.bpfEnabled: has no effect: policy is enforced with nftables
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}
