package etcdstore

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/twillnet/twill/internal/datastore"
)

// unauthorized are refusals that etcd does not give a code of their own.
var unauthorized = []error{
	rpctypes.ErrAuthFailed, rpctypes.ErrUserEmpty, rpctypes.ErrPermissionDenied,
	rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision, rpctypes.ErrUserNotFound,
}

// raftStopped is what a member answers that was taken out of its cluster, and has not ended yet; it has no code of its own.
const raftStopped = "raft: stopped"

// translate gives an error of the client the meaning that callers ask for,
// and keeps its cause. ctx is the caller's: only its own end is a
// cancellation; the end of a timeout of ours means that etcd did not answer.
func translate(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return context.Canceled
	}
	for _, u := range unauthorized {
		if errors.Is(err, u) {
			return fmt.Errorf("%w: %w", datastore.ErrUnauthorized, err)
		}
	}
	if errors.Is(err, rpctypes.ErrCompacted) {
		return datastore.ErrCompacted
	}
	if errors.Is(err, rpctypes.ErrNoSpace) {
		return fmt.Errorf("%w (etcd's quota): `twill etcd defrag --compact`, then `twill etcd alarm disarm`; see docs/etcd.md: %w", datastore.ErrFull, err)
	}
	if errors.Is(err, rpctypes.ErrTooManyRequests) { // of its code, ResourceExhausted, is also what does not pass
		return fmt.Errorf("%w: %w", datastore.ErrUnavailable, err)
	}
	if errors.Is(err, clientv3.ErrNoAvailableEndpoints) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w: %w", datastore.ErrUnavailable, err)
	}
	if status.Convert(err).Message() == raftStopped {
		return fmt.Errorf("%w: %w", datastore.ErrUnavailable, err)
	}
	switch codeOf(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Internal, codes.Canceled:
		return fmt.Errorf("%w: %w", datastore.ErrUnavailable, err)
	case codes.Unauthenticated, codes.PermissionDenied:
		return fmt.Errorf("%w: %w", datastore.ErrUnauthorized, err)
	}
	return err
}

func codeOf(err error) codes.Code {
	var etcd rpctypes.EtcdError
	if errors.As(err, &etcd) {
		return etcd.Code()
	}
	return status.Code(err)
}
