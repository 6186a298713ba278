package kubecontrollers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/status"
	"github.com/twillnet/twill/internal/upkeep"
)

// hostsConfig is what the controller of automatic host endpoints needs.
type hostsConfig struct {
	Store       datastore.Store
	Same        bool // Kubernetes' API is the datastore
	Environment Environment
	Settings    func() Settings
	Turn        func(key string, err error)
	Log         *slog.Logger
}

// hosts keeps the automatic host endpoints of nodes on which no agent of ours runs. What there should be follows from the same function for the agent
// and for this (package autohep), so a node that one hands over to the other finds nothing to change: no host endpoint goes and comes.
type hosts struct {
	cfg    hostsConfig
	live   map[string]bool // nodes whose agents report; the loop's alone
	looked time.Time
}

// lookAgainAtAgents is for how long a list of agents that report holds: one serves all nodes that have something to be written at about one time.
const lookAgainAtAgents = 10 * time.Second

func newHosts(cfg hostsConfig) *upkeep.Controller {
	h := &hosts{cfg: cfg}
	return upkeep.New(upkeep.Config{Store: cfg.Store, Wanted: cfg.Environment.hostEndpoints, Mine: h.mine, Turn: cfg.Turn, Log: cfg.Log})
}

// mine reports whether a node's host endpoints are to be kept here: nobody of ours reports from there. What is of a node that is gone is deleted with all
// that hung on it (nodes), where Kubernetes' API is the datastore; else once the datastore, asked for it, has none.
func (h *hosts) mine(ctx context.Context, node string, has bool) (bool, time.Duration, error) {
	if h.cfg.Settings().Node == nil || h.cfg.Same && !has {
		return false, waiting, nil
	}
	if err := h.look(ctx); err != nil {
		return false, 0, err
	}
	if h.live[node] {
		return false, waiting, nil
	}
	if has {
		return true, 0, nil
	}
	switch _, err := h.cfg.Store.Get(ctx, api.KeyPrefix(api.KindNode, "")+node); {
	case err == nil:
		return false, waiting, nil // its watch is behind
	case errors.Is(err, datastore.ErrNotFound):
		return true, 0, nil
	default:
		return false, 0, err
	}
}

// look reads which agents live, unless it did so just now. Calico's agents report without a version.
func (h *hosts) look(ctx context.Context) error {
	if !h.looked.IsZero() && time.Since(h.looked) < lookAgainAtAgents {
		return nil
	}
	all, err := status.Nodes(ctx, h.cfg.Store)
	if err != nil {
		return fmt.Errorf("read which agents report: %w", err)
	}
	h.live, h.looked = map[string]bool{}, time.Now()
	for _, n := range all {
		if n.Alive && n.Last.Version != "" {
			h.live[n.Node] = true
		}
	}
	return nil
}

// hostEndpoints are the settings of automatic host endpoints: the environment's before the resource's. Nil: there is no resource.
func (e Environment) hostEndpoints(k *api.KubeControllersConfiguration) api.AutoHostEndpoints {
	if h, ok := api.HostEndpointsByVariable(e[api.EnvAutoHostEndpoints]); ok {
		return h
	}
	if k == nil {
		k = &api.KubeControllersConfiguration{}
	}
	return k.Spec.HostEndpoints()
}
