package calc

import (
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/intent"
)

// TestASetHasTheIDOfItsSelector: printf 's:all()' | sha224sum, in unpadded URL base64, as upstream has it.
func TestASetHasTheIDOfItsSelector(t *testing.T) {
	g := New("h1")
	g.Update([]api.Update{rawUpdate("globalnetworkpolicies/p", `{"kind":"GlobalNetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":"p"},"spec":{"performanceHints":["AssumeNeededOnEveryNode"],"types":["Ingress"],"ingress":[{"action":"Allow","source":{"selector":" all( ) "}}]}}`)})
	g.Flush()
	const want intent.SetID = "s:5y5I3VdRZfDU01O--xXAPx2yxCQQqMf0M6IWug"
	if sets := g.Intents().IPSets; len(sets) != 1 || sets[0].ID != want {
		t.Errorf("%+v, want one of id %s", sets, want)
	}
}
