package etcdproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// frame is a message that is passed on as it came: what it says is between client and member.
type frame struct{ bytes []byte }

// codec leaves frames as they are; other messages are those of watches, which the proxy reads.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(proto.Name)} }

// Marshal is part of encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if f, ok := v.(*frame); ok {
		return mem.BufferSlice{mem.SliceBuffer(f.bytes)}, nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal is part of encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if f, ok := v.(*frame); ok {
		f.bytes = data.Materialize()
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// kind is how a method is passed on.
type kind int

const (
	unary    kind = iota + 1 // one request, one answer
	stream                   // any number of both
	ofMember                 // not at all: it is about one member, and whoever asks could not know which
)

// methods are those of etcd's services that a proxy passes on, or refuses by name. Watch is not among them: see watch.go.
var methods = map[string]kind{
	"/etcdserverpb.KV/Range": unary, "/etcdserverpb.KV/Put": unary, "/etcdserverpb.KV/DeleteRange": unary,
	"/etcdserverpb.KV/Txn": unary, "/etcdserverpb.KV/Compact": unary, "/etcdserverpb.KV/RangeStream": stream,

	"/etcdserverpb.Lease/LeaseGrant": unary, "/etcdserverpb.Lease/LeaseRevoke": unary, "/etcdserverpb.Lease/LeaseKeepAlive": stream,
	"/etcdserverpb.Lease/LeaseTimeToLive": unary, "/etcdserverpb.Lease/LeaseLeases": unary,

	"/etcdserverpb.Cluster/MemberList": unary, "/etcdserverpb.Cluster/MemberAdd": unary, "/etcdserverpb.Cluster/MemberRemove": unary,
	"/etcdserverpb.Cluster/MemberUpdate": unary, "/etcdserverpb.Cluster/MemberPromote": unary,

	"/etcdserverpb.Auth/AuthEnable": unary, "/etcdserverpb.Auth/AuthDisable": unary, "/etcdserverpb.Auth/AuthStatus": unary,
	"/etcdserverpb.Auth/Authenticate": unary, "/etcdserverpb.Auth/UserAdd": unary, "/etcdserverpb.Auth/UserGet": unary,
	"/etcdserverpb.Auth/UserList": unary, "/etcdserverpb.Auth/UserDelete": unary, "/etcdserverpb.Auth/UserChangePassword": unary,
	"/etcdserverpb.Auth/UserGrantRole": unary, "/etcdserverpb.Auth/UserRevokeRole": unary, "/etcdserverpb.Auth/RoleAdd": unary,
	"/etcdserverpb.Auth/RoleGet": unary, "/etcdserverpb.Auth/RoleList": unary, "/etcdserverpb.Auth/RoleDelete": unary,
	"/etcdserverpb.Auth/RoleGrantPermission": unary, "/etcdserverpb.Auth/RoleRevokePermission": unary,

	"/etcdserverpb.Maintenance/Alarm": unary, "/etcdserverpb.Maintenance/Snapshot": stream,
	"/etcdserverpb.Maintenance/Defragment": ofMember, "/etcdserverpb.Maintenance/Hash": ofMember, "/etcdserverpb.Maintenance/HashKV": ofMember,
	"/etcdserverpb.Maintenance/MoveLeader": ofMember, "/etcdserverpb.Maintenance/Downgrade": ofMember,

	"/v3lockpb.Lock/Lock": unary, "/v3lockpb.Lock/Unlock": unary,
	"/v3electionpb.Election/Campaign": unary, "/v3electionpb.Election/Proclaim": unary, "/v3electionpb.Election/Leader": unary,
	"/v3electionpb.Election/Observe": stream, "/v3electionpb.Election/Resign": unary,
}

// statusMethod is answered in part by the proxy.
const statusMethod = "/etcdserverpb.Maintenance/Status"

// any size: it is the members that bound messages.
var callOptions = []grpc.CallOption{grpc.ForceCodecV2(newCodec()), grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)}

// forward passes on any method but Watch.
func (p *Proxy) forward(_ any, down grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(down)
	ctx := upward(down.Context())
	if method == statusMethod {
		return p.status(ctx, down)
	}
	client, own, err := p.client(ctx)
	if err != nil {
		return err
	}
	switch methods[method] {
	case unary:
		if own {
			return invoke(ctx, client, method, down)
		}
		fallthrough
	case stream:
		return relay(ctx, client, method, down)
	case ofMember:
		return status.Errorf(codes.FailedPrecondition, "twill etcd proxy: %s is about one member, and this is a proxy of all of them: ask the member itself, at its own endpoint", method)
	}
	return status.Errorf(codes.Unimplemented, "twill etcd proxy: does not know %s", method)
}

// upward is the context of a request to a member: what a client says of itself, and no more.
func upward(ctx context.Context) context.Context {
	in, _ := metadata.FromIncomingContext(ctx)
	out := metadata.MD{}
	for _, name := range []string{rpctypes.TokenFieldNameGRPC, rpctypes.TokenFieldNameSwagger, rpctypes.MetadataRequireLeaderKey} {
		if values := in.Get(name); len(values) > 0 {
			out.Set(name, values...)
		}
	}
	return metadata.NewOutgoingContext(ctx, out)
}

// token is what a client shows in the place of a user and password; empty: nothing, so that the proxy's own user counts.
func token(ctx context.Context) string {
	out, _ := metadata.FromOutgoingContext(ctx)
	for _, name := range []string{rpctypes.TokenFieldNameGRPC, rpctypes.TokenFieldNameSwagger} {
		if values := out.Get(name); len(values) > 0 {
			return values[0]
		}
	}
	return ""
}

// invoke passes on one request as etcd's client makes them, which logs in again when the proxy's own token has expired.
func invoke(ctx context.Context, client *clientv3.Client, method string, down grpc.ServerStream) error {
	var request, answer frame
	if err := down.RecvMsg(&request); err != nil {
		return err
	}
	if err := client.ActiveConnection().Invoke(ctx, method, &request, &answer, callOptions...); err != nil {
		return asStatus(err)
	}
	return down.SendMsg(&answer)
}

// relay passes on messages of both until either ends.
func relay(ctx context.Context, client *clientv3.Client, method string, down grpc.ServerStream) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	up, err := client.ActiveConnection().NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method, callOptions...)
	if err != nil {
		return asStatus(err)
	}
	go func() {
		for {
			var request frame
			if err := down.RecvMsg(&request); err != nil {
				if errors.Is(err, io.EOF) {
					_ = up.CloseSend() // its answers are still read below
				} else {
					cancel() // the client is gone
				}
				return
			}
			if up.SendMsg(&request) != nil {
				return // RecvMsg below says why
			}
		}
	}()
	for {
		var answer frame
		if err := up.RecvMsg(&answer); errors.Is(err, io.EOF) {
			down.SetTrailer(up.Trailer())
			return nil
		} else if err != nil {
			return asStatus(err)
		}
		if err := down.SendMsg(&answer); err != nil {
			return err
		}
	}
}

// asStatus gives an error of etcd's client, which is no status, the code that it had.
func asStatus(err error) error {
	var etcd rpctypes.EtcdError
	if errors.As(err, &etcd) {
		return status.Error(etcd.Code(), etcd.Error())
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return status.FromContextError(err).Err()
	}
	return status.Error(codes.Unavailable, fmt.Sprintf("twill etcd proxy: %v", err))
}
