package podtest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kubetest"
	"github.com/twillnet/twill/internal/status"
	"github.com/twillnet/twill/internal/translate"
)

// reportedOn is what is reported on an object: its condition of a type as "STATUS REASON: MESSAGE" with the generation that it is of, if it
// says that, and its annotations.
func reportedOn(t *testing.T, s *kubetest.Server, path, kind string) (string, map[string]string) {
	t.Helper()
	var o struct {
		Metadata struct{ Annotations map[string]string }
		Status   struct {
			Conditions []struct {
				Type, Status, Reason, Message string
				ObservedGeneration            int64
			}
		}
	}
	if err := s.Admin().Call(t.Context(), "GET", path, nil, &o); err != nil {
		t.Fatal(err)
	}
	for _, c := range o.Status.Conditions {
		if c.Type == kind {
			text := c.Status + " " + c.Reason + ": " + c.Message
			if c.ObservedGeneration > 0 {
				text = fmt.Sprintf("%d %s", c.ObservedGeneration, text)
			}
			return text, o.Metadata.Annotations
		}
	}
	return "", o.Metadata.Annotations
}

// events are those of an object, as "KIND REASON COUNT: MESSAGE" each.
func events(t *testing.T, s *kubetest.Server, namespace, name string) (out []string) {
	t.Helper()
	var list struct {
		Items []struct {
			Reason, Message, Type string
			Count                 int
			InvolvedObject        struct{ Kind, UID string }
		}
	}
	if err := s.Admin().Call(t.Context(), "GET", "/api/v1/namespaces/"+namespace+"/events?fieldSelector=involvedObject.name="+name, nil, &list); err != nil {
		t.Fatal(err)
	}
	for _, e := range list.Items {
		if e.InvolvedObject.UID == "" || e.Type != "Warning" {
			t.Errorf("an event of %s: %+v", name, e)
		}
		out = append(out, fmt.Sprintf("%s %s %d: %s", e.InvolvedObject.Kind, e.Reason, e.Count, e.Message))
	}
	slices.Sort(out)
	return out
}

// eventually waits until what is observed holds, which what says.
func eventually(t *testing.T, what string, holds func() (seen string, ok bool)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		seen, ok := holds()
		if ok {
			return
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			t.Fatalf("waited for %s; there is %s", what, seen)
		}
	}
}

// fails has the plugin attach a pod that asks for a MAC which it cannot have.
func (p plugin) fails(ns, name, container string) {
	p.t.Helper()
	p.create(ns, name, "app: web")
	p.patch("/api/v1/namespaces/"+ns+"/pods/"+name, map[string]any{"metadata": map[string]any{"annotations": map[string]any{"cni.projectcalico.org/hwAddr": "ff:ff:ff:ff:ff:ff"}}})
	if text, err := p.call("ADD", ns, name, container, netnstest.New(p.t)); err == nil {
		p.t.Errorf("ADD of %s: %s", name, text)
	}
}

func TestAPodThatCannotBeAttachedSaysWhy(t *testing.T) {
	a := newAnnotated(t)
	path := "/api/v1/namespaces/" + a.ns + "/pods/web"
	const kind, why = "twill.net/NetworkSetupFailed", "annotation cni.projectcalico.org/hwAddr of pod "
	a.fails(a.ns, "web", "c-1")
	eventually(t, "an event and a condition", func() (string, bool) {
		all := events(t, a.s, a.ns, "web")
		condition, _ := reportedOn(t, a.s, path, kind)
		return fmt.Sprint(all, condition), len(all) == 1 && strings.HasPrefix(all[0], "Pod FailedNetworkSetup 1: "+why) && strings.HasPrefix(condition, "True FailedNetworkSetup: "+why)
	})
	a.fails(a.ns, "web", "c-2")
	eventually(t, "the same event once more", func() (string, bool) {
		all := events(t, a.s, a.ns, "web")
		return fmt.Sprint(all), len(all) == 1 && strings.HasPrefix(all[0], "Pod FailedNetworkSetup 2: "+why)
	})
	a.patch(path, map[string]any{"metadata": map[string]any{"annotations": map[string]any{"cni.projectcalico.org/hwAddr": nil}}})
	a.gets("web")
	eventually(t, "a condition that it is attached", func() (string, bool) {
		condition, annotations := reportedOn(t, a.s, path, kind)
		return fmt.Sprint(condition, annotations), condition == "False InForce: addresses, routes and policy are in force" && annotations[translate.AnnotationSetupFailed] == ""
	})
	// Of a pod that never failed, nothing is written.
	a.asks("fine")
	a.gets("fine")
	if condition, annotations := reportedOn(t, a.s, "/api/v1/namespaces/"+a.ns+"/pods/fine", kind); condition != "" || annotations[translate.AnnotationSetupFailed] != "" {
		t.Errorf("a pod that never failed has %q, and annotations %v", condition, annotations)
	}
}

// policiesAreReportedOn applies policies that cannot be translated, and waits until they say so.
func (c *cluster) policiesAreReportedOn() {
	c.Helper()
	const cnp = `apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: names}
spec:
  tier: Admin
  priority: 1
  subject: {namespaces: {}}
  egress: [{action: Accept, to: [{networks: [192.0.2.0/24]}]PORTS}]
`
	const other = "---\napiVersion: policy.networking.k8s.io/v1alpha1\nkind: %s\nmetadata: {name: default}\nspec: {subject: {namespaces: {}}, egress: [{action: Later, to: [{namespaces: {}}]}]}\n"
	c.s.Apply(c.T, strings.Replace(cnp, "PORTS", ", protocols: [{destinationNamedPort: http}]", 1)+fmt.Sprintf(other, "AdminNetworkPolicy")+fmt.Sprintf(other, "BaselineAdminNetworkPolicy"))
	peers, ports := "", ""
	for i := range 300 {
		peers += fmt.Sprintf("{podSelector: {matchLabels: {n: '%d'}}},", i)
		ports += fmt.Sprintf("{port: %d},", i+1)
	}
	c.s.Apply(c.T, "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: large, namespace: "+c.ns+"}\nspec: {podSelector: {}, ingress: [{from: ["+peers+"], ports: ["+ports+"]}]}\n")

	const group, kind = "/apis/policy.networking.k8s.io/", "twill.net/Translated"
	for _, of := range []struct{ kind, name, path, why string }{
		{"ClusterNetworkPolicy", "names", group + "v1alpha2/clusternetworkpolicies/names", "spec.egress[0].protocols: names a port, and networks and nodes have no names of ports"},
		{"AdminNetworkPolicy", "default", group + "v1alpha1/adminnetworkpolicies/default", `spec.egress[0].action: is "Later"`},
		{"BaselineAdminNetworkPolicy", "default", group + "v1alpha1/baselineadminnetworkpolicies/default", `spec.egress[0].action: is "Later"`},
		{"NetworkPolicy", "large", "", "spec.ingress[0]: makes too many rules"},
	} {
		namespace := "default"
		if of.path == "" {
			namespace = c.ns
		}
		eventually(c.T, "an event and the status of "+of.kind, func() (string, bool) {
			all := events(c.T, c.s, namespace, of.name)
			ok := slices.ContainsFunc(all, func(e string) bool {
				return strings.HasPrefix(e, of.kind+" NotTranslated 1: what could not be translated is closed: "+of.why)
			})
			condition := ""
			if of.path != "" {
				condition, _ = reportedOn(c.T, c.s, of.path, kind)
				ok = ok && strings.HasPrefix(condition, "1 False PartlyClosed: what could not be translated is closed: "+of.why)
			}
			return fmt.Sprint(all, condition), ok
		})
	}
	c.s.Apply(c.T, strings.Replace(cnp, "PORTS", "", 1))
	eventually(c.T, "the status of a policy that is right now", func() (string, bool) {
		condition, _ := reportedOn(c.T, c.s, group+"v1alpha2/clusternetworkpolicies/names", kind)
		return condition, strings.HasPrefix(condition, "2 True Translated: ")
	})
}

// holds is how long what an agent says holds that does not end.
const holds = time.Hour

// report has the agents of nodes report, once. What they say holds for so long.
func (c *cluster) report(holds time.Duration, nodes ...string) {
	c.Helper()
	for _, n := range nodes {
		now := time.Now()
		p := status.Process{
			Time: now.UTC().Format(time.RFC3339), Uptime: float64(now.UnixMicro()), Ready: true, Version: "v", Expires: now.UTC().Truncate(time.Second).Add(holds).Format(time.RFC3339),
		}
		value, err := json.Marshal(p)
		if err != nil {
			c.Fatal(err)
		}
		for key, value := range map[string]string{"status": string(value), "last_reported_status": string(value), "summary": `{"policies":{}}`} {
			if err := datastore.Put(c.Context(), c.store, api.Update{Key: api.Root + "felix/v2/no-region/host/" + n + "/" + key, Value: []byte(value)}); err != nil {
				c.Fatal(err)
			}
		}
	}
}

// nodesAreReportedOn has the agent of the second of three nodes end, and begin again.
func (c *cluster) nodesAreReportedOn(nodes ...string) {
	c.Helper()
	says := func(what string, live []string, second string) {
		c.Helper()
		eventually(c.T, what, func() (string, bool) {
			c.report(holds, live...)
			var all []string
			for i, n := range nodes {
				condition, _ := reportedOn(c.T, c.s, "/api/v1/nodes/"+n, "NetworkUnavailable")
				reason, _, _ := strings.Cut(condition, ":")
				if want := []string{"False PolicyInForce", second, "False PolicyInForce"}[i]; reason == want {
					continue
				}
				all = append(all, n+" "+condition)
			}
			return fmt.Sprint(all), len(all) == 0
		})
	}
	says("networks of nodes whose agents report", nodes, "False PolicyInForce")
	c.report(0, nodes[1]) // its last one
	says("none where the agent does not", []string{nodes[0], nodes[2]}, "True AgentNotReporting")
	says("one where it does again", nodes, "False PolicyInForce")
}
