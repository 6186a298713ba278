package conformance

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/mattfenwick/cyclonus/pkg/connectivity"
	"github.com/mattfenwick/cyclonus/pkg/connectivity/probe"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/calc"
	"github.com/twillnet/twill/internal/dataplane/attribution"
	"github.com/twillnet/twill/internal/dataplane/iptables"
	"github.com/twillnet/twill/internal/dataplane/iptables/iptablestest"
	"github.com/twillnet/twill/internal/dataplane/nft"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/nftables"
	"github.com/twillnet/twill/internal/translate"
)

// translated enforces in this process, without a datastore: what is in cyclonus' books is translated, calculated and programmed.
type translated struct {
	*cluster
	form    string // policyRendering
	graphs  [2]*calc.Graph
	drivers [2]policyDriver
	state   map[string]string
}

// policyDriver is what brings policy into the kernel of a host.
type policyDriver interface {
	Resync(context.Context) error
	Merge(intent.Batch)
	Apply(context.Context) ([]intent.Outcome, error)
}

// newTranslated has policy in a form of policyRendering, or in a backend of iptables.
func newTranslated(t *testing.T, form string) *cluster {
	x := &translated{cluster: newCluster(t), form: form, state: map[string]string{}}
	for i, h := range x.hosts {
		x.graphs[i] = calc.New(h.name)
		x.graphs[i].SetInSync()
		if backend, is := strings.CutPrefix(form, "iptables-"); is {
			x.form = "Chains"
			x.drivers[i] = iptables.NewDriver(iptablestest.In(h.NS, iptables.Host(backend)), iptables.Config{Names: attribution.New()})
		} else {
			h.Do(func() {
				conn, err := nftables.Open()
				must(t, err)
				t.Cleanup(func() { conn.Close() })
				x.drivers[i] = nft.New(conn, nft.Config{Names: attribution.New()})
			})
		}
		must(t, x.drivers[i].Resync(t.Context()))
	}
	x.enforcer = x
	return x.cluster
}

// joined makes the way to a pod from its host, which an agent makes else.
func (x *translated) joined(p *pod) {
	namespace, name, _ := cut(p.key)
	link := translate.InterfaceName(namespace, name)
	for _, a := range p.addrs {
		p.host.Run("ip", "route", "add", a.String(), "dev", link)
		p.host.neighbour(link, a, p.Link("eth0").MAC)
	}
}

// resources returns what cyclonus has put into the cluster, as Twill stores it.
func (x *translated) resources(s *connectivity.TestCaseState) map[string]string {
	var objects []translate.Object
	add := func(o translate.Object) { objects = append(objects, o) }
	for _, name := range slices.Sorted(maps.Keys(s.Resources.Namespaces)) {
		add(translate.Of(probe.KubeNamespace(name, s.Resources.Namespaces[name])))
	}
	for _, p := range s.Resources.Pods {
		add(translate.Of(x.kubePod(p)))
		add(translate.Of(p.KubeService()))
	}
	for _, np := range s.Policies {
		add(translate.Of(np))
	}
	out := map[string]string{}
	put := func(rs []api.Resource) {
		for _, r := range rs {
			api.Default(r)
			key, err := api.Key(r)
			must(x.t, err)
			value, err := api.EncodeStored(r)
			must(x.t, err)
			out[key] = string(value)
		}
	}
	for _, o := range objects {
		rs, err := translate.Resources(o)
		must(x.t, err)
		put(rs)
	}
	put(translate.Implied(objects))
	form := &api.FelixConfiguration{Spec: api.FelixConfigurationSpec{PolicyRendering: x.form}}
	form.TypeMeta = api.TypeMeta{Kind: api.KindFelixConfiguration, APIVersion: api.GroupVersion}
	form.Metadata.Name = "default"
	put([]api.Resource{form})
	return out
}

// program goes from the last step's state to this one's by what has changed.
func (x *translated) program(s *connectivity.TestCaseState) (all []api.Update) {
	x.t.Helper()
	want := x.resources(s)
	var changed []api.Update
	for _, key := range slices.Sorted(maps.Keys(want)) {
		u := api.Update{Key: key, Value: []byte(want[key])}
		all = append(all, u)
		if x.state[key] != want[key] {
			changed = append(changed, u)
		}
	}
	for key := range x.state {
		if _, ok := want[key]; !ok {
			changed = append(changed, api.Update{Key: key})
		}
	}
	x.state = want
	for i := range x.hosts {
		x.graphs[i].Update(changed)
		x.drivers[i].Merge(x.graphs[i].Flush())
		outcomes, err := x.drivers[i].Apply(x.t.Context())
		must(x.t, err)
		for _, o := range outcomes {
			must(x.t, o.Err)
		}
	}
	return all
}
