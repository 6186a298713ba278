package lab

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/kubetest"
)

var allOnKubernetes = flag.Bool("all-on-kubernetes", false, "run all scenarios that can be on an API server, not only the third that make kube-api runs")

// onKubernetes are the third of the scenarios that make kube-api runs on an API server, always the same.
var onKubernetes = []string{
	"agent_killed", "bgp_bird", "bgp_dedicated_reflectors", "default_deny", "host_endpoint", "host_to_workload", "log", "named_ports", "network_sets", "not_ready", "realised", "reject", "store_restart", "tier_pass", "workload_to_host",
}

// onEtcdAlone is a line of a scenario that cannot be on an API server, and says why.
var onEtcdAlone = regexp.MustCompile(`(?m)^# On etcd alone: .+`)

// inNamespace is a namespace in a document of a scenario. Kubernetes takes none that is not there.
var inNamespace = regexp.MustCompile(`\bnamespace: ([a-z0-9-]+)`)

// TestScriptOnAPIServer runs scenarios with a real API server for their datastore, in both forms of storage: hosts are Nodes, and workloads are Pods.
func TestScriptOnAPIServer(t *testing.T) {
	files, err := filepath.Glob("../../testdata/script/*.txt")
	must(t, err)
	exe := testBinary(t)
	for _, group := range []string{"projectcalico.org/v3", "crd.projectcalico.org/v1"} {
		t.Run(group, func(t *testing.T) {
			t.Parallel()
			s := kubetest.New(t, kubetest.Config{})
			definitions, err := exec.Command(exe, "kube", "crds", "--group", group).Output()
			must(t, err)
			documents := slices.DeleteFunc(strings.Split(string(definitions), "\n---\n"), func(d string) bool {
				return strings.Contains(d, "kind: ValidatingAdmissionPolicy") // they keep built-in tiers, which are deleted between scenarios
			})
			s.Apply(t, strings.Join(documents, "\n---\n"))
			ran := 0
			for _, f := range files {
				text, err := os.ReadFile(f)
				must(t, err)
				name := strings.TrimSuffix(filepath.Base(f), ".txt")
				if !*allOnKubernetes && !slices.Contains(onKubernetes, name) || onEtcdAlone.Match(text) {
					continue
				}
				ran++
				t.Run(name, func(t *testing.T) {
					if strings.Contains(string(text), " bird") {
						machinetest.Program(t, "bird")
					}
					clearForScenario(t, s, group)
					for _, m := range inNamespace.FindAllStringSubmatch(string(text), -1) {
						s.Apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+m[1]+"}\n")
					}
					runScript(t, Runner{Exe: exe, Cluster: clusterOf(t, s)}, f, string(text))
				})
			}
			if ran < len(onKubernetes) {
				t.Errorf("%d of %v are there", ran, onKubernetes)
			}
		})
	}
}

// clearForScenario leaves nothing of an earlier scenario but namespaces and accounts.
func clearForScenario(t *testing.T, s *kubetest.Server, group string) {
	t.Helper()
	s.Clear(t, "v1", "pods", "nodes")
	s.Clear(t, group)
	s.Clear(t, "twill.net/v1")
}

func clusterOf(t *testing.T, s *kubetest.Server) *Cluster {
	return &Cluster{
		Kubeconfig:  s.Kubeconfig,
		At:          func(address string) string { return s.KubeconfigAt(t, address) },
		Forward:     s.Forward,
		Apply:       func(manifests string) { s.Apply(t, manifests) },
		ApplyStatus: func(manifests string) { s.ApplyStatus(t, manifests) },
		Stop:        func() { s.Kill(t) },
		Start:       func() { s.Restart(t) },
	}
}
