package revoke

import (
	"time"

	"github.com/twillnet/twill/internal/kernel/conntrack"
)

// restore restores what policy allows again, at once: of the flows that were revoked before their workload came into force, and of those of whom changes
// concern. They are known, and the table is not read; each is found as it is now, since another flow may have begun likewise.
func (d *Driver) restore() {
	began := time.Now()
	if !d.ready || len(d.returned) == 0 && (!d.news.some() || began.Before(d.times.look)) {
		return
	}
	if len(d.cuts.flows) > 0 {
		d.index.users(d.news.policies, d.news.addrs)
	}
	known := d.cuts.at(d.news.addrs)
	d.news.clear()
	if len(d.returned)+len(known) == 0 {
		return
	}
	p := d.lookAt(known)
	d.returned = nil
	if p.Err != nil {
		d.cfg.Log.Error("flows that policy may allow again wait for the next reading of all", "err", p.Err)
		d.hurry()
	}
	d.log(p)
	d.times.look = time.Now().Add(min((lookShare-1)*time.Since(began), maxRest))
}

// lookAt judges the flows that returned, and those of some that are known to be cut. What policy still denies of the latter, as far as is known, the
// kernel is not asked for.
func (d *Driver) lookAt(known []conntrack.Tuple) (p Pass) {
	if p.Err = d.locate(); p.Err != nil {
		return p
	}
	asked, tuples := d.returned, make([]conntrack.Tuple, 0, len(d.returned))
	d.judge(func() {
		for _, t := range known {
			if f := d.cuts.flows[t].Flow; d.on && d.denied(f) {
				d.cuts.add(f, d.addrs)
			} else {
				asked = append(asked, f)
			}
		}
	})
	for _, f := range asked {
		tuples = append(tuples, f.Original)
	}
	found, err := d.cfg.Table.Find(asked)
	if p.Err = err; err != nil {
		return p
	}
	r := d.read(&reading{all: true, watch: &look{}}, func(each func(conntrack.Flow)) error {
		for _, f := range found {
			each(f)
		}
		return nil
	})
	d.revoked = d.revoked || r.revoked
	if d.write(&p, r); p.Err == nil {
		d.cuts.replace(tuples, r.cuts)
	}
	return p
}
