package speaker

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/twillnet/twill/internal/bgp/plan"
)

// peerSession is a session of the plan, with its password and restart state.
type peerSession struct {
	session    plan.Session
	password   string
	restarting bool   // a speaker ran here before, and its routes are still in the kernel
	notified   uint64 // NOTIFICATIONs sent to the peer when the session came up
}

// Times of sessions, in seconds. The library's defaults of 120 and 30 are too long for a restart.
const (
	connectRetry = 2
	idleHoldTime = 1
	// deferralTime is how long a speaker that restarts waits for End-of-RIB of all peers before it advertises; its
	// peers retain its former routes meanwhile (RFC 4724).
	deferralTime = 20
	maxTTL       = 255
)

// sameAs reports whether a session can stay as it is; rules, next hops and BFD are not part of it.
func (w peerSession) sameAs(o peerSession) bool {
	a, b := w.session, o.session
	a.Import, a.Export, a.NextHop, a.Why, a.Global, a.PeerNode = nil, nil, "", "", false, ""
	b.Import, b.Export, b.NextHop, b.Why, b.Global, b.PeerNode = nil, nil, "", "", false, ""
	a.BFD, b.BFD = plan.BFD{}, plan.BFD{}
	return reflect.DeepEqual(a, b) && w.password == o.password
}

// setSessions opens and closes sessions; unchanged ones stay up. It returns errors by peer.
func (b *library) setSessions(ctx context.Context, want map[netip.Addr]peerSession) map[netip.Addr]error {
	failed := map[netip.Addr]error{}
	for peer, is := range b.open {
		w, configured := want[peer]
		if configured && w.sameAs(is) {
			w.notified = is.notified
			b.open[peer] = w
			continue
		}
		if err := b.close(ctx, peer, is); err != nil {
			failed[peer] = err
		}
	}
	for peer, w := range want {
		if _, open := b.open[peer]; open {
			continue
		}
		if err := b.add(ctx, peer, w); err != nil {
			failed[peer] = err
		}
	}
	return failed
}

// add opens a session, unless the kernel refuses its password for the listener.
func (b *library) add(ctx context.Context, peer netip.Addr, w peerSession) error {
	if err := b.srv.AddPeer(ctx, &api.AddPeerRequest{Peer: w.apiPeer()}); err != nil {
		return err
	}
	if why := b.unprotected.take(peer.String()); why != "" {
		err := fmt.Errorf("not opened: the kernel does not take its password: %s", why)
		return errors.Join(err, b.srv.DeletePeer(ctx, &api.DeletePeerRequest{Address: peer.String()}))
	}
	b.open[peer] = w
	return nil
}

// close ends a session. The library removes a listener's password only if the session is updated to have none first.
func (b *library) close(ctx context.Context, peer netip.Addr, is peerSession) error {
	if is.password != "" {
		is.password = ""
		p := is.apiPeer()
		p.Conf.AdminDown = true
		if _, err := b.srv.UpdatePeer(ctx, &api.UpdatePeerRequest{Peer: p}); err != nil {
			return fmt.Errorf("forget the password: %w", err)
		}
	}
	if err := b.srv.DeletePeer(ctx, &api.DeletePeerRequest{Address: peer.String()}); err != nil {
		return err
	}
	delete(b.open, peer)
	b.mu.Lock()
	delete(b.sessionStates, peer)
	b.mu.Unlock()
	return nil
}

// closeTimeout is how long all sessions may take to end. The library writes to a peer that reads nothing for a second.
const closeTimeout = 2 * time.Second

// closeSessions ends all sessions with a NOTIFICATION each, and returns once these are written. The library that is stopped would send them too,
// but closes all connections meanwhile (GoBGP 4.8.0, StopBgp); and a peer that reads none takes the end for a restart, and keeps our
// routes.
func (b *library) closeSessions() {
	if len(b.open) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := b.srv.ResetPeer(ctx, &api.ResetPeerRequest{}); err != nil {
		b.log.Error("BGP: end all sessions", "err", err)
		return
	}
	for b.anyUp() {
		select {
		case <-b.wakeup:
		case <-ctx.Done():
			return
		}
	}
}

// anyUp reports whether a session is up.
func (b *library) anyUp() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.sessionStates {
		if p.Up {
			return true
		}
	}
	return false
}

func apiFamily(four bool) *api.Family {
	if four {
		return &api.Family{Afi: api.Family_AFI_IP, Safi: api.Family_SAFI_UNICAST}
	}
	return &api.Family{Afi: api.Family_AFI_IP6, Safi: api.Family_SAFI_UNICAST}
}

// apiPeer converts a session to the library's form. Of a destination, internal peers may send several paths (RFC 7911), as reflectors do. We
// send one: the library does not withdraw a path of several that rules reject after a change (GoBGP 4.8.0, propagateUpdateToNeighbors).
func (w peerSession) apiPeer() *api.Peer {
	s := w.session
	family := apiFamily(s.Peer.Is4())
	seconds := func(d time.Duration) uint64 { return uint64(d / time.Second) }
	p := &api.Peer{
		Conf: &api.PeerConf{
			NeighborAddress: s.Peer.String(), PeerAsn: s.AS, LocalAsn: s.LocalAS, AuthPassword: w.password,
			AllowOwnAsn: uint32(s.AllowLocalAS),
		},
		Timers: &api.Timers{Config: &api.TimersConfig{
			ConnectRetry: connectRetry, IdleHoldTimeAfterReset: idleHoldTime,
			KeepaliveInterval: seconds(s.Keepalive), HoldTime: seconds(s.Hold),
		}},
		Transport: &api.Transport{RemotePort: uint32(s.Port), PassiveMode: s.Passive},
		GracefulRestart: &api.GracefulRestart{
			Enabled: true, RestartTime: uint32(seconds(s.Restart)), DeferralTime: deferralTime, LocalRestarting: w.restarting,
		},
		AfiSafis: []*api.AfiSafi{{
			Config:            &api.AfiSafiConfig{Family: family, Enabled: true},
			MpGracefulRestart: &api.MpGracefulRestart{Config: &api.MpGracefulRestartConfig{Enabled: true}},
		}},
	}
	if s.Internal() {
		p.AfiSafis[0].AddPaths = &api.AddPaths{Config: &api.AddPathsConfig{Receive: true}}
	}
	if s.Source.IsValid() {
		p.Transport.LocalAddress = s.Source.String()
	}
	switch {
	case s.Hops > 0:
		p.TtlSecurity = &api.TtlSecurity{Enabled: true, TtlMin: maxTTL + 1 - uint32(s.Hops)}
	case !s.Internal():
		p.EbgpMultihop = &api.EbgpMultihop{Enabled: true, MultihopTtl: maxTTL}
	}
	if s.Client {
		p.RouteReflector = &api.RouteReflector{RouteReflectorClient: true, RouteReflectorClusterId: s.Cluster.String()}
	}
	return p
}

// origin is a prefix that this node originates, with its communities and its LOCAL_PREF, which stands for its priority.
type origin struct {
	dst         netip.Prefix
	communities []string
	localPref   uint32
}

// String is what is said of a prefix beside itself.
func (o origin) String() string { return fmt.Sprint(o.localPref, o.communities) }

// perCall is how many paths one call carries.
const perCall = 1000

func (b *library) announce(os []origin) error {
	for chunk := range slices.Chunk(os, perCall) {
		paths := make([]*apiutil.Path, 0, len(chunk))
		for _, o := range chunk {
			p, err := o.path()
			if err != nil {
				return fmt.Errorf("announce %s: %w", o.dst, err)
			}
			paths = append(paths, p)
		}
		answers, err := b.srv.AddPath(apiutil.AddPathRequest{Paths: paths})
		if err != nil {
			return fmt.Errorf("announce: %w", err)
		}
		for i, a := range answers {
			if a.Error != nil {
				return fmt.Errorf("announce %s: %w", chunk[i].dst, a.Error)
			}
		}
	}
	return nil
}

func (b *library) withdraw(dsts []netip.Prefix) error {
	for chunk := range slices.Chunk(dsts, perCall) {
		paths := make([]*apiutil.Path, 0, len(chunk))
		for _, dst := range chunk {
			p, err := origin{dst: dst}.path()
			if err != nil {
				return fmt.Errorf("withdraw %s: %w", dst, err)
			}
			paths = append(paths, p)
		}
		if err := b.srv.DeletePath(apiutil.DeletePathRequest{Paths: paths}); err != nil {
			return fmt.Errorf("withdraw: %w", err)
		}
	}
	return nil
}

// path converts an origin to the library's form. With an unspecified next hop, each session puts in its own address.
func (o origin) path() (*apiutil.Path, error) {
	nlri, err := bgp.NewIPAddrPrefix(o.dst)
	if err != nil {
		return nil, err
	}
	family := familyOf(o.dst.Addr().Is4())
	attrs := []bgp.PathAttributeInterface{bgp.NewPathAttributeOrigin(bgp.BGP_ORIGIN_ATTR_TYPE_IGP), bgp.NewPathAttributeLocalPref(o.localPref)}
	if family == bgp.RF_IPv4_UC {
		hop, err := bgp.NewPathAttributeNextHop(netip.IPv4Unspecified())
		if err != nil {
			return nil, err
		}
		attrs = append(attrs, hop)
	} else {
		reach, err := bgp.NewPathAttributeMpReachNLRI(family, []bgp.PathNLRI{{NLRI: nlri}}, netip.IPv6Unspecified())
		if err != nil {
			return nil, err
		}
		attrs = append(attrs, reach)
	}
	return &apiutil.Path{Family: family, Nlri: nlri, Attrs: append(attrs, communityAttrs(o.communities)...)}, nil
}
