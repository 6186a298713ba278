package iptables

import (
	"crypto/sha256"
	"fmt"
	"net/netip"

	"github.com/twillnet/twill/internal/dataplane/desired"
	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
)

// mapChains are the chains that render maps: a rule for each interface.
var mapChains = [...]string{desired.Receives: "tw-receives", desired.Sends: "tw-sends", desired.ReceivesWithin: "tw-receives-within", desired.SendsWithin: "tw-sends-within", desired.Sources: "tw-sources"}

// linkKind is a kind of interface in conditions of guards.
type linkKind struct {
	kind desired.CondKind
	side rules.Side
}

// chain goes to found for each interface of the kind. Neither iptables nor ipset has a set of interface names.
func (k linkKind) chain() string {
	name := "tw-open-"
	if k.kind == desired.OfClosed {
		name = "tw-closed-"
	}
	return name + sideWord(k.side)
}

// neutral renders a chain of either kind.
func (w *writer) neutral(name string, c desired.Chain) error {
	if c.Guards == nil {
		return w.chain(name, c.Comment, c.Rules)
	}
	for i, g := range c.Guards {
		if err := w.guard(name, g); err != nil {
			return fmt.Errorf("guard %d, %q: %w", i, g.Comment, err)
		}
	}
	return nil
}

// guard adds the rules of one guard: none, if no packet of the family can match it.
func (w *writer) guard(chain string, g desired.Guard) error {
	r, ok := rules.Rule{Terms: g.Terms}.ForFamily(w.Family)
	if !ok {
		return nil
	}
	c, err := conjoin(r.Terms, w.Family, w.Marks)
	if err != nil || c.never {
		return err
	}
	for _, x := range g.If {
		if err := w.condition(&c, x); err != nil {
			return err
		}
	}
	if c.never {
		return nil
	}
	limits(&c, g)
	target, err := w.step(g)
	if err != nil {
		return err
	}
	if g.Do == desired.Deliver {
		mark := fmt.Sprintf("-j CONNMARK --set-xmark %#x/%#x", kernel.ConntrackFloating, kernel.ConntrackFloating)
		if err := w.matched(appender{w: w, chain: chain, comment: comment(g.Comment)}, c, mark, false); err != nil {
			return err
		}
	}
	calls := g.Do == desired.Call || g.Do == desired.Dispatch
	ends := !calls && g.Do != desired.Mark && g.Do != desired.Unmark
	if err := w.matched(appender{w: w, chain: chain, comment: comment(g.Comment)}, c, target, ends); err != nil {
		return err
	}
	if calls && w.Table != NAT { // a packet that the chain passed has passed the stage
		appender{w: w, chain: chain}.add(line{rest: []string{matchMark(w.Marks, kernel.MarkAllowed, kernel.MarkAllowed)}}, "-j RETURN")
	}
	return nil
}

// limits adds the match of what is beyond a limit. The name of a rate is that of its table in the kernel (/proc/net/ipt_hashlimit), of at most 15 bytes
// in all versions of xt_hashlimit.
func limits(c *conjunction, g desired.Guard) {
	switch g.Do {
	case desired.LimitPackets:
		name := sha256.Sum256([]byte(g.By.Endpoint.String() + g.By.Rule.Direction.String()))
		c.ask("-m hashlimit --hashlimit-above %d/second --hashlimit-burst %d --hashlimit-name tw-%x", g.Most, g.Burst, name[:6])
	case desired.LimitConnections:
		c.ask("-m connlimit --connlimit-above %d --connlimit-mask 0", g.Most)
	}
}

// step returns the target of a guard.
func (w *writer) step(g desired.Guard) (string, error) {
	switch g.Do {
	case desired.Drop:
		return w.reported(g.By, w.deny()), nil
	case desired.LimitPackets:
		return w.reported(g.By, "-j DROP"), nil
	case desired.LimitConnections:
		return w.reported(g.By, "-j REJECT --reject-with tcp-reset"), nil
	case desired.Refuse:
		if w.Table != Filter {
			return "", fmt.Errorf("table %s: only filter can reject", w.Table)
		}
		return w.reported(g.By, "-j REJECT"), nil // with the kernel's default: port unreachable
	case desired.Pass, desired.Skip: // ACCEPT would skip the later stages of the hook
		return w.answer(allow), nil
	case desired.Call:
		return "-j " + ChainName(g.Target), nil
	case desired.Goto:
		return "-g " + ChainName(g.Target), nil
	case desired.Return:
		return "-j RETURN", nil
	case desired.Dispatch:
		w.maps[g.Map] = true
		return "-j " + mapChains[g.Map], nil
	case desired.Translate:
		return translation(g.Source)
	case desired.Deliver:
		return "-j DNAT --to-destination " + g.To.String(), nil
	case desired.Unmark:
		return setMark(w.Marks, 0, kernel.MarkUntracked|kernel.MarkHostPassed), nil
	case desired.Mark:
		return fmt.Sprintf("-j DSCP --set-dscp %d", g.DSCP), nil
	case desired.Hand:
		return "-j DNAT --to-destination " + netip.AddrPortFrom(g.To, g.Port).String(), nil
	case desired.Untrack:
		if w.Table != Raw {
			return "", fmt.Errorf("table %s: only raw is before conntrack", w.Table)
		}
		return w.answer(unseen), nil
	}
	return "", fmt.Errorf("step %d has no form in iptables", g.Do)
}

// translation returns the target of source NAT.
func translation(s desired.Source) (string, error) {
	random, ports := "", ""
	if s.Random {
		random = " --random-fully"
	}
	if s.Ports != (intent.PortRange{}) {
		ports = fmt.Sprintf("%d-%d", s.Ports.Min, s.Ports.Max)
	}
	if !s.Addr.IsValid() {
		if ports == "" {
			return "-j MASQUERADE" + random, nil
		}
		return "-j MASQUERADE --to-ports " + ports + random, nil
	}
	to := s.Addr.String()
	switch {
	case ports == "":
	case s.Addr.Is4():
		to += ":" + ports
	default:
		to = netip.AddrPortFrom(s.Addr, 0).String()
		to = to[:len(to)-1] + ports
	}
	return "-j SNAT --to-source " + to + random, nil
}

// condition adds a condition of a guard.
func (w *writer) condition(c *conjunction, x desired.Cond) error {
	one := func(l line) { // a match without a negation of its own
		if x.Not {
			c.blocks = append(c.blocks, block{none: true, lines: []line{l}})
			return
		}
		c.line.rest = append(c.line.rest, l.rest...)
	}
	switch x.Kind {
	case desired.OnLink:
		text, never, err := onLink(x.Link, x.Side)
		switch {
		case err != nil:
			return err
		case never:
			c.never = c.never || !x.Not
		default:
			c.ask("%s%s", not(x.Not), text)
		}
	case desired.OfWorkload, desired.OfClosed:
		k := linkKind{x.Kind, x.Side}
		w.kinds[k] = true
		c.blocks = append(c.blocks, block{none: x.Not, call: k.chain()})
	case desired.Established:
		c.ask("-m conntrack %s--ctstate ESTABLISHED,RELATED", not(x.Not))
	case desired.Beginning:
		c.ask("-m conntrack %s--ctstate NEW", not(x.Not))
	case desired.Invalid:
		c.ask("-m conntrack %s--ctstate INVALID", not(x.Not))
	case desired.Revoked:
		c.ask("-m connmark %s--mark %#x/%#x", not(x.Not), kernel.ConntrackRevoked, kernel.ConntrackRevoked)
	case desired.AllowedEarly:
		c.mark(kernel.MarkHostPassed, x.Not)
	case desired.Untracked:
		c.mark(kernel.MarkUntracked, x.Not)
	case desired.Routed:
		one(line{rest: []string{"-m rpfilter"}})
	case desired.Forwarded:
		// What a process of the host sends has a socket, whatever its source is. The incoming interface is not used: the match
		// for any interface also matches none.
		one(line{rest: []string{"-m addrtype ! --src-type LOCAL", "-m owner ! --socket-exists"}})
	case desired.OtherSource:
		one(line{rest: []string{"-m addrtype --src-type LOCAL", "-m addrtype ! --src-type LOCAL --limit-iface-out"}})
	case desired.Translated:
		c.ask("-m conntrack %s--ctstate DNAT", not(x.Not))
	case desired.ICMPTypes:
		c.blocks = append(c.blocks, w.icmpTypes(x))
	default:
		return fmt.Errorf("condition %d has no form in iptables", x.Kind)
	}
	return nil
}

// icmpTypes returns a line for each type.
func (w *writer) icmpTypes(x desired.Cond) block {
	b := block{none: x.Not}
	for _, r := range x.Types {
		for t := int(r[0]); t <= int(r[1]); t++ {
			b.lines = append(b.lines, line{proto: protocol(icmpOf(w.Family)), rest: []string{fmt.Sprintf("-m %s %d", icmpMatch[w.Family], t)}})
		}
	}
	return b
}
