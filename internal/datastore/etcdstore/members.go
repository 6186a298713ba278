package etcdstore

import (
	"context"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Member is one endpoint of a store.
type Member struct {
	Endpoint string
	Version  string
	Err      error // it does not answer, or says that something is wrong
	// Full: its quota is used up. The cluster can only be read until somebody disarms the alarm; see docs/etcd.md.
	Full bool
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
			m.Full = slices.ContainsFunc(status.Errors, func(s string) bool { return strings.Contains(s, pb.AlarmType_NOSPACE.String()) })
		}
		out = append(out, m)
	}
	return out, nil
}
