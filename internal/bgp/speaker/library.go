package speaker

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"

	"github.com/twillnet/twill/internal/bgp/plan"
)

// library is GoBGP, as the speaker uses it. Callbacks collect what happened; the loop fetches it.
type library struct {
	srv      *server.BgpServer
	as       uint32
	routerID netip.Addr
	listen   []netip.AddrPort
	reflects bool // and nothing else: best paths are not needed
	log      *slog.Logger
	open     map[netip.Addr]peerSession
	rules    rules
	newlyUp  map[netip.Addr]time.Time // sessions that may need readvertise, by when they came up
	started  time.Time
	// unprotected records the peers whose password the kernel refused for the listener.
	unprotected *unprotected
	wakeup      chan struct{} // signals that callbacks collected something

	mu            sync.Mutex // guards what callbacks write
	dirty         map[netip.Prefix]bool
	endOfRIB      []netip.Addr                // peers that sent End-of-RIB
	established   []netip.Addr                // peers whose session came up
	retained      []netip.Addr                // peers whose session broke and whose routes the library retains
	ceased        []netip.Addr                // peers that closed their session with a Cease, and may reconnect at once
	sessionStates map[netip.Addr]sessionState // by peer
	lastChange    map[netip.Addr]time.Time    // when a route last changed, by the peer it is from; the zero address: this node
}

// sessionState is the last state that the library reported of a session.
type sessionState struct {
	Up    bool
	Since time.Time
	Why   string // why it is not up
}

// families are those of sessions: a session carries the family of its addresses.
var families = []bgp.Family{bgp.RF_IPv4_UC, bgp.RF_IPv6_UC}

func familyOf(four bool) bgp.Family {
	if four {
		return bgp.RF_IPv4_UC
	}
	return bgp.RF_IPv6_UC
}

// startLibrary starts GoBGP listening; without rules and sessions it accepts and advertises nothing.
func startLibrary(ctx context.Context, p plan.Plan, log *slog.Logger) (*library, error) {
	level, unsafe := &slog.LevelVar{}, &unprotected{peers: map[string]string{}}
	level.Set(slog.LevelError)
	b := &library{
		srv: server.NewBgpServer(server.LoggerOption(slog.New(atLeast{log.Handler(), level, unsafe}), level)), unprotected: unsafe, as: p.AS, routerID: p.RouterID, listen: p.Listen, reflects: p.Dedicated, log: log,
		open: map[netip.Addr]peerSession{}, wakeup: make(chan struct{}, 1), dirty: map[netip.Prefix]bool{}, sessionStates: map[netip.Addr]sessionState{}, lastChange: map[netip.Addr]time.Time{}, newlyUp: map[netip.Addr]time.Time{}, started: time.Now(),
	}
	go b.srv.Serve()
	global := &api.Global{Asn: p.AS, RouterId: p.RouterID.String(), UseMultiplePaths: true}
	for _, at := range p.Listen {
		global.ListenPort = int32(at.Port())
		global.ListenAddresses = append(global.ListenAddresses, at.Addr().String())
	}
	if err := b.srv.StartBgp(ctx, &api.StartBgpRequest{Global: global}); err != nil {
		b.stop() // it already listens on the addresses before the one that failed, which would block the next try
		return nil, fmt.Errorf("listen on %v: %w", p.Listen, err)
	}
	err := b.srv.WatchEvent(ctx, server.WatchEventMessageCallbacks{OnBestPath: b.onPaths, OnPathEor: b.onEndOfRIB, OnPeerUpdate: b.onPeer},
		server.WatchBestPath(true), server.WatchEor(true), server.WatchPeer())
	if err != nil {
		b.stop()
		return nil, err
	}
	return b, nil
}

// compatible reports whether a plan can be applied without a restart of the library.
func (b *library) compatible(p plan.Plan) bool {
	return p.Off == "" && p.AS == b.as && p.RouterID == b.routerID && slices.Equal(p.Listen, b.listen) && p.Dedicated == b.reflects
}

// stop closes all sessions with a Cease, and stops the library.
func (b *library) stop() {
	b.closeSessions()
	b.srv.Stop()
}

func (b *library) wake() {
	select {
	case b.wakeup <- struct{}{}:
	default:
	}
}

func (b *library) onPaths(paths []*apiutil.Path, _ time.Time) {
	now := time.Now()
	b.mu.Lock()
	for _, p := range paths {
		if b.lastChange[p.PeerAddress] = now; b.reflects {
			continue
		}
		if dst, ok := prefixOf(p.Nlri); ok {
			b.dirty[dst] = true
		}
	}
	b.mu.Unlock()
	if !b.reflects {
		b.wake()
	}
}

func (b *library) onEndOfRIB(p *apiutil.Path, _ time.Time) {
	b.mu.Lock()
	b.endOfRIB = append(b.endOfRIB, p.PeerAddress)
	b.mu.Unlock()
	b.wake()
}

func (b *library) onPeer(e *apiutil.WatchEventMessage_PeerEvent, at time.Time) {
	if e.Type != apiutil.PEER_EVENT_STATE {
		return
	}
	peer, up := e.Peer.State.NeighborAddress, e.Peer.State.SessionState == bgp.BGP_FSM_ESTABLISHED
	b.mu.Lock()
	was, known := b.sessionStates[peer]
	now := sessionState{Up: up, Since: at, Why: downReason(e.Peer.State)}
	switch {
	case up == was.Up && known:
		now.Since = was.Since
		if now.Why == "" {
			now.Why = was.Why
		}
	case up:
		b.log.Info("session is up", "peer", peer)
		b.established = append(b.established, peer)
		defer b.wake()
	case was.Up:
		b.log.Warn("session is down", "peer", peer, "why", now.Why)
		if e.Peer.State.DisconnectReason == api.PeerState_DISCONNECT_REASON_GRACEFUL_RESTART {
			b.retained = append(b.retained, peer)
		} else if reconnectAtOnce[now.Why] {
			b.ceased = append(b.ceased, peer)
		}
		defer b.wake()
	}
	if up {
		now.Why = ""
	}
	b.sessionStates[peer] = now
	b.mu.Unlock()
}

// clockSetBack reports whether the library ignores messages because the clock was set back: it compares the time of a message with that at which the
// session came up, to the second and by wall-clock time.
func (b *library) clockSetBack(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.sessionStates {
		if p.Up && p.Since.Unix() > now.Unix() {
			return true
		}
	}
	return false
}

// downReason describes why a session ended.
func downReason(s apiutil.PeerState) string {
	switch s.DisconnectReason {
	case api.PeerState_DISCONNECT_REASON_HOLD_TIMER_EXPIRED:
		return "the hold timer expired"
	case api.PeerState_DISCONNECT_REASON_READ_FAILED, api.PeerState_DISCONNECT_REASON_WRITE_FAILED:
		return "the connection broke"
	case api.PeerState_DISCONNECT_REASON_GRACEFUL_RESTART:
		return "the peer restarts; its routes are kept"
	case api.PeerState_DISCONNECT_REASON_RESTART_TIMER_EXPIRED:
		return "the peer did not come back within its restart time"
	case api.PeerState_DISCONNECT_REASON_NOTIFICATION_RECEIVED:
		return closedByPeer + notificationText(s.DisconnectMessage)
	case api.PeerState_DISCONNECT_REASON_NOTIFICATION_SENT:
		return "closed by this speaker: " + peerFault.ReplaceAllString(notificationText(s.DisconnectMessage), "what it sent is wrong: $0")
	case api.PeerState_DISCONNECT_REASON_BAD_PEER_AS:
		return "the peer has another AS number than it should"
	case api.PeerState_DISCONNECT_REASON_INVALID_MSG:
		return "its OPEN message is not acceptable: BGP's version, hold time, router id (none, or ours) or capabilities"
	case api.PeerState_DISCONNECT_REASON_HARD_RESET:
		return "the peer reset it"
	}
	return ""
}

// closedByPeer is the prefix of the reason of a session that the peer closed.
const closedByPeer = "the peer closed it: "

// reconnectAtOnce are the Cease notifications (RFC 4486, 4) after which the peer may reconnect at once; ours sends one, too, when BFD has
// lost the path for a moment. After all others the peer is not called for a while.
var reconnectAtOnce = map[string]bool{
	closedByPeer + "cease: peer deconfigured": true, closedByPeer + "cease: administrative reset": true, closedByPeer + "cease: other configuration change": true,
}

// notification is how the library formats a NOTIFICATION.
var notification = regexp.MustCompile(`^notification-\w+ code \d+\((.*?)\)(?: subcode \d+\((.*)\))?$`)

// peerFault matches notifications about an error in what the peer sent.
var peerFault = regexp.MustCompile(`^(header|open|update): `)

// notificationText is a NOTIFICATION in readable form.
func notificationText(message string) string {
	m := notification.FindStringSubmatch(message)
	if m == nil {
		return message
	}
	return strings.TrimSuffix(m[1]+": "+m[2], ": ")
}

// changes returns the destinations whose routes changed, with their best paths now, and the peers that sent End-of-RIB.
func (b *library) changes() (map[netip.Prefix]way, []netip.Addr) {
	b.mu.Lock()
	dirty, endOfRIB := b.dirty, b.endOfRIB
	b.dirty, b.endOfRIB = map[netip.Prefix]bool{}, nil
	b.mu.Unlock()
	out := make(map[netip.Prefix]way, len(dirty))
	for dst := range dirty {
		out[dst] = way{}
	}
	for _, family := range families {
		b.best(family, out)
	}
	return out, endOfRIB
}

// onSessionEvents handles sessions that came up and went down. It ends those whose hold timer expired: the library takes these for restarts and retains their
// routes; but a peer that restarts closes its connection, and one that is silent forwards nothing. That we sent a
// notification is all by which they differ. Sessions that peers ended and may begin again are made anew, too: else the library hangs
// up on those peers for five seconds, whatever it is configured to (its holdtimeIdle). It returns who came up since.
func (b *library) onSessionEvents(ctx context.Context) (established []netip.Addr, failed map[netip.Addr]error) {
	b.mu.Lock()
	established = b.established
	retained, ceased := b.retained, b.ceased
	b.established, b.retained, b.ceased = nil, nil, nil
	b.mu.Unlock()
	for _, peer := range established {
		if is, open := b.open[peer]; open {
			is.notified = b.notified(ctx, peer)
			b.open[peer] = is
			if !b.deferring(peer) {
				b.newlyUp[peer] = time.Now()
			}
		}
	}
	failed = map[netip.Addr]error{}
	for _, peer := range retained {
		is, open := b.open[peer]
		if !open {
			continue
		}
		sent := b.notified(ctx, peer)
		if sent == is.notified {
			continue
		}
		if err := b.reset(ctx, peer, downReason(apiutil.PeerState{DisconnectReason: api.PeerState_DISCONNECT_REASON_HOLD_TIMER_EXPIRED})); err != nil {
			failed[peer] = err
		}
	}
	for _, peer := range ceased {
		is, open := b.open[peer]
		if !open || b.isUp(peer) {
			continue
		}
		b.mu.Lock()
		was := b.sessionStates[peer]
		b.mu.Unlock()
		if err := b.recreate(ctx, peer, is, was.Why); err != nil {
			failed[peer] = err
		}
	}
	return established, failed
}

// notified returns how many NOTIFICATIONs were sent to a peer.
func (b *library) notified(ctx context.Context, peer netip.Addr) uint64 {
	var n uint64
	err := b.srv.ListPeer(ctx, &api.ListPeerRequest{Address: peer.String()}, func(p *api.Peer) {
		n = p.GetState().GetMessages().GetSent().GetNotification()
	})
	if err != nil {
		b.log.Error("BGP: list sessions", "err", err)
	}
	return n
}

// maxLookups is up to how many destinations looking each up is cheaper than walking all.
const maxLookups = 256

// best fills in the best paths of the destinations in out that are of a family.
func (b *library) best(family bgp.Family, out map[netip.Prefix]way) {
	req := apiutil.ListPathRequest{TableType: api.TableType_TABLE_TYPE_GLOBAL, Family: family}
	n := 0
	for dst := range out {
		if familyOf(dst.Addr().Is4()) != family {
			continue
		}
		if n++; n <= maxLookups {
			req.Prefixes = append(req.Prefixes, &apiutil.LookupPrefix{Prefix: dst.String()})
		}
	}
	if n == 0 {
		return
	}
	if n > maxLookups {
		req.Prefixes = nil
	}
	err := b.srv.ListPath(req, func(nlri bgp.NLRI, paths []*apiutil.Path) {
		dst, ok := prefixOf(nlri)
		if _, asked := out[dst]; ok && asked {
			out[dst] = bestWay(paths)
		}
	})
	if err != nil {
		b.log.Error("BGP: list paths", "err", err)
	}
}

// bestWay has the next hops of the best paths, and their priority; none if the best is our own.
func bestWay(paths []*apiutil.Path) (out way) {
	for _, p := range paths {
		if !p.Best {
			continue
		}
		if !fromPeer(p) {
			return way{}
		}
		if hop := nextHop(p); hop.IsValid() {
			out.hops = append(out.hops, hop)
		}
		out.priority = plan.PriorityOf(localPrefOf(p)) // equally good paths have the same
	}
	slices.SortFunc(out.hops, netip.Addr.Compare)
	out.hops = slices.Compact(out.hops)
	return out
}

// localPrefOf is the LOCAL_PREF of a path; 0: it has none.
func localPrefOf(p *apiutil.Path) uint32 {
	for _, a := range p.Attrs {
		if a, ok := a.(*bgp.PathAttributeLocalPref); ok {
			return a.Value
		}
	}
	return 0
}

func fromPeer(p *apiutil.Path) bool { return p.PeerAddress.IsValid() && !p.PeerAddress.IsUnspecified() }

func nextHop(p *apiutil.Path) netip.Addr {
	for _, a := range p.Attrs {
		switch a := a.(type) {
		case *bgp.PathAttributeNextHop:
			return a.Value
		case *bgp.PathAttributeMpReachNLRI:
			return a.Nexthop
		}
	}
	return netip.Addr{}
}

func prefixOf(n bgp.NLRI) (netip.Prefix, bool) {
	p, ok := n.(*bgp.IPAddrPrefix)
	if !ok {
		return netip.Prefix{}, false
	}
	return p.Prefix, true
}
