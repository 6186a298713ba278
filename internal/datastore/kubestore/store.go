// Package kubestore keeps resources in Kubernetes' API server.
//
// In: calls of [datastore.Store]. Out: requests to an API server. Which of
// its objects a key is, and how, is in package form (decision 035): Calico's
// custom resources in either of the forms that clusters have, Kubernetes' own objects as
// views, and a record for what neither has a place for.
package kubestore

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore/form"
)

// Store is a client of an API server. It is safe for concurrent use.
type Store struct {
	cfg    datastore.Config
	client rest.Interface
	log    *slog.Logger
	life   context.Context
	end    context.CancelFunc

	present question // how far the server has come

	mu     sync.Mutex
	kinds  []form.Kind     // nil until the server has said which group it has
	served map[string]bool // by ID: it has the kind
	status map[string]bool // by ID: its status is written apart
}

// New returns a store. It fails if the settings are wrong; that the API server is away is no error
// here, but ErrUnavailable from each call until it is back.
func New(cfg datastore.Config) (*Store, error) {
	client, err := Client(cfg)
	if err != nil {
		return nil, err
	}
	if g := form.Group(cfg.Group); g != "" && g != form.V1 && g != form.V3 {
		return nil, fmt.Errorf("kubernetes: API group %q: want %s or %s", cfg.Group, form.V3, form.V1)
	}
	s := &Store{cfg: cfg, client: client, log: cfg.Logger}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.life, s.end = context.WithCancel(context.Background())
	return s, nil
}

// Close ends all that the store does.
func (s *Store) Close() error {
	s.end()
	return nil
}

// known are the kinds that the server has, asked for once. What it lacked then is asked for again by discover.
func (s *Store) known(ctx context.Context) ([]form.Kind, error) {
	s.mu.Lock()
	kinds := s.kinds
	s.mu.Unlock()
	if kinds != nil {
		return kinds, nil
	}
	return s.discover(ctx)
}

// has says whether the server has a kind, as far as is known.
func (s *Store) has(k form.Kind) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.served[k.ID()]
}

func (s *Store) statusApart(k form.Kind) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status[k.ID()]
}

// discover asks the server what it has. A kind that it was once seen to have stays: it would be an error that it has gone, and no
// reason to take its objects for deleted.
func (s *Store) discover(ctx context.Context) ([]form.Kind, error) {
	kinds, err := s.kindsOf(ctx)
	if err != nil {
		return nil, err
	}
	served, apart := map[string]bool{}, map[string]bool{}
	resources := map[string]map[string]bool{}
	for _, k := range kinds {
		names := resources[k.Path]
		if names == nil {
			if names, err = s.resourcesOf(ctx, k.Path); err != nil {
				return nil, err
			}
			resources[k.Path] = names
		}
		served[k.ID()], apart[k.ID()] = names[k.Plural], names[k.Plural+"/status"]
		if !names[k.Plural] && !k.Optional {
			return nil, s.lacks(k)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.served {
		served[id] = served[id] || s.served[id]
	}
	s.kinds, s.served, s.status = kinds, served, apart
	return kinds, nil
}

// lacks is the error that the server does not have a kind.
func (s *Store) lacks(k form.Kind) error {
	err := fmt.Errorf("%w: the cluster has no %s in %s", datastore.ErrUnavailable, k.Plural, k.Path)
	if s.cfg.Views {
		return err
	}
	return fmt.Errorf("%w; install what it lacks: twill kube crds | kubectl apply -f -", err)
}

// kindsOf are the kinds that the server may have.
func (s *Store) kindsOf(ctx context.Context) ([]form.Kind, error) {
	if s.cfg.Views {
		return form.Views(), nil
	}
	group := form.Group(s.cfg.Group)
	if group == "" {
		var err error
		if group, err = s.groupOf(ctx); err != nil {
			return nil, err
		}
	}
	return form.KindsWith(group, s.cfg.PodLinks), nil
}

// groupOf is the group of the cluster's custom resources. Where both are served, an API server of Calico's may stand before the older
// one, which then is what counts.
func (s *Store) groupOf(ctx context.Context) (form.Group, error) {
	raw, err := s.get(ctx, "/apis", mediaJSON, nil)
	if err != nil {
		return "", fmt.Errorf("ask Kubernetes for its API groups: %w", err)
	}
	var list struct {
		Groups []struct {
			Versions []struct {
				GroupVersion string `json:"groupVersion"`
			} `json:"versions"`
		} `json:"groups"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return "", fmt.Errorf("%w: Kubernetes' API groups: %w", datastore.ErrUnavailable, err)
	}
	has := map[form.Group]bool{}
	for _, g := range list.Groups {
		for _, v := range g.Versions {
			has[form.Group(v.GroupVersion)] = true
		}
	}
	switch {
	case has[form.V1]:
		return form.V1, nil
	case has[form.V3]:
		return form.V3, nil
	}
	return "", fmt.Errorf("%w: the cluster has neither %s nor %s; install the resources: twill kube crds | kubectl apply -f -", datastore.ErrUnavailable, form.V3, form.V1)
}

// resourcesOf are the names of a group's resources and subresources; none if there is no such group.
func (s *Store) resourcesOf(ctx context.Context, path string) (map[string]bool, error) {
	raw, err := s.get(ctx, path, mediaJSON, nil)
	if isMissing(err) {
		return map[string]bool{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("ask Kubernetes for its resources in %s: %w", path, err)
	}
	var list struct {
		Resources []struct {
			Name string `json:"name"`
		} `json:"resources"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("%w: Kubernetes' resources in %s: %w", datastore.ErrUnavailable, path, err)
	}
	out := map[string]bool{}
	for _, r := range list.Resources {
		out[r.Name] = true
	}
	return out, nil
}
