package relay

import (
	"context"

	"google.golang.org/grpc/resolver"
)

// Find passes on the addresses of relays, HOST:PORT, in the order in which they are to be asked, whenever they change; or why there is none, and then
// those that were found last stay in use. It returns when ctx ends.
type Find func(ctx context.Context, found func(addresses []string, why error))

// finds is the scheme of names whose addresses a Find knows.
const finds = "twill-relays"

// finder resolves them for gRPC.
type finder struct {
	find  Find
	named bool // credentials are given the address
}

// Scheme implements [resolver.Builder].
func (finder) Scheme() string { return finds }

// Build implements [resolver.Builder].
func (f finder) Build(_ resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	ctx, cancel := context.WithCancel(context.Background())
	r := &finding{cancel: cancel, again: make(chan struct{}, 1)}
	type answer struct {
		addresses []string
		why       error
	}
	answers := make(chan answer)
	go f.find(ctx, func(addresses []string, why error) {
		select {
		case answers <- answer{addresses, why}:
		case <-ctx.Done():
		}
	})
	go func() {
		var last answer
		for {
			select {
			case <-ctx.Done():
				return
			case last = <-answers:
			case <-r.again: // the last relay is lost: its caller is to know why there is no other
				if last.why == nil {
					continue
				}
			}
			if last.why != nil {
				cc.ReportError(last.why) // of no consequence while a relay answers
				continue
			}
			var state resolver.State
			for _, a := range last.addresses {
				to := resolver.Address{Addr: a}
				if f.named {
					to.ServerName = a
				}
				state.Addresses = append(state.Addresses, to)
			}
			_ = cc.UpdateState(state) // its errors are that there are no addresses, which is said by why
		}
	}()
	return r, nil
}

// finding is the resolution of one name.
type finding struct {
	cancel context.CancelFunc
	again  chan struct{}
}

// ResolveNow implements [resolver.Resolver].
func (r *finding) ResolveNow(resolver.ResolveNowOptions) {
	select {
	case r.again <- struct{}{}:
	default:
	}
}

// Close implements [resolver.Resolver].
func (r *finding) Close() { r.cancel() }
