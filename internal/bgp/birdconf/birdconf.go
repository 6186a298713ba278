// Package birdconf renders a plan for BIRD 2, for sites that keep it.
//
// In: a [plan.Plan], passwords, and the blocks that the agent has in the kernel. Out: the text of one configuration for
// both families, with which BIRD advertises and accepts what our own speaker would.
package birdconf

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"unicode"

	"github.com/twillnet/twill/internal/bgp/birdctl"
	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/kernel"
)

// Config is all that a rendering depends on.
type Config struct {
	Plan plan.Plan
	// Blocks are the agent's blackhole routes: what they cover is not advertised by itself. BIRD's filters cannot see that one route covers another.
	Blocks []netip.Prefix
	// Secret returns a password; with an error the last one that could be read. A session whose password is unknown is left
	// out, with a comment.
	Secret func(plan.Secret) (string, error)
}

// FirstWords are what a configuration begins with.
const FirstWords = "# Written by twill"

// Render returns the configuration. It is an error if a value in the plan cannot be quoted so that BIRD reads nothing
// else: text from outside is written only in quotes, as numbers, or in comments.
func Render(c Config) (string, error) {
	w := writer{Config: c}
	p := c.Plan
	w.line(FirstWords+"; changes are lost. Node %s.", comment(p.Node))
	if p.Off != "" {
		w.line("# BGP is off: %s", comment(p.Off))
		p.RouterID = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	} else {
		w.line("graceful restart wait %d;", max(1, int(p.Restart().Seconds())))
	}
	w.line("router id %s;", p.RouterID)
	w.line("timeformat base %q;", birdctl.TimeFormat)
	w.line("timeformat protocol %q;", birdctl.TimeFormat)
	w.line("")
	w.line("protocol device { scan time 2; }")
	w.line("# Connected networks, to resolve next hops. Workloads' interfaces are the agent's.")
	w.line("protocol direct { ipv4; ipv6; interface %s; }", w.interfaces())
	for _, four := range []bool{true, false} {
		w.kernel(four)
	}
	if slices.ContainsFunc(p.Sessions, func(s plan.Session) bool { return s.BFD.Asked }) {
		w.line("")
		w.line("protocol bfd { accept direct; }")
	}
	for _, s := range p.Sessions {
		w.session(s)
	}
	return w.text.String(), w.err
}

type writer struct {
	Config
	text strings.Builder
	err  error // the first value that cannot be quoted
}

// quoted returns a text in quotes.
func (w *writer) quoted(text string) string {
	q, err := quote(text)
	if err != nil && w.err == nil {
		w.err = fmt.Errorf("%q: %w", text, err)
	}
	return q
}

// comment replaces control characters, so that the text ends with its line.
func comment(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == unicode.ReplacementChar {
			return ' '
		}
		return r
	}, text)
}

func (w *writer) line(format string, args ...any) {
	fmt.Fprintf(&w.text, format+"\n", args...)
}

func (w *writer) interfaces() string {
	var out []string
	for _, i := range append(slices.Clone(w.Plan.Ignored), "cali*", "kube-ipvs*") {
		out = append(out, "-"+w.quoted(i))
	}
	return strings.Join(append(out, `"*"`), ", ")
}

func version(four bool) string {
	if four {
		return "4"
	}
	return "6"
}

// notAgents is what holds of routes that are not the agent's for addresses on this host.
func (w *writer) notAgents(four bool) string {
	own := fmt.Sprintf("krt_source != %d", kernel.RouteProtocolAgent)
	if w.Plan.AgentProtocol == 0 {
		return own
	}
	single := map[bool]int{true: 32, false: 128}[four]
	return fmt.Sprintf("%s && (krt_source != %d || net.len != %d || dest != RTD_UNICAST)", own, w.Plan.AgentProtocol, single)
}

// kernel writes the kernel protocol of a family: it imports the agent's routes, and exports learned ones.
func (w *writer) kernel(four bool) {
	if w.Plan.Dedicated {
		w.reflectorKernel(four)
		return
	}
	v := version(four)
	w.line("")
	w.line("filter twill_import%s {", v)
	w.line("  if %s then reject; # only the agent's", w.notAgents(four))
	w.line("  if dest != RTD_BLACKHOLE && dest != RTD_UNICAST then reject;")
	w.line("  if gw != :: then reject; # routes to other hosts; for BIRD, no gateway is :: in both families")
	for _, i := range w.Plan.Ignored {
		w.line("  if defined(ifname) && ifname ~ %s then reject;", w.quoted(i))
	}
	filtered := slices.ContainsFunc(w.Plan.Filters(), func(f plan.Filter) bool { return f.Four == four })
	if within := w.withinBlocks(four); within != "" && !filtered {
		w.line("  if net ~ %s && !(%s) then reject; # advertised as a whole", within, w.elevated(four))
	}
	w.line("  accept;")
	w.line("}")
	w.line("filter twill_kernel%s {", v)
	w.line("  if source = RTS_STATIC && proto = \"twill_ways%s\" then accept;", v)
	w.line("  if source != RTS_BGP then reject;")
	for _, f := range w.Plan.Foreign {
		if f.Addr().Is4() == four {
			w.line("  if net ~ %s then reject; # others install its routes", f)
		}
	}
	w.line("  accept;")
	w.line("}")
	w.line("protocol kernel twill_kernel_%s {", v)
	// The host's own routes are preferred to learned ones, whose preference is 100.
	w.line("  learn; persist; scan time 2; graceful restart; merge paths on; metric %d;", kernel.RouteMetricBIRD)
	w.line("  ipv%s { preference 200; import filter twill_import%s; export filter twill_kernel%s; };", v, v, v)
	w.line("}")
	w.peerRoutes(four)
	var own []netip.Prefix
	for _, p := range w.Plan.Originate {
		if p.Addr().Is4() == four {
			own = append(own, p)
		}
	}
	if len(own) == 0 {
		return
	}
	w.line("protocol static twill_services%s {", v)
	w.line("  ipv%s;", v)
	for _, p := range own {
		w.line("  route %s blackhole;", p)
	}
	w.line("}")
}

// reflectorKernel writes the kernel protocol of a dedicated reflector: nothing is learned from the kernel, and no route that
// peers advertise is installed there; only what leads to peers behind gateways is.
func (w *writer) reflectorKernel(four bool) {
	if !w.peerRoutes(four) {
		return
	}
	v := version(four)
	w.line("protocol kernel twill_kernel_%s {", v)
	w.line("  persist; metric %d;", kernel.RouteMetricBIRD)
	w.line("  ipv%s { import none; export where proto = \"twill_ways%s\"; };", v, v)
	w.line("}")
}

// peerRoutes are routes to peers through gateways; false: there are none.
func (w *writer) peerRoutes(four bool) bool {
	ways := plan.PeerRoutes(w.Plan.Sessions)
	sorted := slices.SortedFunc(maps.Keys(ways), func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	sorted = slices.DeleteFunc(sorted, func(p netip.Prefix) bool { return p.Addr().Is4() != four })
	if len(sorted) == 0 {
		return false
	}
	w.line("protocol static twill_ways%s {", version(four))
	w.line("  ipv%s;", version(four))
	for _, dst := range sorted {
		w.line("  route %s via %s;", dst, ways[dst])
	}
	w.line("}")
	return true
}

// Omitted returns why a session is left out of BIRD's configuration; nil: it is not. secret is that of [Config].
func Omitted(s plan.Session, secret func(plan.Secret) (string, error)) error {
	if s.Closed != "" {
		return errors.New(s.Closed)
	}
	if s.Password == nil {
		return nil
	}
	password, err := secret(*s.Password)
	if password == "" {
		return fmt.Errorf("password: %w", err)
	}
	if _, err := quote(password); err != nil {
		return fmt.Errorf("password: %w", err)
	}
	return nil
}

// quote quotes a text for BIRD: all bytes between two double quotes stand for themselves, a backslash too, and there
// is no way to write a quote or the end of a line (BIRD 2, conf/cf-lex.l).
func quote(text string) (string, error) {
	if strings.ContainsAny(text, "\"\n\x00") {
		return "", errors.New("BIRD cannot have a text with quotes, line ends or zero bytes")
	}
	return `"` + text + `"`, nil
}

// session writes the BGP protocol of one session.
func (w *writer) session(s plan.Session) {
	w.line("")
	w.line("# %s", comment(strings.TrimSpace(s.Why+" "+s.PeerNode)))
	if why := Omitted(s, w.Secret); why != nil {
		w.line("# %s is left out: %s", s.Peer, comment(why.Error()))
		return
	}
	w.line("protocol bgp %s {", Name(s))
	w.local(s)
	w.line("  neighbor %s port %d as %d;", s.Peer, s.Port, s.AS)
	switch {
	case s.BFD.Asked && !s.Via.IsValid(): // BIRD opens no direct session with a peer behind a gateway
		// BIRD runs single-hop BFD only on direct sessions. It ends with BIRD, whose peers then drop its routes
		// even if it restarts gracefully: so it is used only where a resource asks for it.
		ttl := ""
		if s.Hops > 0 {
			ttl = " ttl security on;"
		}
		w.line("  direct;%s bfd { interval %d us; multiplier %d; };", ttl, s.BFD.Interval.Microseconds(), s.BFD.Multiplier)
	case s.Hops > 0:
		w.line("  ttl security on; multihop %d;", s.Hops)
	default:
		w.line("  multihop;")
	}
	w.line("  keepalive time %d; hold time %d;", int(s.Keepalive.Seconds()), int(s.Hold.Seconds()))
	w.line("  graceful restart on; graceful restart time %d;", int(s.Restart.Seconds()))
	w.line("  connect delay time 1; connect retry time 5; error wait time 1,30;")
	if s.Password != nil {
		password, _ := w.Secret(*s.Password) // LeftOut has looked at both results
		w.line("  password %s;", w.quoted(password))
	}
	if s.Passive {
		w.line("  passive on;")
	}
	if s.Client {
		w.line("  rr client; rr cluster id %s;", s.Cluster)
	}
	if s.AllowLocalAS > 0 {
		w.line("  allow local as %d;", s.AllowLocalAS)
	}
	w.channel(s)
	w.line("}")
}

// local writes the local end of a session. Where the node listens on its own address only, so does each session: BIRD has no
// socket of one kind beside one of the other, and none without an address. So there what has no source has the node's.
func (w *writer) local(s plan.Session) {
	port, source := uint16(plan.DefaultPort), s.Source
	for _, at := range w.Plan.Listen {
		port = at.Port()
		if at.Addr().Is4() == s.Peer.Is4() && !at.Addr().IsUnspecified() {
			source = at.Addr()
			w.line("  strict bind on;")
		}
	}
	if source.IsValid() {
		w.line("  local %s port %d as %d;", source, port, s.LocalAS)
		return
	}
	w.line("  local port %d as %d;", port, s.LocalAS)
}

// channel writes the filters and the next hop of a session.
func (w *writer) channel(s plan.Session) {
	w.line("  ipv%s {", version(s.Peer.Is4()))
	w.line("    import keep filtered;")
	w.line("    import filter {")
	for _, r := range s.Import {
		w.rule(r, s.Peer.Is4())
	}
	w.line("      accept;")
	w.line("    };")
	w.line("    export filter {")
	w.line("      if source = RTS_DEVICE || proto = \"twill_ways%s\" then reject; # routes to next hops", version(s.Peer.Is4()))
	w.line("      if source != RTS_BGP then bgp_local_pref = %d;", plan.LocalPref(w.Plan.NormalPriority(s.Peer.Is4())))
	w.line("      if source != RTS_BGP && %s then bgp_local_pref = %d - krt_metric;", hasMetric(s.Peer.Is4()), plan.LocalPref(0))
	for _, r := range s.Export {
		w.rule(r, s.Peer.Is4())
	}
	w.line("      reject;")
	w.line("    };")
	if s.Internal() || s.NextHop == plan.NextHopKeep {
		w.line("    add paths on;") // elsewhere all have the same next hop, this node
	}
	switch {
	case s.NextHop == plan.NextHopKeep:
		w.line("    next hop keep;")
	case s.NextHop == plan.NextHopSelf, !s.Internal():
		// BIRD would leave it to be a neighbor on the same link if both sessions are direct. See
		// TestANodeIsTheNextHopBetweenSystemsOnOneLink.
		w.line("    next hop self;")
	}
	w.line("  };")
}

// Name is the name of a session's protocol in BIRD.
func Name(s plan.Session) string {
	return "twill_" + strings.NewReplacer(".", "_", ":", "_").Replace(s.Peer.String())
}

func (w *writer) add(communities []string) string {
	var out []string
	for _, c := range communities {
		out = append(out, fmt.Sprintf("%s.add(%s);", kind(c), w.tuple(c)))
	}
	return strings.Join(out, " ")
}

func kind(community string) string {
	if strings.Count(community, ":") == 2 {
		return "bgp_large_community"
	}
	return "bgp_community"
}

// tuple is a community in BIRD's form: numbers.
func (w *writer) tuple(community string) string {
	if strings.Trim(community, "0123456789:") != "" && w.err == nil {
		w.err = fmt.Errorf("%q is no community", community)
	}
	return "(" + strings.ReplaceAll(community, ":", ", ") + ")"
}

// withinBlocks is the set of prefixes that blocks of a family cover; empty: there are none.
func (w *writer) withinBlocks(four bool) string {
	var out []string
	for _, b := range w.Blocks {
		if b.Addr().Is4() == four && b.Bits() < b.Addr().BitLen() {
			out = append(out, fmt.Sprintf("%s{%d,%d}", b, b.Bits()+1, b.Addr().BitLen()))
		}
	}
	if len(out) == 0 {
		return ""
	}
	return "[ " + strings.Join(out, ", ") + " ]"
}

// hasMetric is the condition that a route of the kernel has a metric that the agent gave it: without one, an IPv6 route has 1024.
func hasMetric(four bool) string {
	if four {
		return "defined(krt_metric) && krt_metric > 0"
	}
	return "defined(krt_metric) && krt_metric != 1024"
}

// elevated is the condition that a route of the agent's is preferred to those of the normal priority.
func (w *writer) elevated(four bool) string {
	return fmt.Sprintf("%s && krt_metric < %d", hasMetric(four), w.Plan.NormalPriority(four))
}

// ofPrefix is a rule's condition of prefix and length. BIRD takes no configuration with lengths that exclude each other, as a filter may have
// them: cidr 10.0.0.0/16 with a maximum of 12.
func ofPrefix(r plan.Rule) string {
	c := fmt.Sprintf("net ~ [ %s{%d,%d} ]", r.Prefix, r.Min, r.Max)
	switch {
	case r.Min > r.Max:
		return fmt.Sprint(r.Not)
	case r.Not:
		return "!(" + c + ")"
	}
	return c
}

// rule writes one rule of a filter, for routes of one family.
func (w *writer) rule(r plan.Rule, four bool) {
	if r.Foreign {
		return // BIRD takes the agent's routes alone from the kernel
	}
	var conditions []string
	if r.Covered {
		within := w.withinBlocks(four)
		if within == "" {
			return
		}
		conditions = append(conditions, "source != RTS_BGP && net ~ "+within+" && !("+w.elevated(four)+")")
	}
	if r.Prefix.IsValid() {
		conditions = append(conditions, ofPrefix(r))
	}
	if r.Learned {
		conditions = append(conditions, "source = RTS_BGP")
	}
	if r.Own {
		conditions = append(conditions, "source != RTS_BGP")
	}
	if r.Interface != "" {
		conditions = append(conditions, fmt.Sprintf("source != RTS_BGP && defined(ifname) && ifname ~ %s", w.quoted(r.Interface)))
	}
	if r.Priority != 0 {
		conditions = append(conditions, fmt.Sprintf("bgp_local_pref = %d", plan.LocalPref(r.Priority)))
	}
	if r.Community != "" {
		conditions = append(conditions, fmt.Sprintf("%s ~ %s", w.tuple(r.Community), kind(r.Community)))
	}
	if len(r.ASPath) > 0 {
		conditions = append(conditions, fmt.Sprintf("bgp_path ~ [= %s * =]", strings.Trim(fmt.Sprint(r.ASPath), "[]")))
	}
	does := "reject;"
	switch {
	case r.Continue:
		does = w.add(r.Add)
	case r.Accept:
		does = w.add(r.Add)
		for _, as := range slices.Backward(r.Prepend) {
			does += fmt.Sprintf(" bgp_path.prepend(%d);", as)
		}
		if r.SetPriority != 0 {
			does += fmt.Sprintf(" bgp_local_pref = %d;", plan.LocalPref(r.SetPriority))
		}
		does = strings.TrimSpace(does + " accept;")
	}
	if len(conditions) == 0 {
		w.line("      %s # %s", does, comment(r.Name))
		return
	}
	w.line("      if %s then { %s } # %s", strings.Join(conditions, " && "), does, comment(r.Name))
}
