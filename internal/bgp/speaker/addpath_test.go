package speaker_test

import (
	"fmt"
	"testing"
)

// TestAReflectorsPathsAreAllLearned: of a prefix that several of its clients originate, it advertises all paths (RFC 7911), and flows are shared
// among them. They come and go one by one, and are there again after a restart of either end.
func TestAReflectorsPathsAreAllLearned(t *testing.T) {
	h, birds := network(t, 3)
	reflector, one, two := birds[0], birds[1], birds[2]
	config := ""
	for i, f := range []struct{ family, net string }{{"ipv4", "192.0.2."}, {"ipv6", "2001:db8:1::"}} {
		for at, paths := range map[int]string{1: "add paths on;", 3: "", 4: ""} {
			config += fmt.Sprintf("protocol bgp c%d_%d { local as 64512; neighbor %s%d as 64512; direct; rr client; connect delay time 1; error wait time 1,2; graceful restart on; %s { import all; export where source = RTS_BGP; %s }; }\n", i, at, f.net, at, f.family, paths)
		}
	}
	reflector.run(config)
	client := func(more string) string {
		return statics + fmt.Sprintf(`
protocol bgp r4 { local as 64512; direct; graceful restart on; connect delay time 1; error wait time 1,2; neighbor 192.0.2.2 as 64512; ipv4 { import all; export where source = RTS_STATIC; %[1]s }; }
protocol bgp r6 { local as 64512; direct; graceful restart on; connect delay time 1; error wait time 1,2; neighbor 2001:db8:1::2 as 64512; ipv6 { import all; export where source = RTS_STATIC; %[1]s }; }
`, more)
	}
	one.run(client(""))
	two.run(client(""))
	p := planOf(session("192.0.2.2", 64512), session("2001:db8:1::2", 64512))
	h.start(p)
	both := []string{"10.204.0.0/26 proto 186 nexthop via 192.0.2.3 nexthop via 192.0.2.4", "fd00:204::/64 proto 186 nexthop via 2001:db8:1::3 nexthop via 2001:db8:1::4"}
	shared := func() {
		t.Helper()
		for _, want := range both {
			h.wantRoute(want)
		}
	}
	shared()
	n := 0
	for _, r := range h.ask(request{}).Routes {
		if !r.Own && r.Best {
			n++
		}
	}
	for _, s := range h.ask(request{}).Report.Sessions {
		if s.Received != 2 || s.Accepted != 2 {
			t.Errorf("%s: received %d, accepted %d, want 2 paths", s.Peer, s.Received, s.Accepted)
		}
	}
	if n != 4 {
		t.Errorf("%d best paths, want 4", n)
	}

	one.ask("disable", "s4")
	h.wantRoute("10.204.0.0/26 via 192.0.2.4 proto 186")
	one.ask("enable", "s4")
	shared()
	h.kill()
	h.launch()
	h.plan(p)
	h.up("192.0.2.2", "2001:db8:1::2")
	shared()
	reflector.kill()
	reflector.restart()
	h.up("192.0.2.2", "2001:db8:1::2")
	shared()
}
