package calc

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
)

// nonsense are values that can be JSON, and are no resource.
var nonsense = []string{`{`, `[]`, `null`, `"x"`, `{"spec":7}`, `{"kind":"Tier"}`}

// What makes routes, or says how and whether anything is done, stays as it was understood last.
func TestWhatWasUnderstoodLastStaysInForce(t *testing.T) {
	known := []api.Update{
		rawUpdate("ippools/p", `{"spec":{"cidr":"10.65.0.0/16","natOutgoing":true}}`),
		rawUpdate("nodes/h2", `{"spec":{"bgp":{"ipv4Address":"192.0.2.2/24"}}}`),
		rawUpdate("felixconfigurations/default", `{"spec":{"defaultEndpointToHostAction":"Accept","natOutgoingExclusions":"IPPoolsAndHostIPs"}}`),
		rawUpdate("clusterinformations/default", `{"spec":{"datastoreReady":false}}`),
		blockUpdate("10.65.1.0/26", `"affinity":"host:h1"`),
	}
	fresh := func() *Graph {
		g := New("h1")
		g.Update(known)
		g.SetInSync()
		g.Flush()
		return g
	}
	is := func(g *Graph) any {
		g.Flush()
		return []any{g.Intents(), g.Readiness().Frozen(), g.Settings().Settings}
	}
	want := is(fresh())
	for _, u := range known {
		values, block := nonsense, strings.HasPrefix(u.Key, api.BlockPrefix)
		if block {
			values = []string{`{`, `[]`, `null`, `"x"`, `{}`, `{"cidr":"10.65.1.0/26","affinity":7}`, `{"cidr":"10.65.1.0/26","affinity":"h1"}`}
		}
		for _, value := range values {
			g := fresh()
			g.Update([]api.Update{{Key: u.Key, Value: []byte(value)}})
			if got := is(g); !reflect.DeepEqual(got, want) {
				t.Errorf("%s is %s:\n got %+v\nwant %+v", u.Key, value, got, want)
			}
			if ok, why := g.Ready(); !ok {
				t.Errorf("%s is %s: not ready: %v", u.Key, value, why)
			}
			if ps := g.Problems(); len(ps) != 1 || !strings.Contains(ps[0].Reason, "what was known of it stays in force") {
				t.Errorf("%s is %s: problems %v", u.Key, value, ps)
			}
			g.Update([]api.Update{{Key: u.Key}})
			stays := strings.Contains(u.Key, "clusterinformations") // see TestADatastoreThatIsGoneIsNotReady
			if reflect.DeepEqual(is(g), want) != stays || len(g.Problems()) > 0 {
				t.Errorf("%s is gone: nothing changed, or what must stay did not, or problems %v", u.Key, g.Problems())
			}

			cold := New("h1")
			cold.Update([]api.Update{{Key: u.Key, Value: []byte(value)}})
			if ok, why := cold.Ready(); ok != block || !block && !strings.Contains(strings.Join(why, ""), u.Key) {
				t.Errorf("at a cold start %s is %s: ready %v, %v", u.Key, value, ok, why)
			}
			for _, then := range []api.Update{u, {Key: u.Key}} {
				cold.Update([]api.Update{then})
				if ok, why := cold.Ready(); !ok {
					t.Errorf("%s was %s, and is %s: not ready: %v", u.Key, value, then.Value, why)
				}
				cold.Update([]api.Update{{Key: u.Key}, {Key: u.Key, Value: []byte(value)}})
			}
		}
	}
}

// A datastore that was emptied has no ClusterInformation either: what it lacks is lost, and not deleted.
func TestADatastoreThatIsGoneIsNotReady(t *testing.T) {
	const info = "clusterinformations/default"
	ready, locked, silent, gone := rawUpdate(info, `{"spec":{"datastoreReady":true}}`), rawUpdate(info, `{"spec":{"datastoreReady":false}}`), rawUpdate(info, `{"spec":{"clusterGUID":"g"}}`), api.Update{Key: rawUpdate(info, "").Key}
	workload := rawUpdate("workloadendpoints/a/h1-k8s-w-eth0", `{"spec":{"node":"h1","orchestrator":"k8s","pod":"w","endpoint":"eth0","interfaceName":"cali1","ipNetworks":["10.65.0.1/32"]}}`)
	for _, tt := range []struct {
		name    string
		batches [][]api.Update
		want    bool
	}{
		{"it was locked", [][]api.Update{{locked, workload}, {gone, {Key: workload.Key}}}, true},
		{"it was ready", [][]api.Update{{ready, workload}, {gone, {Key: workload.Key}}}, true},
		{"it did not say anything", [][]api.Update{{silent, workload}, {{Key: workload.Key}, gone}}, true},
		{"another came that says nothing", [][]api.Update{{locked}, {gone}, {silent}}, true},
		{"it is back, and ready", [][]api.Update{{locked}, {gone}, {ready}}, false},
		{"there never was one", [][]api.Update{{workload}, {gone, {Key: workload.Key}}}, false},
		{"it is another one", [][]api.Update{{ready}, {{Key: gone.Key + "2"}}}, false},
	} {
		g := New("h1")
		for _, b := range tt.batches {
			g.Update(b)
		}
		if got := g.Readiness().Frozen(); got != tt.want {
			t.Errorf("%s: frozen %v, want %v", tt.name, got, tt.want)
		}
	}
}

// What policies say, and what they ask for, stays as it was understood last, too.
func TestWhatDeniesStaysInForce(t *testing.T) {
	local := rawUpdate("workloadendpoints/a/h1-k8s-w-eth0", `{"spec":{"node":"h1","orchestrator":"k8s","pod":"w","endpoint":"eth0","interfaceName":"cali1","ipNetworks":["10.65.0.1/32"],"profiles":["p"]}}`)
	shapes := []string{`{`, `[]`, `null`, `17`, `"x"`, `{"spec":7}`, `{"spec":[]}`, `{"kind":"Pod"}`}
	policy := `"types":["Ingress"],"ingress":[{"action":"Deny","source":{"selector":"bad == \"yes\"","namespaceSelector":"global()"}},{"action":"Allow"}]}}`
	for _, tt := range []struct {
		known  api.Update
		values []string // more of them
	}{
		{rawUpdate("globalnetworkpolicies/g", `{"spec":{"tier":"t","selector":"all()",`+policy), []string{
			`{"metadata":{"name":7},"spec":{"selector":"all("}}`, `{"spec":{"tier":7}}`, `{"spec":{"types":["Sideways"]}}`,
		}},
		{rawUpdate("networkpolicies/a/n", `{"spec":{"tier":"t","order":7,`+policy), nil},
		{rawUpdate("stagedglobalnetworkpolicies/g", `{"spec":{"selector":"all()","types":["Ingress"]}}`), nil},
		{rawUpdate("stagednetworkpolicies/a/n", `{"spec":{"types":["Egress"]}}`), nil},
		{rawUpdate("tiers/t", `{"spec":{"order":5,"defaultAction":"Pass"}}`), nil},
		{rawUpdate("profiles/p", `{"spec":{"ingress":[{"action":"Allow"}]}}`), nil},
		{rawUpdate("networksets/a/s", `{"metadata":{"labels":{"bad":"yes"}},"spec":{"nets":["192.0.2.0/24"]}}`), []string{
			`{"metadata":{"labels":{"bad":"yes"}},"spec":{"nets":{}}}`,
		}},
		{rawUpdate("globalnetworksets/s", `{"metadata":{"labels":{"bad":"yes"}},"spec":{"nets":["198.51.100.0/24"]}}`), []string{
			`{"metadata":{"labels":7},"spec":{"nets":["198.51.100.0/24"]}}`,
		}},
	} {
		all := []api.Update{
			local, rawUpdate("tiers/t", `{"spec":{"order":5,"defaultAction":"Pass"}}`),
			rawUpdate("globalnetworkpolicies/asks", `{"spec":{"selector":"all()","ingress":[{"action":"Deny","source":{"selector":"bad == \"yes\""}}]}}`),
			rawUpdate("networkpolicies/a/asks", `{"spec":{"tier":"t","ingress":[{"action":"Deny","source":{"selector":"bad == \"yes\""}}]}}`),
			tt.known,
		}
		for _, value := range append(tt.values, shapes...) {
			g := New("h1")
			g.Update(all)
			g.SetInSync()
			g.Flush()
			want := g.Intents()
			g.Update([]api.Update{{Key: tt.known.Key, Value: []byte(value)}})
			g.Flush()
			if got := g.Intents(); !reflect.DeepEqual(got, want) {
				t.Errorf("%s is %s:\n got %+v\nwant %+v", tt.known.Key, value, got, want)
			}
			if ps := g.Problems(); len(ps) != 1 || !strings.Contains(ps[0].Reason, "what was known of it stays in force") {
				t.Errorf("%s is %s: problems %v", tt.known.Key, value, ps)
			}
			if ok, why := g.Ready(); !ok {
				t.Errorf("%s is %s: not ready: %v", tt.known.Key, value, why)
			}
			g.Update([]api.Update{{Key: tt.known.Key}})
			if g.Flush(); reflect.DeepEqual(g.Intents(), want) {
				t.Errorf("%s is gone: nothing changed", tt.known.Key)
			}
			g.Update([]api.Update{{Key: tt.known.Key, Value: []byte(value)}})
			g.Update([]api.Update{{Key: tt.known.Key, Value: []byte(value + " ")}})
			if ok, why := g.Ready(); ok || !strings.Contains(strings.Join(why, ""), tt.known.Key) {
				t.Errorf("%s is %s, and was unknown: ready %v, %v", tt.known.Key, value, ok, why)
			}
			for _, then := range []api.Update{tt.known, {Key: tt.known.Key}} {
				g.Update([]api.Update{then})
				if ok, why := g.Ready(); !ok {
					t.Errorf("%s was %s, and is %s: not ready: %v", tt.known.Key, value, then.Value, why)
				}
			}
		}
	}
}

// Of a namespaced policy of which nothing is known, it is known whom it may be about.
func TestAPolicyOfWhichNothingIsKnownDeniesItsNamespace(t *testing.T) {
	g := New("h1")
	g.Update([]api.Update{
		rawUpdate("workloadendpoints/a/h1-k8s-w-eth0", `{"spec":{"node":"h1","orchestrator":"k8s","pod":"w","endpoint":"eth0","interfaceName":"cali1","ipNetworks":["10.65.0.1/32"]}}`),
		rawUpdate("networkpolicies/a/n", `{"spec":[]}`),
	})
	g.SetInSync()
	g.Flush()
	if ok, _ := g.Ready(); ok {
		t.Error("the node is ready")
	}
	if all := g.Intents(); len(all.Policies) != 1 || all.Policies[0].Closed == "" {
		t.Errorf("policies %+v, want one that is closed", all.Policies)
	}
	g.Update([]api.Update{rawUpdate("networkpolicies/a/n", `17`)})
	g.Flush()
	_, why := g.Ready()
	cold := New("h1")
	cold.Update([]api.Update{rawUpdate("networkpolicies/a/n", `17`)})
	if _, want := cold.Ready(); !slices.Equal(why, want) {
		t.Errorf("it cannot be read for another reason now: %q, want %q", why, want)
	}
}
