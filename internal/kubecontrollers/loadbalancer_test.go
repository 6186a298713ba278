package kubecontrollers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore/apiserver"
	"github.com/twillnet/twill/internal/seedtest"
)

// Service implements clusterServices.
func (b *bench) Service(_ context.Context, namespace, name string) (apiserver.Service, bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, there := b.services[namespace+"/"+name]
	return s, there, b.podErr
}

// SetIngress implements clusterServices.
func (b *bench) SetIngress(ctx context.Context, s apiserver.Service, ingress []apiserver.Ingress) error {
	b.mu.Lock()
	now, there := b.services[s.Namespace+"/"+s.Name]
	if !there || now.UID != s.UID || b.podErr != nil {
		b.mu.Unlock()
		return errors.Join(errors.New("conflict"), b.podErr)
	}
	for name, other := range b.services {
		for _, i := range other.Ingress {
			if name != s.Namespace+"/"+s.Name && slices.ContainsFunc(ingress, func(mine apiserver.Ingress) bool { return mine.IP() == i.IP() }) {
				b.Errorf("%s and %s have %s", name, s.Name, i.IP())
			}
		}
	}
	now.Ingress = ingress
	b.services[s.Namespace+"/"+s.Name] = now
	b.mu.Unlock()
	return b.show(ctx, now)
}

// show puts a service into the cluster's store.
func (b *bench) show(ctx context.Context, s apiserver.Service) error {
	return datastore.Put(ctx, b.kube, api.Update{
		Key:   api.KeyPrefix(api.KindKubernetesService, s.Namespace) + s.Name,
		Value: fmt.Appendf(nil, `{"kind":"KubernetesService","metadata":{"name":%q,"namespace":%q,"uid":%q},"spec":{"type":%q}}`, s.Name, s.Namespace, s.UID, s.Type),
	})
}

// service makes or changes one of type LoadBalancer and of IPv4.
func (b *bench) service(name string, change func(*apiserver.Service)) {
	b.Helper()
	b.mu.Lock()
	s, there := b.services["prod/"+name]
	if !there {
		s = apiserver.Service{Namespace: "prod", Name: name, UID: "uid-" + name, Type: typeLoadBalancer, Families: []string{"IPv4"}}
	}
	s.Annotations = maps.Clone(s.Annotations)
	if change != nil {
		change(&s)
	}
	b.services["prod/"+name] = s
	b.mu.Unlock()
	if err := b.show(b.Context(), s); err != nil {
		b.Fatal(err)
	}
	b.after(2 * time.Second)
}

func (b *bench) removeService(name string) {
	b.Helper()
	b.set(func() { delete(b.services, "prod/"+name) })
	b.remove(b.kube, "kubernetesservices/prod/"+name)
	b.after(2 * time.Second)
}

// annotated gives a service annotations, by the ends of their names; an empty one goes.
func annotated(pairs ...string) func(*apiserver.Service) {
	return func(s *apiserver.Service) {
		if s.Annotations == nil {
			s.Annotations = map[string]string{}
		}
		for i := 0; i < len(pairs); i += 2 {
			s.Annotations["projectcalico.org/"+pairs[i]] = pairs[i+1]
		}
	}
}

// balance runs the controller of load balancers until it is stopped, or the test ends.
func (b *bench) balance() (stop func()) {
	b.Helper()
	get := func() Settings { b.mu.Lock(); defer b.mu.Unlock(); return b.settings }
	l := newBalancer(balancerConfig{Store: b.store, Cluster: b.kube, Settings: get, Services: b, Turn: func(string, error) {}, Log: slog.New(slog.NewTextHandler(b, nil))})
	b.balancer = l
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = l.run(ctx) }()
	stop = func() { cancel(); <-done }
	b.stops = append(b.stops, stop)
	return stop
}

// published are the addresses in a service's status.
func (b *bench) published(name string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []string
	for _, i := range b.services["prod/"+name].Ingress {
		out = append(out, i.IP())
	}
	return strings.Join(out, " ")
}

func (b *bench) wantPublished(what, name, want string) {
	b.Helper()
	if got := b.published(name); got != want {
		b.Errorf("%s: service %s has %q, want %q", what, name, got, want)
	}
}

const balancers = `"allowedUses":["LoadBalancer"]`

// balanced is run with a pool for load balancers, 10.9.0.0/30, and their controller.
func balanced(t *testing.T, etcd bool, test func(*bench)) {
	t.Helper()
	run(t, etcd, func(b *bench) {
		b.put("nodes/n1", `{"spec":{"orchRefs":[{"nodeName":"n1","orchestrator":"k8s"}]}}`)
		b.put("ippools/lb", `{"spec":{"cidr":"10.9.0.0/30","blockSize":30,`+balancers+`}}`)
		b.putIn(b.kube, api.ResourcesPrefix+"nodes/n1", `{}`)
		b.balance()
		test(b)
	})
}

// TestServicesHaveAddressesAndKeepThem, also when another process leads, and when nothing but the status says which they were.
func TestServicesHaveAddressesAndKeepThem(t *testing.T) {
	for _, etcd := range []bool{false, true} {
		balanced(t, etcd, func(b *bench) {
			b.service("web", nil)
			b.service("inner", func(s *apiserver.Service) { s.Type = "ClusterIP" })
			b.service("others", func(s *apiserver.Service) { s.Class = "example.com/lb" })
			b.service("ours", func(s *apiserver.Service) { s.Class = "calico" })
			b.wantPublished("first", "web", "10.9.0.0")
			b.wantPublished("of our class", "ours", "10.9.0.1")
			for _, name := range []string{"inner", "others"} {
				b.wantPublished("not ours", name, "")
			}
			u, err := b.store.Get(b.Context(), "/calico/ipam/v2/assignment/ipv4/block/10.9.0.0-30")
			for _, want := range []string{`"virtual:load-balancer"`, `"lb-2IYQ3cB7CEaGgxKafGxXNu1aMJJ8zQuYneYBlBvqz4"`, `"service":"web"`, `"namespace":"prod"`, `"type":"LoadBalancer"`} {
				if err != nil || !strings.Contains(string(u.Value), want) {
					b.Errorf("the block is %s, without %s (%v)", u.Value, want, err)
				}
			}
			b.stops[0]()
			b.set(func() { // what only the allocation says
				s := b.services["prod/ours"]
				s.Ingress = nil
				b.services["prod/ours"] = s
			})
			if _, err := b.addresses.ReleaseByHandle(b.Context(), serviceHandle(b.services["prod/web"])); err != nil {
				b.Fatal(err)
			}
			b.balance()
			b.after(time.Minute)
			b.wantPublished("with a new leader", "web", "10.9.0.0")
			b.wantPublished("with a new leader", "ours", "10.9.0.1")
			b.wantInUse("with a new leader", "10.9.0.0", "10.9.0.1")
			b.removeService("web")
			b.wantInUse("without a service", "10.9.0.1")
		})
	}
}

func TestWhatAServiceAsksFor(t *testing.T) {
	for _, tt := range []struct {
		name     string
		families string
		ask      []string // annotations
		want     string   // what it has
		log      string   // a part of it
	}{
		{"nothing", "IPv4", nil, "10.9.0.0", ""},
		{"nothing, of both families", "IPv6 IPv4", nil, "fd09:: 10.9.0.0", ""},
		{"nothing, of IPv6", "IPv6", nil, "fd09::", ""},
		{"a pool", "IPv4", []string{"ipv4pools", `["byname"]`}, "10.10.0.0", ""},
		{"a pool, by its range", "IPv4 IPv6", []string{"ipv4pools", `["10.10.0.0/30"]`}, "10.10.0.0 fd09::", ""},
		{"a pool of IPv6", "IPv6", []string{"ipv6pools", `["lb6"]`}, "fd09::", ""},
		{"an address", "IPv4", []string{"loadBalancerIPs", `["10.9.0.3"]`}, "10.9.0.3", ""},
		{"an address of a pool that gives none by itself", "IPv4", []string{"loadBalancerIPs", `["10.10.0.2"]`}, "10.10.0.2", ""},
		{"addresses of both families", "IPv4 IPv6", []string{"loadBalancerIPs", `["fd09::3","10.9.0.3"]`}, "fd09::3 10.9.0.3", ""},
		{"an address of one of its families", "IPv4 IPv6", []string{"loadBalancerIPs", `["10.9.0.3"]`}, "10.9.0.3", ""},
		{"an empty list", "IPv4", []string{"loadBalancerIPs", `[]`, "ipv4pools", `[]`}, "10.9.0.0", ""},
		{"an address that another has", "IPv4", []string{"loadBalancerIPs", `["10.9.0.2"]`}, "", "is assigned already"},
		{"an address of no pool", "IPv4", []string{"loadBalancerIPs", `["10.77.0.1"]`}, "", "no IPPool contains it"},
		{"an address for workloads", "IPv4", []string{"loadBalancerIPs", `["10.0.0.1"]`}, "", "is for Workload and Tunnel only"},
		{"addresses of both families, of which it has one", "IPv4", []string{"loadBalancerIPs", `["fd09::3","10.9.0.3"]`}, "10.9.0.3", "fd09::3 is not of a family of the service (spec.ipFamilies): it gets what else it names"},
		{"addresses of both families, of which it has the other", "IPv6", []string{"loadBalancerIPs", `["fd09::3","10.9.0.3"]`}, "fd09::3", "10.9.0.3 is not of a family of the service"},
		{"an address that another has, and one of another family", "IPv4", []string{"loadBalancerIPs", `["fd09::3","10.9.0.2"]`}, "", "is assigned already"},
		{"an address of another family", "IPv4", []string{"loadBalancerIPs", `["fd09::1"]`}, "", "fd09::1 is not of a family of the service (spec.ipFamilies)"},
		{"two addresses", "IPv4", []string{"loadBalancerIPs", `["10.9.0.1","10.9.0.3"]`}, "", "two addresses of a family"},
		{"no address", "IPv4", []string{"loadBalancerIPs", `["web"]`}, "", "is no address"},
		{"no list", "IPv4", []string{"loadBalancerIPs", `10.9.0.1`}, "", "want a list in JSON"},
		{"no list of pools", "IPv4", []string{"ipv4pools", `lb`}, "", "projectcalico.org/ipv4pools is"},
		{"a pool that is not there", "IPv4", []string{"ipv4pools", `["misspelt"]`}, "", "is neither name nor prefix of a pool"},
		{"a pool for workloads", "IPv4", []string{"ipv4pools", `["p"]`}, "", "is for Workload and Tunnel only"},
		{"a pool of the other family", "IPv4", []string{"ipv4pools", `["lb6"]`}, "", "of a pool of IPv4"},
		{"a pool that is not there, of one family", "IPv4 IPv6", []string{"ipv4pools", `["misspelt"]`}, "fd09::", "is neither name nor prefix of a pool"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			balanced(t, false, func(b *bench) {
				b.put("ippools/lb6", `{"spec":{"cidr":"fd09::/126","blockSize":126,`+balancers+`}}`)
				b.put("ippools/byname", `{"spec":{"cidr":"10.10.0.0/30","blockSize":30,"assignmentMode":"Manual",`+balancers+`}}`)
				b.service("first", annotated("loadBalancerIPs", `["10.9.0.2"]`))
				b.service("web", func(s *apiserver.Service) { s.Families = strings.Fields(tt.families); annotated(tt.ask...)(s) })
				b.wantPublished("at first", "web", tt.want)
				if !strings.Contains(b.log.String(), tt.log) {
					b.Errorf("the log does not say %q", tt.log)
				}
				b.after(time.Hour)
				b.wantPublished("after an hour", "web", tt.want)
				b.wantPublished("after an hour", "first", "10.9.0.2")
				if n := len(strings.Fields(tt.want)); len(b.inUse()) != n+1 {
					b.Errorf("in use are %v", b.inUse())
				}
			})
		})
	}
}

// TestAServicesAddressesFollowIt: each step changes the same service.
func TestAServicesAddressesFollowIt(t *testing.T) {
	balanced(t, false, func(b *bench) {
		b.put("ippools/lb6", `{"spec":{"cidr":"fd09::/126","blockSize":126,`+balancers+`}}`)
		b.put("ippools/byname", `{"spec":{"cidr":"10.10.0.0/30","blockSize":30,"assignmentMode":"Manual",`+balancers+`}}`)
		b.service("first", nil)
		for _, step := range []struct {
			what, want string
			change     func(*apiserver.Service)
		}{
			{"it is made", "10.9.0.1", nil},
			{"it asks for a pool", "10.10.0.0", annotated("ipv4pools", `["byname"]`)},
			{"it asks for what it has", "10.10.0.0", annotated("ipv4pools", "", "loadBalancerIPs", `["10.10.0.0"]`)},
			{"it asks for another's address", "10.10.0.0", annotated("loadBalancerIPs", `["10.9.0.0"]`)},
			{"it asks for nonsense", "10.10.0.0", annotated("loadBalancerIPs", `10.9.0.3`)},
			{"it asks for an address", "10.9.0.3", annotated("loadBalancerIPs", `["10.9.0.3"]`)},
			{"it asks for no more", "10.9.0.3", annotated("loadBalancerIPs", "")},
			{"it asks for a pool again", "10.10.0.1", annotated("ipv4pools", `["byname"]`)},
			{"it asks for no more, and may not have an address of that pool", "10.9.0.2", annotated("ipv4pools", "")},
			{"it gets a family", "10.9.0.2 fd09::", func(s *apiserver.Service) { s.Families = []string{"IPv4", "IPv6"} }},
			{"it loses one", "fd09::", func(s *apiserver.Service) { s.Families = []string{"IPv6"} }},
			{"somebody empties its status", "fd09::", func(s *apiserver.Service) { s.Ingress = nil }},
			{"it is made again under its name", "10.9.0.1", func(s *apiserver.Service) {
				s.UID, s.Ingress, s.Families = "uid-2", nil, []string{"IPv4"}
			}},
			{"another class takes it", "", func(s *apiserver.Service) { s.Class = "example.com/lb" }},
			{"it comes back", "10.9.0.3", func(s *apiserver.Service) { s.Class = "" }},
			{"it changes its type", "", func(s *apiserver.Service) { s.Type, s.Ingress = "ClusterIP", nil }},
		} {
			b.service("web", step.change)
			b.wantPublished(step.what, "web", step.want)
			if got, want := strings.Join(b.inUse(), " "), "10.9.0.0"; strings.TrimSpace(want+" "+step.want) != got {
				b.Errorf("%s: in use are %s", step.what, got)
			}
		}
		b.wantPublished("after all", "first", "10.9.0.0")
	})
}

// TestAnothersAddressesAreLeftAlone: a service that has an address of somebody else gets none, and what others added stays when it is ours no more.
func TestAnothersAddressesAreLeftAlone(t *testing.T) {
	balanced(t, false, func(b *bench) {
		for _, other := range []apiserver.Ingress{{"ip": "203.0.113.9"}, {"hostname": "lb.example.com"}} {
			for _, class := range []string{"", "calico"} {
				b.service("web", func(s *apiserver.Service) { s.Class, s.Ingress = class, []apiserver.Ingress{other} })
				b.after(time.Hour)
				if got := b.services["prod/web"].Ingress; len(got) != 1 || !maps.Equal(got[0], other) || len(b.inUse()) != 0 {
					b.Errorf("its status is %v; in use are %v", got, b.inUse())
				}
			}
		}
		if !strings.Contains(b.log.String(), "of another load balancer") {
			b.Error("the log does not say why a service that asks for Calico's gets no address")
		}
		b.service("web", func(s *apiserver.Service) { s.Class, s.Ingress = "", nil })
		b.wantPublished("without another's", "web", "10.9.0.0")
		b.service("web", func(s *apiserver.Service) {
			s.Class, s.Ingress = "example.com/lb", append(slices.Clone(s.Ingress), apiserver.Ingress{"ip": "203.0.113.9", "ipMode": "Proxy"})
		})
		if got := b.services["prod/web"].Ingress; len(got) != 1 || got[0]["ipMode"] != "Proxy" || len(b.inUse()) != 0 {
			b.Errorf("its status is %v; in use are %v", got, b.inUse())
		}
	})
}

// TestOnlyServicesThatAskGetAddressesIfSettingsSaySo, and none of them where the controller is off.
func TestOnlyServicesThatAskGetAddressesIfSettingsSaySo(t *testing.T) {
	balanced(t, false, func(b *bench) {
		change := func(lb *BalancerSettings) {
			b.set(func() { b.settings.LoadBalancer = lb })
			b.balancer.again()
			b.after(2 * time.Second)
		}
		change(&BalancerSettings{})
		b.service("web", nil)
		b.service("asks", annotated("ipv4pools", `["lb"]`))
		b.wantPublished("asks for nothing", "web", "")
		b.wantPublished("asks", "asks", "10.9.0.0")
		change(&BalancerSettings{All: true})
		b.wantPublished("all get some", "web", "10.9.0.1")
		change(&BalancerSettings{})
		b.wantPublished("asks for nothing", "web", "")
		b.wantInUse("asks for nothing", "10.9.0.0")
		change(nil)
		b.service("web", annotated("ipv4pools", `["lb"]`))
		b.service("asks", annotated("ipv4pools", `["misspelt"]`))
		b.wantPublished("the controller is off", "web", "")
		b.wantPublished("the controller is off", "asks", "10.9.0.0")
	})
}

// TestWhoLacksAnAddressGetsTheNext: one that is released, and one of a pool that comes later.
func TestWhoLacksAnAddressGetsTheNext(t *testing.T) {
	balanced(t, false, func(b *bench) {
		names := []string{"a", "b", "c", "d", "e"}
		for _, name := range names {
			b.service(name, nil)
		}
		b.wantPublished("the pool is used up", "e", "")
		if !strings.Contains(b.log.String(), "no address is left") {
			b.Error("the log does not say why")
		}
		b.removeService("c")
		b.wantPublished("one is released", "e", "10.9.0.2")
		b.service("f", nil)
		b.wantPublished("the pool is used up", "f", "")
		b.put("ippools/more", `{"spec":{"cidr":"10.11.0.0/29","blockSize":30,`+balancers+`}}`)
		b.after(2 * time.Second)
		b.wantPublished("there is another pool", "f", "10.11.0.0")
		b.put("ippools/lb", `{"metadata":{"deletionTimestamp":"2026-01-02T03:04:05Z"},"spec":{"cidr":"10.9.0.0/30","blockSize":30,`+balancers+`}}`)
		b.after(2 * time.Second)
		for _, name := range []string{"a", "b", "d", "e"} {
			if got := b.published(name); !strings.HasPrefix(got, "10.11.0.") {
				b.Errorf("service %s has %q, whose pool is being deleted", name, got)
			}
		}
		for _, name := range []string{"g", "h", "i", "late"} {
			b.service(name, nil)
		}
		b.wantPublished("the other pool is used up, and this one is being deleted", "late", "")
	})
}

// TestServicesOfAClusterWithoutSuchPoolsAreAnothers: nothing is logged of them.
func TestServicesOfAClusterWithoutSuchPoolsAreAnothers(t *testing.T) {
	run(t, false, func(b *bench) {
		b.balance()
		b.service("web", nil)
		b.after(time.Hour)
		if strings.Contains(b.log.String(), "prod/web") {
			b.Error("the log speaks of it")
		}
		b.service("asks", func(s *apiserver.Service) { s.Class = classCalico })
		if !strings.Contains(b.log.String(), "prod/asks") {
			b.Error("the log does not speak of a service that asks for an address")
		}
	})
}

// TestAnAddressOfAServiceIsALeakWhenItIsGone, and not before: nor while the API server does not answer.
func TestAnAddressOfAServiceIsALeakWhenItIsGone(t *testing.T) {
	for _, etcd := range []bool{false, true} {
		run(t, etcd, func(b *bench) {
			b.put("nodes/n1", `{"spec":{"orchRefs":[{"nodeName":"n1","orchestrator":"k8s"}]}}`)
			b.putIn(b.kube, api.ResourcesPrefix+"nodes/n1", `{}`)
			b.put("ippools/lb", `{"spec":{"cidr":"10.9.0.0/30","blockSize":30,`+balancers+`}}`)
			stop := b.balance()
			for _, name := range []string{"stays", "goes", "again", "type"} {
				b.service(name, nil)
			}
			b.after(24 * time.Hour)
			all := []string{"10.9.0.0", "10.9.0.1", "10.9.0.2", "10.9.0.3"}
			b.wantInUse("they live", all...)
			stop()
			b.removeService("goes")
			b.service("again", func(s *apiserver.Service) { s.UID = "uid-of-another" })
			b.service("type", func(s *apiserver.Service) { s.Type = "ClusterIP" })
			b.set(func() { b.podErr = errAway })
			b.after(24 * time.Hour)
			b.wantInUse("the API server is away", all...)
			b.set(func() { b.podErr = nil })
			b.collector.again()
			b.after(14 * time.Minute)
			b.wantInUse("within the grace period", all...)
			b.after(12 * time.Minute)
			b.wantInUse("after it", "10.9.0.0")
		})
	}
}

func TestAServiceIsServedOnceTheAPIServerAnswers(t *testing.T) {
	balanced(t, false, func(b *bench) {
		b.set(func() { b.podErr = errAway })
		b.service("web", nil)
		b.after(time.Hour)
		b.wantInUse("the API server is away")
		b.set(func() { b.podErr = nil })
		b.after(mostWait + time.Second)
		b.wantPublished("it answers", "web", "10.9.0.0")
	})
}

// TestWhateverHappensNoAddressIsPublishedTwice, and in the end each service has what its handle has: services come, go and ask for others' addresses,
// processes end, and the API server is away, at random.
func TestWhateverHappensNoAddressIsPublishedTwice(t *testing.T) {
	r := seedtest.Rand(t)
	balanced(t, r.IntN(2) == 0, func(b *bench) {
		names := []string{"a", "b", "c", "d", "e"}
		stop := b.stops[0]
		for range 200 {
			name := names[r.IntN(len(names))]
			switch r.IntN(8) {
			case 0:
				if _, there := b.services["prod/"+name]; there {
					b.removeService(name)
				}
			case 1:
				b.service(name, func(s *apiserver.Service) { s.UID = fmt.Sprint("uid", r.IntN(1000)); s.Ingress = nil })
			case 2, 3:
				b.service(name, annotated("loadBalancerIPs", fmt.Sprintf(`["10.9.0.%d"]`, r.IntN(4))))
			case 4:
				b.service(name, annotated("loadBalancerIPs", ""))
			case 5:
				b.service(name, func(s *apiserver.Service) { s.Class = []string{"", "example.com/lb"}[r.IntN(2)] })
			case 6:
				stop()
				stop = b.balance()
			case 7:
				b.set(func() { b.podErr = []error{nil, errAway}[r.IntN(2)] })
			}
			b.after(time.Duration(r.IntN(3)) * time.Second)
		}
		b.set(func() { b.podErr = nil })
		b.after(time.Hour)
		published := map[string]bool{}
		for _, s := range b.services {
			for _, i := range s.Ingress {
				published[i.IP()] = true
			}
		}
		if got, want := b.inUse(), slices.Sorted(maps.Keys(published)); !slices.Equal(got, want) {
			b.Errorf("in use are %v, published %v", got, want)
		}
	})
}

// TestHandlesAreUpstreams: so that addresses that its controllers allocated are found.
func TestHandlesAreUpstreams(t *testing.T) {
	for _, s := range []apiserver.Service{{Namespace: "prod", Name: "web", UID: "uid-web"}, {Namespace: "prod", Name: "Web", UID: "UID-web"}} {
		if got := serviceHandle(s); got != "lb-2IYQ3cB7CEaGgxKafGxXNu1aMJJ8zQuYneYBlBvqz4" {
			t.Errorf("%v has %s", s, got)
		}
	}
}
