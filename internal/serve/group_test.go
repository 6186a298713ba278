package serve

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/kernel/machinetest"
)

// group runs servers of one group, each of which says its name.
func group(t *testing.T, names ...string) []*Server {
	t.Helper()
	var g Group
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, len(names))
	var out []*Server
	for _, name := range names {
		s := g.New(name, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) }), slog.New(slog.DiscardHandler))
		go func() { ended <- s.Run(ctx) }()
		out = append(out, s)
	}
	t.Cleanup(func() {
		cancel()
		for range names {
			<-ended
		}
	})
	return out
}

// awaitName asks until who answers at an address has this name; empty: nobody.
func awaitName(t *testing.T, address, want string) {
	t.Helper()
	c := client("tcp", address, nil)
	for deadline := time.Now().Add(2 * time.Minute); ; {
		got := ""
		resp, err := c.Get("http://x/")
		if err == nil {
			var body []byte
			body, err = io.ReadAll(resp.Body)
			resp.Body.Close()
			got = string(body)
		}
		if got == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("at %s %q answers (%v), want %q", address, got, err, want)
		}
	}
}

func TestServersOfAGroupTakeEachOthersAddresses(t *testing.T) {
	p := []string{machinetest.Address(t), machinetest.Address(t), machinetest.Address(t), machinetest.Address(t)}
	_, port, err := net.SplitHostPort(p[0])
	if err != nil {
		t.Fatal(err)
	}
	everywhere := "0.0.0.0:" + port
	foreign, err := net.Listen("tcp", p[3])
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()
	ss := group(t, "a", "b", "c")
	for _, tt := range []struct {
		name string
		at   [3]string
		want map[string]string
	}{
		{"each at its own", [3]string{p[0], p[1], p[2]}, map[string]string{p[0]: "a", p[1]: "b", p[2]: "c"}},
		{"two swap", [3]string{p[1], p[0], p[2]}, map[string]string{p[0]: "b", p[1]: "a", p[2]: "c"}},
		{"three move in a circle", [3]string{p[0], p[2], p[1]}, map[string]string{p[0]: "a", p[1]: "c", p[2]: "b"}},
		{"one takes the place of one that ends", [3]string{p[2], "", p[1]}, map[string]string{p[0]: "", p[1]: "c", p[2]: "a"}},
		{"back to their own", [3]string{p[0], p[1], p[2]}, map[string]string{p[0]: "a", p[1]: "b", p[2]: "c"}},
		{"from one address to all", [3]string{everywhere, p[1], p[2]}, map[string]string{"127.0.0.2:" + port: "a", p[1]: "b", p[2]: "c"}},
		{"two swap, of which one is everywhere", [3]string{p[1], p[0], p[2]}, map[string]string{p[0]: "b", p[1]: "a", "127.0.0.2:" + port: ""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for i, address := range tt.at {
				to := At{}
				if address != "" {
					to = At{Network: "tcp", Address: address}
				}
				ss[i].Move(to)
			}
			for address, name := range tt.want {
				awaitName(t, address, name)
			}
		})
	}
	t.Run("who could not move anyway gives nothing up", func(t *testing.T) {
		ss[1].Move(At{Network: "tcp", Address: p[1], CertFile: "/nonexistent"}) // and a is there
		ss[0].Move(At{Network: "tcp", Address: p[0]})                           // and b is there
		for range 20 {
			awaitName(t, p[0], "b")
			awaitName(t, p[1], "a")
		}
		ss[1].Move(At{Network: "tcp", Address: p[3]}) // which somebody else has
		for range 20 {
			awaitName(t, p[0], "b")
			awaitName(t, p[1], "a")
		}
	})
}
