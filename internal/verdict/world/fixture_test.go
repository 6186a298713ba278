package world

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/twillnet/twill/api"
)

// base is a small cluster in which profiles allow everything. A case overrides
// or adds lines; "-" before a line removes that resource.
const base = `
Node h1 {bgp: {ipv4Address: 192.0.2.1/24, ipv6Address: "2001:db8::1/64"}}
Node h2 {bgp: {ipv4Address: 192.0.2.2/24}, addresses: [{address: 198.51.100.2}]}
Profile kns.prod {labelsToApply: {pcns.env: live}, ingress: [{action: Allow}], egress: [{action: Allow}]}
Profile kns.test {labelsToApply: {pcns.env: test}, ingress: [{action: Allow}], egress: [{action: Allow}]}
Profile ksa.test.robot {labelsToApply: {pcsa.role: bot}}
WorkloadEndpoint prod/h1-k8s-web-eth0 {labels: {app: web, projectcalico.org/orchestrator: k8s}, workload: web, pod: web, node: h1, orchestrator: k8s, endpoint: eth0, interfaceName: cali1, ipNetworks: [10.0.0.1/32, "fd00::1/128"], profiles: [kns.prod]}
WorkloadEndpoint prod/h2-k8s-db-eth0 {labels: {app: db, projectcalico.org/orchestrator: k8s}, workload: db, pod: db, node: h2, orchestrator: k8s, endpoint: eth0, interfaceName: cali2, ipNetworks: [10.0.0.2/32, "fd00::2/128"], profiles: [kns.prod], ports: [{name: sql, protocol: TCP, port: 5432}]}
WorkloadEndpoint test/h1-k8s-cli-eth0 {labels: {app: cli, projectcalico.org/orchestrator: k8s}, workload: cli, pod: cli, node: h1, orchestrator: k8s, endpoint: eth0, interfaceName: cali3, ipNetworks: [10.0.0.3/32, "fd00::3/128"], serviceAccountName: robot, profiles: [kns.test, ksa.test.robot]}
`

var plurals = map[string]string{
	"NetworkPolicy": "networkpolicies", "GlobalNetworkPolicy": "globalnetworkpolicies", "StagedNetworkPolicy": "stagednetworkpolicies",
	"StagedGlobalNetworkPolicy": "stagedglobalnetworkpolicies", "StagedKubernetesNetworkPolicy": "stagedkubernetesnetworkpolicies", "Node": "nodes", "Profile": "profiles", "Tier": "tiers",
	"WorkloadEndpoint": "workloadendpoints", "HostEndpoint": "hostendpoints", "NetworkSet": "networksets",
	"KubernetesEndpointSlice": "kubernetesendpointslices", "GlobalNetworkSet": "globalnetworksets", "FelixConfiguration": "felixconfigurations",
	"BGPConfiguration": "bgpconfigurations", "KubernetesService": "kubernetesservices", "IPPool": "ippools",
}

// updates reads lines "Kind [namespace/]name {spec…}"; labels is metadata's.
// What does not begin with a brace is stored as it stands.
func updates(t *testing.T, text string) []api.Update {
	t.Helper()
	var out []api.Update
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		line, gone := strings.CutPrefix(strings.TrimSpace(line), "-")
		if line == "" {
			continue
		}
		parts := strings.SplitN(strings.TrimSpace(line), " ", 3)
		if len(parts) < 2 || plurals[parts[0]] == "" {
			t.Fatalf("fixture line %q", line)
		}
		u := api.Update{Key: "/calico/resources/v3/projectcalico.org/" + plurals[parts[0]] + "/" + parts[1]}
		switch {
		case gone:
		case len(parts) == 3 && parts[2][0] != '{':
			u.Value = []byte(parts[2])
		default:
			u.Value = document(t, parts[0], parts[1], strings.Join(parts[2:], ""))
		}
		out = append(out, u)
	}
	return out
}

func document(t *testing.T, kind, name, text string) []byte {
	t.Helper()
	spec := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &spec); err != nil {
		t.Fatalf("fixture %s %s: %v", kind, name, err)
	}
	meta := map[string]any{"name": name}
	if ns, n, ok := strings.Cut(name, "/"); ok {
		meta = map[string]any{"namespace": ns, "name": n}
	}
	if labels, ok := spec["labels"]; ok {
		meta["labels"] = labels
		delete(spec, "labels")
	}
	doc := map[string]any{"kind": kind, "apiVersion": api.GroupVersion, "metadata": meta, "spec": spec}
	if kind == api.KindKubernetesEndpointSlice { // which has no spec
		delete(doc, "spec")
		maps.Copy(doc, spec)
	}
	b, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// ask reads "src > dst tcp 80", "… icmp 8 0", "… 47"; a trailing 6, as in tcp6
// or 47/6, means IPv6; "from 99" is the source port; "via h1" at the end names a node that forwards it.
func ask(t *testing.T, w *World, text string) Answer {
	t.Helper()
	text, via, _ := strings.Cut(text, " via ")
	f := strings.Fields(text)
	q := Query{Family: 4, Via: via, Src: resolve(t, w, f[0]), Dst: resolve(t, w, f[2])}
	proto, six := strings.CutSuffix(f[3], "6")
	f[3] = strings.TrimSuffix(proto, "/")
	if six {
		q.Family = 6
	}
	number := func(i int) uint16 {
		if i >= len(f) {
			return 0
		}
		n, err := strconv.ParseUint(f[i], 10, 16)
		if err != nil {
			t.Fatalf("question %q: %v", text, err)
		}
		return uint16(n)
	}
	switch proto {
	case "tcp", "udp", "sctp":
		q.Proto = map[string]uint8{"tcp": 6, "udp": 17, "sctp": 132}[proto]
		q.DstPort = number(4)
		if len(f) > 5 {
			q.SrcPort = number(6)
		}
	case "icmp":
		q.Proto = protoICMP
		if six {
			q.Proto = protoICMPv6
		}
		q.ICMPType, q.ICMPCode = uint8(number(4)), uint8(number(5))
	default:
		q.Proto = uint8(number(3))
	}
	return w.Judge(q)
}

func resolve(t *testing.T, w *World, s string) Party {
	t.Helper()
	p, err := w.Resolve(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// say is a decision in short: "Deny: rule NetworkPolicy/prod/p#0".
func say(d Decision) string {
	s := d.Action + ": " + d.Reason
	if d.Reason == ReasonEndOfTier {
		return s + " " + d.Tier
	}
	if d.Policy != "" {
		s += " " + d.Policy
	}
	if d.RuleIndex >= 0 {
		s += fmt.Sprintf("#%d", d.RuleIndex)
	}
	return s
}
