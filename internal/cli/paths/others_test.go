package paths

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/agent"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/terminal"
)

func TestWaysToOtherHostsAreShown(t *testing.T) {
	now := time.Unix(1700000060, 0)
	then := time.Unix(1700000000, 0)
	r := agent.Report{
		Node: "h1", Ready: true, Started: now,
		WireGuard: []agent.WireGuardReport{
			{Family: "IPv4", Interface: "wireguard.cali", By: "process", Port: 51820, Peers: 2, AllowUnencrypted: true},
			{Family: "IPv6", Interface: "wg-v6.cali", Problem: "there is no such device"},
		},
		Others: []agent.OtherReport{
			{Node: "h2", Family: "IPv4", By: "WireGuard", Encrypted: true, Address: "192.0.2.2", Blocks: 2, Handshake: &then, Received: 10, Sent: 20},
			{Node: "h3", Family: "IPv4", By: "WireGuard", Encrypted: true, Blocks: 1, Problem: "unreachable"},
			{Node: "h4", Family: "IPv4", By: "direct", Address: "192.0.2.4", Blocks: 1, Problem: "in clear"},
		},
	}
	text := func(wide bool) string {
		var b strings.Builder
		rows := terminal.NewTable(&b)
		Summary(rows, r)
		rows.Flush()
		Print(&b, r.Others, wide, now)
		return strings.Join(strings.Fields(b.String()), " ")
	}
	const head = "OTHER HOST FAMILY BY ADDRESS BLOCKS HANDSHAKE RECEIVED SENT PROBLEM "
	for _, want := range []string{
		"other hosts 1 × direct (IPv4), 2 × WireGuard (IPv4)",
		"WireGuard wireguard.cali (IPv4) by a process, UDP 51820, peers: 2; what is for hosts without a key goes in clear",
		"wg-v6.cali (IPv6): there is no such device",
		head + "h3 IPv4 WireGuard - 1 none 0 0 unreachable h4 IPv4 direct 192.0.2.4 1 - - - in clear",
	} {
		if got := text(false); !strings.Contains(got, want) {
			t.Errorf("%s\ndoes not have %s", got, want)
		}
	}
	if got, want := text(true), head+"h2 IPv4 WireGuard 192.0.2.2 2 1m ago 10 20 h3"; !strings.Contains(got, want) {
		t.Errorf("%s\ndoes not have %s", got, want)
	}
	for i := range console.MostErrors {
		r.Others = append(r.Others, agent.OtherReport{Node: fmt.Sprintf("x%d", i), Family: "IPv4", By: "VXLAN", Problem: "unreachable"})
	}
	if got := text(false); !strings.Contains(got, "and 2 more; -o wide lists them") {
		t.Error(got)
	}
	r.Others, r.WireGuard = nil, nil
	if got := text(true); strings.Contains(got, "other hosts") || strings.Contains(got, "OTHER HOST") || strings.Contains(got, "WireGuard") {
		t.Error(got)
	}
}
