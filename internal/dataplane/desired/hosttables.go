package desired

import (
	"github.com/twillnet/twill/internal/dataplane/classify"
	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
)

// hostWalk is what a host endpoint is asked at a stage in one direction, in the tables. It is no group's: a host has few, each at its own stages, and
// its denials name it.
type hostWalk struct {
	of     intent.EndpointID
	asked  intent.GroupID // whose policies it has
	chain  string         // of it at that stage
	dir    intent.Direction
	walk   classify.Walk
	number classify.Group
	plain  string // why it is asked by chains; empty: by tables
}

// hostWalks are those that the tables are to hold.
type hostWalks struct {
	byChain  map[string]*hostWalk
	byNumber map[classify.Group]*hostWalk
}

// askTables wants the chain of a host endpoint at a stage as one that asks the tables. It returns false if there are none, or if they cannot hold
// what the endpoint is asked.
func (s *State) askTables(c rules.Chain, e intent.Endpoint, st hostStage) bool {
	w := s.hostWalk(c.Name, e, st)
	if w == nil || w.plain != "" {
		return false
	}
	s.want(Chain{
		Name: c.Name, Comment: c.Comment, Owner: e.ID,
		Guards: []Guard{{Do: Classify, Group: w.number, Peer: sideOf(st.dir), Sent: st.hook.At == Postrouting || st.hook.At == Output}},
	})
	return true
}

// hostWalk finds or makes the walk of a host endpoint at a stage; nil: it has none.
func (s *State) hostWalk(chain string, e intent.Endpoint, st hostStage) *hostWalk {
	if s.tables == nil || e.Closed != "" {
		s.forgetHost(chain)
		return nil
	}
	t := &s.tables.hosts
	w := t.byChain[chain]
	if w != nil && w.of == e.ID && w.asked == e.Policies().ID {
		return w
	}
	if w == nil {
		s.tables.next++
		w = &hostWalk{chain: chain, dir: st.dir, number: s.tables.next}
		t.byChain[chain], t.byNumber[w.number] = w, w
	}
	if w.plain != "" {
		s.chain(w.walk.Asked(), -1)
	}
	w.of, w.asked, w.walk = e.ID, e.Policies().ID, classify.HostWalkOf(e, st.stage, st.dir)
	if w.plain != "" {
		s.chain(w.walk.Asked(), 1)
	}
	s.tables.state.SetWalk(w.number, w.walk)
	return w
}

// forgetHost takes the walk with a chain out of the tables, if there is one.
func (s *State) forgetHost(chain string) {
	if s.tables == nil || s.tables.hosts.byChain[chain] == nil {
		return
	}
	w := s.tables.hosts.byChain[chain]
	if w.plain != "" {
		s.chain(w.walk.Asked(), -1)
	}
	delete(s.tables.hosts.byChain, chain)
	delete(s.tables.hosts.byNumber, w.number)
	s.tables.state.RemoveWalk(w.number)
}

// setHostPlain notes that the tables cannot hold a walk, with the reason, or that they can.
func (s *State) setHostPlain(w *hostWalk, why string) {
	was := w.plain
	if w.plain = why; (was == "") == (why == "") {
		return
	}
	s.chain(w.walk.Asked(), map[bool]int{true: 1, false: -1}[why != ""])
	s.hosts.dirty = true
	s.touched[w.of] = struct{}{}
}

// mapsOf is how the names of its maps begin. Like those of groups, they are deleted late.
func (w *hostWalk) mapsOf() string { return hostMaps(w.chain, w.dir) }

func hostMaps(chain string, dir intent.Direction) string {
	return [...]string{intent.Ingress: inGroup, intent.Egress: outGroup}[dir] + chain
}

// plain returns why a host endpoint is asked by chains at some stage; empty: it is at none.
func (x *hostWalks) plain(id intent.EndpointID) string {
	why := ""
	for _, w := range x.byNumber { // the same one each time, if there are several
		if w.of == id && w.plain != "" && (why == "" || w.plain < why) {
			why = w.plain
		}
	}
	return why
}
