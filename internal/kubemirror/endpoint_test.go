package kubemirror_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/kubemirror"
)

// wep is an endpoint in namespace shop on node n1, without labels, by the name of its pod and fields of its spec.
func wep(pod, spec string) string { return labelledWep(pod, "eth0", `{}`, spec) }

func labelledWep(pod, ifname, labels, spec string) string {
	return fmt.Sprintf(`workloadendpoints/shop/n1-k8s-%s-%s={"kind":"WorkloadEndpoint","metadata":{"labels":%s},"spec":{%s}}`,
		strings.ReplaceAll(pod, "-", "--"), ifname, labels, spec)
}

const (
	plugins = `"node":"n1","ipNetworks":["10.65.0.7/32"],"later":{"x":1},"profiles":["kns.shop"],"containerID":"c1"`
	podSays = `"profiles":["kns.shop","ksa.shop.sa"],"serviceAccountName":"sa","ports":[{"name":"http","protocol":"TCP","port":80}]`
	kept    = `"node":"n1","ipNetworks":["10.65.0.7/32"],"later":{"x":1},"profiles":["kns.shop","ksa.shop.sa"],"containerID":"c1","ports":[{"name":"http","port":80,"protocol":"TCP"}],"serviceAccountName":"sa"`
)

func TestAnEndpointHasWhatItsPodSays(t *testing.T) {
	pod := labelledWep("web-0", "eth0", `{"app":"web","projectcalico.org/serviceaccount":"sa"}`, podSays)
	for _, tt := range []struct{ name, pod, endpoint, want string }{
		{"labels, account, profiles and ports", pod, labelledWep("web-0", "eth0", `{"foreign":"x"}`, plugins), labelledWep("web-0", "eth0", `{"app":"web","projectcalico.org/serviceaccount":"sa"}`, kept)},
		{"of another interface", pod, labelledWep("web-0", "net1", `{}`, plugins), labelledWep("web-0", "net1", `{"app":"web","projectcalico.org/serviceaccount":"sa"}`, kept)},
		{"what it no longer says goes", wep("web-0", `"profiles":["kns.shop"]`), wep("web-0", kept), wep("web-0", plugins)},
		{"another pod's", pod, wep("web-1", plugins), wep("web-1", plugins)},
		{"another orchestrator's", pod, strings.ReplaceAll(wep("web-0", plugins), "-k8s-", "-cni-"), strings.ReplaceAll(wep("web-0", plugins), "-k8s-", "-cni-")},
		{"of another node", pod, strings.ReplaceAll(wep("web-0", plugins), "/n1-", "/n2-"), strings.ReplaceAll(wep("web-0", plugins), "/n1-", "/n2-")},
		{"of the container that the pod names", wep("web-0", `"containerID":"c1","profiles":["a"]`), wep("web-0", plugins), strings.Replace(wep("web-0", plugins), `["kns.shop"]`, `["a"]`, 1)},
		{"of another container than the pod names", wep("web-0", `"containerID":"c2","profiles":["a"]`), wep("web-0", plugins), wep("web-0", plugins)},
		{"that is no object", pod, "workloadendpoints/shop/n1-k8s-web--0-eth0=[]", "workloadendpoints/shop/n1-k8s-web--0-eth0=[]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			run(t, kubemirror.Config{}, []string{tt.pod}, []string{tt.endpoint}, func(b *bench) { b.holds("", tt.want) })
		})
	}
}

func TestAnEndpointFollowsItsPod(t *testing.T) {
	labels := func(app string) string { return fmt.Sprintf(`{"app":%q}`, app) }
	run(t, kubemirror.Config{}, []string{labelledWep("a", "eth0", labels("1"), podSays)}, nil, func(b *bench) {
		b.holds("a pod without an endpoint")
		put(t, b.to, wep("a", plugins))
		b.holds("attached", labelledWep("a", "eth0", labels("1"), kept))
		put(t, b.from, labelledWep("a", "eth0", labels("2"), podSays))
		b.holds("another label", labelledWep("a", "eth0", labels("2"), kept))
		put(t, b.to, labelledWep("a", "eth0", labels("foreign"), kept))
		b.holds("a foreign label", labelledWep("a", "eth0", labels("2"), kept))
		put(t, b.to, wep("a", plugins))
		b.holds("attached again", labelledWep("a", "eth0", labels("2"), kept))
		remove(t, b.from, "workloadendpoints/shop/n1-k8s-a-eth0")
		b.holds("the pod is gone", labelledWep("a", "eth0", labels("2"), kept))
		remove(t, b.to, "workloadendpoints/shop/n1-k8s-a-eth0")
		b.holds("detached")
	})
}

// What a watch says may be of a pod that has gone, and its name another's.
func TestAnEndpointIsNotGivenTheLabelsOfAFormerPod(t *testing.T) {
	run(t, kubemirror.Config{}, []string{labelledWep("a", "eth0", `{"app":"old"}`, podSays)}, nil, func(b *bench) {
		b.from.set(&b.from.silent, true)
		put(t, b.from, labelledWep("a", "eth0", `{"app":"new"}`, podSays))
		put(t, b.to, wep("a", plugins))
		b.holds("attached", labelledWep("a", "eth0", `{"app":"new"}`, kept))
		b.from.Fail(verb(datastore.ErrUnavailable, "get"))
		put(t, b.to, wep("a", plugins))
		b.holds("while nobody can say", wep("a", plugins))
		b.from.Fail(nil)
		b.holds("they can", labelledWep("a", "eth0", `{"app":"new"}`, kept))
	})
}

func TestWhatAnEndpointIsJudgedByStaysUntilItIsGone(t *testing.T) {
	a, other := wep("a", `"profiles":["kns.shop","ksa.shop.default"]`), `hostendpoints/h={"metadata":{"name":"h"},"spec":{"node":"n1","profiles":["ksa.shop.sa.x"]}}`
	shop := []string{"networkpolicies/shop/knp.default.web=1", "profiles/kns.shop=1", "profiles/ksa.shop.default=1", "profiles/ksa.shop.sa.x=1"}
	run(t, kubemirror.Config{}, shop, []string{a, other}, func(b *bench) {
		b.holds("all there", both(shop, []string{a, other})...)
		remove(t, b.from, "profiles/ksa.shop.default", "profiles/ksa.shop.sa.x")
		b.holds("accounts gone", both(shop, []string{a, other})...)
		remove(t, b.from, "profiles/kns.shop", "networkpolicies/shop/knp.default.web")
		b.holds("namespace gone", both(shop, []string{a, other})...)
		put(t, b.from, "profiles/kns.shop=2")
		b.holds("it is there again, its policy is not", both(with(shop, "profiles/kns.shop=2", "networkpolicies/shop/knp.default.web="), []string{a, other})...)
		remove(t, b.from, "profiles/kns.shop")
		remove(t, b.to, "workloadendpoints/shop/n1-k8s-a-eth0")
		b.holds("its last endpoint gone", other, "profiles/ksa.shop.sa.x=1")
		put(t, b.to, `hostendpoints/h={"metadata":{"name":"h"},"spec":{"node":"n1"}}`)
		b.holds("nobody names the account", `hostendpoints/h={"metadata":{"name":"h"},"spec":{"node":"n1"}}`)
	})
}

func TestAPolicyThatIsDeletedGoesAtOnce(t *testing.T) {
	a := wep("a", `"profiles":["kns.shop"]`)
	run(t, kubemirror.Config{}, []string{"networkpolicies/shop/knp.default.web=1", "profiles/kns.shop=1"}, []string{a}, func(b *bench) {
		remove(t, b.from, "networkpolicies/shop/knp.default.web")
		b.holds("", both([]string{a, "profiles/kns.shop=1"})...)
	})
}
