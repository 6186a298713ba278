package kubecontrollers

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/datastore/kubestore/apiserver"
)

// wantOfAnyLeader wants addresses of the service web soon, and to stay when another process leads, which looks at all services.
func (b *bench) wantOfAnyLeader(what, web string) {
	b.Helper()
	b.after(2 * time.Second)
	b.wantPublished(what, "web", web)
	b.stops[len(b.stops)-1]()
	b.balance()
	b.after(time.Minute)
	b.wantPublished(what+", with a new leader", "web", web)
}

// TestAServiceLeavesAPoolWhenThePoolGoes, not when another process leads; with no other pool it has none.
func TestAServiceLeavesAPoolWhenThePoolGoes(t *testing.T) {
	for _, etcd := range []bool{false, true} {
		t.Run(fmt.Sprint("etcd ", etcd), func(t *testing.T) {
			balanced(t, etcd, func(b *bench) {
				b.service("web", nil)
				b.service("pinned", annotated("loadBalancerIPs", `["10.9.0.3"]`))
				b.wantPublished("first", "web", "10.9.0.0")
				b.put("ippools/next", `{"spec":{"cidr":"10.10.0.0/30","blockSize":30,`+balancers+`}}`)
				b.after(time.Hour)
				b.wantPublished("with another pool", "web", "10.9.0.0")
				steps := []struct {
					what, web, pinned string
					change            func()
				}{
					{"its pool is deleted", "10.10.0.0", "10.9.0.3", func() { b.remove(b.store, "ippools/lb") }},
					{"its pool is for pods now, and there is no other", "", "", func() { b.put("ippools/next", `{"spec":{"cidr":"10.10.0.0/30","blockSize":30}}`) }},
					{"there is another", "10.11.0.0", "", func() { b.put("ippools/last", `{"spec":{"cidr":"10.11.0.0/30","blockSize":30,`+balancers+`}}`) }},
				}
				for _, step := range steps {
					step.change()
					b.wantOfAnyLeader(step.what, step.web)
					b.wantPublished(step.what, "pinned", step.pinned)
					if want := strings.Fields(step.web + " " + step.pinned); len(b.inUse()) != len(want) {
						b.Errorf("%s: in use are %v, want %v", step.what, b.inUse(), want)
					}
				}
			})
		})
	}
}

// TestWhatAPoolSaysOfServicesChangesTheirAddressesNowOrNever: a new leader, which looks at all of them, finds nothing to change. Selectors say who gets
// new addresses; a pool that must be asked for by name is left by who does not ask for it.
func TestWhatAPoolSaysOfServicesChangesTheirAddressesNowOrNever(t *testing.T) {
	balanced(t, false, func(b *bench) {
		b.service("web", nil)
		b.wantPublished("first", "web", "10.9.0.0")
		b.put("ippools/next", `{"spec":{"cidr":"10.10.0.0/30","blockSize":30,`+balancers+`}}`)
		for _, step := range []struct{ what, spec, web string }{
			{"its pool selects other namespaces", `"namespaceSelector":"has(none)",`, "10.9.0.0"},
			{"its pool is disabled", `"disabled":true,`, "10.9.0.0"},
			{"its pool must be asked for by name", `"assignmentMode":"Manual",`, "10.10.0.0"},
			{"it need not be any more", "", "10.10.0.0"},
		} {
			b.put("ippools/lb", `{"spec":{"cidr":"10.9.0.0/30","blockSize":30,`+step.spec+balancers+`}}`)
			b.wantOfAnyLeader(step.what, step.web)
		}
	})
}

// TestLabelsOfANamespaceGiveItsServicesWhatTheyLack: a pool selects namespaces by them. With Kubernetes' API as the datastore at the next attempt.
func TestLabelsOfANamespaceGiveItsServicesWhatTheyLack(t *testing.T) {
	for etcd, soon := range map[bool]time.Duration{true: 2 * time.Second, false: mostWait} {
		balanced(t, etcd, func(b *bench) {
			b.put("ippools/lb", `{"spec":{"cidr":"10.9.0.0/30","blockSize":30,"namespaceSelector":"env == 'live'",`+balancers+`}}`)
			b.service("web", nil)
			b.after(time.Hour) // attempts are far between by now
			b.wantPublished("a namespace that no pool selects", "web", "")
			b.put("profiles/kns.prod", `{"spec":{"labelsToApply":{"pcns.env":"live"}}}`)
			b.after(soon)
			b.wantPublished("one that a pool selects", "web", "10.9.0.0")
			b.put("profiles/kns.prod", `{"spec":{"labelsToApply":{"pcns.env":"test"}}}`)
			b.after(2 * time.Second)
			b.wantPublished("one that no pool selects any more, which keeps what it has", "web", "10.9.0.0")
		})
	}
}

// TestAPoolThatIsDeletedTakesItsServicesAddresses: with Kubernetes' API as the datastore it would wait for them. They get others if there are any of their
// family, also those that name theirs get none of a family that has no pool, and the pool goes.
func TestAPoolThatIsDeletedTakesItsServicesAddresses(t *testing.T) {
	holding(t, func(b *bench) {
		pool := func(name, cidr string) {
			b.put("ippools/"+name, fmt.Sprintf(`{"metadata":{"name":"`+name+`",`+made+`},"spec":{"cidr":"`+cidr+`","blockSize":%d,`+balancers+`}}`, 1, netip.MustParsePrefix(cidr).Bits()))
		}
		pool("lb", "10.9.0.0/30")
		pool("six", "fd09::/126")
		pool("last", "10.10.0.0/30")
		b.balance()
		b.service("web", annotated("ipv4pools", `["lb"]`))
		b.service("both", func(s *apiserver.Service) { s.Families = []string{"IPv4", "IPv6"} })
		b.service("pinned", annotated("loadBalancerIPs", `["10.10.0.2"]`))
		b.service("both", annotated("ipv4pools", `["last"]`))
		b.service("web", annotated("ipv4pools", ""))
		want := func(what, web, both, pinned string) {
			b.Helper()
			b.wantPublished(what, "web", web)
			b.wantPublished(what, "both", both)
			b.wantPublished(what, "pinned", pinned)
		}
		want("first", "10.9.0.0", "10.10.0.0 fd09::", "10.10.0.2")
		goes := func(name string) {
			b.Helper()
			b.change("ippools/"+name, `"name"`, deletedAt+`"name"`)
			b.after(2 * lookAtHeld)
			if _, meta, _ := b.stored("ippools/" + name); len(meta.Finalizers) > 0 {
				b.Errorf("pool %s still has %v; in use are %v", name, meta.Finalizers, b.inUse())
			}
			b.remove(b.store, "ippools/"+name) // as the API server does then
			b.after(2 * time.Second)
		}
		goes("lb")
		want("the first pool is gone", "10.10.0.1", "10.10.0.0 fd09::", "10.10.0.2")
		goes("last")
		want("the last of IPv4 is gone", "", "fd09::", "")
		goes("six")
		want("the last is gone", "", "", "")
		b.wantInUse("the last is gone")
		if !strings.Contains(b.log.String(), "service prod/web: no IPPool of IPv4 is for load balancers") {
			b.Error("the log does not say why")
		}
		pool("new", "10.12.0.0/30")
		b.after(2 * time.Second)
		b.wantPublished("there is another", "web", "10.12.0.0")
	})
}

// TestAPoolThatCannotBeReadTakesNothing: services keep what they have of it.
func TestAPoolThatCannotBeReadTakesNothing(t *testing.T) {
	for _, etcd := range []bool{false, true} {
		t.Run(fmt.Sprint("etcd ", etcd), func(t *testing.T) {
			balanced(t, etcd, func(b *bench) {
				b.service("web", nil)
				b.wantPublished("first", "web", "10.9.0.0")
				for _, value := range []string{`{"spec":{"cidr":"10.9.0.0/33","blockSize":30,` + balancers + `}}`, `[`} {
					b.put("ippools/lb", value)
					b.after(time.Minute)
					b.wantPublished(value, "web", "10.9.0.0")
					b.wantInUse(value, "10.9.0.0")
				}
			})
		})
	}
}
