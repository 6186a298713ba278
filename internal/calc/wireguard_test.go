package calc

import (
	"fmt"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/intent"
)

// TestWhatIsEncrypted: what is for other hosts goes by WireGuard or, without a key, nowhere, unless a setting lets it go as it would without.
func TestWhatIsEncrypted(t *testing.T) {
	const key = "lIZGNy2QqzQ6DyrAvSsQFQRqVK2W2qPLZkqkOQ3a9lw="
	node := func(name, status string, i int) api.Update {
		return api.Update{Key: api.ResourcesPrefix + "nodes/" + name, Value: fmt.Appendf(nil,
			`{"spec":{"bgp":{"ipv4Address":"192.0.2.%[1]d/24"},"ipv4VXLANTunnelAddr":"10.65.%[1]d.1"},"status":{%[2]s}}`, i, status)}
	}
	set := func(spec string) api.Update {
		return api.Update{Key: api.ResourcesPrefix + "felixconfigurations/default", Value: []byte(`{"spec":{` + spec + `}}`)}
	}
	has := `"wireguardPublicKey":"` + key + `"`
	const byVXLAN = "RouteTunnel by vxlan.calico"
	const encrypted = "RouteEncrypted by "
	g := New("h1")
	g.Update([]api.Update{node("h1", "", 1), node("h2", has, 2), blockUpdate("10.65.2.0/26", `"affinity":"host:h2"`), blockUpdate("10.65.1.0/26", `"affinity":"host:h1"`)})
	for _, tt := range []struct {
		name   string
		update api.Update
		want   string
	}{
		{"nobody wants it", set(``), ""},
		{"settings do", set(`"wireguardEnabled":true`), encrypted + "h2, peer h2 " + key},
		{"a pool with a tunnel", poolUpdate("a", `"cidr":"10.65.0.0/16","vxlanMode":"Always"`), encrypted + "h2, peer h2 " + key},
		{"the other has no key", node("h2", "", 2), encrypted + "h2"},
		{"a key that is none", node("h2", `"wireguardPublicKey":"short"`, 2), encrypted + "h2"},
		{"the key of nobody", node("h2", `"wireguardPublicKey":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="`, 2), encrypted + "h2"},
		{"clear is allowed", set(`"wireguardEnabled":true,"wireguardAllowUnencrypted":true`), byVXLAN},
		{"but where there is a key", node("h2", has, 2), encrypted + "h2, peer h2 " + key},
		{"a host before it by name says that it has the key", node("a", has, 9), byVXLAN + ", peer a " + key},
		{"clear is not allowed", set(`"wireguardEnabled":true`), encrypted + "h2, peer a " + key},
		{"it has another", node("a", "", 9), encrypted + "h2, peer h2 " + key},
		{"of IPv6 alone", set(`"wireguardEnabledV6":true`), byVXLAN},
		{"nobody wants it again", set(``), byVXLAN},
	} {
		g.Update([]api.Update{tt.update})
		g.Flush()
		got := ""
		s := g.Intents()
		for _, r := range s.Routes {
			switch r.Kind {
			case intent.RouteEncrypted:
				got = encrypted + r.Node
			case intent.RouteTunnel:
				got = "RouteTunnel by " + r.Link
			}
		}
		for _, p := range s.Peers {
			if p.Kind == intent.WireGuard {
				got += ", peer " + p.Node + " " + p.Key
			}
		}
		if got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
	}
}

// TestWhatOfHostsIsEncrypted: what is for other hosts' own addresses is, of a family, while settings want it and this host's key is published.
func TestWhatOfHostsIsEncrypted(t *testing.T) {
	const key, other = "lIZGNy2QqzQ6DyrAvSsQFQRqVK2W2qPLZkqkOQ3a9lw=", "mIZGNy2QqzQ6DyrAvSsQFQRqVK2W2qPLZkqkOQ3a9lw="
	node := func(name, status string) api.Update {
		return api.Update{Key: api.ResourcesPrefix + "nodes/" + name, Value: fmt.Appendf(nil, `{"spec":{"bgp":{"ipv4Address":"192.0.2.1/24","ipv6Address":"2001:db8::1/64"}},"status":{%s}}`, status)}
	}
	set := func(spec string) api.Update {
		return api.Update{Key: api.ResourcesPrefix + "felixconfigurations/default", Value: []byte(`{"spec":{"failsafeInboundHostPorts":[{"protocol":"tcp","port":22,"net":"192.0.2.0/24"}],` +
			`"failsafeOutboundHostPorts":[{"protocol":"tcp","port":22,"net":"192.0.2.0/24"},{"protocol":"udp","port":3784}],` + spec + `}}`)}
	}
	const wanted = `"wireguardEnabled":true,"wireguardHostEncryptionEnabled":true`
	const but = "[{6 22 192.0.2.0/24} {17 3784 invalid Prefix} {17 4784 invalid Prefix} {17 51820 invalid Prefix} {17 51821 invalid Prefix}]"
	g := New("h1")
	for _, tt := range []struct {
		name   string
		update api.Update
		want   string
	}{
		{"no WireGuard", set(`"wireguardHostEncryptionEnabled":true`), "[false false] []"},
		{"no key", set(wanted), "[false false] []"},
		{"a key that is none", node("h1", `"wireguardPublicKey":"short"`), "[false false] []"},
		{"its key is published", node("h1", `"wireguardPublicKey":"`+key+`"`), "[true false] " + but},
		{"another host before it by name says that the key is its own", node("a", `"wireguardPublicKey":"`+key+`"`), "[false false] []"},
		{"not any more", node("a", ``), "[true false] " + but},
		{"the key of the other family, which is not wanted", node("h1", `"wireguardPublicKey":"`+key+`","wireguardPublicKeyV6":"`+other+`"`), "[true false] " + but},
		{"it is", set(wanted + `,"wireguardEnabledV6":true`), "[true true] " + but},
		{"another port", set(wanted + `,"wireguardListeningPort":4784`), "[true false] [{6 22 192.0.2.0/24} {17 3784 invalid Prefix} {17 4784 invalid Prefix} {17 51821 invalid Prefix}]"},
		{"WireGuard for workloads alone", set(`"wireguardEnabled":true`), "[false false] []"},
	} {
		g.Update([]api.Update{tt.update})
		g.Flush()
		w := g.Intents().Host.WireGuard
		if got := fmt.Sprint(w.Hosts, w.InClear); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
	}
}
