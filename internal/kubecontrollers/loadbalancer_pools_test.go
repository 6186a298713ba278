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
