package lab

import (
	"fmt"
	"testing"

	"github.com/twillnet/twill/api"
)

// TestNotReadyFreezes: while the datastore says that it is not ready, nothing
// that is written to it counts, and what is in force stays so, also through a
// restart of the agent. Then the truth arrives.
func TestNotReadyFreezes(t *testing.T) {
	g := newGround(t)
	g.put(t, api.KindNetworkPolicy, "demo", "p", `{"selector":"app == \"b\"","types":["Ingress"]}`)
	g.want(t, "a -> b no", "c -> d yes")
	const info = `{"kind":"ClusterInformation","apiVersion":"projectcalico.org/v3","metadata":{"name":"default"},"spec":{"datastoreReady":%s}}`
	lock := key(api.KindClusterInformation, "", "default")
	flow := startTCP(t, g.Lab, &g.Spec.Workloads[2], &g.Spec.Workloads[3], false)
	g.putRaw(t, lock, fmt.Sprintf(info, "false"))
	g.awaitLog(t, "the datastore says that it is not ready", 1)
	must(t, g.store.Delete(t.Context(), key(api.KindNetworkPolicy, "demo", "p"), api.Revision{}))
	g.put(t, api.KindNetworkPolicy, "other", "q", `{"selector":"app == \"d\"","types":["Ingress"]}`)
	g.still(t, "a -> b no", "c -> d yes")
	g.killAgent(t)
	g.awaitLog(t, "the datastore says that it is not ready", 2)
	g.still(t, "a -> b no", "c -> d yes")
	g.putRaw(t, lock, fmt.Sprintf(info, "true"))
	g.want(t, "a -> b yes", "c -> d no")
	flow.stopSending() // it was established before the change; revocation is another matter
	flow.close()
	if why := flow.wrong.Load(); why != nil {
		t.Error(*why)
	}
	must(t, g.store.Delete(t.Context(), key(api.KindNetworkPolicy, "other", "q"), api.Revision{}))
}
