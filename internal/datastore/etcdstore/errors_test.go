package etcdstore

import (
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/twillnet/twill/internal/datastore"
)

// TestWhatAnErrorOfEtcdsMeans: three of its errors have the code ResourceExhausted, of which one passes by itself.
func TestWhatAnErrorOfEtcdsMeans(t *testing.T) {
	large := status.Error(codes.ResourceExhausted, "grpc: received message larger than max (9 vs. 8)")
	for _, tt := range []struct {
		name      string
		err, want error
	}{
		{"too many requests at once", rpctypes.ErrTooManyRequests, datastore.ErrUnavailable},
		{"its quota", rpctypes.ErrNoSpace, datastore.ErrFull},
		{"an answer that is too large, each time", large, large},
		{"no leader", rpctypes.ErrNoLeader, datastore.ErrUnavailable},
		{"a right that is missing", rpctypes.ErrPermissionDenied, datastore.ErrUnauthorized},
	} {
		if got := translate(t.Context(), tt.err); !errors.Is(got, tt.want) || errors.Is(tt.want, large) && errors.Is(got, datastore.ErrUnavailable) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
