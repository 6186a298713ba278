package nft

import (
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

func TestLogRulesFollowTheSettings(t *testing.T) {
	ns := netnstest.New(t)
	var conn *nftables.Conn
	var err error
	ns.Do(func() { conn, err = nftables.Open() })
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	d := New(conn, Config{})
	p := intent.Policy{ID: intent.PolicyID{Kind: "NetworkPolicy", Namespace: "prod", Name: "web"}, Tier: "sec", Ingress: []intent.Rule{{Action: intent.Log}}}
	d.Merge(intent.Batch{InSync: true, Policies: []intent.Policy{p}, Host: &intent.HostSettings{Log: intent.LogSettings{Prefix: "calico-packet", Rate: 100, Per: time.Second, Burst: 100}}})
	for _, step := range []struct {
		set  intent.LogSettings
		want []string
		not  string
	}{
		{intent.LogSettings{Prefix: "calico-packet", Rate: 100, Per: time.Second, Burst: 100}, []string{`limit rate 100/second burst 100 packets`, `prefix "calico-packet: prod/web ingress[0]"`}, ""},
		{intent.LogSettings{Prefix: "%t %k %n %p", Rate: 3, Per: time.Hour, Burst: 7}, []string{`limit rate 3/hour burst 7 packets`, `prefix "sec NetworkPolicy web prod/web: prod/web ingress[0]"`}, ""},
		{intent.LogSettings{}, []string{`prefix "prod/web ingress[0]"`}, "limit"},
	} {
		d.Merge(intent.Batch{Host: &intent.HostSettings{Log: step.set}})
		if _, err := d.Apply(t.Context()); err != nil {
			t.Fatal(err)
		}
		rule, agents := "", false
		for line := range strings.Lines(ns.Run("nft", "list", "table", "inet", "twill")) {
			if strings.Contains(line, "group 802") {
				rule = line
				agents = strings.Contains(line, `log prefix "twill `) && strings.Contains(line, "group 803")
			}
		}
		if !agents {
			t.Errorf("with %+v the rule %q does not report to the agent", step.set, rule)
		}
		for _, want := range step.want {
			if !strings.Contains(rule, want) {
				t.Errorf("with %+v the rule is %q, want %q in it", step.set, rule, want)
			}
		}
		if step.not != "" && strings.Contains(rule, step.not) {
			t.Errorf("with %+v the rule is %q", step.set, rule)
		}
	}
}
