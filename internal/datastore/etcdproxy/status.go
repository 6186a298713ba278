package etcdproxy

import (
	"context"
	"strconv"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// status answers how a member is: what one of them says, with the lowest version of all. Clients go by the version to know what they may rely on
// (etcdstore does, for positions), and their watches are with any member.
func (p *Proxy) status(ctx context.Context, down grpc.ServerStream) error {
	client, _, err := p.client(ctx)
	if err != nil {
		return err
	}
	request, answer := &pb.StatusRequest{}, &pb.StatusResponse{}
	if err := down.RecvMsg(request); err != nil {
		return err
	}
	if err := client.ActiveConnection().Invoke(ctx, statusMethod, request, answer, callOptions...); err != nil {
		return asStatus(err)
	}
	answer.Version = p.lowest(answer.Version)
	return down.SendMsg(answer)
}

// lowest is the lowest version of the members in use, and of this one.
func (p *Proxy) lowest(version string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, v := range p.versions {
		if older(v, version) {
			version = v
		}
	}
	return version
}

// older compares versions such as 3.4.23. What is no version is older than any.
func older(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range max(len(as), len(bs)) {
		if x, y := part(as, i), part(bs, i); x != y {
			return x < y
		}
	}
	return false
}

func part(of []string, i int) int {
	if i >= len(of) {
		return -1
	}
	number, _, _ := strings.Cut(of[i], "-")
	n, err := strconv.Atoi(number)
	if err != nil {
		return -1
	}
	return n
}
