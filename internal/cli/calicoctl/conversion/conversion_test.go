package conversion_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/cli"
	"github.com/twillnet/twill/internal/cli/clitest"
)

// calicoctl runs it without a datastore; {} in args is a file with the text.
func calicoctl(t *testing.T, args, text string) (code int, out string) {
	t.Helper()
	clitest.ClearStoreEnv(t)
	file := filepath.Join(t.TempDir(), "resources.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	code = cli.RunIn(t.Context(), clitest.Env(cli.Stdio{In: strings.NewReader(text), Out: &b, Err: &b}), append([]string{"calicoctl"}, clitest.Words(strings.ReplaceAll(args, "{}", file))...))
	return code, b.String()
}

func list(resources ...string) string { return "[" + strings.Join(resources, ", ") + "]" }

const (
	oldPeer   = "{apiVersion: v1, kind: bgpPeer, metadata: {scope: global, peerIP: 192.0.2.7}, spec: {asNumber: 64567}}"
	oldNode   = "{apiVersion: v1, kind: node, metadata: {name: n1}}"
	oldPod    = "{apiVersion: v1, kind: workloadEndpoint, metadata: {name: eth0, node: n1, orchestrator: k8s, workload: prod.web}, spec: {interfaceName: cali1, ipNetworks: [10.0.0.1/32], profiles: [kns.prod]}}"
	oldPolicy = "{apiVersion: v1, kind: policy, metadata: {name: p}, spec: {selector: has(a), ingress: [{action: allow, protocol: tcp, source: {tag: t}}]}}"
	podPolicy = "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: a, namespace: b, labels: {c: d}}, spec: {podSelector: {}}}"
)

// TestWhatConvertPrintsMayBeWritten: resources of version 1, and policies of Kubernetes, become the user's own.
func TestWhatConvertPrintsMayBeWritten(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"one is printed as it is", oldPeer, "apiVersion: projectcalico.org/v3\nkind: BGPPeer\nmetadata:\n  creationTimestamp: null\n  name: 192-0-2-7\nspec:\n  asNumber: 64567\n  peerIP: 192.0.2.7"},
		{
			"several as a list", list(oldPeer, oldNode),
			"apiVersion: v1\nitems:\n- apiVersion: projectcalico.org/v3\n  kind: BGPPeer\n  metadata:\n    creationTimestamp: null\n    name: 192-0-2-7\n  spec:\n    asNumber: 64567\n    peerIP: 192.0.2.7\n" +
				"- apiVersion: projectcalico.org/v3\n  kind: Node\n  metadata:\n    creationTimestamp: null\n    name: n1\n  spec: {}\n  status: {}\nkind: List\nmetadata: {}",
		},
		{
			"a policy", oldPolicy,
			"apiVersion: projectcalico.org/v3\nkind: GlobalNetworkPolicy\nmetadata:\n  creationTimestamp: null\n  labels:\n    projectcalico.org/tier: default\n  name: p\nspec:\n" +
				"  ingress:\n  - action: Allow\n    destination: {}\n    protocol: TCP\n    source:\n      selector: t == ''\n  selector: has(a)\n  tier: default\n  types:\n  - Ingress",
		},
		{
			"a policy of Kubernetes has its own name, and is the user's", podPolicy,
			"apiVersion: projectcalico.org/v3\nkind: NetworkPolicy\nmetadata:\n  creationTimestamp: null\n  labels:\n    c: d\n  name: a\n  namespace: b\nspec:\n  order: 1000\n  selector: projectcalico.org/orchestrator == 'k8s'\n  tier: default\n  types:\n  - Ingress",
		},
		{"a workload", oldPod, ""},
		{"documents of a list of Kubernetes'", "{apiVersion: v1, kind: List, items: [" + podPolicy + "]}", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, out := calicoctl(t, "convert -f {}", tt.text)
			if code != 0 || tt.want != "" && strings.TrimSpace(out) != tt.want {
				t.Errorf("exit code %d, got\n%s\nwant\n%s", code, out, tt.want)
			}
			for _, format := range []string{"yaml", "json"} {
				_, out := calicoctl(t, "convert -f {} -o "+format, tt.text)
				if code, why := calicoctl(t, "validate -f {}", out); code != 0 || strings.Contains(out, "knp.default.") {
					t.Errorf("%s: exit code %d: %s\n%s", format, code, why, out)
				}
			}
		})
	}
}

const longLabel = "{apiVersion: v1, kind: hostEndpoint, metadata: {name: eth0, node: h1, labels: {'a/b/c': d}}, spec: {interfaceName: eth0}}"

// TestWhatCannotBeConvertedIsNamed, and nothing is printed then; what can be is printed, whatever else.
func TestWhatCannotBeConvertedIsNamed(t *testing.T) {
	for _, tt := range []struct {
		args, text string
		code       int
		want       string // a part
	}{
		{"convert -f {}", list(oldPeer, "{apiVersion: projectcalico.org/v3, kind: IPPool, metadata: {name: a}}"), 1, "Failed to execute command: Unknown resource type (IPPool) and/or version (projectcalico.org/v3)\n"},
		{"convert -f {}", "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: a}, spec: {podSelector: {}, ingress: [{ports: [{port: '-50:-1'}]}]}}", 1, "Failed to execute command: "},
		{"convert -f {}", "{apiVersion: v1, kind: ipPool, metadata: {cidr: 10.0.0.0/8}, spec: {blockSize: 26}}", 1, `Failed to execute command: ipPool: json: unknown field "blockSize"`},
		{"convert -f {}", longLabel, 1, "Converted manifest resource(s) failed validation: error with field Labels = 'a/b/c' (a qualified name must consist of alphanumeric characters"},
		{"convert -f {}", longLabel, 1, "Re-run the command with '--ignore-validation' flag to see the converted output."},
		{"convert -f {}", strings.ReplaceAll(longLabel, "a/b/c", strings.Repeat("a", 64)), 1, "(name part must be no more than 63 characters)"},
		{"convert -f {}", strings.ReplaceAll(longLabel, "eth0", strings.Repeat("e", 254)), 1, "(name is too long by 4 bytes)"},
		{"convert -f {} --ignore-validation", longLabel, 0, "a/b/c: d"},
		{"convert -f {}", "", 1, "Failed to execute command: "},
		{"convert -f /nowhere", "", 1, "Failed to execute command: "},
		{"convert -f {} -o xml", oldPeer, 1, "unrecognized output format 'xml'"},
	} {
		if code, out := calicoctl(t, tt.args, tt.text); code != tt.code || !strings.Contains(out, tt.want) {
			t.Errorf("%s of %s: exit code %d, got\n%s\nwant %d and %q", tt.args, tt.text, code, out, tt.code, tt.want)
		}
	}
}

// TestOptimizePrintsWhatIsValid, and splits nothing: parts of a policy would leave out whom no part selects.
func TestOptimizePrintsWhatIsValid(t *testing.T) {
	const pool = "{apiVersion: projectcalico.org/v3, kind: IPPool, metadata: {name: a}, spec: {cidr: 10.0.0.0/16}}"
	const asWritten = "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata:\n  creationTimestamp: null\n  name: a\nspec:\n  cidr: 10.0.0.0/16\n"
	const split = "{apiVersion: projectcalico.org/v3, kind: GlobalNetworkPolicy, metadata: {name: g}, spec: {selector: all(), ingress: [{action: Allow, destination: {selector: has(b)}}]}}"
	const sameSplit = "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkPolicy\nmetadata:\n  creationTimestamp: null\n  name: g\nspec:\n  ingress:\n  - action: Allow\n    destination:\n      selector: has(b)\n    source: {}\n  selector: all()\n"
	for _, tt := range []struct {
		args, text string
		code       int
		want       string // a part
	}{
		{"optimize -f {}", pool, 0, asWritten},
		{"optimize -f -", split, 0, sameSplit},
		{"optimize -f {}", list(pool, split), 0, "- apiVersion: projectcalico.org/v3\n  kind: GlobalNetworkPolicy\n"},
		{"optimize -f {}", strings.ReplaceAll(pool, "/16", "/33"), 1, "Failed to optimize resources: [IPPool(a): error with field IPPool.Spec.CIDR = '10.0.0.0/33'"},
		{"optimize", "", 1, "Invalid option"},
	} {
		if code, out := calicoctl(t, tt.args, tt.text); code != tt.code || !strings.Contains(out, tt.want) {
			t.Errorf("%s of %s: exit code %d, got\n%s\nwant %d and %q", tt.args, tt.text, code, out, tt.code, tt.want)
		}
	}
}
