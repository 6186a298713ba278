package tunnel

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// What is in the tables of a wireguard, as indices of them: routes to other hosts' workloads, and to their own addresses.
const (
	toWorkloads = iota
	toHosts
)

// Rules of a wireguard, by how much larger than the settings' priority theirs is: into the table of workloads; past that of hosts, for what is not
// encrypted; into that of hosts; and where those that went past it go on. What is for workloads has left before any of the others is asked.
const (
	skipPriority  = 1
	hostsPriority = 2
	landPriority  = 3
	lastPriority  = 32765 - landPriority // table main's rule has 32766
)

// priority is that of the first rule.
func (w *wireguard) priority() int {
	if w.hosted() {
		return min(w.as.Priority, lastPriority)
	}
	return w.as.Priority
}

// hosted reports whether what is for other hosts' own addresses goes through the device.
func (w *wireguard) hosted() bool { return w.as.Hosts[w.family] }

// rule leads packets into a table, but for those that a device of WireGuard sends.
func (w *wireguard) rule(of int) rtnl.MarkRule {
	return rtnl.MarkRule{Six: w.six, Priority: w.priority() + []int{toWorkloads: 0, toHosts: hostsPriority}[of], Table: w.tables[of], Mark: w.mark}
}

// wants reports whether a rule is one that should be there.
func (w *wireguard) wants(r rtnl.MarkRule) bool {
	return r == w.rule(toWorkloads) || w.hosted() && r == w.rule(toHosts)
}

// desireSkips works out which rules lead past the table of hosts: for what must not need a key, and for what is bound to an interface that leads to
// other hosts, as the kernel is that looks for the gateway of a route.
func (w *wireguard) desireSkips(uplinks map[string]bool) {
	var old []rtnl.SkipRule
	for r := range w.skips.All() {
		old = append(old, r)
	}
	for _, r := range old {
		w.skips.Undesire(r)
	}
	if !w.on || !w.hosted() {
		return
	}
	at := w.priority()
	w.skips.Desire(rtnl.SkipRule{Six: w.six, Priority: at + landPriority}, true)
	for link := range uplinks {
		w.skips.Desire(rtnl.SkipRule{Six: w.six, Priority: at + skipPriority, Target: at + landPriority, Out: link}, true)
	}
	for _, f := range w.as.InClear {
		if f.Net.IsValid() && f.Net.Addr().Is6() != w.six {
			continue
		}
		for _, answer := range []bool{false, true} {
			r := rtnl.SkipRule{Six: w.six, Priority: at + skipPriority, Target: at + landPriority, Protocol: f.Protocol, Port: f.Port, Answer: answer}
			r.Forward = f == intent.Failsafe{Protocol: udp, Port: w.as.Port[w.family]} // so that the way back of all of these is found by their ports
			if f.Net.IsValid() && f.Net.Bits() > 0 {
				r.To = f.Net.Masked()
			}
			w.skips.Desire(r, true)
		}
	}
}

const udp = 17 // IANA

// defaultTables are upstream's.
var defaultTables = []intent.TableRange{{Min: 1, Max: 250}}

// ranges are those of the settings.
func (w *wireguard) ranges() []intent.TableRange {
	if len(w.as.Tables) == 0 {
		return defaultTables
	}
	return w.as.Tables
}

// may reports whether settings let a table be ours. The kernel's own never are.
func (w *wireguard) may(table int) bool {
	const first, last = 253, 255 // default, main, local
	return (table < first || table > last) && slices.ContainsFunc(w.ranges(), func(r intent.TableRange) bool { return r.Min <= table && table <= r.Max })
}

// readTables reads the rules and the tables of routes, which it chooses if none of our rules leads to one that may be ours.
func (d *Driver) readTables(w *wireguard) error {
	w.desireSkips(d.mtu.counted)
	rules, others, err := d.rtnl.MarkRules(kernel.RouteProtocolHosts)
	if err != nil {
		return err
	}
	slices.SortStableFunc(rules, func(a, b rtnl.MarkRule) int { return cmp.Compare(a.Priority, b.Priority) })
	for _, r := range rules { // the table of workloads is asked first
		if r.Six != w.six || !w.may(r.Table) || slices.Contains(w.tables[:], r.Table) {
			continue
		}
		if i := slices.Index(w.tables[:], 0); i >= 0 {
			w.tables[i] = r.Table
		}
	}
	for of := range w.tables {
		if w.tables[of] == 0 && (of == toWorkloads || w.hosted()) {
			if w.tables[of], err = d.freeTable(w, others); err != nil {
				return err
			}
		}
	}
	w.ruled, w.stray = [2]bool{}, false
	for _, r := range rules {
		if r.Six == w.six {
			w.ruled[toWorkloads] = w.ruled[toWorkloads] || r == w.rule(toWorkloads)
			w.ruled[toHosts] = w.ruled[toHosts] || r == w.rule(toHosts)
			w.stray = w.stray || !w.wants(r)
		}
	}
	skips, err := d.rtnl.SkipRules(kernel.RouteProtocolHosts)
	if err != nil {
		return err
	}
	w.skips.ObservedAll(func(yield func(rtnl.SkipRule, bool) bool) {
		for _, r := range skips {
			if r.Six == w.six && !yield(r, true) {
				return
			}
		}
	})
	return d.readRoutes(w)
}

// freeTable is the first that nobody else has.
func (d *Driver) freeTable(w *wireguard, others map[int]bool) (int, error) {
	for _, r := range w.ranges() {
		for t := r.Min; t <= r.Max; t++ {
			if !w.may(t) || others[t] || slices.Contains(w.tables[:], t) {
				continue
			}
			all, err := d.rtnl.Routes(rtnl.RouteFilter{Table: t})
			if err != nil {
				return 0, err
			}
			if !slices.ContainsFunc(all, func(r rtnl.Route) bool { return r.Protocol != kernel.RouteProtocolHosts }) {
				return t, nil
			}
		}
	}
	return 0, fmt.Errorf("tables %v all have routes or rules of others: none is left for WireGuard; give it others by routeTableRanges", w.ranges())
}

func (d *Driver) readRoutes(w *wireguard) error {
	var all [2][]rtnl.Route
	for of, table := range w.tables {
		if table == 0 {
			continue
		}
		var err error
		if all[of], err = d.rtnl.Routes(rtnl.RouteFilter{Table: table, Protocol: kernel.RouteProtocolHosts}); err != nil {
			return err
		}
	}
	w.routes.ObservedAll(func(yield func(routeKey, rtnl.Route) bool) {
		for of := range all {
			for _, r := range all[of] {
				if r.Dst.Addr().Is6() == w.six && !yield(routeKey{r.Dst, r.Metric, of}, r) {
					return
				}
			}
		}
	})
	return nil
}

// tellRules makes the rules, and then removes others of ours.
func (d *Driver) tellRules(w *wireguard) error {
	for r := range w.skips.PendingUpdates() {
		if err := d.rtnl.AddSkipRule(r, kernel.RouteProtocolHosts); err != nil && !errors.Is(err, rtnl.ErrExists) {
			return err
		}
		w.skips.MarkApplied(r)
	}
	for of := range w.tables {
		if w.ruled[of] || of == toHosts && !w.hosted() {
			continue
		}
		if err := d.rtnl.AddMarkRule(w.rule(of), kernel.RouteProtocolHosts); err != nil && !errors.Is(err, rtnl.ErrExists) {
			return err
		}
		w.ruled[of], w.stray = true, true
	}
	if err := d.leaveStray(w); err != nil {
		return err
	}
	for r := range w.skips.PendingDeletes() {
		if !d.inSync {
			break
		}
		if err := ignoring(d.rtnl.DeleteSkipRule(r, kernel.RouteProtocolHosts)); err != nil {
			return err
		}
		w.skips.MarkDeleted(r)
	}
	return nil
}

// leaveStray removes our rules that are not wanted, if there may be some: not before it is known which are.
func (d *Driver) leaveStray(w *wireguard) error {
	if !w.stray || !d.inSync {
		return nil
	}
	err := d.leaveRules(w, true)
	w.stray = err != nil
	if !w.hosted() {
		w.ruled[toHosts] = false
	}
	return err
}

// leaveRules removes our rules of the family, but for those that are wanted, if these are to stay; and the routes of tables that are none of ours any more.
func (d *Driver) leaveRules(w *wireguard, but bool) error {
	rules, _, err := d.rtnl.MarkRules(kernel.RouteProtocolHosts)
	errs := []error{err}
	for _, r := range rules {
		if r.Six != w.six || but && w.wants(r) {
			continue
		}
		errs = append(errs, ignoring(d.rtnl.DeleteMarkRule(r, kernel.RouteProtocolHosts)))
		if !slices.Contains(w.tables[:], r.Table) {
			errs = append(errs, d.wipe(w, r.Table))
		}
	}
	return errors.Join(errs...)
}

// leaveSkips removes our rules of the family that lead past a table.
func (d *Driver) leaveSkips(w *wireguard) error {
	rules, err := d.rtnl.SkipRules(kernel.RouteProtocolHosts)
	errs := []error{err}
	for _, r := range rules {
		if r.Six == w.six {
			errs = append(errs, ignoring(d.rtnl.DeleteSkipRule(r, kernel.RouteProtocolHosts)))
		}
	}
	w.skips.ResetActual()
	return errors.Join(errs...)
}

// wipe removes our routes of the family from a table.
func (d *Driver) wipe(w *wireguard, table int) error {
	if table == 0 {
		return nil
	}
	all, err := d.rtnl.Routes(rtnl.RouteFilter{Table: table, Protocol: kernel.RouteProtocolHosts})
	errs := []error{err}
	for _, r := range all {
		if r.Dst.Addr().Is6() == w.six {
			errs = append(errs, ignoring(d.rtnl.DeleteRoute(r)))
		}
	}
	return errors.Join(errs...)
}

// ruleLines say which rules are wrong.
func (w *wireguard) ruleLines() (out []string) {
	for of, what := range []string{toWorkloads: "routes", toHosts: "routes to hosts"} {
		if !w.ruled[of] && (of == toWorkloads || w.hosted()) {
			out = append(out, fmt.Sprintf("the rule into table %d, with the %s of %s, is missing", w.tables[of], what, w.kind()))
		}
	}
	if w.stray {
		out = append(out, fmt.Sprintf("a rule of %s is there, and nobody wants it", w.kind()))
	}
	for r := range w.skips.PendingUpdates() {
		out = append(out, fmt.Sprintf("rule %d, by which protocol %d port %d %s is not encrypted, is missing", r.Priority, r.Protocol, r.Port, r.Out))
	}
	for r := range w.skips.PendingDeletes() {
		out = append(out, fmt.Sprintf("rule %d, by which protocol %d port %d %s is not encrypted, is there, and nobody wants it", r.Priority, r.Protocol, r.Port, r.Out))
	}
	return out
}
