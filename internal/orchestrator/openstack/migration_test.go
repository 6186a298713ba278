package openstack

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
)

// TestABindingBecomesATargetOrASource: what becomes of the bindings of a port besides the active one, on compute-1.
func TestABindingBecomesATargetOrASource(t *testing.T) {
	for _, c := range []struct {
		name, change string
		want         []string // SOURCE>TARGET of each migration, and + HOST of each endpoint besides the first, in the order of writing
		problem      string
	}{
		{"none", `{}`, nil, ""},
		{"a target", `{"bindings": [{"host": "compute-2", "vif_type": "tap"}]}`, []string{"compute-1>compute-2", "+compute-2"}, ""},
		{"activated: the source is unbound", `{"bindings": [{"host": "compute-0", "vif_type": "unbound"}]}`, []string{"compute-0>compute-1", "+compute-0"}, ""},
		{"that could not be bound", `{"bindings": [{"host": "compute-2", "vif_type": "binding_failed"}]}`, nil, ""},
		{"the active one, which was inactive", `{"bindings": [{"host": "compute-1", "vif_type": "tap"}]}`, nil, ""},
		{"of no host", `{"bindings": [{"host": "", "vif_type": "tap"}]}`, nil, ""},
		{
			"several, in any order", `{"bindings": [{"host": "compute-3", "vif_type": "tap"}, {"host": "compute-0", "vif_type": "unbound"}, {"host": "compute-3", "vif_type": "tap"}]}`,
			[]string{"compute-0>compute-1", "compute-1>compute-3", "+compute-0", "+compute-3"},
			"",
		},
		{"to a host that cannot be", `{"bindings": [{"host": "-", "vif_type": "tap"}]}`, nil, "host -"},
		{"of a machine that is down", `{"admin_state_up": false, "bindings": [{"host": "compute-2", "vif_type": "tap"}]}`, nil, "admin_state_up"},
		{"a notice, and its binding", `{"binding:profile": {"migrating_to": "compute-2"}, "bindings": [{"host": "compute-2", "vif_type": "tap"}]}`, []string{"compute-1>compute-2", "+compute-2"}, ""},
		{"a notice alone", `{"binding:profile": {"migrating_to": "compute-2"}}`, nil, "migrating_to compute-2"},
		{"a profile that is none", `{"binding:profile": {"migrating_to": 5}}`, nil, ""},
		{"a notice that was true", `{"binding:profile": {"migrating_to": "compute-1"}}`, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			want, problems := region("").port(port(t, c.change))
			if !strings.Contains(strings.Join(problems, " "), c.problem) || (c.problem == "") != (len(problems) == 0) {
				t.Errorf("problems %q, want of %q", problems, c.problem)
			}
			var got []string
			for i, r := range want.resources() {
				switch r := r.(type) {
				case *api.LiveMigration:
					got = append(got, r.Spec.Source.WorkloadEndpoint.Hostname+">"+r.Spec.Target.WorkloadEndpoint.Hostname)
				case *api.WorkloadEndpoint:
					if i > 0 {
						got = append(got, "+"+r.Spec.Node)
					}
				}
				if errs := api.Validate(r); len(errs) > 0 {
					t.Errorf("%s: %v", api.RefOf(r), errs)
				}
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// TestATargetIsTheSameButForItsHost: labels, addresses, and so policy.
func TestATargetIsTheSameButForItsHost(t *testing.T) {
	want, _ := region("paris").port(port(t, `{"bindings": [{"host": "compute-2", "vif_type": "tap"}]}`))
	if len(want.others) != 1 || len(want.migrations) != 1 {
		t.Fatal(want)
	}
	target, m := want.others[0], want.migrations[0]
	if target.Metadata.Name != strings.Replace(want.endpoint.Metadata.Name, "compute--1", "compute--2", 1) {
		t.Errorf("its name is %s", target.Metadata.Name)
	}
	if m.Metadata.Name != target.Metadata.Name || m.Metadata.Namespace != "openstack-region-paris" || m.Metadata.Annotations[annotationRevision] != "7" {
		t.Errorf("its migration is %+v", m.Metadata)
	}
	id := api.WorkloadEndpointIdentifier{Hostname: "compute-1", OrchestratorID: "openstack", WorkloadID: "openstack-region-paris/0a1b", EndpointID: "6d6c0bb1-9d5b-4f0f-8d8c-2f3a1b0c9e11"}
	if d := cmp.Diff(id, *m.Spec.Source.WorkloadEndpoint); d != "" {
		t.Errorf("source (-want +got):\n%s", d)
	}
	if id.Hostname = "compute-2"; *m.Spec.Target.WorkloadEndpoint != id {
		t.Errorf("target: %+v", *m.Spec.Target.WorkloadEndpoint)
	}
	same := *target
	same.Metadata.Name, same.Spec.Node = want.endpoint.Metadata.Name, "compute-1"
	if d := cmp.Diff(want.endpoint, &same); d != "" {
		t.Errorf("besides name and node (-source +target):\n%s", d)
	}
}

// migrating is a port with bindings to hosts besides its own: a target, or, with a dash before it, the source that was left.
func migrating(id, host string, revision int, others ...string) string {
	bindings := []Binding{}
	for _, other := range others {
		of := Binding{Host: strings.TrimPrefix(other, "-"), VIFType: "tap"}
		if of.Host != other {
			of.VIFType = "unbound"
		}
		bindings = append(bindings, of)
	}
	text, err := json.Marshal(bindings)
	if err != nil {
		panic(err)
	}
	return strings.Replace(portOf(id, host, revision), `"device_id"`, `"bindings": `+string(text)+`, "device_id"`, 1)
}

// keysOfPort are what is stored when a port was handed over, as keysOf has it.
func keysOfPort(t *testing.T, text string) (out []string) {
	t.Helper()
	var p Port
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	endpoint := func(host string) string { return host + "-openstack-vm-" + p.ID }
	out = append(out, endpoint(p.Host))
	for _, b := range p.Bindings {
		target := b.Host
		if b.VIFType == "unbound" {
			target = p.Host
		}
		out = append(out, endpoint(b.Host), "migration "+endpoint(target))
	}
	slices.Sort(out)
	return out
}

// journal notes what is created and deleted in a datastore, as + and - KEY.
type journal struct {
	datastore.Store
	lines []string
}

func (j *journal) Create(ctx context.Context, u api.Update) (api.Update, error) {
	j.lines = append(j.lines, "+"+short(u.Key))
	return j.Store.Create(ctx, u)
}

func (j *journal) Delete(ctx context.Context, key string, r api.Revision) error {
	j.lines = append(j.lines, "-"+short(key))
	return j.Store.Delete(ctx, key, r)
}

// TestALiveMigrationInSimpleWrites: Nova's steps, and what is written at each, in its order: no target is without its migration, so that none
// has a route before its machine is there.
func TestALiveMigrationInSimpleWrites(t *testing.T) {
	j := &journal{Store: memstore.New()}
	p := start(t, j)
	state := func(port string) string { return `{"ports": [` + port + `]}` }
	revision := 0
	step := func(name string, writes []string, host string, others ...string) {
		t.Helper()
		revision++
		port := migrating("a", host, revision, others...)
		j.lines = nil
		p.ok("PUT", "/v1/ports/a", port)
		if d := cmp.Diff(writes, j.lines); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
		p.holds(name, keysOfPort(t, port)...)
		if r := p.begin()(state(port)); r.Deleted != 0 || r.Ports != 1 {
			t.Errorf("a resync after %s: %+v", name, r)
		}
		p.holds("a resync after "+name, keysOfPort(t, port)...)
		for _, key := range keysOf(t, j.Store) { // the datastore is lost
			kind := api.KindWorkloadEndpoint
			if name, ok := strings.CutPrefix(key, "migration "); ok {
				kind, key = api.KindLiveMigration, name
			}
			if err := j.Store.Delete(t.Context(), api.KeyPrefix(kind, "openstack")+key, api.Revision{}); err != nil {
				t.Fatal(err)
			}
		}
		p.begin()(state(port))
		p.holds("all written again after "+name, keysOfPort(t, port)...)
	}
	a, b, c := "h1-openstack-vm-a", "h2-openstack-vm-a", "h3-openstack-vm-a"
	step("made", []string{"+" + a}, "h1")
	step("the target is bound", []string{"+migration " + b, "+" + b}, "h1", "h2")
	step("cancelled", []string{"-" + b, "-migration " + b}, "h1")
	step("once more", []string{"+migration " + b, "+" + b}, "h1", "h2")
	step("to another one", []string{"-" + b, "-migration " + b, "+migration " + c, "+" + c}, "h1", "h3")
	step("activated", nil, "h3", "-h1")
	step("the source's is deleted", []string{"-" + a, "-migration " + c}, "h3")
	step("back", []string{"+migration " + a, "+" + a}, "h3", "h1")
	step("there", nil, "h1", "-h3")
	step("to and fro: the first is activated again", []string{"-migration " + a, "+migration " + c}, "h3", "-h1")

	if code, got := p.call("PUT", "/v1/ports/a", migrating("a", "h1", 2, "h2")); code != http.StatusOK {
		t.Errorf("an older revision: %s", got)
	}
	p.holds("after an older revision", keysOfPort(t, migrating("a", "h3", 9, "-h1"))...)
	p.ok("DELETE", "/v1/ports/a", "")
	p.holds("deleted in the midst")
	p.ok("PUT", "/v1/ports/a", migrating("a", "h1", 1, "h2"))
	if r := p.begin()(state(portOf("a", "h1", 2))); r.Deleted != 2 {
		t.Errorf("cancelled, and handed over by a resync alone: %+v", r)
	}
	p.holds("cancelled, by a resync alone", a)
}

// TestAResyncOfBeforeDoesNotBringBackATarget: of a migration that began and was cancelled while Neutron's database was read.
func TestAResyncOfBeforeDoesNotBringBackATarget(t *testing.T) {
	p := start(t, memstore.New())
	p.ok("PUT", "/v1/ports/a", portOf("a", "h1", 1))
	finish := p.begin()
	p.ok("PUT", "/v1/ports/a", migrating("a", "h1", 2, "h2"))
	p.ok("PUT", "/v1/ports/a", portOf("a", "h1", 3))
	finish(`{"ports": [` + migrating("a", "h1", 2, "h2") + `]}`)
	p.holds("after the resync", "h1-openstack-vm-a")
}

// meanwhile is a datastore in which something happens after its endpoints were listed for the first time.
type meanwhile struct {
	datastore.Store
	do func()
}

func (m *meanwhile) List(ctx context.Context, prefix string) (datastore.Snapshot, error) {
	all, err := m.Store.List(ctx, prefix)
	if do := m.do; do != nil && prefix == api.KeyPrefix(api.KindWorkloadEndpoint, "openstack") { // feedback lists, too, at any time
		m.do = nil
		do()
	}
	return all, err
}

// TestAServerThatWasFasterIsRight: one that has read what is stored, and writes after another one, which knows better, leaves all of it alone.
func TestAServerThatWasFasterIsRight(t *testing.T) {
	m := &meanwhile{Store: memstore.New()}
	slow, fast := start(t, m), start(t, m.Store)
	m.do = func() { fast.ok("PUT", "/v1/ports/a", portOf("a", "h1", 3)) }
	slow.ok("PUT", "/v1/ports/a", migrating("a", "h1", 2, "h2"))
	slow.holds("of a cancelled migration", "h1-openstack-vm-a")

	finish := slow.begin()
	fast.ok("PUT", "/v1/ports/a", migrating("a", "h1", 4, "h2"))
	finish(`{"ports": [` + portOf("a", "h1", 3) + `]}`)
	slow.holds("a migration that began during a resync", keysOfPort(t, migrating("a", "h1", 4, "h2"))...)

	finish = slow.begin()
	source := api.KeyPrefix(api.KindWorkloadEndpoint, "openstack") + "h1-openstack-vm-a"
	u, err := m.Get(t.Context(), source)
	if err != nil {
		t.Fatal(err)
	}
	u.Value = bytes.Replace(u.Value, []byte(`revision":"4"`), []byte(`revision":"5"`), 1)
	if _, err := m.Update(t.Context(), u); err != nil { // another one has written its first part
		t.Fatal(err)
	}
	finish(`{"ports": [` + portOf("a", "h1", 3) + `]}`)
	slow.holds("a port of which another one writes", keysOfPort(t, migrating("a", "h1", 4, "h2"))...)
}

// TestNeutronLearnsOfTheTargetWhenItIsTheHost: what its agent reported while the machine was on its way comes again, and nothing else does.
func TestNeutronLearnsOfTheTargetWhenItIsTheHost(t *testing.T) {
	p := start(t, memstore.New())
	report := func(host string) {
		t.Helper()
		key := "/calico/felix/v2/no-region/host/" + host + "/workload/openstack/" + map[string]string{"h1": "openstack%2fvm", "h2": "openstack%2Fvm"}[host] + "/endpoint/a" // h2's agent is of a former version
		if _, err := p.store.Create(t.Context(), api.Update{Key: key, Value: []byte(`{"status": "up"}`)}); err != nil {
			t.Fatal(err)
		}
	}
	report("h1")
	report("h2")
	p.ok("PUT", "/v1/ports/a", migrating("a", "h1", 1, "h2"))
	var at News
	for hosts := map[string]bool{}; len(hosts) < 2; {
		at = ask(p, at.Epoch, at.At)
		for _, s := range at.Ports {
			hosts[s.Host] = true
		}
	}
	p.ok("PUT", "/v1/ports/a", migrating("a", "h2", 2, "-h1"))
	if at = ask(p, at.Epoch, at.At); len(at.Ports) != 1 || at.Ports[0].Host != "h2" || at.Ports[0].Status != "up" {
		t.Errorf("once h2 is its host: %+v", at)
	}
}

// anyMigration is a port on one of three hosts, which may be on its way.
func anyMigration(random *rand.Rand, id string, revision int) string {
	host := random.IntN(3)
	switch random.IntN(3) {
	case 0:
		return portOf(id, fmt.Sprint("h", host), revision)
	case 1:
		return migrating(id, fmt.Sprint("h", host), revision, fmt.Sprint("h", (host+1)%3))
	default:
		return migrating(id, fmt.Sprint("h", host), revision, fmt.Sprint("-h", (host+1)%3))
	}
}
