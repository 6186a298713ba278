package conformance

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/mattfenwick/cyclonus/pkg/connectivity"
	"github.com/mattfenwick/cyclonus/pkg/connectivity/probe"
	"github.com/mattfenwick/cyclonus/pkg/generator"
	"github.com/mattfenwick/cyclonus/pkg/kube"
	"github.com/mattfenwick/cyclonus/pkg/matcher"

	"github.com/twillnet/twill/internal/verdict/world"
)

// tally counts cells.
type tally struct {
	cases, steps, cells, allowed int
	left                         map[string]int // out, by reason
}

func (s *tally) String() string {
	out := fmt.Sprintf("%d cases, %d steps, %d cells in which cyclonus, verdict/world and the kernel agree, of which %.1f %% are allowed",
		s.cases, s.steps, s.cells, 100*float64(s.allowed)/float64(s.cells))
	for _, why := range slices.Sorted(maps.Keys(s.left)) {
		out += fmt.Sprintf("\nleft out: %d cells: %s", s.left[why], why)
	}
	return out
}

// Reasons for leaving a cell out.
const (
	leftLoopback = "a pod to itself: no packet leaves it"
	leftNoServer = "no container has the port that is asked for"
)

// forms are those of policyRendering.
var forms = []string{"Compiled", "Chains"}

// TestCyclonus runs all cases on policy as look-ups and on policy as chains.
func TestCyclonus(t *testing.T) {
	for _, form := range forms {
		for family, name := range []string{"IPv4", "IPv6"} {
			t.Run(form+"/"+name, func(t *testing.T) {
				c := newTranslated(t, form)
				c.runAll(family, 1)
				c.inForm(form)
			})
		}
	}
}

var onIPTables = flag.Bool("iptables", false, "TestCyclonusOnIPTables; make iptables")

// TestCyclonusOnIPTables runs all cases on policy in iptables, of either backend and in both families; without -iptables a fixed sample, in two of these four
// ways, since each change of one takes some processes.
func TestCyclonusOnIPTables(t *testing.T) {
	for _, dataplane := range []string{"iptables-nft", "iptables-legacy"} {
		for family, name := range []string{"IPv4", "IPv6"} {
			of := 1
			if !*onIPTables {
				of = 50
			}
			if !*onIPTables && (family == 0) != (dataplane == "iptables-nft") {
				continue
			}
			t.Run(dataplane+"/"+name, func(t *testing.T) {
				c := newTranslated(t, dataplane)
				c.runAll(family, of)
				for _, h := range c.hosts {
					if rules := h.Run("sh", "-c", "for i in $(seq 100); do "+dataplane+"-save && exit; done; exit 1"); !strings.Contains(rules, "tw-forward") {
						t.Errorf("%s has no policy in %s:\n%s", h.name, dataplane, rules)
					}
				}
			})
		}
	}
}

// runAll runs the first of each so many cases, and all that have several steps.
func (c *cluster) runAll(family, each int) {
	began, s := time.Now(), &tally{left: map[string]int{}}
	fresh(c) // so that there is the pod whose address cyclonus makes prefixes of
	cases := generator.NewTestCaseGenerator(true, c.pod("z/c").addrs[family].String(), []string{"x", "y", "z"}, nil, nil).GenerateTestCases()
	for i, tc := range cases {
		if i%each == 0 || len(tc.Steps) > 1 {
			s.cases++
			c.run(fmt.Sprintf("case %d, %s", i, tc.Description), fresh(c), run{tc, family, s})
		}
	}
	c.t.Logf("%s\n%.1f s", s, time.Since(began).Seconds())
	if s.cells == 0 || s.allowed == 0 || s.allowed == s.cells {
		c.t.Error("nothing was asked, or the answer is always the same")
	}
}

// fresh is the cluster with which each case begins: three namespaces with three pods each. All of it is in cyclonus' own
// books; the pods of the kernel are made when they are first asked for.
func fresh(c *cluster) *connectivity.TestCaseState {
	mock := kube.NewMockKubernetes(1)
	all, err := probe.NewDefaultResources(mock, []string{"x", "y", "z"}, []string{"a", "b", "c"}, ports,
		[]corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}, nil, 5, false, "")
	must(c.t, err)
	for _, p := range all.Pods {
		c.pod(p.PodString().String())
	}
	return &connectivity.TestCaseState{Kubernetes: mock, Resources: all}
}

type run struct {
	*generator.TestCase
	family int
	tally  *tally
}

func (c *cluster) run(name string, state *connectivity.TestCaseState, r run) {
	for i, step := range r.Steps {
		for _, a := range step.Actions {
			must(c.t, act(state, a))
		}
		for _, p := range state.Resources.Pods {
			p.IP = c.pod(p.PodString().String()).addrs[r.family].String()
		}
		r.tally.steps++
		c.step(fmt.Sprintf("%s, step %d", name, i), state, step.Probe, r)
	}
	if c.t.Failed() {
		c.t.FailNow() // the first case says enough
	}
}

func (c *cluster) step(name string, state *connectivity.TestCaseState, config *generator.ProbeConfig, r run) {
	all := c.program(state)
	jobs := (&probe.JobBuilder{}).GetJobsForProbeConfig(state.Resources, config)
	r.tally.left[leftNoServer] += len(jobs.BadNamedPort) + len(jobs.BadPortProtocol)
	var cells []*cell
	for _, j := range jobs.Valid {
		if j.FromKey == j.ToKey {
			r.tally.left[leftLoopback]++
			continue
		}
		cells = append(cells, &cell{job: j, from: c.pod(j.FromKey), to: c.pod(j.ToKey)})
	}
	c.connect(r.family, cells)
	c.compare(name, state, world.New(all), cells, r)
}

func (c *cluster) compare(name string, state *connectivity.TestCaseState, w *world.World, cells []*cell, r run) {
	judge := probe.SimulatedJobRunner{Policies: matcher.BuildNetworkPolicies(true, state.Policies)}
	for _, x := range cells {
		want := judge.RunJob(x.job).Combined == probe.ConnectivityAllowed
		a := w.Judge(c.query(w, x, r.family))
		if got := x.fate(c.t); got != want || a.Allowed != want {
			c.t.Errorf("%s: %s: cyclonus allows it: %v; world: %v (%+v); the kernel: %v\n%s", name, x, want, a.Allowed, a.Decided, got, explain(state))
			return
		}
		r.tally.cells++
		if want {
			r.tally.allowed++
		}
	}
}

func (c *cluster) query(w *world.World, x *cell, family int) world.Query {
	src, err := w.Resolve(x.job.FromKey)
	must(c.t, err)
	dst, err := w.Resolve(x.job.ToKey)
	must(c.t, err)
	return world.Query{
		Src: src, Dst: dst, Family: 4 + 2*family,
		Proto: protocols[string(x.job.Protocol)], SrcPort: 40000, DstPort: uint16(x.job.ResolvedPort),
	}
}

func explain(state *connectivity.TestCaseState) string {
	text, err := yaml.Marshal(state.Policies)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func act(s *connectivity.TestCaseState, a *generator.Action) error {
	switch {
	case a.CreatePolicy != nil:
		return s.CreatePolicy(a.CreatePolicy.Policy)
	case a.UpdatePolicy != nil:
		return s.UpdatePolicy(a.UpdatePolicy.Policy)
	case a.DeletePolicy != nil:
		return s.DeletePolicy(a.DeletePolicy.Namespace, a.DeletePolicy.Name)
	case a.CreateNamespace != nil:
		return s.CreateNamespace(a.CreateNamespace.Namespace, a.CreateNamespace.Labels)
	case a.SetNamespaceLabels != nil:
		return s.SetNamespaceLabels(a.SetNamespaceLabels.Namespace, a.SetNamespaceLabels.Labels)
	case a.DeleteNamespace != nil:
		return s.DeleteNamespace(a.DeleteNamespace.Namespace)
	case a.ReadNetworkPolicies != nil:
		return s.ReadPolicies(a.ReadNetworkPolicies.Namespaces)
	case a.CreatePod != nil:
		return s.CreatePod(a.CreatePod.Namespace, a.CreatePod.Pod, a.CreatePod.Labels)
	case a.SetPodLabels != nil:
		return s.SetPodLabels(a.SetPodLabels.Namespace, a.SetPodLabels.Pod, a.SetPodLabels.Labels)
	case a.DeletePod != nil:
		return s.DeletePod(a.DeletePod.Namespace, a.DeletePod.Pod)
	}
	return fmt.Errorf("cyclonus asks for an action that is not known here: %+v", a)
}
