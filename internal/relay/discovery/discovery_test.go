package discovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/internal/datastore/kubestore/apiserver"
)

// slice is one of IPv4 whose endpoints are written ADDRESS[@NODE][!], the last of which is not ready, and whose ports NAME:NUMBER[/PROTOCOL].
func slice(ports string, endpoints ...string) (s apiserver.EndpointSlice) {
	s.AddressType, s.Metadata.Name = "IPv4", fmt.Sprint(ports, endpoints)
	for _, p := range strings.Fields(ports) {
		name, number, _ := strings.Cut(p, ":")
		number, protocol, _ := strings.Cut(number, "/")
		port := apiserver.EndpointPort{Name: name, Protocol: protocol}
		_, _ = fmt.Sscan(number, &port.Port)
		s.Ports = append(s.Ports, port)
	}
	for _, text := range endpoints {
		text, unready := strings.CutSuffix(text, "!")
		address, node, _ := strings.Cut(text, "@")
		e := apiserver.Endpoint{Addresses: []string{address}, NodeName: node}
		if ready := !unready; unready || node != "" {
			e.Conditions.Ready = &ready
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

func TestWhichEndpointsAreRelays(t *testing.T) {
	for _, tt := range []struct {
		name string
		has  []apiserver.EndpointSlice
		want string // ADDRESS@NODE of each, or the error
	}{
		{"no slices", nil, "it has no endpoint"},
		{"the port by its name", []apiserver.EndpointSlice{slice("metrics:9093 calico-typha:5473", "192.0.2.1@a")}, "192.0.2.1:5473@a"},
		{"the only port, whatever its name", []apiserver.EndpointSlice{slice("x:1234", "192.0.2.1")}, "192.0.2.1:1234@"},
		{"the only port of TCP", []apiserver.EndpointSlice{slice("x:1234 y:53/UDP", "192.0.2.1")}, "192.0.2.1:1234@"},
		{"several ports of other names", []apiserver.EndpointSlice{slice("x:1 y:2", "192.0.2.1")}, "it has several ports, and none is named calico-typha"},
		{"no port", []apiserver.EndpointSlice{slice("", "192.0.2.1")}, "it has several ports, and none is named calico-typha"},
		{"one that is not ready is none", []apiserver.EndpointSlice{slice("x:1", "192.0.2.1@a!", "192.0.2.2@b")}, "192.0.2.2:1@b"},
		{"nobody is ready", []apiserver.EndpointSlice{slice("x:1", "192.0.2.1!", "192.0.2.2@b!")}, "none of its 2 endpoints is ready"},
		{"of several slices, each once", []apiserver.EndpointSlice{slice("x:1", "192.0.2.2@b"), slice("x:1 y:2/SCTP", "192.0.2.1@a", "192.0.2.2@b")}, "192.0.2.1:1@a 192.0.2.2:1@b"},
		{"IPv6", []apiserver.EndpointSlice{slice("x:1", "2001:DB8::0:1@a")}, "[2001:db8::1]:1@a"},
		{"what is no address", []apiserver.EndpointSlice{slice("x:1", "passthrough:///evil", "192.0.2.1")}, "192.0.2.1:1@"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all, err := Ready(tt.has, PortName)
			var words []string
			for _, e := range all {
				words = append(words, e.Address+"@"+e.Node)
			}
			got := strings.Join(words, " ")
			if err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// TestTheRelayOfTheSameNodeIsFirst, and the others come in as many orders as there are.
func TestTheRelayOfTheSameNodeIsFirst(t *testing.T) {
	all := []Endpoint{{"1", "a"}, {"2", "b"}, {"3", ""}, {"4", "c"}}
	orders := map[string]int{}
	for range 2000 { // an order is missed by accident in 6 of 1e150 runs
		orders[strings.Join(Nearest(all, "b", rand.Shuffle), "")]++
	}
	for order := range orders {
		if order[0] != '2' {
			t.Errorf("order %s", order)
		}
	}
	if len(orders) != 6 {
		t.Errorf("%d orders of three others, want 6: %v", len(orders), orders)
	}
	if got := Nearest(all, "", func(int, func(i, j int)) {}); !slices.Equal(got, []string{"1", "2", "3", "4"}) {
		t.Errorf("a node without a name has %v", got)
	}
}

// cluster answers as an API server that can be away.
type cluster struct {
	err     error // of each request
	missing bool  // the service
	has     chan []apiserver.EndpointSlice
}

func (c *cluster) FollowEndpoints(ctx context.Context, _, _ string, seen func([]apiserver.EndpointSlice)) error {
	if c.err != nil {
		return c.err
	}
	for {
		select {
		case has, open := <-c.has:
			if !open {
				return errors.New("the watch is broken")
			}
			seen(has)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *cluster) HasService(context.Context, string, string) (bool, error) {
	return !c.missing, c.err
}

// TestWhatIsReportedOfAService: each thing once, and of a server that is away, nothing, once there was an answer.
func TestWhatIsReportedOfAService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{err: errors.New("connection refused"), has: make(chan []apiserver.EndpointSlice)}
		s := &Service{From: c, Namespace: "kube-system", Name: "relays", Port: PortName, Log: slog.New(slog.DiscardHandler)}
		var reported []string
		go s.Follow(t.Context(), func(all []Endpoint, why error) { reported = append(reported, fmt.Sprint(all, why)) })
		want := func(what string, lines ...string) {
			t.Helper()
			synctest.Wait()
			if !slices.Equal(reported, lines) {
				t.Errorf("%s: reported %q, want %q", what, reported, lines)
			}
			reported = nil
		}
		<-time.After(5 * time.Minute)
		want("away from the start", "[] connection refused")
		c.err = nil
		c.has <- []apiserver.EndpointSlice{slice("x:1", "192.0.2.1@a")}
		want("one", "[{192.0.2.1:1 a}] <nil>")
		c.has <- []apiserver.EndpointSlice{slice("x:1", "192.0.2.1@a"), slice("x:1", "192.0.2.3!")}
		want("another that is not ready")
		c.has <- []apiserver.EndpointSlice{slice("x:1", "192.0.2.1@a!")}
		want("it ends", "[] service kube-system/relays: none of its 1 endpoints is ready")
		c.missing = true
		c.has <- nil
		want("the service is deleted", "[] service kube-system/relays: there is no such service")
		c.has <- []apiserver.EndpointSlice{slice("x:1", "192.0.2.2")}
		want("it is back", "[{192.0.2.2:1 }] <nil>")
		c.err = errors.New("connection refused")
		close(c.has)
		<-time.After(time.Hour)
		want("the server is away")
		c.has, c.err = make(chan []apiserver.EndpointSlice), nil
		<-time.After(time.Minute)
		c.has <- nil
		want("nothing is left", "[] service kube-system/relays: there is no such service")
	})
}
