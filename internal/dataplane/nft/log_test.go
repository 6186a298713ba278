package nft

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/nflog"
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
		{intent.LogSettings{Rate: 9, Per: 24 * time.Hour, Burst: 7}, []string{`limit rate 9/day burst 7 packets`}, ""},
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

// TestPacketsBeyondTheLimitPassAndAreNotLogged sends so many that all but a few are beyond it.
func TestPacketsBeyondTheLimitPassAndAreNotLogged(t *testing.T) {
	const sent, burst = 20, 5
	h := newHosted(t)
	b := pair(ask(pol("p", nil, nil), in), pol("p", []intent.Rule{{Action: intent.Log, Protocol: 17}, anything}, nil))
	b.Host = &intent.HostSettings{Log: intent.LogSettings{Rate: 1, Per: 24 * time.Hour, Burst: burst}}
	h.d.Merge(b)
	apply(t, h.d)
	var log *nflog.Conn
	var err error
	h.ns.Do(func() { log, err = nflog.Open(nflog.Config{Group: kernel.NFLogUser, Collect: 1}) })
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	l, err := h.a.ListenUDP(netip.AddrPortFrom(netip.MustParseAddr(addrs["a"][0]), 9))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	h.out.Do(func() {
		c, err := net.DialUDP("udp", nil, l.LocalAddr().(*net.UDPAddr))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = l.SetReadDeadline(time.Now().Add(netnstest.Patience))
		for range sent {
			if _, err := c.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			if _, err := l.Read(make([]byte, 8)); err != nil {
				t.Fatal(err)
			}
		}
	})
	logged := 0
	for {
		p, ok, err := log.Receive(time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		if p.Prefix == "prod/p ingress[0]" {
			logged++
		}
	}
	if logged != burst {
		t.Errorf("%d of %d packets are logged, want %d", logged, sent, burst)
	}
}
