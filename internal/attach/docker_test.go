package attach

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/attach/wire"
	"github.com/twillnet/twill/internal/ipam"
)

const dockersID = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// ofDockers is a request for addresses, which Docker makes before it has an endpoint.
func ofDockers(id string) wire.Request {
	return wire.Request{Ref: wire.Ref{Network: "libnetwork", ContainerID: id, Ifname: wire.FirstInterface, Docker: true}, IPAM: wire.IPAM{V4: true}}
}

func (b *bed) dockersEndpoint(id, profile string, addrs []netip.Addr) wire.Request {
	r := wire.Request{Ref: wire.Ref{Network: "aaaabbbbcccc", ContainerID: id, Ifname: wire.FirstInterface, Docker: true}, Profile: profile, MAC: "02:00:00:00:00:02", Addrs: addrs}
	r.Link = r.Ref.Link()
	return r
}

func (b *bed) endpointOf(name string) *api.WorkloadEndpoint {
	b.Helper()
	u, err := b.store.Get(b.Context(), api.KeyPrefix(api.KindWorkloadEndpoint, "")+name)
	b.must(err)
	st, err := api.DecodeStored(u)
	b.must(err)
	return st.Resource.(*api.WorkloadEndpoint)
}

func TestAnEndpointOfDockersHasTheFormOfUpstreams(t *testing.T) {
	for _, profile := range []string{"front", ""} {
		b := newBed(t)
		got, err := b.Assign(t.Context(), ofDockers("ask1"))
		b.must(err)
		r := b.dockersEndpoint(dockersID, profile, got.Addrs)
		out, err := b.Attach(t.Context(), r)
		b.must(err)
		if out.Endpoint != "default/h1-libnetwork-libnetwork-"+dockersID || len(b.kernel.asked) != 1 {
			t.Fatalf("attached %+v, waited for %v", out, b.kernel.asked)
		}
		w := b.endpointOf(out.Endpoint)
		want := []string{profile}
		if profile == "" {
			want = nil
		}
		if s := w.Spec; s.Orchestrator != "libnetwork" || s.Workload != "libnetwork" || s.Endpoint != dockersID || s.InterfaceName != "cali0123456789a" || !slices.Equal(s.Profiles, want) {
			t.Errorf("its endpoint is %+v", s)
		}
		if l := w.Metadata.Labels; !maps.Equal(l, map[string]string{api.LabelNamespace: "default", api.LabelOrchestrator: "libnetwork"}) {
			t.Errorf("its labels are %v", l)
		}
		_, err = b.store.Get(t.Context(), api.KeyPrefix(api.KindProfile, "")+"front")
		if (err == nil) != (profile != "") {
			t.Errorf("with the profile %q: %v", profile, err)
		}
		for range 2 {
			b.must(second(b.Detach(t.Context(), r.Ref)))
			if left := b.left(); len(left) != 1 { // Docker gives it back by itself
				t.Errorf("left: %v", left)
			}
		}
		for range 2 {
			b.must(second(b.Free(t.Context(), wire.Addresses{Network: "libnetwork", Addrs: got.Addrs})))
		}
		if left := b.left(); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
}

// TestAnEndpointOfUpstreamsPluginGoesWithDockers: upstream's plugin wrote it, in its own namespace or in ours; another host's, and another's, stay.
func TestAnEndpointOfUpstreamsPluginGoesWithDockers(t *testing.T) {
	b := newBed(t)
	upstreams := func(namespace, node, id, container string) string {
		w := &api.WorkloadEndpoint{Spec: api.WorkloadEndpointSpec{
			Orchestrator: "libnetwork", Workload: "libnetwork", Node: node, Endpoint: id, ContainerID: container, InterfaceName: "cali" + id[:11],
			MAC: "ee:ee:ee:ee:ee:ee", IPNetworks: []string{"10.65.9.9/32"}, Profiles: []string{"front"},
		}}
		name, err := api.WorkloadEndpointName(w.Spec)
		b.must(err)
		w.TypeMeta = api.TypeMeta{Kind: api.KindWorkloadEndpoint, APIVersion: api.GroupVersion}
		w.Metadata = api.ObjectMeta{Name: name, Namespace: namespace}
		b.known.Store(api.KeyPrefix(api.KindWorkloadEndpoint, "")+namespace+"/"+name, true)
		b.put(w)
		return "workloadendpoints/" + namespace + "/" + name
	}
	again := strings.Repeat("e", 64)
	for _, namespace := range []string{"libnetwork", "default"} {
		upstreams(namespace, "h1", dockersID, "")
	}
	want := []string{
		upstreams("default", "h1", again, "somebody"), // under its name, another's
		upstreams("libnetwork", "h1", strings.Repeat("f", 64), ""),
		upstreams("libnetwork", "h2", dockersID, ""),
	}
	for _, id := range []string{dockersID, again} {
		b.must(second(b.Detach(t.Context(), b.dockersEndpoint(id, "", nil).Ref)))
	}
	if left := b.left(); !slices.Equal(left, slices.Sorted(slices.Values(want))) {
		t.Errorf("left %v, want %v", left, want)
	}
}

func TestDockerGivesBackWhatIsItsOwnAlone(t *testing.T) {
	b := newBed(t)
	other, err := b.Attach(t.Context(), request("c1"))
	b.must(err)
	onOther := about("h2", ofDockers("ask2"), time.Now())
	onOther[api.AttributeNote] = ipam.NoteDocker
	far, err := b.cfg.Addresses.Assign(t.Context(), AddressRequest{"libnetwork.ask2", wire.IPAM{V4: true}, onOther, nil, nil})
	b.must(err)
	was := b.left()
	b.must(second(b.Free(t.Context(), wire.Addresses{Network: "libnetwork", Addrs: slices.Concat(other.Addrs, far, []netip.Addr{netip.MustParseAddr("192.0.2.1")})})))
	if left := b.left(); !slices.Equal(left, was) {
		t.Errorf("left %v of %v", left, was)
	}
}

func TestAnAddressOfDockersIsNoLeakWhileItsNodeIsThere(t *testing.T) {
	b := newBed(t)
	got, err := b.Assign(t.Context(), ofDockers("ask1"))
	b.must(err)
	all, err := ipam.New(b.store.InMemory, ipam.Config{}).ReadSurvey(t.Context())
	b.must(err)
	if found := all.Check(ipam.CheckOptions{Now: time.Now().Add(24 * time.Hour)}); len(found) > 0 {
		t.Errorf("found %+v", found)
	}
	b.must(second(b.Collect(t.Context(), wire.Valid{Network: "libnetwork"}))) // of a CNI network that is called so
	if left := b.left(); len(left) != 1 {
		t.Errorf("collected %v: left %v", got.Addrs, left)
	}
	for _, name := range []string{"h1", "h2"} {
		b.known.Store(api.KeyPrefix(api.KindNode, "")+name, true)
	}
	b.must(b.store.InMemory.Delete(t.Context(), api.KeyPrefix(api.KindNode, "")+"h1", api.Revision{}))
	b.put(&api.Node{Object: api.Object{TypeMeta: api.TypeMeta{Kind: "Node", APIVersion: api.GroupVersion}, Metadata: api.ObjectMeta{Name: "h2"}}})
	all, err = ipam.New(b.store.InMemory, ipam.Config{}).ReadSurvey(t.Context())
	b.must(err)
	leaked := func(f ipam.Finding) bool { return f.Address == got.Addrs[0] && f.Fix != "" }
	if found := all.Check(ipam.CheckOptions{Now: time.Now().Add(24 * time.Hour)}); slices.ContainsFunc(found, leaked) {
		t.Errorf("of a host without a Node, that may live: found %+v", found)
	}
	b.must(second(b.store.InMemory.Create(t.Context(), api.Update{Key: "/calico/felix/v2/no-region/host/h1/last_reported_status", Value: []byte(`{}`)})))
	all, err = ipam.New(b.store.InMemory, ipam.Config{}).ReadSurvey(t.Context())
	b.must(err)
	if found := all.Check(ipam.CheckOptions{Now: time.Now().Add(24 * time.Hour)}); !slices.ContainsFunc(found, leaked) {
		t.Errorf("of a node that is gone, whose agent reported: found %+v", found)
	}
}

// TestCollectTakesWhatDockerHasNoMore: endpoints and addresses of Docker's that are old enough, and nobody else's.
func TestCollectTakesWhatDockerHasNoMore(t *testing.T) {
	b := newBed(t)
	b.must(second(b.Attach(t.Context(), request("c1"))))
	kept, gone := dockersID, strings.Repeat("f", 64)
	for _, id := range []string{kept, gone} {
		got, err := b.Assign(t.Context(), ofDockers(id))
		b.must(err)
		b.must(second(b.Attach(t.Context(), b.dockersEndpoint(id, "front", got.Addrs))))
	}
	router, err := b.Assign(t.Context(), ofDockers("router"))
	b.must(err)
	b.must(second(b.Assign(t.Context(), ofDockers("lost"))))
	v := wire.Valid{Docker: true, Age: time.Hour, Addrs: router.Addrs, Refs: []wire.Ref{b.dockersEndpoint(kept, "", nil).Ref}}
	was := b.left()
	b.must(second(b.Collect(t.Context(), v)))
	if left := b.left(); !slices.Equal(left, was) {
		t.Errorf("what is young was collected: %v of %v", left, was)
	}
	v.Age = 0
	b.must(second(b.Collect(t.Context(), v)))
	left := strings.Join(b.left(), " ")
	for _, want := range []string{"h1-cni-c1-eth0", "net.c1", "libnetwork-" + kept, "libnetwork." + kept, "libnetwork.router"} {
		if !strings.Contains(left, want) {
			t.Errorf("%s was collected: left %s", want, left)
		}
	}
	for _, not := range []string{gone, "lost"} {
		if strings.Contains(left, not) {
			t.Errorf("%s was not: left %s", not, left)
		}
	}
}

func TestLabelsOfAContainerComeLater(t *testing.T) {
	b := newBed(t)
	got, err := b.Assign(t.Context(), ofDockers("ask1"))
	b.must(err)
	r := b.dockersEndpoint(dockersID, "front", got.Addrs)
	attached, err := b.Attach(t.Context(), r)
	b.must(err)
	for _, given := range []map[string]string{
		{"role": "db", "bad": "not a value", "/": "x", api.LabelNamespace: "prod", api.LabelOrchestrator: "k8s"},
		{"tier": "front"}, // in place of the former
	} {
		out, err := b.Label(t.Context(), wire.Labels{Ref: r.Ref, Labels: given})
		b.must(err)
		want := map[string]string{api.LabelNamespace: "default", api.LabelOrchestrator: "libnetwork"}
		wrong := 0
		for name, value := range given {
			if name == "role" || name == "tier" {
				want[name] = value
			} else {
				wrong++
			}
		}
		if w := b.endpointOf(attached.Endpoint); !maps.Equal(w.Metadata.Labels, want) || len(out.Wrong) != wrong || w.Spec.InterfaceName != r.Link {
			t.Errorf("given %v it has %v, left out %v", given, w.Metadata.Labels, out.Wrong)
		}
	}
	b.must(second(b.Detach(t.Context(), r.Ref)))
	b.must(second(b.Label(t.Context(), wire.Labels{Ref: r.Ref, Labels: map[string]string{"a": "b"}}))) // it went meanwhile
}

func TestAPoolIsKnownByItsCIDR(t *testing.T) {
	b := newBed(t)
	b.must(second(b.Pool(t.Context(), wire.Pool{CIDR: netip.MustParsePrefix("10.65.0.0/24")})))
	b.must(second(b.Pool(t.Context(), wire.Pool{CIDR: netip.MustParsePrefix("fd65::/64")})))
	if _, err := b.Pool(t.Context(), wire.Pool{CIDR: netip.MustParsePrefix("10.65.0.0/25")}); err == nil || !strings.Contains(err.Error(), "no IPPool has the cidr 10.65.0.0/25") {
		t.Errorf("half a pool: %v", err)
	}
	b.kernel.unready = []string{"the datastore is away"}
	if _, err := b.Pool(t.Context(), wire.Pool{CIDR: netip.MustParsePrefix("10.65.0.0/24")}); err == nil || !strings.Contains(err.Error(), "the datastore is away") {
		t.Errorf("an agent that is not ready: %v", err)
	}
}
