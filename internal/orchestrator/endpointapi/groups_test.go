package endpointapi

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/api/endpointpb"
	"github.com/twillnet/twill/internal/resources"
)

// of groups: what a plugin says.
func grp(name string, from ...string) *endpointpb.Group {
	return &endpointpb.Group{Name: name, Ingress: []*endpointpb.GroupRule{{Protocol: "tcp", Groups: from}}}
}

func (b *bench) announce(conn Conn, groups ...*endpointpb.Group) {
	for _, g := range groups {
		b.c.Announce(b.now, conn, g)
	}
	b.step()
}

func (b *bench) begin(conn Conn) { b.c.BeginGroups(conn); b.step() }
func (b *bench) end(conn Conn)   { b.c.EndGroups(b.now, conn); b.step() }

func (b *bench) takeBack(conn Conn, name string) {
	b.c.WithdrawGroup(b.now, conn, &endpointpb.WithdrawGroup{Name: name})
	b.step()
}

// has has the datastore hold a group's policy, as the agent of a node wrote it for a plugin; nil: none.
func (b *bench) has(name, plugin, node string, g *endpointpb.Group) {
	b.t.Helper()
	u := api.Update{Key: idOf("demo", "", name).key()}
	if g != nil {
		a, err := judgeGroup("demo", g)
		if err != nil {
			b.t.Fatal(err)
		}
		p, _ := a.policy(plugin, node, b.c.members)
		if plugin == "" {
			p.Metadata.Annotations = nil
		}
		if u, err = resources.Stored(p); err != nil {
			b.t.Fatal(err)
		}
	}
	b.c.Stored(b.now, []api.Update{u}, true)
	b.step()
}

// inForce ends the jobs of groups, and has the datastore hold what they wrote.
func (b *bench) inForce(names ...string) {
	b.t.Helper()
	for _, name := range names {
		b.doneGroup(name, nil)
	}
}

func (b *bench) doneGroup(name string, err error) {
	b.t.Helper()
	j := b.jobs["default/group-demo."+name]
	if j != nil && err == nil {
		u := api.Update{Key: j.Group}
		if j.Policy != nil {
			copied := *j.Policy
			u, _ = resources.Stored(&copied)
		}
		b.c.Stored(b.now, []api.Update{u}, true)
	}
	b.done("default/group-demo."+name, err)
}

const file = "default/group-demo."

func TestWhatBecomesOfGroups(t *testing.T) {
	const missing = " its rules name groups that are not announced, and allow nothing there: "
	for _, tt := range []struct {
		name string
		do   func(b *bench)
		want []string
	}{
		{"in force is said last", func(b *bench) { b.announce(1, grp("db")); b.want("write " + file + "db"); b.inForce("db") }, []string{"1 in force default/db"}},
		{"the same again is said again", func(b *bench) { b.announce(1, grp("db")); b.inForce("db"); b.log = nil; b.announce(1, grp("db")) }, []string{"1 in force default/db"}},
		{"a change", func(b *bench) {
			b.announce(1, grp("db"))
			b.inForce("db")
			b.log = nil
			b.announce(1, grp("db", "db"))
			b.inForce("db")
		}, []string{"write " + file + "db", "1 in force default/db"}},
		{"a change while the first is under way", func(b *bench) {
			b.announce(1, grp("db"))
			b.announce(1, grp("db", "db"))
			b.done(file+"db", errors.New("canceled"))
			b.inForce("db")
		}, []string{"write " + file + "db", "cancel " + file + "db", "write " + file + "db", "1 in force default/db"}},
		{"withdrawn", func(b *bench) {
			b.announce(1, grp("db"))
			b.inForce("db")
			b.log = nil
			b.takeBack(1, "db")
			b.inForce("db")
		}, []string{"delete at h1 " + file + "db", "1 gone default/db withdrawn"}},
		{"withdrawn, and it was never there", func(b *bench) { b.takeBack(1, "db") }, []string{"1 failed default/db it is no group of this plugin"}},
		{"the datastore refuses", func(b *bench) {
			b.announce(1, grp("db"))
			b.log = nil
			b.doneGroup("db", errors.New("permission denied"))
			b.wait(firstBackOff)
			b.inForce("db")
		}, []string{"1 failed default/db permission denied", "write " + file + "db", "1 in force default/db"}},
		{"it names a group that is not announced", func(b *bench) { b.announce(1, grp("db", "web")); b.inForce("db") }, []string{"write " + file + "db", "1 in force default/db" + missing + "web"}},
		{"which is announced then, and withdrawn", func(b *bench) {
			b.announce(1, grp("db", "web"))
			b.inForce("db")
			b.log = nil
			b.announce(1, grp("web"))
			b.inForce("db", "web")
			b.takeBack(1, "web")
			b.inForce("db", "web")
		}, []string{
			"write " + file + "db", "write " + file + "web", "1 in force default/db", "1 in force default/web",
			"write " + file + "db", "delete at h1 " + file + "web", "1 in force default/db" + missing + "web", "1 gone default/web withdrawn",
		}},
		{"which another plugin announces at another host", func(b *bench) {
			b.announce(1, grp("db", "web"))
			b.inForce("db")
			b.log = nil
			b.has("web", "q", "h2", grp("web"))
			b.inForce("db")
			b.has("web", "", "", nil)
			b.inForce("db")
		}, []string{"write " + file + "db", "1 in force default/db", "write " + file + "db", "1 in force default/db" + missing + "web"}},
		{"another plugin's", func(b *bench) { b.announce(1, grp("db")); b.log = nil; b.announce(2, grp("db")) }, []string{"2 failed default/db refused: plugin p has announced it"}},
		{"another plugin's at another host", func(b *bench) { b.has("db", "q", "h2", grp("db")); b.announce(1, grp("db")) }, []string{"1 failed default/db refused: plugin q has announced it at node h2"}},
		{"another's policy", func(b *bench) { b.has("db", "", "", grp("db")); b.announce(1, grp("db")) }, []string{"1 failed default/db refused: NetworkPolicy default/group-demo.db is no plugin's"}},
		{"deleted by somebody", func(b *bench) {
			b.announce(1, grp("db"))
			b.inForce("db")
			b.log = nil
			b.has("db", "", "", nil)
			b.doneGroup("db", errOthers{"somebody has deleted its policy"})
			b.wait(time.Hour)
		}, []string{"write " + file + "db", "1 gone default/db somebody has deleted its policy"}},
		{"changed by somebody", func(b *bench) {
			b.announce(1, grp("db"))
			b.inForce("db")
			b.log = nil
			b.has("db", "p", "h1", grp("db", "db"))
		}, []string{"write " + file + "db"}},
		{"the same plugin's, at another host: it is this host's from now on", func(b *bench) {
			b.has("db", "p", "h2", grp("db"))
			b.announce(1, grp("db"))
			b.has("db", "p", "h2", grp("db")) // heard of late
			b.inForce("db")
		}, []string{"write " + file + "db", "1 in force default/db"}},
		{"announced at another host since", func(b *bench) {
			b.announce(1, grp("db"))
			b.inForce("db")
			b.log = nil
			b.has("db", "p", "h2", grp("db", "db"))
			b.doneGroup("db", errOthers{"plugin p has announced it at node h2 since"})
			b.wait(time.Hour)
		}, []string{"write " + file + "db", "1 gone default/db plugin p has announced it at node h2 since"}},
		{"before it is in force", func(b *bench) {
			b.announce(1, grp("db"))
			b.has("db", "p", "h1", grp("db"))
			b.has("db", "p", "h2", grp("db"))
			b.log = nil
			b.done(file+"db", nil)
		}, []string{"1 in force default/db", "write " + file + "db"}},
		{"and here again", func(b *bench) {
			b.announce(1, grp("db"))
			b.inForce("db")
			b.has("db", "p", "h2", grp("db"))
			b.announce(1, grp("db"))
			b.log = nil
			b.done(file+"db", errors.New("canceled"))
			if j := b.jobs[file+"db"]; j == nil || !j.Fresh {
				b.t.Errorf("the job is %+v", j)
			}
		}, []string{"write " + file + "db"}},
		{"the same plugin's, at another host: withdrawn here", func(b *bench) { b.has("db", "p", "h2", grp("db")); b.takeBack(1, "db") }, []string{"delete at h2 " + file + "db"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := start(t)
			b.register(1, "p")
			b.register(2, "q")
			tt.do(b)
			b.want(tt.want...)
		})
	}
}

func TestAllGroupsAreAnnouncedAtOnce(t *testing.T) {
	many := func(b *bench, namespace string, n int) {
		for i := range n {
			b.c.Announce(b.now, 1, &endpointpb.Group{Namespace: namespace, Name: fmt.Sprintf("g%d", i)})
		}
	}
	for _, tt := range []struct {
		name string
		do   func(b *bench)
		want []string
	}{
		{"nothing happens before the end", func(b *bench) { b.begin(1); b.announce(1, grp("a"), grp("b", "a")); b.wait(time.Hour) }, nil},
		{"what is there already is not touched", func(b *bench) { b.begin(1); b.announce(1, grp("old"), grp("a")); b.end(1) }, []string{"1 in force default/old", "write " + file + "a"}},
		{"what is announced no more goes", func(b *bench) { b.begin(1); b.announce(1, grp("a")); b.end(1) }, []string{"write " + file + "a", "delete at h1 " + file + "old"}},
		{"nothing is announced", func(b *bench) { b.begin(1); b.end(1) }, []string{"delete at h1 " + file + "old"}},
		{"what was announced at another host goes", func(b *bench) {
			b.has("far", "p", "h2", grp("far"))
			b.begin(1)
			b.announce(1, grp("old"))
			b.end(1)
		}, []string{"1 in force default/old", "delete at h2 " + file + "far"}},
		{"another plugin's stays", func(b *bench) {
			b.has("far", "q", "h2", grp("far"))
			b.has("user", "", "", grp("user"))
			b.begin(1)
			b.announce(1, grp("old"), grp("far"))
			b.end(1)
		}, []string{"1 in force default/old", "1 failed default/far refused: plugin q has announced it at node h2"}},
		{"after the end, one is announced at once", func(b *bench) {
			b.begin(1)
			b.announce(1, grp("old"))
			b.end(1)
			b.announce(1, grp("a"))
		}, []string{"1 in force default/old", "write " + file + "a"}},
		{"the connection ends before", func(b *bench) {
			b.begin(1)
			b.announce(1, grp("a"))
			b.c.Leave(1)
			b.register(3, "p")
			b.end(3)
		}, []string{"3 failed / refused: the end of groups that were not begun"}},
		{"begun twice: what came before is forgotten", func(b *bench) {
			b.begin(1)
			b.announce(1, grp("a"))
			b.begin(1)
			b.announce(1, grp("old"))
			b.end(1)
		}, []string{"1 in force default/old"}},
		{"one that is withdrawn meanwhile", func(b *bench) {
			b.begin(1)
			b.announce(1, grp("old"), grp("a"))
			b.takeBack(1, "a")
			b.end(1)
		}, []string{"1 in force default/old"}},
		{"of one that is said twice the last counts", func(b *bench) {
			b.begin(1)
			b.announce(1, grp("old", "old"), grp("old"))
			b.end(1)
		}, []string{"1 in force default/old"}},
		{"one that is refused stays as it was, and the others come", func(b *bench) {
			b.begin(1)
			b.announce(1, &endpointpb.Group{Name: "old", Selector: "("}, grp("a"))
			b.end(1)
		}, []string{`1 failed default/old refused: selector "(": character 2: `, "write " + file + "a"}},
		{"a tenant has too many: others get theirs", func(b *bench) {
			b.begin(1)
			b.announce(1, grp("old"))
			many(b, "greedy", 258)
			b.log = nil
			b.announce(1, &endpointpb.Group{Namespace: "modest", Name: "a"})
			b.log = nil
			b.c.Announce(b.now, 1, &endpointpb.Group{Namespace: "greedy", Name: "one-more"})
			b.step()
			b.want("1 failed greedy/one-more refused: with it namespace greedy has 257 groups: at most 256 may be")
			b.end(1)
			b.log = b.log[:1]
			if len(b.jobs) != 257 || b.jobs["modest/group-demo.a"] == nil {
				b.t.Errorf("%d jobs, want 256 of greedy and one of modest", len(b.jobs))
			}
		}, []string{"1 in force default/old"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := start(t)
			b.register(1, "p")
			b.announce(1, grp("old"))
			b.inForce("old")
			b.log, b.t = nil, t
			tt.do(b)
			for i, line := range b.log {
				if i < len(tt.want) && strings.HasPrefix(line, tt.want[i]) {
					b.log[i] = tt.want[i] // errors of the parser are its own
				}
			}
			b.want(tt.want...)
		})
	}
}

// TestWhatARefusedGroupCosts: what stays as it was counts too, so that no number of announcements makes more than there may be.
func TestWhatARefusedGroupCosts(t *testing.T) {
	b := start(t)
	b.register(1, "p")
	for round := range 3 {
		b.begin(1)
		for _, prefix := range []string{"a", "b", "c"}[:round+1] {
			for i := range 200 {
				b.c.Announce(b.now, 1, &endpointpb.Group{Name: fmt.Sprintf("%s%d-%d", prefix, i, round)})
			}
		}
		for key := range b.c.groups { // all that was there is refused now
			b.c.Announce(b.now, 1, &endpointpb.Group{Name: b.c.groups[key].id.name, Selector: "("})
		}
		b.end(1)
		n := 0
		for _, g := range b.c.groups {
			if g.want != nil {
				n++
			}
		}
		if n > mostOfNamespace.groups {
			t.Fatalf("%d groups after round %d", n, round)
		}
	}
}

func TestGroupsStayWhileTheAgentRestarts(t *testing.T) {
	b := start(t)
	b.has("db", "p", "h1", grp("db"))
	b.has("far", "p", "h2", grp("far"))
	b.c.adopted = false // as if all had been there at the start
	b.step()
	b.want("write " + file + "db")
	b.inForce("db")
	b.register(1, "p")
	b.want()
	b.begin(1)
	b.announce(1, grp("db"))
	b.end(1)
	b.want("1 in force default/db", "delete at h2 "+file+"far")
}

// TestAnEndpointSaysWhichOfItsGroupsAreNotAnnounced: to its plugin when it is provisioned, and in the status as long as it is so.
func TestAnEndpointSaysWhichOfItsGroupsAreNotAnnounced(t *testing.T) {
	b := start(t)
	b.register(1, "p")
	b.link("tap1", 7)
	e := vm("vm1", "10.0.0.1")
	e.Groups = []string{"web", "db"}
	b.hand(1, "tap1", e)
	b.log = nil
	b.done("tap1", nil)
	b.want("1 provisioned tap1 it names groups that are not announced, and allow nothing: db, web")
	b.announce(1, grp("db"))
	if r := b.c.Report(); len(r.Interfaces) != 1 || r.Interfaces[0].Reason != "it names groups that are not announced, and allow nothing: web" || r.Groups[0].State != Working {
		t.Errorf("the status is %+v", r)
	}
	b.inForce("db")
	b.begin(1)
	if r := b.c.Report(); r.Groups[0].State != InForce || r.Groups[0].Group != "default/db" || !r.Plugins[0].Announcing {
		t.Errorf("the status is %+v", r)
	}
}
