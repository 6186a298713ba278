package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/twillnet/twill/api"
)

// TestWrongResources is docs/wrong-input.md on packets, row by row. The command line
// refuses all of it, so it is written past that.
func TestWrongResources(t *testing.T) {
	g := newGround(t)
	for name, wrong := range map[string]string{
		"unknown field":           `"future":{"x":1}`,
		"unknown field of a peer": `"destination":{"future":"x"}`,
		"selector":                `"destination":{"selector":"app =="}`,
		"net":                     `"destination":{"nets":["10.0.0.1/99"]}`,
		"one net of two":          `"destination":{"nets":["10.65.0.0/16","fd65::/200"]}`,
		"protocol":                `"protocol":"TCQ"`,
		"type of a field":         `"protocol":"TCP","destination":{"ports":"80"}`,
		"port range":              `"protocol":"TCP","destination":{"ports":["90:70"]}`,
		"ports without protocol":  `"destination":{"ports":[80]}`,
		"http":                    `"http":{"methods":["GET"]}`,
		"services":                `"destination":{"services":{"name":"s","namespace":"demo"},"selector":"app == \"b\""}`,
	} {
		g.criterion(t, "an Allow that is not understood matches nothing: "+name, func(t *testing.T) {
			g.put(t, api.KindNetworkPolicy, "demo", "wrong", `{"selector":"app == \"b\"","ingress":[{"action":"Allow",`+wrong+`},`+
				`{"action":"Allow","source":{"namespaceSelector":"team == \"other\""}}]}`)
			g.want(t, "a -> b no", "c -> b yes")
		})
		g.criterion(t, "a Deny keeps what is understood of it: "+name, func(t *testing.T) {
			g.put(t, api.KindNetworkPolicy, "demo", "wrong", `{"selector":"app == \"b\"","ingress":[{"action":"Deny","source":{"selector":"app == \"a\""},`+wrong+`},{"action":"Allow"}]}`)
			g.want(t, "a -> b no", "c -> b yes")
		})
	}
	g.criterion(t, "a Pass that is not understood passes nothing on", func(t *testing.T) {
		g.put(t, api.KindNetworkPolicy, "demo", "wrong", `{"selector":"app == \"b\"","ingress":[{"action":"Pass","future":1},{"action":"Pass","source":{"namespaceSelector":"team == \"other\""}}]}`)
		g.want(t, "a -> b no", "c -> b yes")
	})
	g.criterion(t, "an action that nobody knows is a Deny", func(t *testing.T) {
		g.put(t, api.KindNetworkPolicy, "demo", "wrong", `{"selector":"app == \"b\"","ingress":[{"action":"Permit","source":{"selector":"app == \"a\""}},{"action":"Allow"}]}`)
		g.want(t, "a -> b no", "c -> b yes")
	})
	g.unreadablePolicies(t)
	g.criterion(t, "an unknown tier is after all known ones and ends in Deny", g.unknownTier)
	g.criterion(t, "a value that is not JSON leaves in force what there was, while the agent lives", g.notJSON)
	g.criterion(t, "a bad setting takes its default, and the others stand", g.badSetting)
	g.criterion(t, "an endpoint without addresses, or unreadable, carries nothing", g.badEndpoint)
	g.criterion(t, "fields that we do not know survive apply", g.unknownFields)
}

func (g *ground) unreadablePolicies(t *testing.T) {
	allow := `"ingress":[{"action":"Allow"}],"egress":[{"action":"Allow"}]`
	for name, wrong := range map[string]string{
		"selector":                 `"selector":"app =="`,
		"serviceAccountSelector":   `"selector":"app == \"b\"","serviceAccountSelector":"role in ("`,
		"types":                    `"selector":"app == \"b\"","types":["Ingress","Sideways"]`,
		"types of another type":    `"selector":"app == \"b\"","types":"Ingress"`,
		"tier of another type":     `"selector":"app == \"b\"","tier":7`,
		"selector of another type": `"selector":{"app":"b"}`,
	} {
		g.criterion(t, "a policy that cannot be read denies all of its namespace both ways: "+name, func(t *testing.T) {
			// Nothing can go before it, not even what a tier allows.
			g.put(t, api.KindGlobalNetworkPolicy, "", "first", `{"tier":"kube-admin","order":0,"selector":"all()",`+allow+`}`)
			g.put(t, api.KindNetworkPolicy, "demo", "wrong", `{`+wrong+`,`+allow+`}`)
			g.want(t, "a -> b no", "b -> a no", "c -> a no", "a -> c no", "c -> d yes", "d -> c yes", "h1 -> a yes")
		})
		g.criterion(t, "a global policy that cannot be read applies to nothing, and the rest goes on: "+name, func(t *testing.T) {
			g.put(t, api.KindGlobalNetworkPolicy, "", "wrong", `{`+wrong+`,"ingress":[{"action":"Deny"}],"egress":[{"action":"Deny"}]}`)
			g.put(t, api.KindNetworkPolicy, "other", "d", `{"selector":"app == \"d\"","types":["Ingress"]}`)
			g.want(t, "a -> b yes", "b -> a yes", "a -> c yes", "a -> d no", "c -> d no", "d -> c yes")
		})
	}
}

func (g *ground) unknownTier(t *testing.T) {
	// d has an Allow in the unknown tier, c nothing; both come there by a Pass of the last known tier but one.
	g.put(t, api.KindNetworkPolicy, "demo", "known", `{"selector":"app == \"b\"","order":1,"ingress":[`+
		`{"action":"Allow","source":{"selector":"app == \"a\""}},{"action":"Pass","source":{"namespaceSelector":"all()"}}]}`)
	g.want(t, "a -> b yes", "c -> b yes", "d -> b yes")
	ghost := `{"tier":"ghost","order":0,"selector":"app == \"b\"","ingress":[{"action":"Deny","source":{"selector":"app == \"a\""}},` +
		`{"action":"Allow","source":{"selector":"app == \"d\"","namespaceSelector":"all()"}}]}`
	g.put(t, api.KindNetworkPolicy, "demo", "ghost.p", ghost)
	g.want(t, "a -> b yes", "c -> b no", "d -> b yes")
	// Its tier comes, with an order: before default, and at its end the next tier.
	g.put(t, api.KindTier, "", "ghost", `{"order":10,"defaultAction":"Pass"}`)
	g.want(t, "a -> b no", "c -> b yes", "d -> b yes")
}

func (g *ground) notJSON(t *testing.T) {
	deny := `{"selector":"app == \"b\"","types":["Ingress"]}`
	k := g.put(t, api.KindNetworkPolicy, "demo", "p", deny)
	g.want(t, "a -> b no", "b -> a yes")
	g.putRaw(t, k, `{"kind":"NetworkPolicy","spec":{"selector":"app`)
	g.want(t, "a -> b no", "b -> a yes")
	// It is gone: so is what was kept for it.
	must(t, g.store.Delete(t.Context(), k, api.Revision{}))
	g.want(t, "a -> b yes")
	g.put(t, api.KindNetworkPolicy, "demo", "p", deny)
	g.want(t, "a -> b no") // an agent that has much to do reads the last of several values alone
	g.putRaw(t, k, `not JSON at all`)
	wep := key(api.KindWorkloadEndpoint, "demo", g.Spec.Workloads[0].endpointName())
	whole := g.value(t, wep)
	g.putRaw(t, wep, whole[:len(whole)/2])
	g.want(t, "a -> b no", "b -> a yes")

	host := g.Spec.Hosts[0]
	old := g.agentPID(host)
	must(t, syscall.Kill(old, syscall.SIGKILL))
	await(t, "another agent runs", func() bool { pid := g.agentPID(host); return pid != 0 && pid != old })
	// A fresh agent has never seen them: the policy is absent, and so is the endpoint.
	await(t, "the policy is absent", func() bool {
		return dial(t, g.Spec.workloadNS(g.Spec.Workloads[2]), g.address(t, "b", false), patience)
	})
	g.want(t, "c -> b yes", "a -> b no", "c -> a no")
	log, err := os.ReadFile(filepath.Join(g.Dir, host.Name, "node.log"))
	must(t, err)
	for _, k := range []string{k, wep} {
		if n := strings.Count(string(log), k); n < 2 {
			t.Errorf("the log names %s %d times; both agents met it", k, n)
		}
	}
}

func (g *ground) badSetting(t *testing.T) {
	for spec, open := range map[string]string{
		`{"defaultEndpointToHostAction":"Accept"}`:                                                               "yes",
		`{"defaultEndpointToHostAction":"Open"}`:                                                                 "no",
		`{"defaultEndpointToHostAction":{"x":1}}`:                                                                "no",
		`{"defaultEndpointToHostAction":["Accept"],"healthPort":9}`:                                              "no",
		`{"defaultEndpointToHostAction":"Accept","healthPort":"x","future":{"y":[]},"routeRefreshInterval":"?"}`: "yes",
	} {
		g.put(t, api.KindFelixConfiguration, "", "default", spec)
		g.want(t, "a -> h1:8080 "+open, "a -> b yes")
	}
}

func (g *ground) badEndpoint(t *testing.T) {
	a := g.Spec.Workloads[0]
	k := key(api.KindWorkloadEndpoint, "demo", a.endpointName())
	was := g.value(t, k)
	begin := strings.Index(was, `"ipNetworks":`)
	end := begin + strings.Index(was[begin:], "]") + 1
	nets := was[begin:end]
	for name, value := range map[string]string{
		"no addresses":        strings.Replace(was, nets+",", "", 1),
		"an empty list":       strings.Replace(was, nets, `"ipNetworks":[]`, 1),
		"no readable address": strings.Replace(was, nets, `"ipNetworks":["10.65.1.2/99","x"]`, 1),
		"another type":        strings.Replace(was, nets, `"ipNetworks":"10.65.1.2/32"`, 1),
		"profiles unreadable": strings.Replace(was, `"profiles":["kns.demo"]`, `"profiles":"kns.demo"`, 1),
		"no spec at all":      `{"kind":"WorkloadEndpoint","apiVersion":"projectcalico.org/v3","spec":"x"}`,
		"null":                `null`,
	} {
		t.Run(name, func(t *testing.T) {
			if value == was {
				t.Fatalf("not changed: %s", was)
			}
			g.putRaw(t, k, value)
			g.want(t, "a -> b no", "b -> a no", "c -> a no", "h1 -> a no", "c -> b yes")
			g.putRaw(t, k, was)
			g.want(t, "a -> b yes", "b -> a yes", "h1 -> a yes")
		})
	}
}

func (g *ground) unknownFields(t *testing.T) {
	k := key(api.KindNetworkPolicy, "demo", "newer")
	g.putRaw(t, k, `{"kind":"NetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":"newer","namespace":"demo","generation":7,`+
		`"annotations":{"projectcalico.org/metadata":"{\"name\":\"newer\",\"generation\":7}"}},`+
		`"spec":{"future":{"deep":[1,{"x":"y"}]},"tier":"default","order":5,"selector":"app == \"b\"","types":["Ingress"]},"status":{"seen":true}}`)
	g.want(t, "a -> b no", "b -> a yes")
	doc := "apiVersion: projectcalico.org/v3\nkind: NetworkPolicy\nmetadata: {name: newer, namespace: demo}\nspec: {order: %d, selector: app == \"a\", types: [Ingress]}\n"
	for order := range 2 { // a change, and a change of what we ourselves wrote
		g.does(t, fmt.Sprintf(doc, order+10), "apply", "-f", "-")
		v := g.value(t, k)
		for _, want := range []string{`"future":{"deep":[1,{"x":"y"}]}`, `"generation":7`, `"status":{"seen":true}`, fmt.Sprintf(`"order":%d`, order+10)} {
			if !strings.Contains(v, want) {
				t.Errorf("after apply it has no %s:\n%s", want, v)
			}
		}
	}
	g.want(t, "b -> a no", "a -> b yes")
}
