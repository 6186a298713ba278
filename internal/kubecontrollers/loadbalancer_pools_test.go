package kubecontrollers

import (
	"testing"
	"time"
)

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
			b.after(2 * time.Second)
			b.wantPublished(step.what, "web", step.web)
			b.stops[len(b.stops)-1]()
			b.balance()
			b.after(time.Minute)
			b.wantPublished(step.what+", with a new leader", "web", step.web)
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
