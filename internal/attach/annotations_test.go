package attach

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/attach/wire"
	"github.com/twillnet/twill/internal/datastore"
)

// on makes annotations of the plugin's domain, of names and values in turn.
func on(nameAndValue ...string) map[string]string {
	out := map[string]string{}
	for i := 0; i < len(nameAndValue); i += 2 {
		name := nameAndValue[i]
		if !strings.Contains(name, "/") {
			name = annotationDomain + name
		}
		out[name] = nameAndValue[i+1]
	}
	return out
}

// text is what is wanted, as the tables below have it.
func (w wanted) text() string {
	out := fmt.Sprintf("v4=%v v6=%v", w.ipam.V4, w.ipam.V6)
	for _, part := range []struct {
		name string
		has  any
		none bool
	}{
		{"pools4", w.ipam.Pools4, w.ipam.Pools4 == nil},
		{"pools6", w.ipam.Pools6, w.ipam.Pools6 == nil},
		{"addrs", w.ipam.Addrs, w.ipam.Addrs == nil},
		{"own", w.addrs, w.addrs == nil},
		{"mac", w.mac, w.mac == ""},
		{"idle", w.idle, w.idle == nil},
	} {
		if !part.none {
			out += fmt.Sprintf(" %s=%v", part.name, part.has)
		}
	}
	return out
}

var annotationCases = []struct {
	name, want string // the beginning of a refusal begins with: annotation
	pod, ns    map[string]string
	change     func(*wire.Request)
}{
	{"nothing", "v4=true v6=false pools4=[conf]", nil, on("example.com/a", "b"), nil},
	{"what is empty asks for nothing", "v4=true v6=false pools4=[conf]", on("ipv4pools", "", "ipAddrs", "", "hwAddr", "", "floatingIPs", ""), nil, nil},
	{"pools of the namespace before those of the network", "v4=true v6=false pools4=[a 10.0.0.0/8]", nil, on("ipv4pools", `["a", "10.0.0.0/8"]`), nil},
	{"pools of the pod before those of its namespace", "v4=true v6=false pools4=[b]", on("ipv4pools", `["b"]`), on("ipv4pools", `["a"]`), nil},
	{"an empty one of the pod does not hide the namespace's", "v4=true v6=false pools4=[a]", on("ipv4pools", ""), on("ipv4pools", `["a"]`), nil},
	{"nor does what is wrong in the namespace's matter then", "v4=true v6=false pools4=[b]", on("ipv4pools", `["b"]`), on("ipv4pools", `[`), nil},
	{"each family by itself", "v4=true v6=true pools4=[b] pools6=[fd00::/64]", on("ipv4pools", `["b"]`, "ipFamilies", `["IPv6", "IPv4"]`), on("ipv6pools", `["fd00::/64"]`), nil},
	{"families of the namespace", "v4=false v6=true pools4=[conf]", nil, on("ipFamilies", `["IPv6"]`), nil},
	{"families of the pod before them", "v4=true v6=false pools4=[conf]", on("ipFamilies", `["IPv4"]`), on("ipFamilies", `["IPv6"]`), nil},
	{"pools of the namespace, of a family that the pod has not", "v4=true v6=false pools4=[conf] idle=[annotation cni.projectcalico.org/ipv6pools of namespace prod: the pod gets no IPv6 address]", nil, on("ipv6pools", `["f"]`), nil},
	{"the pod's own, of a family that is off", "annotation cni.projectcalico.org/ipv6pools of pod prod/web asks for IPv6, which is off:", on("ipv6pools", `["f"]`), nil, nil},
	{"a pool of the other family", `annotation cni.projectcalico.org/ipv4pools of pod prod/web has "fd00::/64":`, on("ipv4pools", `["fd00::/64"]`), nil, nil},
	{"a prefix that is none", `annotation cni.projectcalico.org/ipv4pools of namespace prod has "10.0.0.0/33":`, nil, on("ipv4pools", `["10.0.0.0/33"]`), nil},
	{"a pool without a name", `annotation cni.projectcalico.org/ipv4pools of pod prod/web has "":`, on("ipv4pools", `[""]`), nil, nil},
	{"no pool at all", "annotation cni.projectcalico.org/ipv4pools of pod prod/web is a list of none:", on("ipv4pools", `[]`), on("ipv4pools", `["a"]`), nil},
	{"no JSON", `annotation cni.projectcalico.org/ipv4pools of pod prod/web is "a":`, on("ipv4pools", `a`), nil, nil},
	{"two lists", `annotation cni.projectcalico.org/ipv4pools of pod prod/web is "[\"a\"][\"b\"]":`, on("ipv4pools", `["a"]["b"]`), nil, nil},
	{"null", "annotation cni.projectcalico.org/ipv4pools of pod prod/web is a list of none:", on("ipv4pools", `null`), nil, nil},
	{"null in a list", "annotation cni.projectcalico.org/ipAddrs of pod prod/web has null in its list", on("ipAddrs", `["10.0.0.1", null]`), nil, nil},
	{"a family that there is not", `annotation cni.projectcalico.org/ipFamilies of namespace prod has "ipv4":`, nil, on("ipFamilies", `["ipv4"]`), nil},
	{"an address", "v4=true v6=false pools4=[conf] addrs=[10.0.0.1]", on("ipAddrs", `["10.0.0.1"]`), nil, nil},
	{"one of each family", "v4=true v6=true pools4=[conf] addrs=[fd00::1 10.0.0.1]", on("ipAddrs", `["fd00::1", "::ffff:10.0.0.1"]`), nil, dual},
	{"two of a family", "annotation cni.projectcalico.org/ipAddrs of pod prod/web has two addresses of IPv4:", on("ipAddrs", `["10.0.0.1", "10.0.0.2"]`), nil, nil},
	{"an address of a family that is off", "annotation cni.projectcalico.org/ipAddrs of pod prod/web asks for fd00::1, but IPv6 is off:", on("ipAddrs", `["fd00::1"]`), nil, nil},
	{"of one that the pod turns off", "annotation cni.projectcalico.org/ipAddrs of pod prod/web asks for 10.0.0.1, but IPv4 is off:", on("ipAddrs", `["10.0.0.1"]`, "ipFamilies", `["IPv6"]`), nil, nil},
	{"of one that it turns on", "v4=true v6=true pools4=[conf] addrs=[fd00::1]", on("ipAddrs", `["fd00::1"]`, "ipFamilies", `["IPv6","IPv4"]`), nil, nil},
	{"no addresses", "annotation cni.projectcalico.org/ipAddrs of pod prod/web is a list of none:", on("ipAddrs", `[]`), nil, nil},
	{"a prefix", `annotation cni.projectcalico.org/ipAddrs of pod prod/web has "10.0.0.1/32":`, on("ipAddrs", `["10.0.0.1/32"]`), nil, nil},
	{"a zone", `annotation cni.projectcalico.org/ipAddrs of pod prod/web has "fe80::1%eth0":`, on("ipAddrs", `["fe80::1%eth0"]`), nil, dual},
	{"a group", `annotation cni.projectcalico.org/ipAddrs of pod prod/web has "224.0.0.1":`, on("ipAddrs", `["224.0.0.1"]`), nil, nil},
	{"nobody's address", `annotation cni.projectcalico.org/ipAddrs of pod prod/web has "0.0.0.0":`, on("ipAddrs", `["0.0.0.0"]`), nil, nil},
	{"the loopback's", `annotation cni.projectcalico.org/ipAddrs of pod prod/web has "127.0.0.1":`, on("ipAddrs", `["127.0.0.1"]`), nil, nil},
	{"the link's own", `annotation cni.projectcalico.org/ipAddrs of pod prod/web has "169.254.1.1":`, on("ipAddrs", `["169.254.1.1"]`), nil, nil},
	{"what the runtime asks for, too", "v4=true v6=false pools4=[conf] addrs=[10.0.0.1]", on("ipAddrs", `["10.0.0.1"]`), nil, fixed},
	{"another than the runtime asks for", "annotation cni.projectcalico.org/ipAddrs of pod prod/web asks for [10.0.0.2], and the runtime", on("ipAddrs", `["10.0.0.2"]`), nil, fixed},
	{"an address on a namespace", "v4=true v6=false pools4=[conf] idle=[annotation cni.projectcalico.org/ipAddrs means nothing on a namespace]", nil, on("ipAddrs", `["10.0.0.1"]`), nil},
	{"an address without IPAM", "v4=true v6=false pools4=[conf] own=[192.0.2.1]", on("ipAddrsNoIpam", `["192.0.2.1"]`), nil, allowed},
	{"where that is not allowed", "annotation cni.projectcalico.org/ipAddrsNoIpam of pod prod/web is not allowed: the network's configuration has no feature_control.ip_addrs_no_ipam", on("ipAddrsNoIpam", `["192.0.2.1"]`), nil, nil},
	{"with and without", "annotation cni.projectcalico.org/ipAddrs of pod prod/web and cni.projectcalico.org/ipAddrsNoIpam exclude each other", on("ipAddrs", `["10.0.0.1"]`, "ipAddrsNoIpam", `["10.0.0.1"]`), nil, allowed},
	{"none without IPAM", "annotation cni.projectcalico.org/ipAddrsNoIpam of pod prod/web is a list of none:", on("ipAddrsNoIpam", `[]`), nil, allowed},
	{
		"where another plugin gives addresses, pools mean nothing", "v4=true v6=false pools4=[conf] own=[10.9.0.1] idle=[annotation cni.projectcalico.org/ipFamilies of pod prod/web: another plugin gives the addresses (ipam.type) annotation cni.projectcalico.org/ipv4pools of namespace prod: another plugin gives the addresses (ipam.type)]",
		on("ipFamilies", `["IPv6"]`), on("ipv4pools", `["a"]`), delegated,
	},
	{"and addresses are refused", "annotation cni.projectcalico.org/ipAddrs of pod prod/web cannot be honoured: another plugin", on("ipAddrs", `["10.9.0.1"]`), nil, delegated},
	{"so are those without IPAM", "annotation cni.projectcalico.org/ipAddrsNoIpam of pod prod/web cannot be honoured: another plugin", on("ipAddrsNoIpam", `["10.9.0.1"]`), nil, delegated},
	{"a MAC", "v4=true v6=false pools4=[conf] mac=1c:0c:0a:c0:ff:ee", on("hwAddr", "1C-0C-0A-C0-FF-EE"), nil, nil},
	{"no MAC", `annotation cni.projectcalico.org/hwAddr of pod prod/web is "1c:0c":`, on("hwAddr", "1c:0c"), nil, nil},
	{"one of eight bytes", `annotation cni.projectcalico.org/hwAddr of pod prod/web is "02:00:5e:10:00:00:00:01":`, on("hwAddr", "02:00:5e:10:00:00:00:01"), nil, nil},
	{"none of six", `annotation cni.projectcalico.org/hwAddr of pod prod/web is "00:00:00:00:00:00":`, on("hwAddr", "00:00:00:00:00:00"), nil, nil},
	{"a group's", `annotation cni.projectcalico.org/hwAddr of pod prod/web is "01:00:5e:00:00:01", which is a group's`, on("hwAddr", "01:00:5e:00:00:01"), nil, nil},
	{"prefixes to send from", "v4=true v6=false pools4=[conf]", on("allowedSourcePrefixes", `["192.0.2.0/24", "fd00::/64"]`), nil, nil},
	{"none that can be read", `annotation cni.projectcalico.org/allowedSourcePrefixes of pod prod/web has "192.0.2.0":`, on("allowedSourcePrefixes", `["192.0.2.0"]`), nil, nil},
	{"floating addresses", "v4=true v6=false pools4=[conf]", on("floatingIPs", `["192.0.2.9"]`), nil, nil},
	{"a floating address that is none", `annotation cni.projectcalico.org/floatingIPs of pod prod/web has "192.0.2.0/24":`, on("floatingIPs", `["192.0.2.0/24"]`), nil, nil},
	{"a floating address of a family that is off", "annotation cni.projectcalico.org/floatingIPs of pod prod/web has fd00::1, and the pod gets no address of that family", on("floatingIPs", `["fd00::1"]`), nil, nil},
	{"a limit", "v4=true v6=false pools4=[conf]", on("qos.projectcalico.org/ingressPacketRate", "10k"), nil, nil},
	{"a bandwidth", "v4=true v6=false pools4=[conf]", on("qos.projectcalico.org/ingressBandwidth", "10M"), nil, nil},
	{"a bandwidth that is none", `annotation kubernetes.io/egress-bandwidth of pod prod/web is 10: want 1000–1000000000000000`, on("kubernetes.io/egress-bandwidth", "10"), nil, nil},
	{"a limit that is none", `annotation qos.projectcalico.org/egressMaxConnections of pod prod/web is "few": want a whole number`, on("qos.projectcalico.org/egressMaxConnections", "few"), nil, nil},
	{
		"what is not known", "v4=true v6=false pools4=[conf] idle=[annotation cni.projectcalico.org/ipv4Pools of the pod is not known annotation qos.projectcalico.org/colour of the pod is not known annotation cni.projectcalico.org/vlan means nothing on a namespace]",
		on("ipv4Pools", `["a"]`, "podIP", "10.0.0.1/32", "qos.projectcalico.org/colour", "EF"), on("vlan", "7"), nil,
	},
}

// What tables change in the request of a pod in a network with an IPv4 pool.
func dual(r *wire.Request)      { r.IPAM.V6 = true }
func fixed(r *wire.Request)     { r.IPAM.Addrs = []netip.Addr{netip.MustParseAddr("10.0.0.1")} }
func allowed(r *wire.Request)   { r.AllowNoIPAM = true }
func delegated(r *wire.Request) { r.Addrs = []netip.Addr{netip.MustParseAddr("10.9.0.1")} }

func TestWhatAnnotationsAskFor(t *testing.T) {
	for _, tt := range annotationCases {
		t.Run(tt.name, func(t *testing.T) {
			r := ofPod("c1", "web")
			r.IPAM = wire.IPAM{V4: true, Pools4: []string{"conf"}}
			if tt.change != nil {
				tt.change(&r)
			}
			got, err := wantedOf(r, datastore.Annotations{Pod: tt.pod, Namespace: tt.ns})
			var refused *wire.Refusal
			switch {
			case strings.HasPrefix(tt.want, "annotation"):
				if !errors.As(err, &refused) || !strings.HasPrefix(err.Error(), tt.want) {
					t.Errorf("got  %v\nwant %s", err, tt.want)
				}
			case err != nil || got.text() != tt.want:
				t.Errorf("got  %s, %v\nwant %s", got.text(), err, tt.want)
			}
		})
	}
}

// FuzzAnnotations: whatever they are, what is wanted can be carried out, or it is refused in few words.
func FuzzAnnotations(f *testing.F) {
	for _, tt := range annotationCases {
		for _, has := range []map[string]string{tt.pod, tt.ns} {
			for name, value := range has {
				f.Add(strings.TrimPrefix(name, annotationDomain), value, "ipFamilies", `["IPv4","IPv6"]`)
			}
		}
	}
	f.Fuzz(func(t *testing.T, one, value, other, more string) {
		r := ofPod("c1", "web")
		r.AllowNoIPAM = true
		w, err := wantedOf(r, datastore.Annotations{Pod: on(one, value), Namespace: on(other, more, one, more)})
		if err != nil {
			if len(err.Error()) > 2000 {
				t.Errorf("the refusal has %d bytes", len(err.Error()))
			}
			return
		}
		families := map[bool]bool{}
		for _, a := range slices.Concat(w.ipam.Addrs, w.addrs) {
			if families[a.Is4()] || !a.IsGlobalUnicast() || a.Is4() && !w.ipam.V4 || a.Is6() && !w.ipam.V6 {
				t.Errorf("addresses %v of %v", w.ipam.Addrs, w.ipam)
			}
			families[a.Is4()] = true
		}
		if !w.ipam.V4 && !w.ipam.V6 {
			t.Error("no address is wanted")
		}
		if hw, err := net.ParseMAC(w.mac); w.mac != "" && (err != nil || len(hw) != 6 || hw[0]&1 != 0) {
			t.Errorf("MAC %s", w.mac)
		}
	})
}

func TestAPodGetsWhatItsAnnotationsAskFor(t *testing.T) {
	b := newBed(t)
	more := &api.IPPool{Object: api.Object{TypeMeta: api.TypeMeta{Kind: api.KindIPPool, APIVersion: api.GroupVersion}, Metadata: api.ObjectMeta{Name: "more"}}}
	more.Spec.CIDR = "10.66.0.0/24"
	b.known.Store(api.ResourcesPrefix+"ippools/more", true) // who writes it is another
	b.put(more)
	has := func(pod, ns map[string]string) *Server {
		return b.on(deriving{has: &datastore.Annotations{Pod: pod, Namespace: ns}})
	}
	attach := func(s *Server, pod string) wire.Attached {
		t.Helper()
		out, err := s.Attach(t.Context(), ofPod("c-"+pod, pod))
		b.must(err)
		return out
	}
	if got := attach(has(on("ipAddrs", `["10.66.0.7","fd65::7"]`, "hwAddr", "1c:0c:0a:c0:ff:ee"), nil), "exact"); fmt.Sprint(got.Addrs) != "[10.66.0.7 fd65::7]" || got.MAC != "1c:0c:0a:c0:ff:ee" {
		t.Errorf("by address: %+v", got)
	}
	if got := attach(has(nil, on("ipv4pools", `["more"]`)), "ns"); len(got.Addrs) != 2 || !strings.HasPrefix(got.Addrs[0].String(), "10.66.0.") || got.MAC != "" {
		t.Errorf("by the namespace's pool: %+v", got)
	}
	if got := attach(has(on("ipv4pools", `["10.65.0.0/24"]`, "ipFamilies", `["IPv4"]`), on("ipv4pools", `["more"]`)), "pod"); len(got.Addrs) != 1 || !strings.HasPrefix(got.Addrs[0].String(), "10.65.0.") {
		t.Errorf("by the pod's pool, of one family: %+v", got)
	}
	before := b.left()
	for name, tt := range map[string]struct {
		pod  map[string]string
		says string
	}{
		"in use by another":     {on("ipAddrs", `["fd65::8","10.66.0.7"]`), "annotation cni.projectcalico.org/ipAddrs of pod prod/x: assign 10.66.0.7 on h1: is assigned already to handle net.c-exact; `twill ipam show"},
		"outside of the pools":  {on("ipAddrs", `["10.99.0.1"]`), "is in no pool that may be used: no IPPool contains it; `twill get ippools"},
		"of a pool that is not": {on("ipv4pools", `["gone"]`), `"gone" is neither name nor prefix of a pool of IPv4; `},
		"taken from IPAM":       {on("ipAddrsNoIpam", `["10.66.0.7"]`), "annotation cni.projectcalico.org/ipAddrsNoIpam of pod prod/x: 10.66.0.7: is assigned already to handle net.c-exact"},
		"malformed":             {on("hwAddr", "x"), `annotation cni.projectcalico.org/hwAddr of pod prod/x is "x"`},
	} {
		r := ofPod("c-x", "x")
		r.AllowNoIPAM = true
		if _, err := has(tt.pod, nil).Attach(t.Context(), r); err == nil || !strings.Contains(err.Error(), tt.says) || !slices.Equal(b.left(), before) {
			t.Errorf("%s: %v, and there is %v, was %v", name, err, b.left(), before)
		}
	}
	var refused *wire.Refusal
	if _, err := b.on(deriving{}).Attach(t.Context(), ofPod("c-x", "x")); !errors.As(err, &refused) || !strings.Contains(err.Error(), "pod prod/x is not in the datastore") {
		t.Errorf("a pod that is not there: %v", err)
	}
	own := ofPod("c-own", "own")
	own.AllowNoIPAM = true
	s := has(on("ipAddrsNoIpam", `["192.0.2.7"]`), nil)
	if got, err := s.Attach(t.Context(), own); err != nil || fmt.Sprint(got.Addrs) != "[192.0.2.7]" || len(b.left()) != len(before)+1 {
		t.Errorf("without IPAM: %v, %v, and there is %v", got, err, b.left())
	}
	for _, pod := range []string{"exact", "ns", "pod", "own"} {
		b.must(second(s.Detach(t.Context(), ofPod("c-"+pod, pod).Ref)))
	}
	if left := b.left(); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}

// TestAFaultWhereAnnotationsDecideLeavesAllOrNothing: at whichever call of the store.
func TestAFaultWhereAnnotationsDecideLeavesAllOrNothing(t *testing.T) {
	has := &datastore.Annotations{Pod: on("ipAddrs", `["10.65.0.7","fd65::7"]`), Namespace: on("ipv4pools", `["four"]`)}
	for step := 0; ; step++ {
		b := newBed(t)
		s := b.on(deriving{has: has})
		b.store.left = step
		_, err := s.Attach(t.Context(), ofPod("c1", "web"))
		reached := b.store.left < 0
		b.store.left = -1
		want := 0
		if err == nil {
			want = 3
		}
		if left := b.left(); len(left) != want || err != nil && len(b.kernel.received) > 0 {
			t.Errorf("step %d: %v, and there is %v; calc has %v", step, err, left, b.kernel.received)
		}
		if !reached {
			if step < 8 {
				t.Errorf("only %d steps: nothing was injected", step)
			}
			return
		}
	}
}

// TestAnAddressByNameIsTheNextContainersOfItsPodAlone: the last one may not have been detached; but what a pod's object says of containers,
// which users can write, frees no other's address.
func TestAnAddressByNameIsTheNextContainersOfItsPodAlone(t *testing.T) {
	b := newBed(t)
	s := b.on(deriving{has: &datastore.Annotations{Pod: on("ipAddrs", `["fd65::7","10.65.0.7"]`)}})
	b.must(second(s.Attach(t.Context(), ofPod("old", "web"))))
	b.must(second(s.Attach(t.Context(), ofPod("new", "web"))))
	left := b.left()
	if got := strings.Join(left, " "); len(left) != 3 || !strings.Contains(got, "10.65.0.7 of net.new") || !strings.Contains(got, "fd65::7 of net.new") {
		t.Errorf("there is %v", left)
	}
	lie := &api.WorkloadEndpoint{Spec: api.WorkloadEndpointSpec{Orchestrator: "k8s", Node: "h1", Pod: "thief", Endpoint: "eth0", ContainerID: "new", InterfaceName: "calithief", IPNetworks: []string{"10.65.0.7/32"}}}
	lie.TypeMeta, lie.Metadata = api.TypeMeta{Kind: api.KindWorkloadEndpoint, APIVersion: api.GroupVersion}, api.ObjectMeta{Namespace: "prod", Name: "h1-k8s-thief-eth0"}
	b.known.Store(api.ResourcesPrefix+"workloadendpoints/prod/h1-k8s-thief-eth0", true)
	b.put(lie)
	if _, err := s.Attach(t.Context(), ofPod("thief", "thief")); err == nil || !strings.Contains(err.Error(), "is assigned already") {
		t.Errorf("an address of another pod: %v", err)
	}
	b.must(second(b.on(deriving{has: &datastore.Annotations{}}).Attach(t.Context(), ofPod("thief", "thief"))))
	for _, l := range left {
		if !slices.Contains(b.left(), l) {
			t.Errorf("%s is gone; there is %v", l, b.left())
		}
	}
}

// TestAnnotationsWithoutEffectAreLogged in the agent's log, by name.
func TestAnnotationsWithoutEffectAreLogged(t *testing.T) {
	b := newBed(t)
	many := on("ipv4Pools", `["a"]`)
	for i := range mostIdle + 6 {
		many[fmt.Sprintf("%s~%d", annotationDomain, i)] = "x"
	}
	s := b.on(deriving{has: &datastore.Annotations{Pod: many}})
	var log strings.Builder
	s.cfg.Log = slog.New(slog.NewJSONHandler(&log, nil))
	b.must(second(s.Attach(t.Context(), ofPod("c1", "web"))))
	var line struct {
		Level, Pod  string
		Annotations []string
	}
	if err := json.Unmarshal([]byte(log.String()), &line); err != nil || line.Level != "WARN" || line.Pod != "prod/web" ||
		len(line.Annotations) != mostIdle+1 || line.Annotations[0] != "annotation cni.projectcalico.org/ipv4Pools of the pod is not known" || line.Annotations[mostIdle] != "and 7 more" {
		t.Errorf("the log has %s", log.String())
	}
}
