package nodeaddr

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/twillnet/twill/api"
)

// TestByWhichAddressesANodeIsReached: those of BGP, and of a family of which it has none there, what Kubernetes has.
func TestByWhichAddressesANodeIsReached(t *testing.T) {
	for _, tt := range []struct{ name, spec, want string }{
		{"no address", `{}`, "[]"},
		{"of BGP", `{"bgp":{"ipv4Address":"192.0.2.1/24","ipv6Address":"2001:db8::1"},"addresses":[{"address":"198.51.100.1","type":"InternalIP"}]}`, "[192.0.2.1 2001:db8::1]"},
		{"of Kubernetes", `{"addresses":[{"address":"h1","type":"Hostname"},{"address":"203.0.113.1","type":"ExternalIP"},{"address":"198.51.100.1","type":"InternalIP"}]}`, "[198.51.100.1]"},
		{"one of each", `{"bgp":{"ipv4Address":"192.0.2.1/24"},"addresses":[{"address":"2001:db8::2","type":"ExternalIP"}]}`, "[192.0.2.1 2001:db8::2]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := &api.Node{}
			if err := json.Unmarshal([]byte(tt.spec), &n.Spec); err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(Addrs(n)); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
	if got := Addrs(nil); got != nil {
		t.Errorf("of no Node: %v", got)
	}
}
