package speaker_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/bgp/plan"
)

// sessionsWith are those of h1 with 192.0.2.2, whose BGPFilter has these rules for IPv4, and with 192.0.2.3, which has none.
func sessionsWith(rules string) []plan.Session {
	w := plan.New()
	put := func(kind, name, spec string) {
		w.Update(api.Update{Key: api.KeyPrefix(kind, "") + name, Value: []byte(`{"spec":` + spec + `}`)})
	}
	put(api.KindNode, "h1", `{"bgp":{"ipv4Address":"192.0.2.1/24"}}`)
	filters := ""
	if rules != "" {
		put(api.KindBGPFilter, "f", `{"exportV4":[`+rules+`]}`)
		filters = `,"filters":["f"]`
	}
	put(api.KindBGPPeer, "filtered", `{"peerIP":"192.0.2.2","asNumber":65001`+filters+`}`)
	put(api.KindBGPPeer, "plain", `{"peerIP":"192.0.2.3","asNumber":65002}`)
	return w.Plan("h1").Sessions
}

// othersOnAHost is a host with a block, a static route and a blackhole of others, a network of an interface, an address on lo and a default route; and two
// peers, as of [sessionsWith].
func othersOnAHost(t *testing.T) (h *host, filtered, plain *bird) {
	t.Helper()
	h, birds := network(t, 2)
	filtered, plain = birds[0], birds[1]
	filtered.run(speaks("twill", "local as 65001; multihop;", "", ""))
	plain.run(speaks("twill", "local as 65002; multihop;", "", ""))
	h.Veth("eth7", "peer7")
	h.Up("eth7")
	h.Up("peer7")
	h.Addr("eth7", "10.99.7.1/24")
	h.Addr("lo", "10.99.0.7/32")
	h.agent("198.51.100.0/26")
	h.Route("203.0.113.0/24 via 10.99.7.2 proto static")
	h.Route("blackhole 203.0.114.0/24 proto static")
	h.Route("default via 192.0.2.3")
	return h, filtered, plain
}

// others are what that host has of others.
var others = []string{"203.0.113.0/24", "203.0.114.0/24", "10.99.7.0/24", "10.99.0.7/32", "0.0.0.0/0"}

// only waits until a peer has the block, and none of these.
func (b *bird) only(without ...string) {
	b.t.Helper()
	b.wants("198.51.100.0/26")
	for _, dst := range without {
		b.lacks(dst)
	}
}

// TestRoutesOfOthersNeedAFilterThatAcceptsThem: static routes, and networks of the host's interfaces, which go when the kernel has them no more, or the
// filter accepts them no more.
func TestRoutesOfOthersNeedAFilterThatAcceptsThem(t *testing.T) {
	h, filtered, plain := othersOnAHost(t)
	h.start(planOf(sessionsWith("")...))
	filtered.only(others...)
	plain.only(others...)
	for dst, want := range map[string]string{"203.0.113.0/24": "a route of others, protocol static", "10.99.7.9/32": "a network of eth7"} {
		if e := h.ask(request{Explain: prefix(dst)}).Explain; e.Foreign != want || e.Own != "not advertised: no BGPFilter accepts it" {
			t.Errorf("%s: %+v, want %q", dst, e, want)
		}
	}

	// Some by prefix, some by interface.
	h.plan(planOf(sessionsWith(`{"cidr":"203.0.113.0/24","matchOperator":"Equal","action":"Accept"},{"interface":"lo","action":"Accept"}`)...))
	filtered.path("203.0.113.0/24", "64512")
	filtered.wants("10.99.0.7/32")
	filtered.only("203.0.114.0/24", "10.99.7.0/24", "0.0.0.0/0")
	plain.only(others...)

	// All that there is but the default route, which leads back.
	h.plan(planOf(sessionsWith(`{"action":"Accept"}`)...))
	for _, dst := range others[:4] {
		filtered.wants(dst)
	}
	filtered.only("0.0.0.0/0")
	plain.only(others...)
	answer := h.ask(request{Explain: prefix("203.0.113.0/24")})
	if e := answer.Explain; e.Foreign != "a route of others, protocol static" || len(e.OtherRoutes) > 0 || !e.Peers[0].Advertised || e.Peers[0].Why != "BGPFilter f exportV4[0] accepts" ||
		e.Peers[1].Advertised || e.Peers[1].Why != "the default for routes that are not the agent's rejects" {
		t.Errorf("%+v", e)
	}
	shown := ""
	for _, r := range answer.Routes {
		shown += fmt.Sprintf("%s %t %s\n", r.Dst, r.Own, r.Kernel)
	}
	for _, line := range []string{"203.0.113.0/24 true a route of others, protocol static\n", "10.99.7.0/24 true a network of eth7\n", "198.51.100.0/26 true \n"} {
		if !strings.Contains(shown, line) {
			t.Errorf("no %q in\n%s", line, shown)
		}
	}

	// The default route by name; and then the filter goes.
	h.plan(planOf(sessionsWith(`{"cidr":"0.0.0.0/0","matchOperator":"Equal","action":"Accept"}`)...))
	filtered.wants("0.0.0.0/0")
	filtered.lacks("10.99.7.0/24")
	plain.only(others...)

	// One peer's filter names it, and the other's accepts everything.
	both := sessionsWith(`{"cidr":"0.0.0.0/0","matchOperator":"Equal","action":"Accept"}`)
	both[1].Export = sessionsWith(`{"action":"Accept"}`)[0].Export
	h.plan(planOf(both...))
	plain.wants("203.0.113.0/24")
	plain.only("0.0.0.0/0")
	filtered.wants("0.0.0.0/0")
	filtered.only("203.0.113.0/24")
	for _, b := range []*bird{filtered, plain} {
		if all := b.ask("show", "route", "all"); strings.Contains(all, "4294967295") {
			t.Errorf("a mark has left this process:\n%s", all)
		}
	}
	h.plan(planOf(sessionsWith("")...))
	filtered.only(others...)
	plain.only(others...)
}

// TestRoutesOfOthersGoAsTheyDoInTheKernel, also where the kernel reports nothing: with a link that goes down.
func TestRoutesOfOthersGoAsTheyDoInTheKernel(t *testing.T) {
	h, filtered, _ := othersOnAHost(t)
	h.start(planOf(sessionsWith(`{"action":"Accept"}`)...))
	for _, dst := range others[:4] {
		filtered.wants(dst)
	}
	h.Run("ip", "route", "del", "blackhole", "203.0.114.0/24")
	filtered.lacks("203.0.114.0/24")
	h.Run("ip", "route", "add", "203.0.115.0/24", "via", "10.99.7.3", "metric", "7")
	filtered.wants("203.0.115.0/24")
	h.Run("ip", "route", "append", "203.0.115.0/24", "via", "10.99.7.4", "metric", "7")
	h.Run("ip", "route", "del", "203.0.115.0/24", "via", "10.99.7.4", "metric", "7")
	h.Run("ip", "route", "replace", "203.0.115.0/24", "via", "10.99.7.5", "metric", "7")
	h.Run("ip", "route", "del", "203.0.115.0/24", "via", "10.99.7.5")
	filtered.lacks("203.0.115.0/24")
	filtered.wants("203.0.113.0/24")
	h.Down("eth7")
	filtered.lacks("203.0.113.0/24")
	filtered.lacks("10.99.7.0/24")
	h.Up("eth7")
	filtered.wants("10.99.7.0/24")
	h.Run("ip", "addr", "del", "10.99.0.7/32", "dev", "lo")
	filtered.lacks("10.99.0.7/32")
}
