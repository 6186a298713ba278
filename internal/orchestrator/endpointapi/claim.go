package endpointapi

import (
	"errors"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/api/endpointpb"
)

// claim is an interface that has an endpoint of a plugin, or is about to.
type claim struct {
	plugin   string // its name: the connection may be gone
	conn     Conn   // over which it was last named
	link     string
	want     *api.WorkloadEndpoint // nil: it is taken back
	key      string                // of want
	keys     map[string]bool       // which may be in the datastore
	state    State
	reason   string
	since    time.Time
	version  uint64 // of want
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
	Leaving     State = "leaving"     // its endpoint is being deleted
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
	cl.want, cl.key, cl.state, cl.reason, cl.since = w, key, Working, "", now
	cl.again(now)
}

// leave has the endpoint taken back.
func (cl *claim) leave(now time.Time, why string) {
	if cl.want == nil {
		return
	}
	cl.want, cl.key, cl.state, cl.reason, cl.since = nil, "", Leaving, why, now
	cl.again(now)
}

// again has the claim worked on, from now on.
func (cl *claim) again(now time.Time) {
	cl.version++
	cl.dirty, cl.tries, cl.retry = true, 0, now
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
		c.event(p.conn, &endpointpb.Event{Kind: endpointpb.Event_PROVISIONED, Interface: cl.link, Endpoint: cl.name()})
	case Failed:
		c.fail(p.conn, cl.link, cl.name(), cl.reason)
	}
}

// Done takes over how a job ended.
func (c *Core) Done(now time.Time, j *Job, err error) {
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
		c.failed(now, cl, err)
	case cl.want == nil:
		delete(c.claims, cl.link)
		if p := c.named(cl.plugin); p != nil {
			p.forget(cl.link)
			c.event(p.conn, &endpointpb.Event{Kind: endpointpb.Event_GONE, Interface: cl.link, Reason: cl.reason})
		}
	default:
		cl.dirty, cl.tries = false, 0
		cl.state, cl.reason, cl.since = Provisioned, "", now
		c.tell(cl)
	}
}

// failed has a job tried again. What is waited for is waited for without a break; that the agent is not ready is told only if it lasts.
func (c *Core) failed(now time.Time, cl *claim, err error) {
	_, later := errors.AsType[errLater](err)
	_, waits := errors.AsType[errNotYet](err)
	if cl.dirty, cl.retry = true, now; !waits {
		cl.retry = now.Add(backOff(cl.tries))
		cl.tries++
	}
	news := cl.state != Failed || cl.reason != err.Error()
	cl.reason = err.Error()
	if news && cl.want != nil && (!later || now.Sub(cl.since) >= inForceWait) {
		cl.state, cl.since = Failed, now
		c.tell(cl)
	}
}

// backOff is how long to wait after a number of tries.
func backOff(tries int) time.Duration {
	return min(lastBackOff, firstBackOff<<min(tries, 10))
}
