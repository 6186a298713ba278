package apiserver

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"testing"

	"github.com/twillnet/twill/internal/datastore"
)

// TestWhatAPodHasOfAddresses: none are known until its status has some, or if something cannot be read.
func TestWhatAPodHasOfAddresses(t *testing.T) {
	for _, tt := range []struct {
		name, pod string
		host      bool
		want      []string
	}{
		{name: "none yet", pod: `{"metadata":{"annotations":{"cni.projectcalico.org/podIPs":"10.0.0.1/32"}}}`},
		{name: "of its status", pod: `{"status":{"podIP":"10.0.0.1","podIPs":[{"ip":"10.0.0.1"},{"ip":"fd65::1"}]}}`, want: []string{"10.0.0.1", "fd65::1"}},
		{
			name: "and of annotations", pod: `{"metadata":{"annotations":{"cni.projectcalico.org/podIPs":"10.0.0.1/32,fd65::1/128","k8s.v1.cni.cncf.io/network-status":"[{\"name\":\"net2\",\"ips\":[\"10.9.0.1\"]}]"}},"status":{"podIPs":[{"ip":"10.0.0.1"}]}}`,
			want: []string{"10.0.0.1", "fd65::1", "10.9.0.1"},
		},
		{name: "addresses that were given back", pod: `{"metadata":{"annotations":{"cni.projectcalico.org/podIPs":""}},"status":{"podIPs":[{"ip":"10.0.0.1"}]}}`, want: []string{"10.0.0.1"}},
		{name: "networks that cannot be read", pod: `{"metadata":{"annotations":{"k8s.v1.cni.cncf.io/networks-status":"x"}},"status":{"podIPs":[{"ip":"10.0.0.1"}]}}`},
		{name: "an address that cannot be read", pod: `{"metadata":{"annotations":{"cni.projectcalico.org/podIP":"x"}},"status":{"podIPs":[{"ip":"10.0.0.1"}]}}`},
		{name: "of its host", pod: `{"spec":{"hostNetwork":true},"status":{"podIPs":[{"ip":"192.0.2.1"}]}}`, host: true, want: []string{"192.0.2.1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(tt.pod))
			}))
			defer server.Close()
			c, err := New(datastore.Config{Type: "kubernetes", Server: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			var want []netip.Addr
			for _, a := range tt.want {
				want = append(want, netip.MustParseAddr(a))
			}
			if p, there, err := c.Pod(t.Context(), "ns", "p"); err != nil || !there || p.HostNetwork != tt.host || !slices.Equal(p.Addrs, want) {
				t.Errorf("%+v, %t, %v; want %v, %t", p, there, err, want, tt.host)
			}
		})
	}
}
