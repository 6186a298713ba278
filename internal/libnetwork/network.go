package libnetwork

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// capabilities: each dockerd makes the networks of its own host. Those of a swarm are not offered: dockerd would ask for them on a manager,
// before there is a host to ask.
func (p *plugin) capabilities(context.Context, nothing) (capabilities, error) {
	return capabilities{Scope: "local", ConnectivityScope: "global"}, nil
}

// createNetwork makes nothing: a network is a name, and pools. It refuses what would be another network than the user asked for.
func (p *plugin) createNetwork(_ context.Context, r createNetwork) (nothing, error) {
	if !validID.MatchString(r.NetworkID) {
		return nothing{}, fmt.Errorf("%q is no ID of a network", r.NetworkID)
	}
	for _, d := range slices.Concat(r.IPv4Data, r.IPv6Data) {
		if d.AddressSpace != localSpace && d.AddressSpace != globalSpace {
			return nothing{}, fmt.Errorf("%s is not of an IPPool: create the network with --ipam-driver %s", d.Pool, ipamDriver)
		}
	}
	for _, option := range slices.Sorted(maps.Keys(r.Options)) {
		switch value := r.Options[option]; option {
		case optionGeneric:
			given, _ := value.(map[string]any)
			for _, name := range slices.Sorted(maps.Keys(given)) {
				return nothing{}, fmt.Errorf("--opt %s has no meaning for %s: leave it out", name, networkDriver)
			}
		case optionInternal:
			if value == true {
				return nothing{}, errors.New("--internal cannot be honoured: deny by policy what is not to leave the network")
			}
		case optionIPv6, optionIPv4: // the pools say it
		default:
			p.cfg.Log.Warn("an option of a network has no effect", "option", option, "value", value, "network", r.NetworkID)
		}
	}
	return nothing{}, nil
}

// deleteNetwork leaves the network's profile: other hosts' networks may have it, and users may have changed it.
func (p *plugin) deleteNetwork(_ context.Context, r networkID) (nothing, error) {
	if !validID.MatchString(r.NetworkID) {
		return nothing{}, nil
	}
	return nothing{}, p.networks.forget(r.NetworkID)
}
