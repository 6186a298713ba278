package takeover

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/doctor"
)

// put adds a resource as it is stored; of one that begins with its spec, the rest is what its key says.
func (f *Facts) put(tail, value string) {
	if ref, ok := api.ParseKey(api.ResourcesPrefix + tail); ok && strings.HasPrefix(value, `{"spec":`) {
		value = fmt.Sprintf(`{"kind":%q,"apiVersion":"projectcalico.org/v3","metadata":{"name":%q,"namespace":%q},`, ref.Kind, ref.Name, ref.Namespace) + value[1:]
		value = strings.Replace(value, `,"namespace":""`, "", 1)
	}
	f.Add(api.Update{Key: api.ResourcesPrefix + tail, Value: []byte(value)})
}

// calico is host h1 of two, where upstream's agent runs and all is well: one workload, one session, one block.
func calico() *Facts {
	f := &Facts{Facts: &doctor.Facts{
		Node: "h1", Kernel: doctor.Kernel{Release: "6.1"}, BGP: doctor.BGP{Mode: "on"},
		Agent: doctor.Agent{Err: "no agent answers"},
		Links: []doctor.Link{
			{Name: "eth0", Up: true, Addrs: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")}},
			{Name: "cali1", Up: true, Workload: true},
		},
		Processes: []doctor.Process{{Name: "calico-felix", PID: 7}},
		Chains:    []doctor.Chain{{Family: "ip", Table: "filter", Name: "cali-FORWARD", Legacy: true}},
		Health:    []doctor.Listener{{PID: 7}},
	}}
	f.Endpoints = []string{"https://192.0.2.9:2379"}
	f.Agents = []Agent{{Name: "calico-felix", PID: 7, Environ: []string{"ETCD_ENDPOINTS=https://192.0.2.9:2379,https://192.0.2.8:2379"}}}
	f.File.Path = "/etc/calico/felix.cfg"
	f.Blocks, f.OwnBlocks = 2, 1
	f.put("nodes/h1", `{"spec":{"bgp":{"ipv4Address":"192.0.2.1/24"}}}`)
	f.put("nodes/h2", `{"spec":{"bgp":{"ipv4Address":"192.0.2.2/24"}}}`)
	f.put("ippools/one", `{"spec":{"cidr":"10.65.0.0/16","ipipMode":"Never","vxlanMode":"Never","blockSize":26,"nodeSelector":"all()"}}`)
	f.put("workloadendpoints/default/h1-k8s-web-eth0", `{"spec":{"node":"h1","orchestrator":"k8s","pod":"web","endpoint":"eth0","interfaceName":"cali1","ipNetworks":["10.65.0.5/32"]}}`)
	f.put("globalnetworkpolicies/default.web", `{"kind":"GlobalNetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":"default.web","annotations":{"projectcalico.org/metadata":"{\"name\":\"web\"}"}},"spec":{"tier":"default","selector":"app == \"web\"","types":["Ingress"],"ingress":[{"action":"Allow"}]}}`)
	f.Plan = plan.Plan{Node: "h1", AS: 64512, Sessions: []plan.Session{{Peer: netip.MustParseAddr("192.0.2.2"), PeerNode: "h2", Why: "mesh"}}}
	return f
}

// text is what a judgement says, a line for each finding.
func text(found []Finding) string {
	var b strings.Builder
	for _, f := range found {
		fmt.Fprintf(&b, "%s %s: %s", f.Grade, f.Check, f.Found)
		if f.When != "" {
			fmt.Fprintf(&b, " [%s]", f.When)
		}
		b.WriteString("\n")
	}
	return b.String()
}

const ofCalico = `changes agent: calico-felix (pid 7) guards workloads here; its rules and routes stay when it stops [when Twill starts]
changes rules: Calico's rules stay in force beside ours, as they were last: workloads that begin meanwhile are dropped by them, and what policy newly allows is, too [until the leftovers go]
changes rules: what Calico made in the kernel is removed: 1 chain of iptables-legacy, ip (filter) [when the leftovers go]
same addresses: 2 blocks of addresses, 1 of this node: addresses, handles and affinities are used as they are
same bgp: 1 session of BGP, AS 64512: h2
same cluster: Twill's agent reports from 0 of 2 nodes; Calico's: h1; no agent, or one that reports nothing, as Calico's outside of OpenStack: h2
same kernel: Linux 6.1 makes tables and veth pairs
same node: Node h1
same resources: 1 global policy, 1 workload endpoint, 2 nodes, 1 pool: read where they are, by the same keys
same workloads: 1 workload here with their interfaces: they keep addresses, routes and connections
`

func TestNothingBlocksWhereAllIsWell(t *testing.T) {
	found := Judge(calico())
	lines := strings.SplitAfter(text(found), "\n")
	slices.Sort(lines)
	if got := strings.Join(lines, ""); got != ofCalico {
		t.Errorf("got:\n%s\nwant:\n%s", got, ofCalico)
	}
	if Blocked(found) {
		t.Error("it blocks")
	}
	for _, f := range found {
		if (f.Do == "") != (f.Grade == Same) {
			t.Errorf("what to do: %+v", f)
		}
	}
}

// difference has the lines that a judgement has and the one of calico() has not, with +, and those that are gone, with -.
func difference(found []Finding) (out []string) {
	got, was := strings.Split(strings.TrimSpace(text(found)), "\n"), strings.Split(strings.TrimSpace(text(Judge(calico()))), "\n")
	for _, l := range got {
		if !slices.Contains(was, l) {
			out = append(out, "+"+l)
		}
	}
	for _, l := range was {
		if !slices.Contains(got, l) {
			out = append(out, "-"+l)
		}
	}
	return out
}

// gone are the lines of calico() of some checks, with -.
func gone(checks ...string) string {
	var out []string
	for l := range strings.Lines(ofCalico) {
		if check := strings.TrimSuffix(strings.Fields(l)[1], ":"); slices.Contains(checks, check) {
			out = append(out, "-"+strings.TrimSpace(l))
		}
	}
	return strings.Join(out, "\n")
}

type planted struct {
	name  string
	plant func(*Facts)
	want  string // lines: + in addition to calico(), - not any more
}

func TestEachCheckIsExplained(t *testing.T) {
	about := About()
	if len(about) != len(checks) || !strings.HasPrefix(about[0], "store       the datastore") {
		t.Errorf("%q", about)
	}
}

func TestEachStateIsFound(t *testing.T) {
	seen := map[string]bool{}
	for _, tt := range slices.Concat(ofStore, ofHost, ofSettings, ofNetwork) {
		t.Run(tt.name, func(t *testing.T) {
			f := calico()
			tt.plant(f)
			found := Judge(f)
			got, want := difference(found), strings.FieldsFunc(tt.want, func(r rune) bool { return r == '\n' })
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			if Blocked(found) != strings.Contains("\n"+text(found), "\nblocks ") {
				t.Error("Blocked says otherwise than the findings")
			}
			for _, l := range want {
				if fields := strings.Fields(l); strings.HasPrefix(l, "+") {
					seen[strings.TrimSuffix(fields[1], ":")] = true
				}
			}
		})
	}
	for _, c := range checks {
		if !seen[c.name] {
			t.Errorf("no state is planted for the check %s", c.name)
		}
	}
}
