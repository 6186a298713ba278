package calc

import (
	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/api/selector"
	"github.com/twillnet/twill/internal/calc/label"
	"github.com/twillnet/twill/internal/intent"
)

// moves is which virtual machines move between hosts: LiveMigrations, by what they say of endpoints. Use newMoves.
type moves struct {
	migrations map[string]migration // by key
	targets    map[api.WorkloadEndpointIdentifier]keys
	sources    map[api.WorkloadEndpointIdentifier]keys
	workloads  map[api.WorkloadIdentifier]keys // whose endpoints all are sources
	selectors  map[label.ID]bool               // of targets, in Graph.locals
}

// migration is what a LiveMigration says; what it does not say is zero.
type migration struct {
	target, source api.WorkloadEndpointIdentifier
	workload       api.WorkloadIdentifier
	selects        bool
	selector       label.ID // if it selects
}

func newMoves() moves {
	return moves{
		migrations: map[string]migration{}, targets: map[api.WorkloadEndpointIdentifier]keys{}, sources: map[api.WorkloadEndpointIdentifier]keys{},
		workloads: map[api.WorkloadIdentifier]keys{}, selectors: map[label.ID]bool{},
	}
}

// putMigration takes over a LiveMigration; nil: there is none, or one that says nothing.
func (g *Graph) putMigration(key string, ref api.Ref, r *api.LiveMigration) {
	m := &g.moves
	if was, had := m.migrations[key]; had {
		m.note(key, was, false)
		g.moved(was)
		if was.selects {
			g.locals.Drop(was.selector)
			delete(m.selectors, was.selector)
		}
		delete(m.migrations, key)
	}
	if r == nil {
		return
	}
	var now migration
	if s := r.Spec.Source; s != nil && s.WorkloadEndpoint != nil {
		now.source = s.WorkloadEndpoint.Canonical()
	}
	if s := r.Spec.Source; s != nil && s.Workload != nil {
		now.workload = api.WorkloadEndpointIdentifier{Hostname: s.Workload.Hostname, OrchestratorID: s.Workload.OrchestratorID, WorkloadID: s.Workload.WorkloadID}.Canonical().Workload()
	}
	if t := r.Spec.Target; t != nil && t.WorkloadEndpoint != nil {
		now.target = t.WorkloadEndpoint.Canonical()
	}
	if sel := targetsOf(ref.Namespace, r.Spec.Target); sel != nil {
		now.selects, now.selector = true, g.locals.Add(sel)
		m.selectors[now.selector] = true
	}
	m.migrations[key] = now
	m.note(key, now, true)
	g.moved(now)
}

// targetsOf returns the selector of a migration's target, which selects endpoints of its own namespace alone: nobody stops packets to another's.
func targetsOf(namespace string, t *api.LiveMigrationTarget) *selector.Selector {
	if t == nil || t.Selector == nil || *t.Selector == "" {
		return nil
	}
	sel, err := selector.Parse(api.LabelNamespace + ` == "` + namespace + `" && (` + *t.Selector + ")")
	if err != nil {
		return nil // closed: see api
	}
	return sel
}

// note adds or removes what a migration says.
func (m *moves) note(key string, of migration, is bool) {
	set(m.targets, of.target, key, is)
	set(m.sources, of.source, key, is)
	set(m.workloads, of.workload, key, is)
}

// set adds or removes a key at a name; the zero value names nothing.
func set[K comparable](in map[K]keys, name K, key string, is bool) {
	var none K
	switch {
	case name == none:
	case is && in[name] == nil:
		in[name] = keys{key: {}}
	case is:
		in[name][key] = struct{}{}
	default:
		if delete(in[name], key); len(in[name]) == 0 {
			delete(in, name)
		}
	}
}

// moved marks the endpoints of this node that a migration names; those that it selects are marked by the index.
func (g *Graph) moved(m migration) {
	here := func(host, orchestrator string) bool { return orchestrator != "" && (host == "" || host == g.node) }
	if !here(m.target.Hostname, m.target.OrchestratorID) && !here(m.source.Hostname, m.source.OrchestratorID) && !here(m.workload.Hostname, m.workload.OrchestratorID) {
		return
	}
	g.locals.Each(func(key string, it localItem) {
		if i := it.Value.ident; i != (api.WorkloadEndpointIdentifier{}) && (i == m.target || i == m.source || i.Workload() == m.workload) {
			g.dirtyLocals[key] = true
		}
	})
}

// moveOf says whether a local endpoint's machine comes or goes. One that both comes and goes comes: what is not here cannot go.
func (g *Graph) moveOf(item localItem) intent.Move {
	m, l := &g.moves, item.Value
	if l.id.Kind != intent.Workload || len(m.migrations) == 0 {
		return intent.Stays
	}
	if len(m.targets[l.ident]) > 0 {
		return intent.Comes
	}
	if len(m.selectors) > 0 {
		for _, id := range g.locals.Selectors(item) {
			if m.selectors[id] {
				return intent.Comes
			}
		}
	}
	if len(m.sources[l.ident])+len(m.workloads[l.ident.Workload()]) > 0 {
		return intent.Goes
	}
	return intent.Stays
}

// policiesOf are the selectors of policies that select a local endpoint, in the order of their IDs.
func (g *Graph) policiesOf(item localItem) []label.ID {
	ids := g.locals.Selectors(item)
	if len(g.moves.selectors) == 0 {
		return ids
	}
	out := make([]label.ID, 0, len(ids))
	for _, id := range ids {
		if !g.moves.selectors[id] {
			out = append(out, id)
		}
	}
	return out
}
