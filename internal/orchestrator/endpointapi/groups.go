package endpointapi

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/api/endpointpb"
)

// group is one that a plugin of this host has announced, or that is being taken back (decision 071).
type group struct {
	task
	id      groupID
	key     string
	plugin  string
	node    string             // whose agent wrote what is to be deleted, if it is taken back
	spec    *announced         // nil: it was announced before the agent started and stands as it is stored, or it is taken back
	want    *api.NetworkPolicy // nil: it is taken back
	missing []string           // groups that its rules name, and that are not announced
	cost    cost
	// fresh says that the plugin has said so since it was written last, and so has the last word, whichever host's agent wrote what is there. Else
	// whoever deleted or wrote it since has.
	fresh bool
}

// storedGroup is a group's policy in the datastore.
type storedGroup struct {
	id           groupID
	plugin, node string // that announced it, and where; empty: it is nobody's
	policy       *api.NetworkPolicy
}

// announcement is one of all groups of a plugin that is not complete yet.
type announcement struct {
	order  []string              // keys
	groups map[string]*announced // nil: it was refused, and was there before
	use    budget
}

// forget forgets what was said of a group.
func (a *announcement) forget(key string) {
	was, is := a.groups[key]
	if !is {
		return
	}
	if was != nil {
		a.use.drop(was.id.namespace, was.cost)
	}
	delete(a.groups, key)
	a.order = slices.DeleteFunc(a.order, func(k string) bool { return k == key })
}

// put notes a group; nil: it was refused.
func (a *announcement) put(key string, g *announced) {
	a.groups[key] = g
	a.order = append(a.order, key)
}

// storedPolicy takes over what the datastore has under a key; false: it is no group's.
func (c *Core) storedPolicy(now time.Time, u api.Update) bool {
	s, is := readGroup(u)
	if !is {
		return false
	}
	was, had := c.policies[u.Key]
	delete(c.policies, u.Key)
	if u.Value != nil {
		c.policies[u.Key] = s
	}
	g := c.groups[u.Key]
	if g == nil && (had != (u.Value != nil) || had && (was.plugin != s.plugin || was.selector() != s.selector())) {
		c.stale[s.id] = true
	}
	if g == nil || g.want == nil {
		return true
	}
	if !g.fresh && !c.written(g) {
		g.again(now) // somebody has deleted, replaced or changed it
	}
	return true
}

// written reports whether the datastore has a group as this host's agent writes it, as far as is known.
func (c *Core) written(g *group) bool {
	s, is := c.policies[g.key]
	return is && s.plugin == g.plugin && s.node == c.node && samePolicy(s.policy, g.want)
}

// readGroup reads a group's policy; false: its key is no group's.
func readGroup(u api.Update) (s storedGroup, is bool) {
	rest, ok := strings.CutPrefix(u.Key, api.KeyPrefix(api.KindNetworkPolicy, ""))
	if !ok {
		return s, false
	}
	namespace, name, _ := strings.Cut(rest, "/")
	if name, ok = strings.CutPrefix(name, groupPrefix); !ok {
		return s, false
	}
	orchestrator, name, _ := strings.Cut(name, ".")
	s.id, s.policy = groupID{namespace, orchestrator, name}, &api.NetworkPolicy{}
	if u.Value == nil {
		return s, true
	}
	st, err := api.DecodeStored(u)
	if p, ok := st.Resource.(*api.NetworkPolicy); ok && err == nil { // else its name is taken
		s.policy, s.plugin, s.node = p, p.Metadata.Annotations[annotationPlugin], p.Metadata.Annotations[annotationNode]
	}
	return s, true
}

// adoptGroups takes over, once at the start, what plugins of this host announced before.
func (c *Core) adoptGroups(now time.Time) {
	for _, key := range slices.Sorted(maps.Keys(c.policies)) {
		s := c.policies[key]
		if s.plugin == "" || s.node != c.node || c.groups[key] != nil {
			continue
		}
		c.known = true
		g := &group{id: s.id, key: key, plugin: s.plugin, node: c.node, want: s.policy, cost: cost{groups: 1}}
		g.become(now, Working, "")
		c.groups[key] = g
	}
}

// BeginGroups takes over that a plugin begins to announce all of its groups.
func (c *Core) BeginGroups(conn Conn) {
	if p := c.plugins[conn]; p != nil {
		p.announced = &announcement{groups: map[string]*announced{}}
	}
}

// Announce takes over what a plugin says of a group.
func (c *Core) Announce(now time.Time, conn Conn, m *endpointpb.Group) {
	p := c.plugins[conn]
	if p == nil {
		return
	}
	id := idOf(p.orchestrator, m.GetNamespace(), m.GetName())
	key := id.key()
	spec, err := judgeGroup(p.orchestrator, m)
	if a := p.announced; a != nil {
		a.forget(key)
		if err == nil {
			err = a.use.add(id.namespace, spec.cost)
		}
		if err == nil {
			a.put(key, spec)
			return
		}
		if c.of(p, key) != nil {
			a.put(key, nil)
		}
	} else if err == nil {
		use := c.used(p, key)
		if err = use.add(id.namespace, spec.cost); err == nil {
			err = c.accept(now, p, spec)
		}
	}
	if err != nil {
		c.failGroup(conn, id, "refused: "+err.Error())
	}
}

// of returns the group of a key that a plugin has announced; nil: there is none.
func (c *Core) of(p *plugin, key string) *group {
	if g := c.groups[key]; g != nil && g.plugin == p.name && g.want != nil {
		return g
	}
	return nil
}

// used is what a plugin's groups take, but for one.
func (c *Core) used(p *plugin, but string) *budget {
	use := &budget{}
	for key := range c.groups {
		if g := c.of(p, key); g != nil && key != but {
			_ = use.add(g.id.namespace, g.cost) // what is there was within bounds
		}
	}
	return use
}

// accept gives a group what its plugin has said of it, unless it is another's.
func (c *Core) accept(now time.Time, p *plugin, spec *announced) error {
	key := spec.id.key()
	g, s := c.groups[key], c.policies[key]
	switch {
	case g != nil && g.plugin != p.name && g.want == nil:
		return fmt.Errorf("plugin %s has withdrawn it, and it is not gone yet", g.plugin)
	case g != nil && g.plugin != p.name:
		return fmt.Errorf("plugin %s has announced it", g.plugin)
	case s.policy != nil && s.plugin == "":
		return fmt.Errorf("NetworkPolicy %s/%s is no plugin's", spec.id.namespace, spec.id.policyName())
	case s.policy != nil && s.plugin != p.name:
		return fmt.Errorf("plugin %s has announced it at node %s", s.plugin, s.node)
	}
	if g == nil {
		g = &group{id: spec.id, key: key, plugin: p.name, node: c.node}
		c.groups[key] = g
	}
	was := g.want
	if was == nil || was.Spec.Selector != spec.id.members(spec.also) {
		c.stale[spec.id] = true
	}
	g.spec, g.cost, g.node = spec, spec.cost, c.node
	g.want, g.missing = spec.policy(p.name, c.node, c.members)
	if was == nil || !samePolicy(was, g.want) || !g.fresh && !c.written(g) {
		g.fresh = true
		g.become(now, Working, "")
	} else {
		c.tellGroup(g)
	}
	return nil
}

// members is how the members of a group are selected; false: it is not announced.
func (c *Core) members(id groupID) (string, bool) {
	key := id.key()
	if g := c.groups[key]; g != nil {
		if g.want == nil {
			return "", false
		}
		return g.want.Spec.Selector, true
	}
	s := c.policies[key]
	return s.selector(), s.plugin != ""
}

func (s storedGroup) selector() string {
	if s.policy == nil {
		return ""
	}
	return s.policy.Spec.Selector
}

// EndGroups takes over that a plugin has announced all of its groups.
func (c *Core) EndGroups(now time.Time, conn Conn) {
	p := c.plugins[conn]
	if p == nil {
		return
	}
	a := p.announced
	if a == nil {
		c.failGroup(conn, groupID{}, "refused: the end of groups that were not begun")
		return
	}
	p.announced = nil
	keep := map[string]bool{}
	for _, key := range a.order {
		spec := a.groups[key]
		if spec != nil {
			if err := c.accept(now, p, spec); err != nil {
				c.failGroup(conn, spec.id, "refused: "+err.Error())
			}
			keep[key] = true
		} else if g := c.of(p, key); g != nil && a.use.add(g.id.namespace, g.cost) == nil {
			keep[key] = true // what was there stays
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.groups)) {
		if g := c.of(p, key); g != nil && !keep[key] {
			c.takeBack(now, g, "it is announced no more")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.policies)) {
		if s := c.policies[key]; s.plugin == p.name && !keep[key] && c.groups[key] == nil {
			c.takeBack(now, c.elsewhere(key), "it is announced no more")
		}
	}
}

// elsewhere makes a group of what an agent of another node wrote for the same plugin, so that it can be taken back.
func (c *Core) elsewhere(key string) *group {
	s := c.policies[key]
	g := &group{id: s.id, key: key, plugin: s.plugin, node: s.node, want: s.policy}
	c.groups[key] = g
	return g
}

// WithdrawGroup takes over that a plugin takes a group back.
func (c *Core) WithdrawGroup(now time.Time, conn Conn, m *endpointpb.WithdrawGroup) {
	p := c.plugins[conn]
	if p == nil {
		return
	}
	id := idOf(p.orchestrator, m.GetNamespace(), m.GetName())
	key := id.key()
	if p.announced != nil {
		p.announced.forget(key)
		return
	}
	g := c.of(p, key)
	if g == nil && c.groups[key] == nil && c.policies[key].plugin == p.name {
		g = c.elsewhere(key)
	}
	if g == nil {
		c.failGroup(conn, id, "it is no group of this plugin")
		return
	}
	c.takeBack(now, g, "withdrawn")
}

// takeBack has a group's policy deleted.
func (c *Core) takeBack(now time.Time, g *group, why string) {
	g.want, g.spec, g.missing, g.fresh, c.stale[g.id] = nil, nil, nil, false, true
	g.become(now, Leaving, why)
}

// translate makes policies of groups again, whose rules may name groups that are others by now.
func (c *Core) translate(now time.Time) {
	if len(c.stale) == 0 {
		return
	}
	stale := c.stale
	c.stale = map[groupID]bool{}
	for _, g := range c.groups {
		if g.spec == nil || !slices.ContainsFunc(g.spec.names, func(name string) bool { return stale[g.id.sibling(name)] }) {
			continue
		}
		want, missing := g.spec.policy(g.plugin, c.node, c.members)
		if g.missing = missing; !samePolicy(want, g.want) {
			g.want = want
			g.become(now, Working, "")
		}
	}
}

// groupJobs has groups made what they should be.
func (c *Core) groupJobs(now time.Time) {
	var keys []string // of few of many
	for key, g := range c.groups {
		if g.dirty || g.job != nil && g.job.Number != g.version {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		g := c.groups[key]
		if j := g.outdated(); j != nil {
			c.out = append(c.out, Action{Cancel: j})
		}
		if !g.dirty || g.job != nil || now.Before(g.retry) {
			continue
		}
		j := &Job{Group: key, Number: g.version, Plugin: g.plugin, Policy: g.want, Fresh: g.fresh, Node: g.node}
		g.begin(j)
		c.out = append(c.out, Action{Job: j})
	}
}

// doneGroup takes over how a group's job ended.
func (c *Core) doneGroup(now time.Time, j *Job, err error) {
	g := c.groups[j.Group]
	if g == nil || g.job != j {
		return
	}
	g.job = nil
	if _, written := errors.AsType[errWritten](err); (written || err == nil) && g.version == j.Number {
		g.fresh = false
	}
	others, lost := errors.AsType[errOthers](err)
	switch {
	case g.version != j.Number: // something else is wanted by now
	case lost:
		delete(c.groups, g.key)
		c.stale[g.id] = true
		c.gone(g, others.why)
	case err != nil:
		if g.failed(now, err) && g.want != nil {
			g.state, g.since = Failed, now
			c.tellGroup(g)
		}
	case g.want == nil:
		delete(c.groups, g.key)
		c.gone(g, g.reason)
	default:
		g.succeeded(now, InForce)
		c.tellGroup(g)
		if j.Fresh && !c.written(g) {
			g.again(now) // somebody was faster, before it was in force
		}
	}
}

// tellGroup tells its plugin how a group is.
func (c *Core) tellGroup(g *group) {
	p := c.named(g.plugin)
	if p == nil {
		return
	}
	switch g.state {
	case InForce:
		c.groupEvent(p.conn, g.id, endpointpb.GroupEvent_IN_FORCE, g.note())
	case Failed:
		c.failGroup(p.conn, g.id, g.reason)
	}
}

// gone tells its plugin that a group is no more.
func (c *Core) gone(g *group, why string) {
	if p := c.named(g.plugin); p != nil {
		c.groupEvent(p.conn, g.id, endpointpb.GroupEvent_GONE, why)
	}
}

// note says what of a group in force allows nothing.
func (g *group) note() string {
	if len(g.missing) == 0 {
		return ""
	}
	return "its rules name groups that are not announced, and allow nothing there: " + some(g.missing)
}

// some is a list of names, if it is short.
func some(names []string) string {
	const most = 5
	if n := len(names); n > most {
		return fmt.Sprintf("%s and %d others", strings.Join(names[:most], ", "), n-most)
	}
	return strings.Join(names, ", ")
}

func (c *Core) failGroup(to Conn, id groupID, reason string) {
	c.groupEvent(to, id, endpointpb.GroupEvent_FAILED, reason)
}

func (c *Core) groupEvent(to Conn, id groupID, kind endpointpb.GroupEvent_Kind, reason string) {
	c.send(to, &endpointpb.FromAgent{Say: &endpointpb.FromAgent_Group{Group: &endpointpb.GroupEvent{Kind: kind, Namespace: id.namespace, Name: id.name, Reason: reason}}})
}

func (g *group) report() GroupReport {
	r := GroupReport{Group: g.id.String(), State: g.state, Plugin: g.plugin, Policy: g.id.policyName(), Reason: g.reason, Since: g.since}
	if g.dirty {
		r.Next = new(g.retry)
	} else if g.state == InForce {
		r.Reason = g.note()
	}
	return r
}

// missing says which groups an interface's endpoint names that nobody has announced.
func (c *Core) missing(cl *claim) string {
	if cl.want == nil {
		return ""
	}
	var names []string
	for label := range cl.want.Metadata.Labels {
		orchestrator, name, is := strings.Cut(label, groupDomain)
		if !is {
			continue
		}
		if _, is := c.members(groupID{cl.want.Metadata.Namespace, orchestrator, name}); !is {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return "it names groups that are not announced, and allow nothing: " + some(names)
}
