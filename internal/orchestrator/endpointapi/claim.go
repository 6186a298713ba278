package endpointapi

import (
	"errors"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/api/endpointpb"
)

// claim is an interface that has an endpoint of a plugin, or is about to.
type claim struct {
	task
	plugin string // its name: the connection may be gone
	conn   Conn   // over which it was last named
	link   string
	want   *api.WorkloadEndpoint // nil: it is taken back
	key    string                // of want
	keys   map[string]bool       // which may be in the datastore
}

// task is something that is being made what it should be, and is tried again until it is.
type task struct {
	state    State
	reason   string
	since    time.Time
	version  uint64 // of what it should be
	job      *Job   // that is under way
	canceled bool   // it was told to end
	dirty    bool   // something is to be done
	tries    int
	retry    time.Time
}

// State is what has become of an interface.
type State string

// States.
const (
	Asked       State = "asked"       // plugins were asked whose it is
	Nobody      State = "nobody's"    // none has said that it is its own
	Awaited     State = "awaited"     // it was handed over before it is there
	Working     State = "working"     // its endpoint is being written and brought into force
	Provisioned State = "provisioned" // policy and routes are in the kernel
	Failed      State = "failed"      // they are not
	Leaving     State = "leaving"     // its endpoint, or the group, is being deleted
	InForce     State = "in force"    // the group is in the kernel
)

func (c *Core) newClaim(now time.Time, plugin, name, key string, w *api.WorkloadEndpoint) *claim {
	cl := &claim{plugin: plugin, link: name, keys: map[string]bool{}}
	for k := range c.on[name] {
		cl.keys[k] = c.stored[k].plugin == plugin
	}
	c.claims[name] = cl
	cl.become(now, key, w)
	return cl
}

// become gives the claim an endpoint.
func (cl *claim) become(now time.Time, key string, w *api.WorkloadEndpoint) {
	cl.want, cl.key = w, key
	cl.task.become(now, Working, "")
}

// leave has the endpoint taken back.
func (cl *claim) leave(now time.Time, why string) {
	if cl.want == nil {
		return
	}
	cl.want, cl.key = nil, ""
	cl.task.become(now, Leaving, why)
}

// again has the task worked on, from now on.
func (t *task) again(now time.Time) {
	t.version++
	t.dirty, t.tries, t.retry = true, 0, now
}

// become has the task begin anew.
func (t *task) become(now time.Time, state State, reason string) {
	t.state, t.reason, t.since = state, reason, now
	t.again(now)
}

// begin notes that a job was begun.
func (t *task) begin(j *Job) { t.job, t.canceled, t.dirty = j, false, false }

// outdated returns, once, a job that is under way and brings what is not wanted any more; nil: there is none.
func (t *task) outdated() *Job {
	if t.job == nil || t.job.Number == t.version || t.canceled {
		return nil
	}
	t.canceled = true
	return t.job
}

// succeeded notes that it is what it should be.
func (t *task) succeeded(now time.Time, state State) {
	t.dirty, t.tries = false, 0
	t.state, t.reason, t.since = state, "", now
}

// failed has a job tried again, and reports whether that is news. What is waited for is waited for without a break; that the agent is not ready is
// news only if it lasts.
func (t *task) failed(now time.Time, err error) (news bool) {
	_, later := errors.AsType[errLater](err)
	_, waits := errors.AsType[errNotYet](err)
	if t.dirty, t.retry = true, now; !waits {
		t.retry = now.Add(backOff(t.tries))
		t.tries++
	}
	news = t.state != Failed || t.reason != err.Error()
	t.reason = err.Error()
	return news && (!later || now.Sub(t.since) >= inForceWait)
}

func (cl *claim) name() string {
	if cl.want == nil {
		return ""
	}
	return cl.want.Metadata.Namespace + "/" + cl.want.Metadata.Name
}

// take gives an interface an endpoint that was judged.
func (c *Core) take(now time.Time, p *plugin, name string, w *api.WorkloadEndpoint) {
	key, _ := api.Key(w) // judge has seen it
	if l := c.links[name]; l != nil {
		l.refused, l.open = "", false
	}
	cl := c.claims[name]
	switch {
	case cl == nil:
		cl = c.newClaim(now, p.name, name, key, w)
	case cl.want != nil && same(cl.want, w):
		c.tell(cl)
	default:
		cl.become(now, key, w)
	}
	cl.conn = p.conn
}

// tell tells its plugin how the claim is.
func (c *Core) tell(cl *claim) {
	p := c.named(cl.plugin)
	if p == nil {
		return
	}
	switch cl.state {
	case Provisioned:
		c.event(p.conn, &endpointpb.Event{Kind: endpointpb.Event_PROVISIONED, Interface: cl.link, Endpoint: cl.name(), Reason: c.missing(cl)})
	case Failed:
		c.fail(p.conn, cl.link, cl.name(), cl.reason)
	}
}

// Done takes over how a job ended.
func (c *Core) Done(now time.Time, j *Job, err error) {
	if j.Group != "" {
		c.doneGroup(now, j, err)
		return
	}
	cl := c.claims[j.Link]
	if cl == nil || cl.job != j {
		return
	}
	cl.job = nil
	if err == nil {
		for _, k := range j.Remove {
			delete(cl.keys, k)
		}
	}
	switch {
	case cl.version != j.Number: // something else is wanted by now
	case err != nil:
		if cl.failed(now, err) && cl.want != nil {
			cl.state, cl.since = Failed, now
			c.tell(cl)
		}
	case cl.want == nil:
		delete(c.claims, cl.link)
		if p := c.named(cl.plugin); p != nil {
			p.forget(cl.link)
			c.event(p.conn, &endpointpb.Event{Kind: endpointpb.Event_GONE, Interface: cl.link, Reason: cl.reason})
		}
	default:
		cl.succeeded(now, Provisioned)
		c.tell(cl)
	}
}

// backOff is how long to wait after a number of tries.
func backOff(tries int) time.Duration {
	return min(lastBackOff, firstBackOff<<min(tries, 10))
}
