package etcdstore_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/attach"
	"github.com/twillnet/twill/internal/attach/wire"
	"github.com/twillnet/twill/internal/bgp/nodestatus"
	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/etcdstore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/nodeaddr"
	"github.com/twillnet/twill/internal/nodekeep"
	"github.com/twillnet/twill/internal/orchestrator/endpointapi"
	"github.com/twillnet/twill/internal/orchestrator/openstack"
	"github.com/twillnet/twill/internal/resources"
	"github.com/twillnet/twill/internal/status"
	"github.com/twillnet/twill/internal/tunneladdr"
	"github.com/twillnet/twill/internal/upkeep"
)

// scribe is a store that notes which keys are written.
type scribe struct {
	*memstore.Store
	mu   sync.Mutex
	keys map[string]bool
}

func (s *scribe) note(keys ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range keys {
		s.keys[k] = true
	}
}

func (s *scribe) Create(ctx context.Context, kv api.Update) (api.Update, error) {
	s.note(kv.Key)
	return s.Store.Create(ctx, kv)
}

func (s *scribe) Update(ctx context.Context, kv api.Update) (api.Update, error) {
	s.note(kv.Key)
	return s.Store.Update(ctx, kv)
}

func (s *scribe) Delete(ctx context.Context, key string, revision api.Revision) error {
	s.note(key)
	return s.Store.Delete(ctx, key, revision)
}

func (s *scribe) PutFor(ctx context.Context, kv api.Update, ttl time.Duration) error {
	s.note(kv.Key)
	return s.Store.PutFor(ctx, kv, ttl)
}

func (s *scribe) Transact(ctx context.Context, t datastore.Txn) (api.Revision, error) {
	for _, kv := range t.Put {
		s.note(kv.Key)
	}
	s.note(t.Delete...)
	return s.Store.Transact(ctx, t)
}

var quiet = slog.New(slog.DiscardHandler)

// stored is a value as a user's tool leaves it.
func stored(kind, name, spec string) api.Update {
	return api.Update{Key: api.KeyPrefix(kind, "") + name, Revision: api.RevisionOf("1"), Value: []byte(`{"metadata":{"name":"` + name + `"},"spec":{` + spec + `}}`)}
}

// writer is a package that writes when a host's daemons run.
type writer struct {
	roles []string // of the guide, that the daemons which have it must be given
	run   func(ctx context.Context, t *testing.T, s *scribe)
}

// writers have the real code do all that it writes, in virtual time.
var writers = map[string]writer{
	"internal/status": {[]string{"agent"}, func(ctx context.Context, _ *testing.T, s *scribe) {
		r := status.New(status.Config{Node: "h1", Store: s, Host: func() (bool, []string) { return true, nil }, Log: quiet})
		r.Configure(status.Settings{Interval: time.Second, TTL: time.Minute, Endpoints: true})
		r.Set(map[intent.EndpointID]status.Endpoint{
			{Kind: intent.Workload, Namespace: "prod", Name: "h1-k8s-web-eth0"}: {Status: status.Up}, {Kind: intent.Host, Name: "eth0"}: {Status: status.Up},
		})
		r.Complete()
		go r.Run(ctx)
	}},
	"internal/nodekeep":       {[]string{"agent"}, addresses},
	"internal/bgp/nodestatus": {[]string{"agent"}, nodeStatus},
	"internal/upkeep": {[]string{"agent", "hostendpoints"}, func(ctx context.Context, _ *testing.T, s *scribe) {
		k := upkeep.New(upkeep.Config{Node: "h1", Store: s, Log: quiet})
		k.Update([]api.Update{
			stored(api.KindNode, "h1", `"bgp":{"ipv4Address":"192.0.2.1/24"}`),
			stored(api.KindKubeControllersConfiguration, "default", `"controllers":{"node":{"hostEndpoint":{"autoCreate":"Enabled"}}}`),
		}, true)
		go k.Run(ctx)
	}},
	"internal/tunneladdr": {[]string{"agent", "cni"}, func(ctx context.Context, t *testing.T, s *scribe) {
		pool, node := stored(api.KindIPPool, "p", `"cidr":"10.65.0.0/24","vxlanMode":"Always"`), stored(api.KindNode, "h1", ``)
		must(s.Store.Create(ctx, pool))(t)
		node = must(s.Store.Create(ctx, node))(t)
		k := tunneladdr.New(tunneladdr.Config{Node: "h1", Store: s, Log: quiet})
		k.Update([]api.Update{pool, node}, true)
		go k.Run(ctx)
	}},
	"internal/attach": {[]string{"agent", "cni"}, attachOne},
	"internal/ipam":   {[]string{"agent", "cni"}, attachOne},
	"internal/orchestrator/endpointapi": {[]string{"agent", "cni", "groups"}, func(ctx context.Context, t *testing.T, s *scribe) {
		e, _ := api.New(api.KindWorkloadEndpoint).(*api.WorkloadEndpoint)
		e.Metadata = api.ObjectMeta{Namespace: "prod", Name: "h1-vms-vm1-tap1", Annotations: map[string]string{"twill.net/endpoint-plugin": "p"}}
		e.Spec = api.WorkloadEndpointSpec{Node: "h1", Orchestrator: "vms", Workload: "vm1", Endpoint: "tap1", InterfaceName: "tap1", IPNetworks: []string{"10.65.0.9/32"}}
		w := endpointapi.NewWriter(endpointapi.Writer{Store: s, Kernel: kernel{}})
		key := must(api.Key(e))(t)
		g, _ := api.New(api.KindNetworkPolicy).(*api.NetworkPolicy)
		g.Metadata = api.ObjectMeta{Namespace: "default", Name: "group-vms.web", Annotations: map[string]string{"twill.net/endpoint-plugin": "p", "twill.net/endpoint-plugin-node": "h1"}}
		group := must(api.Key(g))(t)
		for _, j := range []endpointapi.Job{
			{Plugin: "p", Want: e},
			{Plugin: "p", Remove: []string{key}},
			{Plugin: "p", Group: group, Policy: g, Fresh: true},
			{Plugin: "p", Group: group, Node: "h1"},
		} {
			if err := w.Do(ctx, &j); err != nil {
				t.Error(err)
			}
		}
	}},
}

func addresses(ctx context.Context, t *testing.T, s *scribe) {
	w := must(nodeaddr.ParseWant(nodeaddr.V4, "", ""))(t)
	k := nodekeep.New(nodekeep.Config{
		Node: "h1", Wants: []nodeaddr.Want{w}, Store: s, Log: quiet,
		Watch: func(ctx context.Context, _ chan<- struct{}) error { <-ctx.Done(); return ctx.Err() },
		Look: func(context.Context) (nodeaddr.Host, error) {
			return nodeaddr.Host{Interfaces: []nodeaddr.Interface{{Name: "eth0", Up: true, Addrs: []nodeaddr.Addr{{Prefix: netip.MustParsePrefix("192.0.2.1/24")}}}}}, nil
		},
	})
	go k.Run(ctx)
}

func nodeStatus(ctx context.Context, t *testing.T, s *scribe) {
	k := nodestatus.New(nodestatus.Config{Node: "h1", Store: s, Log: quiet, Ask: func(context.Context, bool) (nodestatus.Facts, error) {
		return nodestatus.Facts{Now: time.Now()}, nil
	}})
	must(s.Store.Create(ctx, stored(api.KindCalicoNodeStatus, "a", `"node":"h1","classes":["BGP"],"updatePeriodSeconds":1`)))(t)
	go k.Run(ctx)
}

// kernel has everything in force at once.
type kernel struct{}

func (kernel) Overlay(context.Context, []api.Update) error      { return nil }
func (kernel) Announce(string, string)                          {}
func (kernel) Give(string, attach.Given)                        {}
func (kernel) Written(api.Update)                               {}
func (kernel) InForce(context.Context, intent.EndpointID) error { return nil }
func (kernel) PolicyInForce(context.Context, api.Update) error  { return nil }
func (kernel) NotReady() []string                               { return nil }

func attachOne(ctx context.Context, t *testing.T, s *scribe) {
	must(s.Store.Create(ctx, stored(api.KindIPPool, "p", `"cidr":"10.65.0.0/24"`)))(t)
	must(s.Store.Create(ctx, stored(api.KindNode, "h1", ``)))(t)
	server := attach.New(attach.Config{Node: "h1", Store: s, Addresses: attach.NewAddresses(s, "h1"), Kernel: kernel{}, Notes: t.TempDir(), Log: quiet})
	for _, pod := range []*wire.Pod{nil, {Namespace: "prod", Name: "web"}} {
		r := wire.Request{Ref: wire.Ref{Network: "net", ContainerID: "c1", Ifname: "eth0"}, Link: "calic1", MAC: "02:00:00:00:00:02", IPAM: wire.IPAM{V4: true}}
		r.Pod = pod
		must(server.Attach(ctx, r))(t)
		must(server.Detach(ctx, r.Ref))(t)
	}
}

// keysOf are those that a package writes.
func keysOf(t *testing.T, w writer) (keys []string) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := &scribe{Store: memstore.New(), keys: map[string]bool{}}
		w.run(ctx, t, s)
		<-time.After(time.Minute) // virtual
		cancel()
		synctest.Wait()
		keys = slices.Sorted(maps.Keys(s.keys))
	})
	return keys
}

// TestWhatADaemonWritesIsAskedOfTheGuide finds a package that a host's daemons are made of, that writes, and that no entry of
// writers has.
func TestWhatADaemonWritesIsAskedOfTheGuide(t *testing.T) {
	const module, root = "github.com/twillnet/twill/", "../../.."
	list := exec.Command("go", "list", "-deps", "./internal/agent", "./internal/bgp/daemon", "./internal/nodekeep")
	list.Dir = root
	writes := regexp.MustCompile(`\.(Create|Update|Delete|Transact)\(ctx, |datastore\.Put(For)?\(ctx, |resources\.(Over|Overwrite|CreateMissing|CreateNew|DeleteSeen|DeleteIf|Rewriting)\(ctx, `)
	var found []string
	for p := range strings.FieldsSeq(string(must(list.Output())(t))) {
		p, own := strings.CutPrefix(p, module)
		if !own || strings.HasPrefix(p, "internal/datastore") || strings.HasPrefix(p, "internal/resources") {
			continue // what writes for those who call it
		}
		for _, f := range must(filepath.Glob(filepath.Join(root, p, "*.go")))(t) {
			if !strings.HasSuffix(f, "_test.go") && writes.Match(must(os.ReadFile(f))(t)) && !slices.Contains(found, p) {
				found = append(found, p)
			}
		}
	}
	slices.Sort(found)
	if want := slices.Sorted(maps.Keys(writers)); !slices.Equal(found, want) {
		t.Errorf("of the daemons of a host %q write, and %q are asked which role of docs/etcd.md they need", found, want)
	}
}

// guide reads the table of docs/etcd.md: what each role may do.
func guide(t *testing.T) map[string]grants {
	t.Helper()
	text := string(must(os.ReadFile("../../../docs/etcd.md"))(t))
	kinds := map[string]clientv3.PermissionType{"read": clientv3.PermissionType(clientv3.PermRead), "readwrite": clientv3.PermissionType(clientv3.PermReadWrite)}
	row, grant := regexp.MustCompile(`(?m)^\| ([a-z]+) \|[^|]*\|(.*)\|$`), regexp.MustCompile("`(read|readwrite) (/calico/[^`]*)`")
	out := map[string]grants{}
	for _, r := range row.FindAllStringSubmatch(text, -1) {
		out[r[1]] = grants{}
		for _, g := range grant.FindAllStringSubmatch(r[2], -1) {
			out[r[1]][g[2]] = kinds[g[1]]
		}
		if len(out[r[1]]) == 0 {
			delete(out, r[1]) // a row of another table
		}
	}
	return out
}

// together is what a user may do who has several roles.
func together(t *testing.T, all map[string]grants, roles ...string) grants {
	t.Helper()
	out := grants{}
	for _, r := range roles {
		if all[r] == nil {
			t.Fatalf("docs/etcd.md has no role %s", r)
		}
		maps.Copy(out, all[r])
	}
	return out
}

// TestTheRolesOfTheGuideAreEnough holds the table of docs/etcd.md to what each component does.
func TestTheRolesOfTheGuideAreEnough(t *testing.T) {
	m, roles := started(t), guide(t)
	c := admin(t, m.Endpoints())
	ctx := t.Context()
	all := map[string]grants{}
	for role := range roles {
		all[role] = roles[role]
	}
	for name, w := range writers {
		all[filepath.Base(name)] = together(t, roles, w.roles...)
	}
	users(t, c, all)
	as := func(user string) *etcdstore.Store {
		return open(t, datastore.Config{Endpoints: m.Endpoints(), Username: user, Password: word(user)})
	}
	needed := map[string]bool{} // of the grants of a node's roles
	may := func(user, key string) {
		t.Helper()
		s := as(user)
		err := datastore.Put(ctx, s, api.Update{Key: key, Value: []byte("{}")})
		if err == nil {
			err = s.Delete(ctx, key, api.Revision{})
		}
		if err != nil {
			t.Errorf("%s writes %s: %v", user, key, err)
		}
	}
	for name, w := range writers {
		keys := keysOf(t, w)
		if len(keys) == 0 {
			t.Errorf("%s wrote nothing", name)
		}
		for _, key := range keys {
			may(filepath.Base(name), key)
			for prefix := range all[filepath.Base(name)] {
				needed[prefix] = needed[prefix] || strings.HasPrefix(key, prefix)
			}
		}
	}
	for prefix, is := range needed {
		if !is {
			t.Errorf("no daemon writes below %s, and a role of a host may", prefix)
		}
	}
	for _, w := range []writer{{run: addresses}, {run: nodeStatus}} {
		for _, key := range keysOf(t, w) {
			may("reflector", key)
		}
	}

	// What `twill node` does before all else: the first as an operator, the others as what they are.
	ensure := func(role string) error {
		left, err := resources.Ensure(ctx, as(role))
		return errors.Join(append(left, err)...)
	}
	unauthorized(t, "the first node of a cluster, with the role of the others", ensure("agent"))
	if err := errors.Join(ensure("operator"), ensure("agent")); err != nil {
		t.Errorf("a datastore that is ready is looked at: %v", err)
	}
	policy := api.Update{Key: api.ResourcesPrefix + "tiers/a", Value: []byte("{}")}
	there := len(must(as("operator").List(ctx, api.ResourcesPrefix))(t).Items)
	written := must(as("operator").Create(ctx, policy))(t)
	for _, user := range []string{"agent", "reader"} {
		s := as(user)
		if got := must(s.List(ctx, api.ResourcesPrefix))(t); len(got.Items) != there+1 {
			t.Errorf("%s lists %v", user, got.Items)
		}
		w := must(s.Watch(ctx, api.ResourcesPrefix, from(count(t, written.Revision)-1)))(t)
		if got := must(w.Next(ctx))(t); len(got.Updates) != 1 {
			t.Errorf("%s hears %v", user, got)
		}
		w.Close()
		unauthorized(t, user+" changes a resource", datastore.Put(ctx, s, policy))
	}
	status := api.Update{Key: api.Root + "felix/v2/no-region/host/h1/status", Value: []byte("{}")}
	if err := as("agent").PutFor(ctx, status, time.Minute); err != nil {
		t.Errorf("the agent's status: %v", err)
	}
	block := api.Update{Key: api.BlockPrefix + "ipv4/block/10.65.0.0-26", Value: []byte("{}")}
	for _, key := range []string{block.Key, api.HandleKey("a"), api.IPAMConfigKey} {
		may("operator", key)
	}
	claim := datastore.Txn{If: map[string]api.Revision{block.Key: {}, policy.Key: written.Revision}, Put: []api.Update{block, {Key: api.HandleKey("a")}}}
	for _, user := range []string{"ipam", "attach"} {
		if _, err := as(user).Transact(ctx, claim); err != nil {
			t.Errorf("%s: an address, if a resource is as it was read: %v", user, err)
		}
		if err := errors.Join(as(user).Delete(ctx, block.Key, api.Revision{}), as(user).Delete(ctx, api.HandleKey("a"), api.Revision{})); err != nil {
			t.Error(err)
		}
	}
	claim = datastore.Txn{If: map[string]api.Revision{}, Put: []api.Update{block, policy}}
	_, err := as("ipam").Transact(ctx, claim)
	unauthorized(t, "who gives out addresses changes a resource", err)
	_, err = as("agent").Transact(ctx, datastore.Txn{Put: []api.Update{block}})
	unauthorized(t, "an agent changes a block", err)
	reflector := as("reflector")
	for _, prefix := range append(plan.Prefixes(), nodestatus.Prefixes()...) {
		must(reflector.List(ctx, prefix))(t)
		must(reflector.Watch(ctx, prefix, from(count(t, written.Revision))))(t).Close()
	}
	_, err = reflector.List(ctx, api.ResourcesPrefix+"workloadendpoints/")
	unauthorized(t, "a dedicated reflector reads endpoints", err)
	if err := reflector.Ping(ctx); err != nil {
		t.Errorf("a dedicated reflector asks whether the store is there: %v", err)
	}
	unauthorized(t, "a reader writes status", as("reader").PutFor(ctx, status, time.Minute))
}

// TestTheRoleOfTheOpenStackPluginIsEnough: it writes and deletes all kinds of objects, resyncs, and reads what agents report, and may
// write nothing else.
func TestTheRoleOfTheOpenStackPluginIsEnough(t *testing.T) {
	m, roles := started(t), guide(t)
	users(t, admin(t, m.Endpoints()), map[string]grants{"agent": together(t, roles, "agent"), "openstack": together(t, roles, "openstack")})
	ctx, end := context.WithCancel(t.Context())
	as := func(user string) *etcdstore.Store {
		return open(t, datastore.Config{Endpoints: m.Endpoints(), Username: user, Password: word(user)})
	}
	store, socket, ended := as("openstack"), filepath.Join(t.TempDir(), "s"), make(chan error, 1)
	go func() {
		ended <- openstack.Run(ctx, openstack.Config{Store: store, Socket: socket, Log: quiet})
	}()
	defer func() {
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (c net.Conn, err error) {
		for ctx.Err() == nil {
			if c, err = (&net.Dialer{}).DialContext(ctx, "unix", socket); err == nil {
				break
			}
		}
		return c, err
	}}}
	call := func(method, path, body string) string {
		t.Helper()
		answer := must(client.Do(must(http.NewRequestWithContext(ctx, method, "http://plugin/v1/"+path, strings.NewReader(body)))(t)))(t)
		defer answer.Body.Close()
		got := string(must(io.ReadAll(answer.Body))(t))
		if answer.StatusCode != http.StatusOK {
			t.Errorf("%s %s: %s %s", method, path, answer.Status, got)
		}
		return got
	}
	const port = `{"id": "a", "device_id": "vm", "device_owner": "compute:x", "binding:host_id": "h1", "bindings": [{"host": "h2", "vif_type": "tap"}], "admin_state_up": true, "fixed_ips": [{"ip_address": "10.65.0.5"}]}`
	objects := map[string]string{"security-groups/g": `{"id": "g"}`, "subnets/s": `{"id": "s", "cidr": "10.65.0.0/24", "enable_dhcp": true}`, "ports/a": port}
	for path, object := range objects {
		call("PUT", path, object)
		call("DELETE", path, "")
		call("PUT", path, object)
	}
	token := strings.Split(call("POST", "resync", ""), `"`)[3]
	if got := call("PUT", "resync/"+token, `{}`); !strings.Contains(got, `"deleted":5`) {
		t.Errorf("of a group, a subnet, and a port with its migration's target, which Neutron has no more: %s", got)
	}
	lease := datastore.ErrNotFound
	for until := time.Now().Add(patience); errors.Is(lease, datastore.ErrNotFound) && time.Now().Before(until); {
		call("GET", "lead?term=0", "")
		_, lease = store.Get(ctx, api.Root+"openstack/v2/no-region/neutron_election")
	}
	if lease != nil {
		t.Errorf("the lease of the only server: %v", lease)
	}
	report := api.Update{Key: api.Root + "felix/v2/no-region/host/h1/status", Value: []byte("{}")}
	if err := as("agent").PutFor(ctx, report, time.Hour); err != nil {
		t.Fatal(err)
	}
	for epoch, at := "", "0"; ; {
		got := call("GET", "feedback?epoch="+epoch+"&at="+at, "")
		if strings.Contains(got, `"h1"`) {
			break
		}
		news := regexp.MustCompile(`"epoch":"([^"]*)","at":([0-9]+)`).FindStringSubmatch(got)
		if news == nil {
			t.Fatalf("no news of an agent that reported, but %s", got)
		}
		epoch, at = news[1], news[2]
	}
	unauthorized(t, "the plugin writes a policy of others", datastore.Put(ctx, store, api.Update{Key: api.KeyPrefix(api.KindNetworkPolicy, "prod") + "a", Value: []byte("{}")}))
	unauthorized(t, "the plugin writes a report of an agent", store.PutFor(ctx, report, time.Minute))
}
