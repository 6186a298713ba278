// Package discovery finds the relays of a cluster: by the address that settings name, or by a Service of Kubernetes'.
//
// In: settings, how to reach the datastore and Kubernetes, and this node's name. Out: a store that is read by a relay ([relay.Reading]),
// which is given new addresses as the Service's EndpointSlices change. It asks for the slices of that one Service, with one watch.
package discovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore/apiserver"
	"github.com/twillnet/twill/internal/relay"
)

// PortName is the port of a relay's Service that is used, unless its slices have one port only.
const PortName = "calico-typha"

// Host is one that is to read by a relay.
type Host struct {
	Relay     config.Relay
	Cluster   datastore.Config // where Kubernetes is, if that is the datastore; else KUBECONFIG says it, or in a pod its service account
	relay.Who                  // whose node is this node's name in the cluster: a relay there is asked first
	Log       *slog.Logger
}

// Reading is what a syncer of a host reads: a relay's view of the store if settings name a relay or a Service of relays, else the store
// itself. Done is called at the end. It fails if settings contradict each other, or no configuration of Kubernetes' is found; a Service or a server that is away is no error.
func Reading(store datastore.Store, h Host) (read datastore.Store, done func(), err error) {
	if h.Relay.Service == "" || h.Relay.Address != "" {
		return relay.Reading(store, h.Relay, nil, h.Who, h.Log)
	}
	cluster := h.Cluster
	if cluster.Type != "kubernetes" {
		cluster = datastore.Config{Type: "kubernetes"}
	}
	client, err := apiserver.New(cluster)
	if err != nil {
		return nil, nil, fmt.Errorf("typhaK8sServiceName %s: %w", h.Relay.Service, err)
	}
	s := &Service{From: client, Namespace: h.Relay.Namespace, Name: h.Relay.Service, Port: PortName, Log: h.Log.With("part", "relay")}
	return relay.Reading(store, h.Relay, func(ctx context.Context, found func([]string, error)) {
		s.Follow(ctx, func(all []Endpoint, why error) { found(Nearest(all, h.Node, rand.Shuffle), why) })
	}, h.Who, h.Log)
}

// Endpoint is a relay of a service that is ready.
type Endpoint struct {
	Address string // HOST:PORT
	Node    string // that it runs on; empty: not known
}

// Nearest are addresses in the order in which a host asks them: that of its own node, then the others in a random order, so that hosts
// share them out. Shuffle is [rand.Shuffle].
func Nearest(all []Endpoint, node string, shuffle func(n int, swap func(i, j int))) []string {
	all = slices.Clone(all)
	shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	var near, far []string
	for _, e := range all {
		if node != "" && e.Node == node {
			near = append(near, e.Address)
		} else {
			far = append(far, e.Address)
		}
	}
	return append(near, far...)
}

// Service is a Service of relays.
type Service struct {
	From interface { // *apiserver.Client
		FollowEndpoints(ctx context.Context, namespace, service string, seen func([]apiserver.EndpointSlice)) error
		HasService(ctx context.Context, namespace, name string) (bool, error)
	}
	Namespace, Name string
	Port            string // its name
	Log             *slog.Logger
}

// Pauses after an attempt to follow the slices, and up to as much again, so that hosts do not ask at the same time.
const (
	firstPause = time.Second
	mostPause  = 30 * time.Second
)

// Follow passes on which endpoints are ready, or why there is none, whenever that changes, until ctx ends. A server that is away changes
// nothing of what it reported before; if it has reported nothing yet, that is passed on.
func (s *Service) Follow(ctx context.Context, changed func([]Endpoint, error)) {
	reported, pause := "", firstPause
	report := func(all []Endpoint, why error) {
		text := fmt.Sprint(all, why)
		if text == reported {
			return
		}
		reported = text
		if why != nil {
			s.Log.Warn("no relay is found; the last stay in use", "service", s.Namespace+"/"+s.Name, "err", why)
		} else {
			s.Log.Info("relays of a service", "service", s.Namespace+"/"+s.Name, "ready", len(all))
		}
		changed(all, why)
	}
	for ctx.Err() == nil {
		answered := false
		err := s.From.FollowEndpoints(ctx, s.Namespace, s.Name, func(has []apiserver.EndpointSlice) {
			answered = true
			report(s.ready(ctx, has))
		})
		if ctx.Err() != nil {
			return
		}
		switch {
		case answered:
			pause = firstPause
		case reported == "":
			report(nil, err)
		default:
			s.Log.Debug("follow the relays of a service", "err", err)
		}
		timer := time.NewTimer(pause + rand.N(pause))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		if pause *= 2; pause > mostPause {
			pause = mostPause
		}
	}
}

// ready are the endpoints of slices that are, or why there is none.
func (s *Service) ready(ctx context.Context, has []apiserver.EndpointSlice) ([]Endpoint, error) {
	all, err := Ready(has, s.Port)
	if err == nil {
		return all, nil
	}
	if len(has) == 0 {
		if there, failed := s.From.HasService(ctx, s.Namespace, s.Name); failed == nil && !there {
			err = errors.New("there is no such service")
		}
	}
	return nil, fmt.Errorf("service %s/%s: %w", s.Namespace, s.Name, err)
}

// Ready are the endpoints of a service's slices that are ready, each once, ordered by address. Of the ports it is the one with that name, or
// the only one of the slice, of TCP. The error says why there is none.
func Ready(has []apiserver.EndpointSlice, port string) ([]Endpoint, error) {
	var out []Endpoint
	unready, portless := 0, 0
	for _, slice := range has {
		number, ok := portOf(slice.Ports, port)
		for _, e := range slice.Endpoints {
			switch {
			case e.Conditions.Ready != nil && !*e.Conditions.Ready:
				unready++
				continue
			case !ok:
				portless++
				continue
			}
			for _, a := range e.Addresses[:min(1, len(e.Addresses))] { // they are one endpoint: consumers take the first (the API's documentation)
				if ip, err := netip.ParseAddr(a); err == nil || slice.AddressType == "FQDN" {
					if a = strings.TrimSuffix(a, "."); err == nil {
						a = ip.String()
					}
					out = append(out, Endpoint{net.JoinHostPort(a, strconv.Itoa(int(number))), e.NodeName})
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b Endpoint) int { return strings.Compare(a.Address, b.Address) })
	out = slices.CompactFunc(out, func(a, b Endpoint) bool { return a.Address == b.Address })
	switch {
	case len(out) > 0:
		return out, nil
	case portless > 0:
		return nil, fmt.Errorf("it has several ports, and none is named %s", port)
	case unready > 0:
		return nil, fmt.Errorf("none of its %d endpoints is ready", unready)
	}
	return nil, errors.New("it has no endpoint")
}

// portOf is the port of a slice that a relay listens on.
func portOf(ports []apiserver.EndpointPort, name string) (uint16, bool) {
	var tcp []apiserver.EndpointPort
	for _, p := range ports {
		if p.Port == 0 || p.Protocol != "" && p.Protocol != "TCP" {
			continue
		}
		if p.Name == name {
			return p.Port, true
		}
		tcp = append(tcp, p)
	}
	if len(tcp) != 1 {
		return 0, false
	}
	return tcp[0].Port, true
}
