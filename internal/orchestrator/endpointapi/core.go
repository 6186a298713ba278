package endpointapi

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/api/endpointpb"
	"github.com/twillnet/twill/internal/ifmon"
)

// Bounds. Who exceeds one is told so, and costs others nothing.
const (
	MaxPlugins   = 16
	maxAsked     = 64   // questions to a plugin that it has not answered yet
	maxClaims    = 4096 // interfaces that have an endpoint of a plugin
	askWait      = 10 * time.Second
	firstBackOff = time.Second
	lastBackOff  = time.Minute
)

// Conn is a plugin's connection.
type Conn uint64

// Core decides which interfaces plugins are asked about, and what comes of what they say. Its methods take over what has happened; Step says
// what is to be done. One goroutine uses it.
type Core struct {
	node, version string
	prefixes      []string // of names of workloads' interfaces
	linked        bool     // all links are known
	synced        bool     // all that the datastore has is known
	adopted       bool
	links         map[string]*link
	own           map[string][]netip.Addr // the host's addresses, by link
	plugins       map[Conn]*plugin
	claims        map[string]*claim          // by interface
	stored        map[string]stored          // this node's endpoints in the datastore, by key
	on            map[string]map[string]bool // keys of these, by interface
	groups        map[string]*group          // that plugins of this host have announced, by their policies' keys
	policies      map[string]storedGroup     // groups in the datastore, of whichever host
	stale         map[groupID]bool           // of which the members are others by now, or that are announced by now, or not any more
	numbers       uint64
	known         bool // a plugin has registered, now or before the agent started
	out           []Action
}

// link is an interface that may be a workload's.
type link struct {
	Interface
	since, next time.Time // when it appeared; when plugins are asked again
	open        bool      // they are being asked
	tries       int
	refused     string // why the last answer of a plugin that called it its own was refused
}

// Interface is what plugins are told of an interface.
type Interface struct {
	Name  string
	Index int
	MAC   string
	Alias string
}

// plugin is a connection that has registered.
type plugin struct {
	conn               Conn
	name, orchestrator string
	since              time.Time
	asked              map[uint64]*question
	about              map[string]*question // by interface
	waits              int                  // questions that it has not answered yet
	announced          *announcement        // of groups, that is not complete yet
}

// set sets what is known of an answer.
func (p *plugin) set(q *question, to answer) {
	if q.state == waiting {
		p.waits--
	}
	if q.state = to; to == waiting {
		p.waits++
	}
}

// forget forgets a question.
func (p *plugin) forget(name string) {
	if q := p.about[name]; q != nil {
		p.set(q, notMine)
		delete(p.asked, q.number)
		delete(p.about, name)
	}
}

// question is one to a plugin, about one interface as long as that is there.
type question struct {
	number    uint64
	link      string
	state     answer
	expires   time.Time
	mine      *api.WorkloadEndpoint // what it answered
	confirmed bool                  // it asks about what the plugin has already
}

type answer int

const (
	due answer = iota // to be asked
	waiting
	silent // no answer in time
	notMine
	mine
)

// stored is an endpoint of this node in the datastore.
type stored struct {
	resource *api.WorkloadEndpoint
	link     string
	plugin   string // that wrote it; empty: somebody else did
	addrs    []netip.Addr
}

// New returns a Core of a node. Version is the agent's, for plugins.
func New(node, version string) *Core {
	return &Core{
		node: node, version: version, links: map[string]*link{}, own: map[string][]netip.Addr{},
		plugins: map[Conn]*plugin{}, claims: map[string]*claim{}, stored: map[string]stored{}, on: map[string]map[string]bool{},
		groups: map[string]*group{}, policies: map[string]storedGroup{}, stale: map[groupID]bool{},
	}
}

// Action is something to be done: one of its fields is set.
type Action struct {
	Send   *Send
	Close  *Close
	Job    *Job
	Cancel *Job // what it would bring is not wanted any more
}

// Send is a message to a plugin.
type Send struct {
	To  Conn
	Say *endpointpb.FromAgent
}

// Close ends a connection.
type Close struct {
	Conn   Conn
	Reason string
}

// Job has an interface's endpoint, or a group, made what it should be; its end is told to [Core.Done].
type Job struct {
	Link   string
	Number uint64
	Plugin string
	Want   *api.WorkloadEndpoint // to be written, and in force; nil: none
	Remove []string              // keys of those to be deleted first

	Group  string             // the key of a group's policy; empty: the job is an interface's
	Policy *api.NetworkPolicy // to be written, and in force; nil: it is to be deleted
	Fresh  bool               // it may replace what another node's agent wrote for the plugin, and be written where nothing is
	Node   string             // whose agent wrote what is to be deleted, or, unless it is fresh, to be replaced
}

// Configure takes over what names of workloads' interfaces begin with, and reports whether that has changed.
func (c *Core) Configure(prefixes []string) bool {
	changed := !slices.Equal(c.prefixes, prefixes)
	c.prefixes = prefixes
	return changed
}

// likely reports whether an interface may be a workload's (decision 018).
func (c *Core) likely(name string) bool {
	return slices.ContainsFunc(c.prefixes, func(p string) bool { return p != "" && strings.HasPrefix(name, p) })
}

// Links takes over what has become of interfaces; the first call has all.
func (c *Core) Links(now time.Time, changes []ifmon.Change) {
	c.linked = true
	for _, ch := range changes {
		was := c.links[ch.Name]
		if was != nil && (ch.Gone || was.Index != ch.Index) {
			c.lost(now, was)
		}
		delete(c.own, ch.Name)
		if ch.Gone {
			continue
		}
		if as := ch.Addresses(); len(as) > 0 {
			c.own[ch.Name] = as
		}
		if l := c.links[ch.Name]; l != nil {
			if l.MAC != ch.MAC || l.Alias != ch.Alias { // by which plugins know it
				l.next, l.tries = now, 0
			}
			l.MAC, l.Alias = ch.MAC, ch.Alias
		} else {
			c.links[ch.Name] = &link{Interface: Interface{ch.Name, ch.Index, ch.MAC, ch.Alias}, since: now, next: now}
		}
	}
}

// lost forgets an interface that is gone, and takes back its endpoint.
func (c *Core) lost(now time.Time, l *link) {
	delete(c.links, l.Name)
	for _, p := range c.plugins {
		p.forget(l.Name)
	}
	if cl := c.claims[l.Name]; cl != nil {
		cl.leave(now, "the interface is gone")
	}
}

// Stored takes over what the datastore has: updates of any keys, and whether all is known now. It reports whether that concerns plugins.
func (c *Core) Stored(now time.Time, us []api.Update, inSync bool) (news bool) {
	for _, u := range us {
		if c.storedPolicy(now, u) {
			news = true
			continue
		}
		s, is := c.read(u)
		if !is {
			continue
		}
		news = true
		was := c.stored[u.Key]
		if delete(c.on[was.link], u.Key); len(c.on[was.link]) == 0 {
			delete(c.on, was.link)
		}
		delete(c.stored, u.Key)
		if s.resource != nil {
			c.stored[u.Key] = s
			if c.on[s.link] == nil {
				c.on[s.link] = map[string]bool{}
			}
			c.on[s.link][u.Key] = true
		}
		for _, cl := range c.claims {
			if cl.key == u.Key && cl.want != nil && s.plugin != cl.plugin {
				cl.again(now) // somebody has deleted or replaced it
			}
		}
	}
	news = news || inSync && !c.synced
	c.synced = c.synced || inSync
	return news
}

// read returns an endpoint of this node; false: it is none, of this version.
func (c *Core) read(u api.Update) (stored, bool) {
	rest, ok := strings.CutPrefix(u.Key, api.KeyPrefix(api.KindWorkloadEndpoint, ""))
	if !ok {
		return stored{}, false
	}
	_, name, _ := strings.Cut(rest, "/")
	if parts, ok := api.ParseWorkloadEndpointName(name); !ok || parts.Node != c.node {
		return stored{}, false
	}
	if u.Value == nil {
		return stored{}, true
	}
	st, err := api.DecodeStored(u)
	w, ok := st.Resource.(*api.WorkloadEndpoint)
	if err != nil || !ok {
		return stored{resource: &api.WorkloadEndpoint{}}, true // that cannot be read: its name is taken
	}
	return stored{w, w.Spec.InterfaceName, w.Metadata.Annotations[annotationPlugin], addrsOf(w)}, true
}

// adopt takes over, once at the start, the endpoints that plugins had the agent write before.
func (c *Core) adopt(now time.Time) {
	c.adopted = true
	for _, key := range slices.Sorted(maps.Keys(c.stored)) {
		s := c.stored[key]
		if s.plugin == "" || !c.likely(s.link) || c.claims[s.link] != nil {
			continue
		}
		c.known = true
		cl := c.newClaim(now, s.plugin, s.link, key, s.resource)
		cl.keys[key] = true
		if c.links[s.link] == nil {
			cl.leave(now, "the interface is gone")
		}
	}
	c.adoptGroups(now)
}

// Register takes over that a plugin has registered. An error ends its connection.
func (c *Core) Register(now time.Time, conn Conn, r *endpointpb.Register) error {
	if err := checkRegister(r); err != nil {
		return err
	}
	if c.plugins[conn] != nil {
		return errors.New("it has registered before")
	}
	for _, p := range c.plugins {
		if p.name == r.GetName() {
			delete(c.plugins, p.conn)
			c.out = append(c.out, Action{Close: &Close{p.conn, "a plugin of the same name has registered"}})
		}
	}
	c.known = true
	c.plugins[conn] = &plugin{conn: conn, name: r.GetName(), orchestrator: r.GetOrchestrator(), since: now, asked: map[uint64]*question{}, about: map[string]*question{}}
	c.send(conn, &endpointpb.FromAgent{Say: &endpointpb.FromAgent_Registered{Registered: &endpointpb.Registered{Node: c.node, Version: c.version, Prefixes: c.prefixes}}})
	for _, l := range c.links {
		l.next, l.tries = now, 0
	}
	return nil
}

// Leave takes over that a connection has ended. What the plugin has said stands.
func (c *Core) Leave(conn Conn) { delete(c.plugins, conn) }

// Take takes over what a plugin says after it has registered. An error ends its connection.
func (c *Core) Take(now time.Time, conn Conn, m *endpointpb.FromPlugin) error {
	switch say := m.GetSay().(type) {
	case *endpointpb.FromPlugin_Answer:
		c.Answer(now, conn, say.Answer)
	case *endpointpb.FromPlugin_HandOver:
		c.HandOver(now, conn, say.HandOver)
	case *endpointpb.FromPlugin_Withdraw:
		c.Withdraw(now, conn, say.Withdraw.GetInterface())
	case *endpointpb.FromPlugin_BeginGroups:
		c.BeginGroups(conn)
	case *endpointpb.FromPlugin_Announce:
		c.Announce(now, conn, say.Announce)
	case *endpointpb.FromPlugin_WithdrawGroup:
		c.WithdrawGroup(now, conn, say.WithdrawGroup)
	case *endpointpb.FromPlugin_EndGroups:
		c.EndGroups(now, conn)
	default:
		return errors.New("a message that says nothing of this version's protocol")
	}
	return nil
}

// Answer takes over an answer.
func (c *Core) Answer(now time.Time, conn Conn, a *endpointpb.Answer) {
	p := c.plugins[conn]
	if p == nil {
		return
	}
	q := p.asked[a.GetNumber()]
	if q == nil {
		c.fail(p.conn, "", "", fmt.Sprintf("there is no question %d: its interface is gone, or it was never asked", a.GetNumber()))
		return
	}
	cl := c.claims[q.link]
	has := cl != nil && cl.plugin == p.name && cl.want != nil
	if a.GetEndpoint() == nil {
		switch {
		case q.state == mine && has:
			c.fail(p.conn, q.link, cl.name(), "it was answered by mine before, which stands: withdraw it")
			return
		case q.confirmed && has:
			cl.leave(now, "the plugin says that it is not its own")
		}
		p.set(q, notMine)
		return
	}
	w, err := c.judge(p, q.link, a.GetEndpoint())
	switch {
	case err != nil:
	case q.state == mine && has && !reflect.DeepEqual(w, q.mine):
		err = errors.New("it was answered otherwise before, which stands: hand it over to change it")
	case q.state == mine && has:
		c.tell(cl)
		return
	}
	if err != nil {
		if q.state != mine {
			p.set(q, notMine)
		}
		c.refuse(p, q.link, err)
		return
	}
	p.set(q, mine)
	q.mine = w
	c.take(now, p, q.link, w)
}

// HandOver takes over what a plugin says of an interface without a question.
func (c *Core) HandOver(now time.Time, conn Conn, h *endpointpb.HandOver) {
	p := c.plugins[conn]
	if p == nil {
		return
	}
	w, err := c.judge(p, h.GetInterface(), h.GetEndpoint())
	if err != nil {
		c.refuse(p, h.GetInterface(), err)
		return
	}
	c.take(now, p, h.GetInterface(), w)
}

// Withdraw takes over that a plugin takes an endpoint back.
func (c *Core) Withdraw(now time.Time, conn Conn, name string) {
	p := c.plugins[conn]
	if p == nil {
		return
	}
	cl := c.claims[name]
	if cl == nil || cl.plugin != p.name {
		c.fail(conn, name, "", "it has no endpoint of this plugin")
		return
	}
	cl.leave(now, "withdrawn")
	if l := c.links[name]; l != nil {
		l.tries, l.next = 1, now.Add(firstBackOff)
	}
}

// refuse tells a plugin that what it said of an interface does not count.
func (c *Core) refuse(p *plugin, name string, why error) {
	if l := c.links[name]; l != nil {
		l.refused = p.name + ": " + why.Error()
	}
	has := ""
	if cl := c.claims[name]; cl != nil && cl.plugin == p.name && cl.want != nil {
		has = cl.name()
	}
	c.fail(p.conn, name, has, "refused: "+why.Error())
}

func (c *Core) send(to Conn, say *endpointpb.FromAgent) {
	c.out = append(c.out, Action{Send: &Send{to, say}})
}

func (c *Core) event(to Conn, e *endpointpb.Event) {
	c.send(to, &endpointpb.FromAgent{Say: &endpointpb.FromAgent_Event{Event: e}})
}

func (c *Core) fail(to Conn, name, endpoint, reason string) {
	c.event(to, &endpointpb.Event{Kind: endpointpb.Event_FAILED, Interface: name, Endpoint: endpoint, Reason: reason})
}

// named returns the plugin of a name; nil: it is not connected.
func (c *Core) named(name string) *plugin {
	for _, p := range c.plugins {
		if p.name == name {
			return p
		}
	}
	return nil
}

// byName are the plugins, sorted.
func (c *Core) byName() []*plugin {
	return slices.SortedFunc(maps.Values(c.plugins), func(a, b *plugin) int { return cmp.Compare(a.name, b.name) })
}
