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

// library is GoBGP, as the speaker uses it. What it calls back with is collected until the loop asks.
type library struct {
	srv      *server.BgpServer
	as       uint32
	routerID netip.Addr
	listen   []netip.AddrPort
	reflects bool // and nothing else: what is best is nobody's business here
	log      *slog.Logger
	open     map[netip.Addr]wanted
	rules    rules
	young    map[netip.Addr]time.Time // sessions that came up a moment ago
	begun    time.Time
	// unprotected says of which listeners the kernel did not take a password.
	unprotected *unprotected
	news        chan struct{} // there is something to ask for

	mu       sync.Mutex // guards what callbacks write
	dirty    map[netip.Prefix]bool
	complete []netip.Addr             // peers that said that they have told all
	rose     []netip.Addr             // peers whose session came up
	fell     []netip.Addr             // peers whose session broke and whose routes the library keeps
	ceased   []netip.Addr             // peers that ended their session, and may begin another at once
	seen     map[netip.Addr]phase     // of sessions
	moved    map[netip.Addr]time.Time // when a route last changed, by who told it; the zero address: this node
}

// phase is what was last seen of a session.
type phase struct {
	Up    bool
	Since time.Time
	Why   string // it is not up
}

// families are those that sessions have, each by addresses of its own family.
var families = []bgp.Family{bgp.RF_IPv4_UC, bgp.RF_IPv6_UC}

func familyOf(four bool) bgp.Family {
	if four {
		return bgp.RF_IPv4_UC
	}
	return bgp.RF_IPv6_UC
}

// startLibrary listens, and believes and tells nothing yet.
func startLibrary(ctx context.Context, p plan.Plan, log *slog.Logger) (*library, error) {
	level, unsafe := &slog.LevelVar{}, &unprotected{peers: map[string]string{}}
	level.Set(slog.LevelError)
	b := &library{
		srv: server.NewBgpServer(server.LoggerOption(slog.New(atLeast{log.Handler(), level, unsafe}), level)), unprotected: unsafe, as: p.AS, routerID: p.RouterID, listen: p.Listen, reflects: p.Dedicated, log: log,
		open: map[netip.Addr]wanted{}, news: make(chan struct{}, 1), dirty: map[netip.Prefix]bool{}, seen: map[netip.Addr]phase{}, moved: map[netip.Addr]time.Time{}, young: map[netip.Addr]time.Time{}, begun: time.Now(),
	}
	go b.srv.Serve()
	global := &api.Global{Asn: p.AS, RouterId: p.RouterID.String(), UseMultiplePaths: true}
	for _, at := range p.Listen {
		global.ListenPort = int32(at.Port())
		global.ListenAddresses = append(global.ListenAddresses, at.Addr().String())
	}
	if err := b.srv.StartBgp(ctx, &api.StartBgpRequest{Global: global}); err != nil {
		b.stop() // it listens on the addresses before the one that failed, and would be in the way of the next try
		return nil, fmt.Errorf("listen on %v: %w", p.Listen, err)
	}
	err := b.srv.WatchEvent(ctx, server.WatchEventMessageCallbacks{OnBestPath: b.onPaths, OnPathEor: b.onComplete, OnPeerUpdate: b.onPeer},
		server.WatchBestPath(true), server.WatchEor(true), server.WatchPeer())
	if err != nil {
		b.stop()
		return nil, err
	}
	return b, nil
}

// fits reports whether a plan can be made true without beginning anew.
func (b *library) fits(p plan.Plan) bool {
	return p.Off == "" && p.AS == b.as && p.RouterID == b.routerID && slices.Equal(p.Listen, b.listen) && p.Dedicated == b.reflects
}

// stop ends all sessions, and says so to peers.
func (b *library) stop() {
	b.end()
	b.srv.Stop()
}

func (b *library) wake() {
	select {
	case b.news <- struct{}{}:
	default:
	}
}

func (b *library) onPaths(paths []*apiutil.Path, _ time.Time) {
	now := time.Now()
	b.mu.Lock()
	for _, p := range paths {
		if b.moved[p.PeerAddress] = now; b.reflects {
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

func (b *library) onComplete(p *apiutil.Path, _ time.Time) {
	b.mu.Lock()
	b.complete = append(b.complete, p.PeerAddress)
	b.mu.Unlock()
	b.wake()
}

func (b *library) onPeer(e *apiutil.WatchEventMessage_PeerEvent, at time.Time) {
	if e.Type != apiutil.PEER_EVENT_STATE {
		return
	}
	peer, up := e.Peer.State.NeighborAddress, e.Peer.State.SessionState == bgp.BGP_FSM_ESTABLISHED
	b.mu.Lock()
	was, known := b.seen[peer]
	now := phase{Up: up, Since: at, Why: whyDown(e.Peer.State)}
	switch {
	case up == was.Up && known:
		now.Since = was.Since
		if now.Why == "" {
			now.Why = was.Why
		}
	case up:
		b.log.Info("session is up", "peer", peer)
		b.rose = append(b.rose, peer)
		defer b.wake()
	case was.Up:
		b.log.Warn("session is down", "peer", peer, "why", now.Why)
		if e.Peer.State.DisconnectReason == api.PeerState_DISCONNECT_REASON_GRACEFUL_RESTART {
			b.fell = append(b.fell, peer)
		} else if mayBeginAgain[now.Why] {
			b.ceased = append(b.ceased, peer)
		}
		defer b.wake()
	}
	if up {
		now.Why = ""
	}
	b.seen[peer] = now
	b.mu.Unlock()
}

// deaf reports whether the library passes over what peers say: it compares the time of a message with that at which the
// session came up, to the second and by the clock on the wall.
func (b *library) deaf(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.seen {
		if p.Up && p.Since.Unix() > now.Unix() {
			return true
		}
	}
	return false
}

// whyDown says in words why a session ended.
func whyDown(s apiutil.PeerState) string {
	switch s.DisconnectReason {
	case api.PeerState_DISCONNECT_REASON_HOLD_TIMER_EXPIRED:
		return "no sign of life within the hold time"
	case api.PeerState_DISCONNECT_REASON_READ_FAILED, api.PeerState_DISCONNECT_REASON_WRITE_FAILED:
		return "the connection broke"
	case api.PeerState_DISCONNECT_REASON_GRACEFUL_RESTART:
		return "the peer restarts; its routes are kept"
	case api.PeerState_DISCONNECT_REASON_RESTART_TIMER_EXPIRED:
		return "the peer did not come back within its restart time"
	case api.PeerState_DISCONNECT_REASON_NOTIFICATION_RECEIVED:
		return closed + told(s.DisconnectMessage)
	case api.PeerState_DISCONNECT_REASON_NOTIFICATION_SENT:
		return "closed from here: " + blame.ReplaceAllString(told(s.DisconnectMessage), "what it sent is wrong: $0")
	case api.PeerState_DISCONNECT_REASON_BAD_PEER_AS:
		return "the peer has another AS number than it should"
	case api.PeerState_DISCONNECT_REASON_INVALID_MSG:
		return "its first message is not acceptable: BGP's version, hold time, router id (none, or ours) or capabilities"
	case api.PeerState_DISCONNECT_REASON_HARD_RESET:
		return "the peer reset it"
	}
	return ""
}

// closed begins what is said of a session that its peer ended.
const closed = "the peer closed it: "

// mayBeginAgain are the Cease notifications (RFC 4486, 4) after which the peer may begin anew at once; so does ours, when BFD has
// lost the path for a moment. After all others the peer wants to be left alone for a while.
var mayBeginAgain = map[string]bool{
	closed + "cease: peer deconfigured": true, closed + "cease: administrative reset": true, closed + "cease: other configuration change": true,
}

// notification is how the library writes one.
var notification = regexp.MustCompile(`^notification-\w+ code \d+\((.*?)\)(?: subcode \d+\((.*)\))?$`)

// blame begins the notifications that say that the other end sent something wrong.
var blame = regexp.MustCompile(`^(header|open|update): `)

// told is a notification in words.
func told(message string) string {
	m := notification.FindStringSubmatch(message)
	if m == nil {
		return message
	}
	return strings.TrimSuffix(m[1]+": "+m[2], ": ")
}

// changes returns the destinations whose routes changed, with their next hops now, and the peers that have told all.
func (b *library) changes() (map[netip.Prefix][]netip.Addr, []netip.Addr) {
	b.mu.Lock()
	dirty, complete := b.dirty, b.complete
	b.dirty, b.complete = map[netip.Prefix]bool{}, nil
	b.mu.Unlock()
	out := make(map[netip.Prefix][]netip.Addr, len(dirty))
	for dst := range dirty {
		out[dst] = nil
	}
	for _, family := range families {
		b.best(family, out)
	}
	return out, complete
}

// silence ends sessions that broke for want of a sign of life. The library takes these for restarts and keeps their
// routes; but a peer that restarts closes its connection, and one that is silent forwards nothing. That we sent a
// notification is all by which they differ. Sessions that peers ended and may begin again are made anew, too: else the library hangs
// up on those peers for five seconds, whatever it is configured to (its holdtimeIdle). It returns who came up since.
func (b *library) silence(ctx context.Context) (rose []netip.Addr, failed map[netip.Addr]error) {
	b.mu.Lock()
	rose = b.rose
	fell, ceased := b.fell, b.ceased
	b.rose, b.fell, b.ceased = nil, nil, nil
	b.mu.Unlock()
	for _, peer := range rose {
		if is, open := b.open[peer]; open {
			is.notified = b.notified(ctx, peer)
			b.open[peer] = is
			if !b.defers(peer) {
				b.young[peer] = time.Now()
			}
		}
	}
	failed = map[netip.Addr]error{}
	for _, peer := range fell {
		is, open := b.open[peer]
		if !open {
			continue
		}
		sent := b.notified(ctx, peer)
		if sent == is.notified {
			continue
		}
		if err := b.reopen(ctx, peer, whyDown(apiutil.PeerState{DisconnectReason: api.PeerState_DISCONNECT_REASON_HOLD_TIMER_EXPIRED})); err != nil {
			failed[peer] = err
		}
	}
	for _, peer := range ceased {
		is, open := b.open[peer]
		if !open || b.stands(peer) {
			continue
		}
		b.mu.Lock()
		was := b.seen[peer]
		b.mu.Unlock()
		if err := b.anew(ctx, peer, is, was.Why); err != nil {
			failed[peer] = err
		}
	}
	return rose, failed
}

// notified is how many notifications were sent to a peer.
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

// few are so many destinations that looking each up is cheaper than walking all.
const few = 256

// best fills in the next hops of the destinations that are asked for.
func (b *library) best(family bgp.Family, out map[netip.Prefix][]netip.Addr) {
	req := apiutil.ListPathRequest{TableType: api.TableType_TABLE_TYPE_GLOBAL, Family: family}
	n := 0
	for dst := range out {
		if familyOf(dst.Addr().Is4()) != family {
			continue
		}
		if n++; n <= few {
			req.Prefixes = append(req.Prefixes, &apiutil.LookupPrefix{Prefix: dst.String()})
		}
	}
	if n == 0 {
		return
	}
	if n > few {
		req.Prefixes = nil
	}
	err := b.srv.ListPath(req, func(nlri bgp.NLRI, paths []*apiutil.Path) {
		dst, ok := prefixOf(nlri)
		if _, asked := out[dst]; ok && asked {
			out[dst] = nextHops(paths)
		}
	})
	if err != nil {
		b.log.Error("BGP: list paths", "err", err)
	}
}

// nextHops are those of the best paths; none if the best is our own.
func nextHops(paths []*apiutil.Path) []netip.Addr {
	var out []netip.Addr
	for _, p := range paths {
		if !p.Best {
			continue
		}
		if !fromPeer(p) {
			return nil
		}
		if hop := nextHop(p); hop.IsValid() {
			out = append(out, hop)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
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
