package speaker

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// rewrite is what is to become of the routes to one destination.
type rewrite struct {
	want    rtnl.Route   // not valid: none
	have    []rtnl.Route // what is to go
	metrics [2]int       // those that want may have
	at      int          // by which of them want is added
	last    bool         // by the other one it cannot be
}

// using is the index of the route to go that has a metric; -1: none has.
func (c *rewrite) using(metric int) int {
	return slices.IndexFunc(c.have, func(r rtnl.Route) bool { return r.Metric == metric })
}

// write makes the kernel's routes to destinations the desired ones, all by a few messages, and returns why that failed for some. A route is added
// before the one in whose place it comes is deleted, under the other metric.
func (f *fib) write(dsts []netip.Prefix) map[netip.Prefix]error {
	failed := make(map[netip.Prefix]error, len(dsts))
	var add, gone []rewrite
	for _, dst := range dsts {
		c, err := f.decide(dst)
		failed[dst] = err
		switch {
		case err != nil || len(c.have) == 0 && !c.want.Dst.IsValid():
		case c.want.Dst.IsValid():
			add = append(add, c)
		default:
			gone = append(gone, c)
		}
	}
	for len(add) > 0 {
		again, done := f.add(add, failed)
		add, gone = again, append(gone, done...)
	}
	f.remove(gone, failed)
	return failed
}

// decide says what is to become of one destination.
func (f *fib) decide(dst netip.Prefix) (c rewrite, err error) {
	c.have = slices.Clone(f.actual[dst])
	want, err := f.route(dst)
	if err != nil {
		return c, err
	}
	if !want.Dst.IsValid() && f.keepStale && len(f.desired[dst].hops) == 0 {
		if want = f.withAliveHops(c.have); slices.Contains(c.have, want) {
			return rewrite{}, nil
		}
	}
	if !want.Dst.IsValid() {
		return c, nil
	}
	c.metrics = metrics(want)
	for _, want.Metric = range c.metrics {
		if i := slices.Index(c.have, want); i >= 0 {
			c.have = slices.Delete(c.have, i, i+1) // it stays
			return c, nil
		}
	}
	c.want = want
	if c.using(c.metrics[0]) >= 0 && c.using(c.metrics[1]) < 0 {
		c.at = 1
	}
	return c, nil
}

// add adds routes. It returns those that another's route kept out and that may be added by the other metric, and of the others what is to be removed.
func (f *fib) add(all []rewrite, failed map[netip.Prefix]error) (again, gone []rewrite) {
	var b rtnl.Batch
	places := make([]int, len(all))
	for i := range all {
		c := &all[i]
		c.want.Metric = c.metrics[c.at]
		if old := c.using(c.want.Metric); old >= 0 { // ours, by the only metric that is left: the new one comes in its place
			b.DeleteRoute(c.have[old])
		}
		places[i] = b.Len()
		b.AddRoute(c.want)
	}
	errs := f.rtnl.Write(&b)
	for i, c := range all {
		dst, err := c.want.Dst, errs[places[i]]
		if old := c.using(c.want.Metric); old >= 0 {
			if e := errs[places[i]-1]; e == nil || errors.Is(e, rtnl.ErrNotFound) {
				f.drop(c.have[old])
				c.have = slices.Delete(c.have, old, old+1)
			} else if err != nil {
				failed[dst] = e
				continue
			}
		}
		switch {
		case err == nil:
			f.put(c.want)
			c.want = rtnl.Route{}
			gone = append(gone, c)
		case !errors.Is(err, rtnl.ErrExists):
			failed[dst] = err
		case c.last:
			failed[dst] = fmt.Errorf("route %s: %w", dst, errForeign)
		default:
			c.at, c.last = 1-c.at, true
			again = append(again, c)
		}
	}
	return again, gone
}

// remove deletes what changes have.
func (f *fib) remove(all []rewrite, failed map[netip.Prefix]error) {
	var b rtnl.Batch
	var routes []rtnl.Route
	for _, c := range all {
		for _, r := range c.have {
			b.DeleteRoute(r)
			routes = append(routes, r)
		}
	}
	for i, err := range f.rtnl.Write(&b) {
		if r := routes[i]; err != nil && !errors.Is(err, rtnl.ErrNotFound) {
			failed[r.Dst] = err
		} else {
			f.drop(r)
		}
	}
}
