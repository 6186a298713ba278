package nodeaddr

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
)

func node(name, v4, detected string) *api.Node {
	n := api.New(api.KindNode).(*api.Node)
	n.Metadata.Name = name
	if v4 != "" {
		n.Spec.BGP = &api.NodeBGPSpec{IPv4Address: v4, IPv6Address: "2001:db8::9/64", RouteReflectorClusterID: "244.0.0.1"}
	}
	if detected != "" {
		n.Metadata.Annotations = map[string]string{AnnotationDetected: detected, "other": "stays"}
	}
	return n
}

func TestNobodysOwnChoiceIsOverwrittenUnasked(t *testing.T) {
	const a, b, c = "192.0.2.1/24", "192.0.2.2/24", "192.0.2.3/24"
	for _, tt := range []struct {
		name, ip      string
		has, detected string
		found         string // empty: nothing is
		want          string // address in the Node, and what the annotation has
	}{
		{name: "an empty Node is filled", found: a, want: a + " " + a},
		{name: "by hand", has: b, found: a, want: b + " "},
		{name: "by hand, after it was found", has: c, detected: b, found: a, want: c + " " + b},
		{name: "what was found is followed", has: b, detected: b, found: a, want: a + " " + a},
		{name: "what was found beside the other family's", has: b, detected: b + ",2001:db8::9/64", found: a, want: a + " 2001:db8::9/64," + a},
		{name: "found no more", has: b, detected: b, want: b + " " + b},
		{name: "told to find", ip: "autodetect", has: b, found: a, want: a + " " + a},
		{name: "told to find, and nothing is found", ip: "autodetect", has: b, want: b + " "},
		{name: "told to leave it", ip: "none", has: b, detected: b, found: a, want: b + " " + b},
		{name: "told which", ip: a, has: b, found: a, want: a + " "},
		{name: "told which, that was found before", ip: a, has: b, detected: b, found: a, want: a + " "},
		{name: "told which, without a length, while its interface is away", ip: "192.0.2.1", has: a, found: "192.0.2.1/32", want: a + " "},
		{name: "told which, with a length, while its interface is away", ip: "192.0.2.1/32", has: a, found: "192.0.2.1/32", want: "192.0.2.1/32 "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, err := ParseWant(V4, tt.ip, "")
			if err != nil {
				t.Fatal(err)
			}
			f := Found{Want: w, Err: errors.New("nothing")}
			if tt.found != "" {
				f = Found{Want: w, Choice: Choice{"eth0", netip.MustParsePrefix(tt.found)}}
				if f.Choice.Addr.IsSingleIP() {
					f.Choice.Interface = "" // as for an address that no interface has
				}
			}
			n := node("h1", tt.has, tt.detected)
			Apply(n, []Found{f}, Settle(n, []Found{f}))
			if got := Address(n, V4) + " " + n.Metadata.Annotations[AnnotationDetected]; got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if tt.has != "" && (Address(n, V6) != "2001:db8::9/64" || n.Spec.BGP.RouteReflectorClusterID != "244.0.0.1") {
				t.Errorf("what nobody asked to change has changed: %+v", n.Spec.BGP)
			}
		})
	}
}

func TestNodesWithTheSameAddressAreFound(t *testing.T) {
	tell := func(b *Registry, n *api.Node) {
		key, _ := api.Key(n)
		value, err := api.EncodeStored(n)
		if err != nil || !b.Update(api.Update{Key: key, Value: value}) {
			t.Fatal(err)
		}
	}
	var b Registry
	tell(&b, node("h1", "192.0.2.1/24", ""))
	h2 := node("h2", "192.0.2.1", "") // without a length: it is the same address
	h2.Spec.BGP.IPv6Address = ""
	tell(&b, h2)
	h3 := node("h3", "192.0.2.3/24", "")
	h3.Spec.BGP.IPv4IPIPTunnelAddr = "192.0.2.1"
	tell(&b, h3)
	tell(&b, node("h4", "", ""))
	clashes := func() string { return strings.Trim(fmt.Sprint(b.Clashes("h1")), "[]") }
	const want = "192.0.2.1 is also that of node h2 (spec.bgp.ipv4Address) 192.0.2.1 is also that of node h3 (spec.bgp.ipv4IPIPTunnelAddr) " +
		"2001:db8::9 is also that of node h3 (spec.bgp.ipv6Address)"
	if got := clashes(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got, want := b.Clashes("h1")[0].Fix(), "give one of the two another address (--ip, or spec.bgp.ipv4Address of the Node), or delete Node h2 if that host is gone"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	b.Update(api.Update{Key: api.KeyPrefix(api.KindNode, "") + "h2", Value: []byte("{")}) // unreadable: what was there stays
	if got := clashes(); got != want {
		t.Errorf("after a value that is not JSON: %s", got)
	}
	b.Update(api.Update{Key: api.KeyPrefix(api.KindNode, "") + "h2"})
	b.Update(api.Update{Key: api.KeyPrefix(api.KindNode, "") + "h3"})
	if got := clashes(); got != "" {
		t.Errorf("the others are gone, and still: %s", got)
	}
	if b.Clashes("h4") != nil || b.Clashes("h9") != nil || b.Update(api.Update{Key: "/calico/other"}) {
		t.Error("a node without addresses clashes, or something else is taken for one")
	}
}
