package resources_test

import (
	"context"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/datastore/storetest"
)

// partial is a store that has the value of its tiers from elsewhere, but for their defaultAction.
type partial struct{ storetest.InMemory }

func (p partial) Update(ctx context.Context, kv api.Update) (api.Update, error) {
	was, err := p.Get(ctx, kv.Key)
	if err != nil || !strings.Contains(kv.Key, "/tiers/") {
		return p.InMemory.Update(ctx, kv)
	}
	if strings.Contains(string(kv.Value), `"defaultAction":"Pass"`) {
		was.Value = []byte(strings.Replace(string(was.Value), `"Deny"`, `"Pass"`, 1))
		return p.InMemory.Update(ctx, was)
	}
	return was, nil
}

// TestWhatTheDatastoreLeavesAsItWasIsNamed: nothing that is asked for is taken in silence.
func TestWhatTheDatastoreLeavesAsItWasIsNamed(t *testing.T) {
	c := newCLI(t)
	c.Store = partial{c.Store}
	c.Want(0, clitest.Tier("t", "order: 7, defaultAction: Deny"), "apply", "-f", "-")
	const order = "warning: tier/t: spec.order stays 7: the datastore has it from elsewhere"
	for _, verb := range []string{"apply", "replace"} {
		printed := c.Want(0, clitest.Tier("t", "order: 8, defaultAction: Deny"), verb, "-f", "-")
		clitest.Contains(t, printed, order, "tier/t unchanged\n")
	}
	clitest.Contains(t, c.Want(0, "", "label", "tier", "t", "a=b"), "warning: tier/t: metadata.labels stays nothing: ", "tier/t unchanged\n")
	printed := c.Want(0, clitest.Tier("t", "order: 9, defaultAction: Pass"), "apply", "-f", "-")
	if clitest.Contains(t, printed, order, "tier/t configured\n"); strings.Contains(printed, "defaultAction") {
		t.Errorf("it says of what was kept\n%s", printed)
	}
	clitest.Equal(t, c.Want(0, clitest.Tier("t", "order: 7, defaultAction: Pass"), "apply", "-f", "-"), "tier/t unchanged")
}
