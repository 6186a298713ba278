// Package shape keeps workloads' bandwidth within what their endpoints say.
//
// In: workload endpoints of [intent.Batch] and interfaces of ifmon.
// Out: a token bucket (tc-tbf(8)) at the root of the host's end of a workload's interface, which holds up what the workload receives; and for what
// it sends a device (ifb) with such a bucket, to which a filter redirects all that the host's end receives; an [intent.Outcome] for each endpoint that
// has or had a limit.
//
// Ours are the buckets with our handle, the filters with our number, and the devices with our alias. Others' filters stay. What is as wanted is not
// touched: a change of numbers changes a bucket in place, with what waits in it. Nothing is removed before the source is in sync. A limit that cannot be
// made closes nothing: its outcome says why.
package shape

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// Driver is the driver.
type Driver struct {
	rtnl      *rtnl.Handle
	endpoints map[intent.EndpointID]intent.Endpoint // with limits
	news      map[intent.EndpointID]bool            // whose outcome is to be reported
	made      map[string]made                       // by interface
	inSync    bool
	check     intent.Cause // why the kernel must be read; empty: it need not
	whole     bool         // for that, also filters of interfaces without limits
	failed    bool
	repairs   []intent.Repair
	refresh   time.Duration
	settled   bool // refresh is known
}

// made is what an interface was last given.
type made struct {
	index   int
	in, out rtnl.Shaper
}

// changed is the cause of a reading after which what differs is no repair.
const changed intent.Cause = "change"

// New returns a driver for the handle's namespace.
func New(h *rtnl.Handle) *Driver {
	return &Driver{
		rtnl: h, endpoints: map[intent.EndpointID]intent.Endpoint{}, news: map[intent.EndpointID]bool{}, made: map[string]made{}, check: changed, whole: true,
	}
}

// Merge merges a batch.
func (d *Driver) Merge(b intent.Batch) {
	if b.InSync && !d.inSync {
		d.inSync, d.check, d.whole = true, changed, true
	}
	if b.Host != nil {
		d.refresh, d.settled = b.Host.Refresh.Interfaces, true
	}
	for _, e := range b.Endpoints {
		had, known := d.endpoints[e.ID]
		limited := e.ID.Kind == intent.Workload && e.Link != "" && e.QoS.Bandwidth != [2]intent.Bandwidth{}
		if !limited && !known || known && had.Link == e.Link && had.QoS.Bandwidth == e.QoS.Bandwidth {
			continue
		}
		if d.endpoints[e.ID] = e; !limited {
			delete(d.endpoints, e.ID)
		}
		d.news[e.ID], d.check = true, changed
	}
	for _, k := range b.Removed {
		if id, is := k.(intent.EndpointID); is {
			if _, known := d.endpoints[id]; known {
				d.check = changed
			}
			delete(d.endpoints, id)
			delete(d.news, id)
		}
	}
}

// Links takes interfaces that changed: one of a workload with limits may be another than before, and a device of ours may be gone.
func (d *Driver) Links(changes []ifmon.Change) {
	for _, c := range changes {
		for _, e := range d.endpoints {
			if c.Name == e.Link || c.Name == Device(e.Link) {
				d.news[e.ID] = true
				d.doubt(intent.ByEvent)
			}
		}
	}
}

// doubt has the kernel read, for a cause other than a change of what is wanted.
func (d *Driver) doubt(c intent.Cause) {
	if d.check == "" {
		d.check = c
	}
}

// Retry has what failed tried again.
func (d *Driver) Retry() {
	if d.failed {
		d.doubt(intent.ByReadBack)
	}
}

// Resync has the kernel's state read back with the next Apply: few of these changes have events that the agent listens to.
func (d *Driver) Resync(context.Context) error {
	d.doubt(intent.ByReadBack)
	d.whole = true
	return nil
}

// Refresh returns how often the settings want that; false: no settings came yet.
func (d *Driver) Refresh() (time.Duration, bool) { return d.refresh, d.settled }

// Repairs returns what was repaired since the last call.
func (d *Driver) Repairs() []intent.Repair {
	out := d.repairs
	d.repairs = nil
	return out
}

// Apply makes what is wanted.
func (d *Driver) Apply(ctx context.Context) ([]intent.Outcome, error) {
	if d.check == "" {
		return nil, nil
	}
	todo, err := d.plan()
	if err != nil {
		return nil, err
	}
	var errs []error
	failed := map[intent.EndpointID]error{}
	for _, s := range todo {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		err := s.do()
		if errors.Is(err, rtnl.ErrNotFound) && (s.link == "" || d.rtnl.Gone(s.link, s.index)) { // its event is still to come
			err = nil
		}
		switch {
		case err == nil && s.repair && d.check != changed:
			d.repairs = append(d.repairs, intent.Repair{What: s.what, Cause: d.check})
		case err != nil && s.of != (intent.EndpointID{}):
			failed[s.of] = errors.Join(failed[s.of], fmt.Errorf("bandwidth: %w", err))
			d.news[s.of] = true
			delete(d.made, s.link)
		case err != nil:
			errs = append(errs, err)
		}
	}
	d.check, d.whole, d.failed = "", false, len(failed) > 0
	var out []intent.Outcome
	for id := range d.news {
		out = append(out, intent.Outcome{Key: id, Err: failed[id]})
	}
	clear(d.news)
	for id := range failed { // reported again when it is mended
		d.news[id] = true
	}
	return out, errors.Join(errs...)
}

// Differences returns one line for each deviation of the kernel from the intents. It changes nothing.
func (d *Driver) Differences(context.Context) ([]string, error) {
	d.whole = true
	todo, err := d.plan()
	var out []string
	for _, s := range todo {
		if s.what != "" {
			out = append(out, s.what+" differs")
		}
	}
	return out, err
}
