package etcdstore

import (
	"context"
	"time"
)

// Member is one endpoint of a store.
type Member struct {
	Endpoint string
	Version  string
	Err      error // it does not answer, or says that something is wrong
}

// Members asks each endpoint how it is.
func (s *Store) Members(ctx context.Context) ([]Member, error) {
	client, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	var out []Member
	for _, endpoint := range s.cfg.Endpoints {
		m := Member{Endpoint: endpoint}
		bounded, cancel := context.WithTimeout(ctx, 2*time.Second)
		status, err := client.Status(bounded, endpoint)
		cancel()
		if m.Err = translate(ctx, err); err == nil {
			m.Version = status.Version
		}
		out = append(out, m)
	}
	return out, nil
}
