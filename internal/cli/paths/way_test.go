package paths

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/verdict/world"
)

func stored(key, value string) api.Update {
	return api.Update{Key: api.ResourcesPrefix + key, Value: []byte(value)}
}

// TestHowPacketsGoBetweenTwoHosts is what calc decides about the one that sends.
func TestHowPacketsGoBetweenTwoHosts(t *testing.T) {
	const key1, key2 = "AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", "AgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
	node := func(name, ip, rest string) api.Update {
		return stored("nodes/"+name, `{"kind":"Node","apiVersion":"projectcalico.org/v3","metadata":{"name":"`+name+`"},"spec":{"bgp":{"ipv4Address":"`+ip+`/24"}`+rest)
	}
	pool := func(mode string) api.Update {
		return stored("ippools/p", `{"kind":"IPPool","apiVersion":"projectcalico.org/v3","metadata":{"name":"p"},"spec":{"cidr":"10.65.0.0/16"`+mode+`}}`)
	}
	felix := func(spec string) api.Update {
		return stored("felixconfigurations/default", `{"kind":"FelixConfiguration","apiVersion":"projectcalico.org/v3","metadata":{"name":"default"},"spec":{`+spec+`}}`)
	}
	block := api.Update{Key: api.BlockPrefix + "ipv4/block/10.65.2.0-26", Value: []byte(`{"cidr":"10.65.2.0/26","affinity":"host:h2","allocations":[],"unallocated":[],"attributes":[]}`)}
	src, dst := world.Party{Name: "d/a", Endpoint: "d/a", Node: "h1"}, world.Party{Name: "d/b", Endpoint: "d/b", Node: "h2"}
	host := world.Party{Name: "host/h2", Node: "h2", Host: true}
	bare, keyed := "}}", `},"status":{"wireguardPublicKey":"`+key2+`"}}`
	const on, hosts = `"wireguardEnabled":true`, `,"wireguardHostEncryptionEnabled":true`
	self := world.Party{Name: "host/h1", Node: "h1", Host: true}
	const notTo = "IPv4: h1 → h2, by routes that are not the agent's; in clear, although settings want WireGuard: it is to the host's own address, and one of the hosts has no key of WireGuard, or this is not its Node's address"
	for _, tt := range []struct {
		name     string
		src, dst world.Party
		addr     string
		us       []api.Update
		want     string
	}{
		{"by BGP", src, dst, "10.65.2.5", []api.Update{node("h2", "192.0.2.2", bare), pool("")}, ""},
		{"on one host", src, world.Party{Name: "d/c", Node: "h1"}, "10.65.1.5", []api.Update{felix(on)}, ""},
		{"from outside", world.Party{Name: "198.51.100.1"}, dst, "10.65.2.5", []api.Update{felix(on)}, ""},
		{"straight", src, dst, "10.65.2.5", []api.Update{node("h2", "192.0.2.2", bare), pool(`,"ipipMode":"CrossSubnet"`)}, "IPv4: h1 → h2, straight to the host's address"},
		{"by IPIP, of which there is no end", src, dst, "10.65.2.5", []api.Update{node("h2", "192.0.2.2", bare), pool(`,"ipipMode":"Always"`)}, "IPv4: h1 → h2, by IPIP; unreachable: h2 or this host has no end of the tunnel"},
		{"encrypted", src, dst, "10.65.2.5", []api.Update{node("h2", "192.0.2.2", keyed), pool(""), felix(on)}, "IPv4: h1 → h2, encrypted by WireGuard"},
		{"without a key", src, dst, "10.65.2.5", []api.Update{node("h2", "192.0.2.2", bare), pool(""), felix(on)}, "IPv4: h1 → h2, encrypted by WireGuard; unreachable: h2 or this host has no key of WireGuard"},
		{"in clear", src, dst, "10.65.2.5", []api.Update{node("h2", "192.0.2.2", bare), pool(""), felix(on + `,"wireguardAllowUnencrypted":true`)}, "IPv4: h1 → h2, by routes that are not the agent's; in clear, although settings want WireGuard: wireguardAllowUnencrypted is true and h2 has no key, or no block of addresses has this one"},
		{"to the host itself", src, host, "192.0.2.2", []api.Update{node("h2", "192.0.2.2", keyed), pool(""), felix(on)}, "IPv4: h1 → h2, by routes that are not the agent's; in clear, although settings want WireGuard: it is to the host's own address, and wireguardHostEncryptionEnabled is false"},
		{"to the host itself, encrypted", src, host, "192.0.2.2", []api.Update{node("h2", "192.0.2.2", keyed), pool(""), felix(on + hosts)}, "IPv4: h1 → h2, encrypted by WireGuard"},
		{"to an address of the host that its Node does not have", src, host, "192.0.2.22", []api.Update{node("h2", "192.0.2.2", keyed), pool(""), felix(on + hosts)}, notTo},
		{"to a host without a key", src, host, "192.0.2.2", []api.Update{node("h2", "192.0.2.2", bare), pool(""), felix(on + hosts)}, notTo},
		{"from the host itself to a failsafe port", self, host, "192.0.2.2", []api.Update{node("h2", "192.0.2.2", keyed), pool(""), felix(on + hosts)}, "IPv4: h1 → h2, by routes that are not the agent's; in clear, although settings want WireGuard: it is of port 22, which must not need a key: a failsafe port, or WireGuard's or BFD's own"},
		{"from the host itself to a port that is none", self, host, "192.0.2.2", []api.Update{node("h2", "192.0.2.2", keyed), pool(""), felix(on + hosts + `,"failsafeInboundHostPorts":[]`)}, "IPv4: h1 → h2, encrypted by WireGuard"},
		{"from the host itself to a workload", self, dst, "10.65.2.5", []api.Update{node("h2", "192.0.2.2", keyed), pool(""), felix(on + hosts)}, "IPv4: h1 → h2, encrypted by WireGuard"},
	} {
		us := append([]api.Update{node("h1", "192.0.2.1", `},"status":{"wireguardPublicKey":"`+key1+`"}}`), block}, tt.us...)
		var ways []Way
		if w, are := Between(us, world.Query{Src: tt.src, Dst: tt.dst, Proto: 6, DstPort: 22}, netip.MustParseAddr(tt.addr)); are {
			ways = append(ways, w)
		}
		if got := strings.Join(Lines(ways), "\n"); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
