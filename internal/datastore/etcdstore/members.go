package etcdstore

import (
	"context"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/twillnet/twill/internal/datastore"
)

// Members asks each endpoint how it is.
func (s *Store) Members(ctx context.Context) ([]datastore.Member, error) {
	client, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	var out []datastore.Member
	for _, endpoint := range s.reached().Endpoints {
		m := datastore.Member{Endpoint: endpoint}
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
