package openstack

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/datastore/mirror"
	"github.com/twillnet/twill/internal/seedtest"
)

// plugin is one that runs, and a client of it.
type plugin struct {
	t      *testing.T
	store  datastore.Store
	socket string
	http   http.Client
}

func start(t *testing.T, store datastore.Store) *plugin {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, Config{Store: store, Socket: socket, Log: slog.New(slog.DiscardHandler)}) }()
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	dial := func(ctx context.Context, _, _ string) (c net.Conn, err error) {
		for ctx.Err() == nil {
			if c, err = (&net.Dialer{}).DialContext(ctx, "unix", socket); err == nil {
				break
			}
		}
		return c, err
	}
	c, err := dial(t.Context(), "", "") // it listens, also for who tries once
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	return &plugin{t, store, socket, http.Client{Transport: &http.Transport{DialContext: dial}}}
}

// call makes a call, and returns its code and body.
func (p *plugin) call(method, path, body string) (int, string) {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), method, "http://plugin"+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	answer, err := p.http.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return answer.StatusCode, string(got)
}

func (p *plugin) ok(method, path, body string) string {
	p.t.Helper()
	code, got := p.call(method, path, body)
	if code != http.StatusOK {
		p.t.Fatalf("%s %s: %d %s", method, path, code, got)
	}
	return got
}

// begin begins a resync, and returns how to end it.
func (p *plugin) begin() (finish func(state string) Report) {
	p.t.Helper()
	var begun struct{ Token string }
	if err := json.Unmarshal([]byte(p.ok("POST", "/v1/resync", "")), &begun); err != nil {
		p.t.Fatal(err)
	}
	return func(state string) (r Report) {
		p.t.Helper()
		if err := json.Unmarshal([]byte(p.ok("PUT", "/v1/resync/"+begun.Token, state)), &r); err != nil {
			p.t.Fatal(err)
		}
		return r
	}
}

// holds checks what is stored: the last part of each key of a resource, and each key of a subnet.
func (p *plugin) holds(when string, want ...string) {
	p.t.Helper()
	if d := cmp.Diff(want, keysOf(p.t, p.store)); d != "" {
		p.t.Errorf("%s (-want +got):\n%s", when, d)
	}
}

func keysOf(t *testing.T, store datastore.Store) (out []string) {
	t.Helper()
	all, err := store.List(t.Context(), api.Root)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range all.Items {
		if strings.Contains(u.Key, "/clusterinformations/") || strings.Contains(u.Key, "/felix/") || strings.HasPrefix(u.Key, mirror.Prefix) {
			continue
		}
		out = append(out, short(u.Key))
	}
	slices.Sort(out)
	return out
}

// short is the last part of a key, and that it is of a migration, which has the name of its target.
func short(key string) string {
	name := key[strings.LastIndexByte(key, '/')+1:]
	if strings.Contains(key, "/livemigrations/") {
		return "migration " + name
	}
	return name
}

func portOf(id, host string, revision int) string {
	return fmt.Sprintf(`{"id": %q, "device_id": "vm", "device_owner": "compute:x", "binding:host_id": %q, "mac_address": "fa:16:3e:00:00:01",
		"admin_state_up": true, "security_groups": ["g"], "fixed_ips": [{"ip_address": "10.65.0.5"}], "revision_number": %d}`, id, host, revision)
}

const (
	groupG  = `{"id": "g", "security_group_rules": [{"id": "r", "direction": "egress", "ethertype": "IPv4"}]}`
	subnetS = `{"id": "s", "cidr": "10.65.0.0/24", "enable_dhcp": true}`
)

// TestWhatNeutronDoesIsStored: object by object, as its servers hand them over.
func TestWhatNeutronDoesIsStored(t *testing.T) {
	p := start(t, memstore.New())
	others := api.Update{Key: api.KeyPrefix(api.KindNetworkPolicy, "openstack") + "own", Value: []byte(`{}`)}
	if _, err := p.store.Create(t.Context(), others); err != nil {
		t.Fatal(err)
	}
	p.ok("PUT", "/v1/security-groups/g", groupG)
	p.ok("PUT", "/v1/subnets/s", subnetS)
	p.ok("PUT", "/v1/ports/a", portOf("a", "h1", 2))
	p.holds("made", "h1-openstack-vm-a", "ossg.default.g", "own", "s")
	p.ok("PUT", "/v1/ports/a", portOf("a", "h2", 3))
	p.holds("moved", "h2-openstack-vm-a", "ossg.default.g", "own", "s")
	p.ok("PUT", "/v1/ports/a", portOf("a", "h1", 2)) // of a server that was slow
	p.holds("after an older revision", "h2-openstack-vm-a", "ossg.default.g", "own", "s")

	if got := p.ok("PUT", "/v1/ports/a", strings.Replace(portOf("a", "h2", 4), `"admin_state_up": true`, `"admin_state_up": false`, 1)); !strings.Contains(got, "admin_state_up") {
		t.Errorf("a port that is down: %s", got)
	}
	p.holds("administratively down", "ossg.default.g", "own", "s")
	p.ok("PUT", "/v1/ports/a", strings.Replace(portOf("a", "h2", 5), `["g"]`, `[]`, 1))
	u, err := p.store.Get(t.Context(), api.KeyPrefix(api.KindWorkloadEndpoint, "openstack")+"h2-openstack-vm-a")
	if err != nil || bytes.Contains(u.Value, []byte("sg.projectcalico.org")) {
		t.Errorf("a port without a security group is %s, %v", u.Value, err)
	}
	for _, c := range []struct {
		path, body string
		code       int
	}{
		{"/v1/ports/b", portOf("a", "h1", 9), http.StatusBadRequest},
		{"/v1/ports/b", `[`, http.StatusBadRequest},
		{"/v1/routers/b", `{}`, http.StatusNotFound},
		{"/v1/resync/x", `{}`, http.StatusConflict},
	} {
		if code, got := p.call("PUT", c.path, c.body); code != c.code || !strings.Contains(got, "error") {
			t.Errorf("PUT %s %s: %d %s, want %d", c.path, c.body, code, got, c.code)
		}
	}
	endpoint := api.KeyPrefix(api.KindWorkloadEndpoint, "openstack") + "h2-openstack-vm-a"
	if err := p.store.Delete(t.Context(), endpoint, api.Revision{}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.store.Create(t.Context(), api.Update{Key: endpoint, Value: []byte("no resource")}); err != nil {
		t.Fatal(err)
	}
	p.ok("PUT", "/v1/ports/a", portOf("a", "h2", 5))
	if u, err = p.store.Get(t.Context(), endpoint); err != nil || unreadable(u) {
		t.Errorf("in place of what cannot be read: %s, %v", u.Value, err)
	}
	for range 2 { // what is gone already is no error
		p.ok("DELETE", "/v1/ports/a", "")
		p.ok("DELETE", "/v1/subnets/s", "")
		p.ok("DELETE", "/v1/security-groups/g", "")
	}
	p.holds("deleted", "own")
}

// TestNamesOfAProjectStayWhileKeystoneIsAway: those that are stored, if it is the same project, wherever the port goes, and in a resync too.
func TestNamesOfAProjectStayWhileKeystoneIsAway(t *testing.T) {
	p := start(t, memstore.New())
	revision := 0
	for _, c := range []struct{ host, project, want string }{
		{"h1", `"project_id": "p"`, " "},
		{"h1", `"project_id": "p", "project_name": "blue", "project_parent_id": "d"`, "blue d"},
		{"h1", `"project_id": "p", "project_name": null`, "blue d"},
		{"h2", `"project_id": "p"`, "blue d"},
		{"h2", `"project_id": "p", "project_name": "green", "project_parent_id": "d"`, "green d"},
		{"h2", `"project_id": "other"`, " "},
		{"h2", `"project_id": "p", "project_name": "blue"`, "blue "},
		{"h2", `"project_id": "p", "project_name": ""`, " "},
	} {
		for _, resync := range []bool{false, true} {
			revision++
			port := strings.Replace(portOf("a", c.host, revision), `"device_id"`, c.project+`, "device_id"`, 1)
			if resync {
				p.begin()(`{"ports": [` + port + `]}`)
			} else {
				p.ok("PUT", "/v1/ports/a", port)
			}
			u, err := p.store.Get(t.Context(), api.KeyPrefix(api.KindWorkloadEndpoint, "openstack")+c.host+"-openstack-vm-a")
			if err != nil {
				t.Fatal(err)
			}
			st, err := api.DecodeStored(u)
			if err != nil {
				t.Fatal(err)
			}
			labels := st.Resource.Meta().Labels
			if got := labels[labelProjectName] + " " + labels[labelParent]; got != c.want {
				t.Errorf("%s (resync: %t): name and parent are %q, want %q", c.project, resync, got, c.want)
			}
		}
	}
}

// TestALostDatastoreIsRebuilt: by a resync, which takes away what Neutron has no more, and nothing that came meanwhile.
func TestALostDatastoreIsRebuilt(t *testing.T) {
	p := start(t, memstore.New())
	state := func(ports ...string) string {
		return fmt.Sprintf(`{"security_groups": [%s], "subnets": [%s], "ports": [%s]}`, groupG, subnetS, strings.Join(ports, ","))
	}
	if r := p.begin()(state(portOf("a", "h1", 1))); r.Ports != 1 || r.SecurityGroups != 1 || r.Subnets != 1 || r.Deleted != 0 || len(r.Problems) != 0 {
		t.Errorf("rebuilt: %+v", r)
	}
	p.holds("rebuilt", "h1-openstack-vm-a", "ossg.default.g", "s")

	finish := p.begin()
	p.ok("PUT", "/v1/ports/b", portOf("b", "h1", 1))
	p.ok("PUT", "/v1/ports/a", portOf("a", "h1", 5))
	if r := finish(state()); r.Deleted != 0 { // it was read before a changed, and has neither
		t.Errorf("what came meanwhile: %+v", r)
	}
	p.holds("after what came meanwhile", "h1-openstack-vm-a", "h1-openstack-vm-b", "ossg.default.g", "s")

	if r := p.begin()(state()); r.Deleted != 2 {
		t.Errorf("ports that are gone: %+v", r)
	}
	if r := p.begin()(`{}`); r.Deleted != 2 {
		t.Errorf("all gone: %+v", r)
	}
	p.holds("all gone")
}

// TestAnyServersSameEnd: several of Neutron's servers write at once, late and in any order, and resync in between: after the last
// resync the datastore holds what Neutron has.
func TestAnyServersSameEnd(t *testing.T) {
	random := rand.New(rand.NewPCG(seedtest.New(t), 0))
	store := memstore.New()
	servers := []*plugin{start(t, store), start(t, store)}
	ports, revision := map[string]string{}, 0
	state := func() string {
		all := []string{}
		for _, p := range ports {
			all = append(all, p)
		}
		return `{"ports": [` + strings.Join(all, ",") + `]}`
	}
	var late []func()
	for range 200 {
		s, id := servers[random.IntN(2)], string(rune('a'+random.IntN(6)))
		switch random.IntN(6) {
		case 0:
			delete(ports, id)
			late = append(late, func() { s.ok("DELETE", "/v1/ports/"+id, "") })
		case 1:
			finish, was := s.begin(), state()
			late = append(late, func() { finish(was) })
		case 2:
			random.Shuffle(len(late), func(i, j int) { late[i], late[j] = late[j], late[i] })
			for _, do := range late {
				do()
			}
			late = nil
		default:
			revision++
			ports[id] = anyMigration(random, id, revision)
			p := ports[id]
			late = append(late, func() { s.ok("PUT", "/v1/ports/"+id, p) })
		}
		if len(late) > 3 { // a server keeps that many resyncs
			late[0]()
			late = late[1:]
		}
	}
	for _, do := range late {
		do()
	}
	want := []string{}
	for _, p := range ports {
		want = append(want, keysOfPort(t, p)...)
	}
	slices.Sort(want)
	servers[0].begin()(state())
	if d := cmp.Diff(want, append([]string{}, keysOf(t, store)...)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestNeutronLearnsWhatAgentsReport: of ports and agents, what has changed since it asked last.
func TestNeutronLearnsWhatAgentsReport(t *testing.T) {
	p := start(t, memstore.New())
	endpoint := "/calico/felix/v2/no-region/host/h1/workload/openstack/openstack%2fvm/endpoint/a"
	put := func(key, value string) {
		t.Helper()
		_ = p.store.Delete(t.Context(), key, api.Revision{})
		if value != "" {
			if _, err := p.store.Create(t.Context(), api.Update{Key: key, Value: []byte(value)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	var at News
	next := func(want PortState) {
		t.Helper()
		for {
			at = ask(p, at.Epoch, at.At)
			if i := slices.IndexFunc(at.Ports, func(s PortState) bool { return s == want }); i >= 0 {
				return
			}
		}
	}
	put(endpoint, `{"status": "down", "reason": "the interface is down"}`)
	next(PortState{ID: "a", Host: "h1", Status: "down", Reason: "the interface is down"})
	put(endpoint, `{"status": "up"}`)
	next(PortState{ID: "a", Host: "h1", Status: "up"})
	put(endpoint, `nonsense`)
	next(PortState{ID: "a", Host: "h1", Status: "error", Reason: "the report of its agent cannot be read"})
	former := strings.Replace(endpoint, "%2f", "%2F", 1) // of a former version of the agent, which the present one takes over
	put(former, `{"status": "up", "reason": "former"}`)
	next(PortState{ID: "a", Host: "h1", Status: "up", Reason: "former"})
	put(endpoint, `{"status": "up"}`)
	next(PortState{ID: "a", Host: "h1", Status: "up"})
	put(former, "")
	put(strings.Replace(endpoint, "endpoint/a", "endpoint/b", 1), `{"status": "up"}`)
	next(PortState{ID: "b", Host: "h1", Status: "up"})
	if all := ask(p, "another", 99); !slices.Contains(all.Ports, PortState{ID: "a", Host: "h1", Status: "up"}) || len(all.Ports) != 2 {
		t.Errorf("once the key of a former version is gone: %+v", all.Ports)
	}
	put(endpoint, "")
	next(PortState{ID: "a", Host: "h1", Status: "down"})

	for _, c := range []struct {
		value string
		want  AgentState
	}{{`{"first_update": true, "version": "v1"}`, AgentState{Host: "h1", Alive: true, Started: true, Version: "v1"}}, {"", AgentState{Host: "h1"}}} {
		put("/calico/felix/v2/no-region/host/h1/status", c.value)
		for {
			at = ask(p, at.Epoch, at.At)
			if slices.Contains(at.Agents, c.want) {
				break
			}
		}
	}
	if all := ask(p, "another", 99); len(all.Ports) != 2 || len(all.Agents) != 1 {
		t.Errorf("whoever knows nothing is given %+v", all)
	}
}

// TestReportsThatEndAreNotRememberedForEver: whoever asked before is given all once more, without them.
func TestReportsThatEndAreNotRememberedForEver(t *testing.T) {
	f := newFeedback("")
	key := func(i int) string {
		return fmt.Sprintf("%sh1/workload/openstack/openstack%%2fvm/endpoint/%d", f.prefix, i)
	}
	var come, gone []api.Update
	for i := range mostGone + 2 {
		come = append(come, api.Update{Key: key(i), Value: []byte(`{"status": "up"}`)})
		gone = append(gone, api.Update{Key: key(i)})
	}
	f.take(come, true)
	before := f.since(t.Context(), "", 0, false)
	f.take(gone[:mostGone], true)
	if n := f.since(t.Context(), before.Epoch, before.At, false); n.Epoch != before.Epoch || len(n.Ports) != mostGone {
		t.Fatalf("%d went: news of %d, and of another epoch: %t", mostGone, len(n.Ports), n.Epoch != before.Epoch)
	}
	f.take(gone[mostGone:mostGone+1], true)
	n := f.since(t.Context(), before.Epoch, before.At, false)
	if len(n.Ports) != 1 || n.Ports[0].Status != "up" || n.Epoch == before.Epoch {
		t.Errorf("one more went: news of %d ports, and of another epoch: %t", len(n.Ports), n.Epoch != before.Epoch)
	}
}

// TestAProblemThatStaysIsNewsOnce: all of the database comes each minute.
func TestAProblemThatStaysIsNewsOnce(t *testing.T) {
	var s server
	for _, c := range []struct{ problems, want []string }{
		{[]string{"a", "b", "a"}, []string{"a", "b"}},
		{[]string{"b", "c"}, []string{"c"}},
		{nil, nil},
		{[]string{"b"}, []string{"b"}},
	} {
		if got := s.news(c.problems); !slices.Equal(got, c.want) {
			t.Errorf("of %q news are %q, want %q", c.problems, got, c.want)
		}
	}
}

// TestARegionIsAName: which openstackRegion of hosts could be, too.
func TestARegionIsAName(t *testing.T) {
	err := Run(t.Context(), Config{Store: memstore.New(), Region: "New York", Socket: filepath.Join(t.TempDir(), "s"), Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "New York") {
		t.Errorf("it runs: %v", err)
	}
	if err := region("paris").check(); err != nil {
		t.Error(err)
	}
}

func ask(p *plugin, epoch string, at uint64) (n News) {
	p.t.Helper()
	got := p.ok("GET", fmt.Sprintf("/v1/feedback?epoch=%s&at=%d", epoch, at), "")
	if err := json.Unmarshal([]byte(got), &n); err != nil {
		p.t.Fatal(err)
	}
	return n
}
