package podtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/rtnl"
	"github.com/twillnet/twill/internal/kubetest"
	"github.com/twillnet/twill/internal/translate"
)

// annotated is a node with its plugin, and a namespace of which the annotations name a pool.
type annotated struct {
	plugin
	ns string
}

func newAnnotated(t *testing.T) *annotated {
	t.Helper()
	s := kubetest.Start(t)
	n := newNode(t, s, "n4")
	n.define()
	s.Clear(t, "projectcalico.org/v3", "ippools", "ipamblocks", "ipamhandles", "blockaffinities") // of tests before
	s.Apply(t, `apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: team}
spec: {cidr: 10.68.0.0/24, blockSize: 26, nodeSelector: all()}
---
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: other}
spec: {cidr: 10.69.0.0/24, blockSize: 26, nodeSelector: all()}
---
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: six}
spec: {cidr: "fd68::/112", blockSize: 122, nodeSelector: all()}
`)
	a := &annotated{ns: s.Namespace(t)}
	s.Apply(t, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: sa, namespace: "+a.ns+"}\n")
	n.patch("/api/v1/namespaces/"+a.ns, map[string]any{"metadata": map[string]any{"annotations": map[string]any{"cni.projectcalico.org/ipv4pools": `["team"]`}}})
	n.agent(s.Kubeconfig)
	n.ready()
	a.plugin = n.plugin()
	return a
}

// asks makes a pod with annotations, of names without their domain and values in turn.
func (a *annotated) asks(name string, nameAndValue ...string) {
	a.t.Helper()
	has := map[string]string{}
	for i := 0; i < len(nameAndValue); i += 2 {
		has["cni.projectcalico.org/"+nameAndValue[i]] = nameAndValue[i+1]
	}
	annotations, err := json.Marshal(has)
	if err != nil {
		a.t.Fatal(err)
	}
	a.s.Apply(a.t, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: %s, annotations: %s}
spec: {serviceAccountName: sa, nodeName: %s, automountServiceAccountToken: false, containers: [{name: c, image: i}]}
`, name, a.ns, annotations, a.name))
}

// gets attaches a pod and returns its addresses as text.
func (a *annotated) gets(name string) (pod, string) {
	a.t.Helper()
	p := a.attach(a.ns, name)
	return p, strings.Trim(fmt.Sprint(p.addrs), "[]")
}

// leaves checks that an ADD that failed left nothing.
func (a *annotated) leaves(name string, inside *netnstest.NS) {
	a.t.Helper()
	if _, err := inside.Rtnl().Link("eth0"); !errors.Is(err, rtnl.ErrNotFound) {
		a.t.Errorf("%s: a link is left in the container: %v", name, err)
	}
	if _, err := a.Rtnl().Link(translate.InterfaceName(a.ns, name)); !errors.Is(err, rtnl.ErrNotFound) {
		a.t.Errorf("%s: a link is left on the host: %v", name, err)
	}
	if err := a.s.Admin().Call(a.t.Context(), "GET", a.handle(name), nil, nil); err == nil {
		a.t.Errorf("%s: a handle is left", name)
	}
	var o struct {
		Metadata struct{ Annotations map[string]string }
	}
	if err := a.s.Admin().Call(a.t.Context(), "GET", "/api/v1/namespaces/"+a.ns+"/pods/"+name, nil, &o); err != nil || o.Metadata.Annotations[translate.AnnotationIP] != "" {
		a.t.Errorf("%s: the pod has the address %q, error %v", name, o.Metadata.Annotations[translate.AnnotationIP], err)
	}
}

func (a *annotated) handle(name string) string {
	return "/apis/projectcalico.org/v3/ipamhandles/k8s-pod-network.c-" + name
}

func TestAPodHasWhatItsAnnotationsAskFor(t *testing.T) {
	a := newAnnotated(t)
	a.asks("exact", "ipAddrs", `["10.69.0.40"]`, "hwAddr", "1c:0c:0a:c0:ff:ee")
	a.asks("default")
	a.asks("over", "ipv4pools", `["10.69.0.0/24"]`)
	a.asks("dual", "ipFamilies", `["IPv4","IPv6"]`, "ipv6pools", `["six"]`)
	a.asks("also-dual", "ipFamilies", `["IPv4","IPv6"]`)

	exact, addrs := a.gets("exact")
	if link := exact.Link("eth0"); addrs != "10.69.0.40" || link.MAC != "1c:0c:0a:c0:ff:ee" {
		t.Errorf("it has %s, and the MAC %s", addrs, link.MAC)
	}
	ofNamespace, addrs := a.gets("default")
	if !strings.HasPrefix(addrs, "10.68.0.") {
		t.Errorf("a pod of the namespace has %s", addrs)
	}
	over, addrs := a.gets("over")
	if !strings.HasPrefix(addrs, "10.69.0.") {
		t.Errorf("a pod that names another pool has %s", addrs)
	}
	dual, addrs := a.gets("dual")
	if !strings.HasPrefix(addrs, "10.68.0.") || !strings.Contains(addrs, " fd68::") {
		t.Errorf("a pod of both families has %s", addrs)
	}
	alsoDual, _ := a.gets("also-dual")
	for _, p := range []netnstest.Probe{
		{From: ofNamespace.NS, To: exact.NS, Proto: "tcp", Dst: netip.AddrPortFrom(exact.addr, 8080)},
		{From: exact.NS, To: over.NS, Proto: "udp", Dst: netip.AddrPortFrom(over.addr, 8080)},
		{From: alsoDual.NS, To: dual.NS, Proto: "tcp", Dst: netip.AddrPortFrom(dual.addrs[1], 8080)},
	} {
		p.WantReach(t)
	}

	// What DEL gives back, the next may ask for.
	if text, err := a.call("DEL", a.ns, "exact", "c-exact", exact.NS); err != nil {
		t.Errorf("DEL: %v\n%s", err, text)
	}
	a.asks("heir", "ipAddrs", `["10.69.0.40"]`)
	heir, addrs := a.gets("heir")
	if addrs != "10.69.0.40" {
		t.Errorf("the next has %s", addrs)
	}
	netnstest.Probe{From: ofNamespace.NS, To: heir.NS, Proto: "tcp", Dst: netip.AddrPortFrom(heir.addr, 8080)}.WantReach(t)

	// Another of the same name, after its sandbox went without a DEL, has it again.
	again := netnstest.New(t)
	if text, err := a.call("ADD", a.ns, "heir", "c-heir2", again); err != nil || !strings.Contains(text, "10.69.0.40/32") {
		t.Errorf("ADD of its next sandbox: %v\n%s", err, text)
	}

	a.conf = `,"feature_control":{"ip_addrs_no_ipam":true}`
	a.asks("own", "ipAddrsNoIpam", `["192.0.2.77"]`)
	own, addrs := a.gets("own")
	if addrs != "192.0.2.77" || a.s.Admin().Call(t.Context(), "GET", a.handle("own"), nil, nil) == nil {
		t.Errorf("a pod with an address of its own has %s", addrs)
	}
	netnstest.Probe{From: ofNamespace.NS, To: own.NS, Proto: "tcp", Dst: netip.AddrPortFrom(own.addr, 8080)}.WantReach(t)
}

func TestAWrongAnnotationFailsAddAndLeavesNothing(t *testing.T) {
	a := newAnnotated(t)
	a.asks("first", "ipAddrs", `["10.69.0.41"]`)
	first, _ := a.gets("first")
	for _, tt := range []struct{ name, annotation, value, says string }{
		{"taken", "ipAddrs", `["10.69.0.41"]`, "assign 10.69.0.41 on n4: is assigned already to handle k8s-pod-network.c-first"},
		{"outside", "ipAddrs", `["10.99.0.1"]`, "no IPPool contains it"},
		{"six", "ipAddrs", `["fd68::9"]`, "IPv6 is off"},
		{"pool", "ipv4pools", `["none"]`, `\"none\" is neither name nor prefix of a pool of IPv4`},
		{"address", "hwAddr", "ff:ff:ff:ff:ff:ff", "a group's address"},
		{"prefixes", "allowedSourcePrefixes", "0.0.0.0/0", "want a list as JSON"},
		{"floating", "floatingIPs", `["fd00::1"]`, "no address of that family"},
		{"own", "ipAddrsNoIpam", `["192.0.2.1"]`, "feature_control.ip_addrs_no_ipam"},
	} {
		a.asks(tt.name, tt.annotation, tt.value)
		inside := netnstest.New(t)
		text, err := a.call("ADD", a.ns, tt.name, "c-"+tt.name, inside)
		if err == nil || !strings.Contains(text, "annotation cni.projectcalico.org/"+tt.annotation+" of pod "+a.ns+"/"+tt.name) || !strings.Contains(text, tt.says) {
			t.Errorf("%s: %v\n%s", tt.name, err, text)
		}
		a.leaves(tt.name, inside)
	}
	a.asks("misspelt", "ipv4pool", `["other"]`)
	other, _ := a.gets("misspelt")
	if log, err := os.ReadFile(a.log); err != nil || !strings.Contains(string(log), "annotation cni.projectcalico.org/ipv4pool of the pod is not known") {
		t.Errorf("the agent says nothing of an annotation that it does not know: %v", err)
	}
	netnstest.Probe{From: other.NS, To: first.NS, Proto: "tcp", Dst: netip.AddrPortFrom(first.addr, 8080)}.WantReach(t)
}

func TestAPodSendsFromPrefixesThatItsAnnotationNames(t *testing.T) {
	a := newAnnotated(t)
	a.s.Apply(t, "apiVersion: projectcalico.org/v3\nkind: FelixConfiguration\nmetadata: {name: default}\nspec: {workloadSourceSpoofing: Any}\n")
	t.Cleanup(func() {
		if err := a.s.Admin().Call(context.WithoutCancel(t.Context()), "DELETE", "/apis/projectcalico.org/v3/felixconfigurations/default", nil, nil); err != nil {
			t.Error(err)
		}
	})
	a.asks("to")
	a.asks("spoofs", "allowedSourcePrefixes", `["198.51.100.0/24"]`)
	to, _ := a.gets("to")
	spoofs, _ := a.gets("spoofs")
	if err := from(t, spoofs, "198.51.100.9", to, patience); err != nil { // the setting comes by the watch
		t.Errorf("what the annotation names does not arrive: %v", err)
	}
	if err := from(t, spoofs, "198.51.101.9", to, netnstest.Silence); err == nil {
		t.Error("what the annotation does not name arrives")
	}
}

// from sends words from an address of a pod, to which no route leads, until one arrives at another; an error: none does.
func from(t *testing.T, p pod, addr string, to pod, within time.Duration) error {
	t.Helper()
	p.Addr("eth0", addr+"/32")
	at := netip.AddrPortFrom(to.addr, 8080)
	server, err := to.ListenUDP(at)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	client, err := p.ListenUDP(netip.AddrPortFrom(netip.MustParseAddr(addr), 0))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for end := time.Now().Add(within); ; {
		_, _ = client.WriteToUDPAddrPort([]byte("twill"), at)
		_ = server.SetReadDeadline(time.Now().Add(netnstest.Silence / 2))
		_, sender, err := server.ReadFromUDPAddrPort(make([]byte, 64))
		if err == nil && sender.Addr().Unmap().String() == addr || err != nil && time.Now().After(end) {
			return err
		}
	}
}
