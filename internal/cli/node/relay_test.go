package node

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/relay"
)

// TestFlagsOfARelayThatContradictAreRefused, and what limits mean.
func TestFlagsOfARelayThatContradictAreRefused(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"", ""},
		{"--relay-service kube-system/calico-typha", ""},
		{"--relay-service calico-typha", "want NAMESPACE/NAME"},
		{"--relay-service a/b/c", "want NAMESPACE/NAME"},
		{"--relay-service /b", "want NAMESPACE/NAME"},
		{"--relay-service a/b --relays 3", "leave one of them out"},
		{"--relays -1", "want 0 or more"},
		{"--max-clients 0", "want more than 0"},
		{"--max-clients 10", "no less than --min-clients, 400"},
		{"--max-clients 10 --min-clients 0", ""},
		{"--ping-interval 0s", "--ping-interval: want more than 0"},
		{"--drain -1s", "--drain: want more than 0"},
		{"--drain 0s", ""},
	} {
		var o relayOptions
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.addFlags(f)
		if err := f.Parse(strings.Fields(tt.args)); err != nil {
			t.Fatal(err)
		}
		cfg, err := o.config()
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.args, err, tt.want)
		}
		if least := cfg.Limits.Least; err == nil && (least == 0 || least != o.least && o.least != 0) {
			t.Errorf("%s: the lower limit is %d", tt.args, least)
		}
	}
}

// TestClientsOfARelayAreATable, with a line for what they are together.
func TestClientsOfARelayAreATable(t *testing.T) {
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	st := relay.Status{Relays: 3, Share: 7, Most: 10, Clients: []relay.Connected{
		{Remote: "192.0.2.9:1", Since: now.Add(-time.Second)},
		{Node: "h1", Program: "agent", Version: "v1", Remote: "192.0.2.1:5", Since: now.Add(-3 * time.Hour), SentBytes: 2048, Reads: []relay.Read{{Prefix: api.BlockPrefix, Behind: 2}, {Prefix: api.ResourcesPrefix, Behind: 5}}},
		{Node: "h1", Program: "bgp", Version: "v1", Remote: "192.0.2.1:6", Since: now.Add(-72 * time.Hour), Leaves: true, Reads: []relay.Read{
			{Prefix: api.KeyPrefix(api.KindBGPPeer, "")}, {Prefix: api.KeyPrefix(api.KindBGPFilter, "")}, {Prefix: api.KeyPrefix(api.KindNode, "")}, {Prefix: api.KeyPrefix(api.KindIPPool, "")},
		}},
	}}
	const head = "NODE  PROGRAM  VERSION  ADDRESS      CONNECTED  READS             BEHIND  SENT     NOTE\n" +
		"-     -        -        192.0.2.9:1  1s         -                 0       0 B      \n" +
		"h1    agent    v1       192.0.2.1:5  3h0m       blocks,resources  5       2.0 KiB  \n"
	for wide, want := range map[bool]string{
		false: head + "h1    bgp      v1       192.0.2.1:6  3d         4 kinds           0       0 B      leaves\n\n3 clients of at most 10; 3 relays, of which this one's share is 7\n",
		true:  "bgppeers,bgpfilters,nodes,ippools",
	} {
		var b strings.Builder
		if err := printClients(&b, st, wide, now); err != nil || !strings.Contains(trimmed(b.String()), trimmed(want)) {
			t.Errorf("%v, got\n%s\nwant\n%s", err, b.String(), want)
		}
	}
	var b strings.Builder
	if err := printClients(&b, relay.Status{Most: 5, NotReady: []string{"not all of /x/ is read"}}, false, now); err != nil ||
		!strings.HasSuffix(b.String(), "\n0 clients of at most 5; how many relays there are is not known\nnot ready: not all of /x/ is read\n") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// trimmed is a text without blanks at the ends of lines.
func trimmed(text string) string {
	var out []string
	for _, line := range strings.Split(text, "\n") {
		out = append(out, strings.TrimRight(line, " "))
	}
	return strings.Join(out, "\n")
}
