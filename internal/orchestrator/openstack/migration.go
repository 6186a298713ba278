package openstack

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/twillnet/twill/api"
)

// wanted is what becomes of a port: an endpoint on the host where its machine runs, and, while the machine migrates, one on each host to
// which it goes or from which it came, with a LiveMigration that names both.
type wanted struct {
	endpoint   *api.WorkloadEndpoint // nil: it has none, and nothing else either
	migrations []*api.LiveMigration
	others     []*api.WorkloadEndpoint
}

// Values of vif_type of a binding that carries no packets.
const (
	vifUnbound = "unbound" // the one that was active before another was activated; Neutron leaves it until it is deleted
	vifFailed  = "binding_failed"
)

// port is what becomes of a port, with problems as of endpoint. Of one that cannot be expressed nothing does: what it was must not stay in force,
// since Neutron may have given its addresses to others (decision 106). An inactive binding is a target, which Nova made to migrate the
// machine to, or, if it is unbound, the source, from where the machine has come: Nova deletes either in the end.
func (r region) port(p *Port) (want wanted, problems []string) {
	endpoint, problems, err := r.endpoint(p)
	if err != nil {
		return want, []string{fmt.Sprintf("it has no endpoint, and carries no packets, since it cannot be expressed: %v", err)}
	}
	if want.endpoint = endpoint; endpoint == nil {
		return want, problems
	}
	bindings := slices.SortedFunc(slices.Values(p.Bindings), func(a, b Binding) int { return cmp.Compare(a.Host, b.Host) })
	bindings = slices.CompactFunc(bindings, func(a, b Binding) bool { return a.Host == b.Host })
	for _, b := range bindings {
		if b.Host == "" || b.Host == p.Host || b.VIFType == vifFailed {
			continue // the active one, or none
		}
		there := *p
		there.Host = b.Host
		other, _, err := r.endpoint(&there)
		if err != nil {
			problems = append(problems, fmt.Sprintf("its binding to host %s has no effect: %v", b.Host, err))
			continue
		}
		source, target := want.endpoint, other
		if b.VIFType == vifUnbound {
			source, target = other, want.endpoint
		}
		want.others = append(want.others, other)
		want.migrations = append(want.migrations, r.migration(p, source, target))
	}
	if to := p.migratingTo(); to != "" && to != p.Host && !slices.ContainsFunc(bindings, func(b Binding) bool { return b.Host == to }) {
		problems = append(problems, fmt.Sprintf("binding:profile has migrating_to %s, and the port has no binding there: nothing is prepared on that host", to))
	}
	return want, problems
}

// migration is that of a machine's interface from one endpoint to another. Its name is the target's, so that it is the same before and
// after the switch.
func (r region) migration(p *Port, source, target *api.WorkloadEndpoint) *api.LiveMigration {
	m, _ := api.New(api.KindLiveMigration).(*api.LiveMigration)
	m.Metadata.Namespace, m.Metadata.Name = r.namespace(), target.Metadata.Name
	m.Metadata.Annotations = map[string]string{annotationRevision: strconv.FormatInt(p.Revision, 10)}
	from, to := source.Identifier(), target.Identifier()
	m.Spec.Source = &api.LiveMigrationSource{WorkloadEndpoint: &from}
	m.Spec.Target = &api.LiveMigrationTarget{WorkloadEndpoint: &to}
	return m
}

// resources are all of it, in the order of writing: where the machine runs comes first. A LiveMigration comes before the endpoint that it makes
// wait: without it, that would have a route of its own at once.
func (want *wanted) resources() (out []api.Resource) {
	if want.endpoint == nil {
		return nil
	}
	out = append(out, want.endpoint)
	for _, m := range want.migrations {
		out = append(out, m)
	}
	for _, e := range want.others {
		out = append(out, e)
	}
	return out
}

// keys are those of all of it.
func (want *wanted) keys() (map[string]bool, error) {
	out := map[string]bool{}
	for _, r := range want.resources() {
		key, err := api.Key(r)
		if err != nil {
			return nil, err
		}
		out[key] = true
	}
	return out, nil
}

// rank orders what is deleted: endpoints go before the migrations that they are of, since a target without its migration has a route, and
// before the policies that they are subject to, which would open or cut.
func (w *writer) rank(a, b api.Update) int {
	of := func(key string) int {
		endpoints, policies, migrations := w.prefixes()
		for i, prefix := range []string{endpoints, migrations, policies} {
			if strings.HasPrefix(key, prefix) {
				return i
			}
		}
		return 3
	}
	return cmp.Or(cmp.Compare(of(a.Key), of(b.Key)), strings.Compare(a.Key, b.Key))
}
