package endpointapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/api/endpointpb"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/seedtest"
)

// cluster is agents of two hosts on one datastore, of which each receives changes late; and what plugins have said, by group. A plugin has one list,
// wherever it runs.
type cluster struct {
	t      *testing.T
	r      *rand.Rand
	now    time.Time
	store  *memstore.Store
	writer *Writer
	hosts  []*host
	lists  map[string]map[string]*endpointpb.Group // by plugin, by name: what is to be in force in the end
}

type host struct {
	core  *Core
	conns map[string]Conn
	last  Conn
	late  []api.Update // of the datastore, that it has not received yet
	jobs  []*Job
}

func (c *cluster) start(name string) *host {
	h := &host{core: New(name, "v1"), conns: map[string]Conn{}}
	h.core.Configure([]string{"tap"})
	h.core.Links(c.now, nil)
	all, err := c.store.List(c.t.Context(), api.ResourcesPrefix)
	if err != nil {
		c.t.Fatal(err)
	}
	h.core.Stored(c.now, all.Items, true)
	return h
}

func (h *host) step(now time.Time) (next time.Time) {
	do, next := h.core.Step(now)
	for _, a := range do {
		if a.Job != nil {
			h.jobs = append(h.jobs, a.Job)
		}
	}
	return next
}

// conn is a plugin's connection to a host, a new one if it has none.
func (c *cluster) conn(h *host, plugin string) Conn {
	if _, is := h.conns[plugin]; !is {
		h.last++
		if err := h.core.Register(c.now, h.last, &endpointpb.Register{Name: plugin, Orchestrator: "demo"}); err != nil {
			c.t.Fatal(err)
		}
		h.conns[plugin] = h.last
	}
	return h.conns[plugin]
}

// finish ends a job of a host, well or not, and puts what was written on its way to the hosts.
func (c *cluster) finish(h *host, i int, fails bool) {
	j := h.jobs[i]
	h.jobs = slices.Delete(h.jobs, i, i+1)
	err := errors.New("the datastore is away")
	if !fails {
		var now api.Update
		if now, err = c.writer.makeGroup(c.t.Context(), j); err == nil {
			c.tell(now)
		}
	}
	h.core.Done(c.now, j, err)
}

func (c *cluster) tell(u api.Update) {
	for _, h := range c.hosts {
		h.late = append(h.late, u)
	}
}

// receive has a host receive some of what it has not received.
func (h *host) receive(now time.Time, n int) {
	for _, u := range h.late[:n] {
		h.core.Stored(now, []api.Update{u}, true)
	}
	h.late = h.late[n:]
}

// group is one at random, which may name others.
func (c *cluster) group(name string) *endpointpb.Group {
	g := &endpointpb.Group{Name: name, Selector: []string{"", "a == 'b'", "all()"}[c.r.IntN(3)]}
	for range c.r.IntN(3) {
		g.Ingress = append(g.Ingress, &endpointpb.GroupRule{Protocol: "tcp", Groups: []string{c.name("p"), c.name("q")}[:c.r.IntN(3)]})
	}
	return g
}

// name is that of a group of a plugin, at random.
func (c *cluster) name(plugin string) string { return fmt.Sprintf("%s%d", plugin, c.r.IntN(3)) }

// announceAll has a plugin announce all that it has, and perhaps not end.
func (c *cluster) announceAll(h *host, plugin string, whole bool) {
	conn := c.conn(h, plugin)
	h.core.BeginGroups(conn)
	for _, g := range c.lists[plugin] {
		if !whole { // another, which must not count
			g = c.group(g.GetName())
		}
		h.core.Announce(c.now, conn, g)
	}
	if whole {
		h.core.EndGroups(c.now, conn)
		return
	}
	h.core.Leave(conn)
	delete(h.conns, plugin)
}

// act does something at random.
func (c *cluster) act() {
	at := c.r.IntN(len(c.hosts))
	h := c.hosts[at]
	plugin := []string{"p", "q"}[c.r.IntN(2)]
	switch c.r.IntN(10) {
	case 0, 1, 2: // a change, which is announced as a whole where it comes from another host than the last
		name := c.name(plugin)
		if delete(c.lists[plugin], name); c.r.IntN(3) > 0 {
			c.lists[plugin][name] = c.group(name)
		}
		c.announceAll(h, plugin, true)
	case 3:
		c.announceAll(h, plugin, false)
	case 4: // the agent starts again, and plugins announce to it what they have
		c.hosts[at] = c.start(h.core.node)
		c.announceAll(c.hosts[at], plugin, true)
	case 5: // somebody deletes a policy
		key := groupID{"default", "demo", c.name(plugin)}.key()
		if u, err := c.store.Get(c.t.Context(), key); err == nil && c.store.Delete(c.t.Context(), key, u.Revision) == nil {
			c.tell(api.Update{Key: key})
		}
	case 6, 7:
		if len(h.late) > 0 {
			h.receive(c.now, 1+c.r.IntN(len(h.late)))
		}
	default:
		if len(h.jobs) > 0 {
			c.finish(h, c.r.IntN(len(h.jobs)), c.r.IntN(4) == 0)
		}
	}
	for _, h := range c.hosts {
		h.step(c.now)
	}
}

// settle has all be received and done, each plugin announce at one host what it has, and that be done.
func (c *cluster) settle() {
	for range 20 {
		c.now = c.now.Add(time.Minute)
		for _, h := range c.hosts {
			h.receive(c.now, len(h.late))
			h.step(c.now)
			for len(h.jobs) > 0 {
				c.finish(h, 0, false)
			}
			h.receive(c.now, len(h.late))
		}
	}
}

// TestAnyPathTheLastAnnouncementHolds: whatever came before, and however late each host receives it, in the end the datastore has the groups that
// plugins announced last, with rules that name the members of groups that are there, and nothing else.
func TestAnyPathTheLastAnnouncementHolds(t *testing.T) {
	seedtest.Each(t, nil, 40, func(t *testing.T, seed uint64) {
		store := memstore.New()
		c := &cluster{
			t: t, r: rand.New(rand.NewPCG(seed, 0)), now: time.Unix(1e9, 0), store: store, writer: NewWriter(Writer{Store: store, Kernel: &kernel{}}),
			lists: map[string]map[string]*endpointpb.Group{"p": {}, "q": {}},
		}
		c.hosts = []*host{c.start("h1"), c.start("h2")}
		for range 150 {
			c.act()
		}
		c.settle()
		for _, plugin := range []string{"p", "q"} {
			c.announceAll(c.hosts[c.r.IntN(2)], plugin, true)
		}
		c.settle()
		c.check()
	})
}

func (c *cluster) check() {
	c.t.Helper()
	want := map[string]*announced{}
	for _, list := range c.lists {
		for _, g := range list {
			a, err := judgeGroup("demo", g)
			if err != nil {
				c.t.Fatal(err)
			}
			want[a.id.key()] = a
		}
	}
	all, err := c.store.List(c.t.Context(), api.ResourcesPrefix)
	if err != nil {
		c.t.Fatal(err)
	}
	got := map[string]*api.NetworkPolicy{}
	for _, u := range all.Items {
		if s, is := readGroup(u); is {
			got[u.Key] = s.policy
		}
	}
	if g, w := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)); !slices.Equal(g, w) {
		c.t.Fatalf("the datastore has %q, want %q", g, w)
	}
	for key, a := range want {
		p, _ := a.policy("", "", func(id groupID) (string, bool) {
			b := want[id.key()]
			if b == nil {
				return "", false
			}
			return b.id.members(b.also), true
		})
		if !samePolicy(got[key], p) {
			c.t.Errorf("%s is\n%q\nwant\n%q", key, text(got[key]), text(p))
		}
	}
	for _, h := range c.hosts {
		for key, g := range h.core.groups {
			if g.state != InForce || g.job != nil || g.dirty {
				c.t.Errorf("%s says that %s is %s: %s", h.core.node, key, g.state, g.reason)
			}
		}
	}
}

// FuzzWhatAPluginSays: messages in any order, of any content. Nothing panics, and what is to be written is a policy that can be, of the plugin's own
// orchestrator's endpoints.
func FuzzWhatAPluginSays(f *testing.F) {
	seed := func(ms ...*endpointpb.FromPlugin) {
		var all []byte
		for _, m := range ms {
			raw, err := proto.Marshal(m)
			if err != nil || len(raw) > 255 {
				f.Fatal(err, len(raw))
			}
			all = append(append(all, byte(len(raw))), raw...)
		}
		f.Add(all)
	}
	begin := &endpointpb.FromPlugin{Say: &endpointpb.FromPlugin_BeginGroups{BeginGroups: &endpointpb.BeginGroups{}}}
	end := &endpointpb.FromPlugin{Say: &endpointpb.FromPlugin_EndGroups{EndGroups: &endpointpb.EndGroups{}}}
	say := func(g *endpointpb.Group) *endpointpb.FromPlugin {
		return &endpointpb.FromPlugin{Say: &endpointpb.FromPlugin_Announce{Announce: g}}
	}
	full := grp("web", "db", "web")
	full.Selector = `a == "b" && !has(c)`
	full.Egress = []*endpointpb.GroupRule{{Protocol: "icmp", IcmpType: proto.Uint32(8), Nets: []string{"10.0.0.0/8", "2001:db8::/32"}}, {Protocol: "udp", Ports: []*endpointpb.Ports{{First: 53}}}}
	endpoint := vm("vm1", "10.0.0.1")
	endpoint.Groups = []string{"web"}
	seed(begin, say(full), say(grp("db")), end, begin, say(grp("db")), end)
	seed(say(full), &endpointpb.FromPlugin{Say: &endpointpb.FromPlugin_WithdrawGroup{WithdrawGroup: &endpointpb.WithdrawGroup{Name: "web"}}})
	seed(&endpointpb.FromPlugin{Say: &endpointpb.FromPlugin_HandOver{HandOver: &endpointpb.HandOver{Interface: "tap1", Endpoint: endpoint}}}, end, &endpointpb.FromPlugin{})
	f.Fuzz(func(t *testing.T, raw []byte) {
		b := start(t)
		b.link("tap1", 7)
		b.register(1, "p")
		writer := NewWriter(Writer{Store: memstore.New(), Kernel: &kernel{}})
		for len(raw) > 0 {
			n := min(int(raw[0]), len(raw)-1)
			m := &endpointpb.FromPlugin{}
			if err := proto.Unmarshal(raw[1:1+n], m); err == nil {
				_ = b.c.Take(b.now, 1, m)
				b.step()
			}
			raw = raw[1+n:]
			for name, j := range b.jobs {
				judgeJob(t, j)
				if err := writer.Do(context.Background(), j); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				b.done(name, nil)
			}
		}
	})
}

func judgeJob(t *testing.T, j *Job) {
	t.Helper()
	if j.Policy == nil {
		return
	}
	if err := api.Validate(j.Policy).Err(); err != nil {
		t.Fatal(err)
	}
	if key, err := api.Key(j.Policy); err != nil || key != j.Group {
		t.Fatalf("its key is %s, %v, and it is said to be %s", key, err, j.Group)
	}
	s := mustParse(t, j.Policy.Spec.Selector)
	for _, labels := range []map[string]string{{}, {api.LabelOrchestrator: "k8s"}, {api.LabelOrchestrator: "k8s", "demo.group.twill.net/web": ""}} {
		if s.Match(labels) {
			t.Fatalf("%s selects %v", j.Policy.Spec.Selector, labels)
		}
	}
}
