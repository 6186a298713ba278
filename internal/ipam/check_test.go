package ipam

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore/memstore"
)

// upstream is a small cluster as upstream's tools leave it in etcd: two nodes,
// three pods, a tunnel, an address for a load balancer and one that was borrowed.
var upstream = map[string]string{
	"/calico/resources/v3/projectcalico.org/ippools/p":                              `{"metadata":{"name":"p"},"spec":{"cidr":"10.65.0.0/24","blockSize":29,"ipipMode":"Always","vxlanMode":"Never","nodeSelector":"all()","allowedUses":["Workload","Tunnel"]}}`,
	"/calico/resources/v3/projectcalico.org/ippools/lb":                             `{"metadata":{"name":"lb"},"spec":{"cidr":"10.66.0.0/29","blockSize":30,"allowedUses":["LoadBalancer"]}}`,
	"/calico/resources/v3/projectcalico.org/nodes/n1":                               `{"metadata":{"name":"n1"},"spec":{"bgp":{"ipv4Address":"192.0.2.1/24","ipv4IPIPTunnelAddr":"10.65.0.0"}}}`,
	"/calico/resources/v3/projectcalico.org/nodes/n2":                               `{"metadata":{"name":"n2"},"spec":{}}`,
	"/calico/resources/v3/projectcalico.org/workloadendpoints/prod/n1-k8s-web-eth0": `{"metadata":{"name":"n1-k8s-web-eth0","namespace":"prod"},"spec":{"orchestrator":"k8s","node":"n1","pod":"web","endpoint":"eth0","ipNetworks":["10.65.0.1/32"]}}`,
	"/calico/resources/v3/projectcalico.org/workloadendpoints/prod/n1-k8s-db-eth0":  `{"metadata":{"name":"n1-k8s-db-eth0","namespace":"prod"},"spec":{"orchestrator":"k8s","node":"n1","pod":"db","endpoint":"eth0","ipNetworks":["10.65.0.2/32"]}}`,
	"/calico/resources/v3/projectcalico.org/workloadendpoints/prod/n2-k8s-api-eth0": `{"metadata":{"name":"n2-k8s-api-eth0","namespace":"prod"},"spec":{"orchestrator":"k8s","node":"n2","pod":"api","endpoint":"eth0","ipNetworks":["10.65.0.3/32"]}}`,
	"/calico/ipam/v2/assignment/ipv4/block/10.65.0.0-29": `{"cidr":"10.65.0.0/29","affinity":"host:n1","allocations":[0,1,2,3,null,null,null,null],"unallocated":[4,5,6,7],"attributes":[` +
		`{"handle_id":"ipip-tunnel-addr-n1","secondary":{"node":"n1","type":"ipipTunnelAddress"}},` +
		`{"handle_id":"k8s-pod-network.web","secondary":{"namespace":"prod","node":"n1","pod":"web","timestamp":"2026-11-01 10:00:00.5 +0000 UTC"}},` +
		`{"handle_id":"k8s-pod-network.db","secondary":{"namespace":"prod","node":"n1","pod":"db","timestamp":"2026-11-01 10:00:00.5 +0000 UTC"}},` +
		`{"handle_id":"k8s-pod-network.api","secondary":{"namespace":"prod","node":"n2","pod":"api","timestamp":"2026-11-01 10:00:00.5 +0000 UTC"}}],` +
		`"sequenceNumber":9,"sequenceNumberForAllocation":{"0":5,"1":6,"2":7,"3":8},"deleted":false}`,
	"/calico/ipam/v2/assignment/ipv4/block/10.66.0.0-30": `{"cidr":"10.66.0.0/30","affinity":"virtual:load-balancer","allocations":[0,null,null,null],"unallocated":[1,2,3],"attributes":[` +
		`{"handle_id":"lb-123","secondary":{"namespace":"prod","service":"web","type":"LoadBalancer"}}],"sequenceNumber":2,"sequenceNumberForAllocation":{"0":1},"deleted":false}`,
	"/calico/ipam/v2/handle/ipip-tunnel-addr-n1":                    `{"block":{"10.65.0.0/29":1},"deleted":false}`,
	"/calico/ipam/v2/handle/k8s-pod-network.web":                    `{"block":{"10.65.0.0/29":1},"deleted":false}`,
	"/calico/ipam/v2/handle/k8s-pod-network.db":                     `{"block":{"10.65.0.0/29":1},"deleted":false}`,
	"/calico/ipam/v2/handle/k8s-pod-network.api":                    `{"block":{"10.65.0.0/29":1},"deleted":false}`,
	"/calico/ipam/v2/handle/lb-123":                                 `{"block":{"10.66.0.0/30":1},"deleted":false}`,
	"/calico/ipam/v2/host/n1/ipv4/block/10.65.0.0-29":               `{"state":"confirmed","deleted":false}`,
	"/calico/ipam/v2/virtual/load-balancer/ipv4/block/10.66.0.0-30": `{"state":"confirmed","deleted":false}`,
}

const (
	block0  = "/calico/ipam/v2/assignment/ipv4/block/10.65.0.0-29"
	block8  = "/calico/ipam/v2/assignment/ipv4/block/10.65.0.8-29"
	claim8  = "/calico/ipam/v2/host/n1/ipv4/block/10.65.0.8-29"
	handleX = "/calico/ipam/v2/handle/k8s-pod-network.x"
	wep     = "/calico/resources/v3/projectcalico.org/workloadendpoints/prod/"

	lastReport = "/calico/felix/v2/no-region/host/n9/last_reported_status"
	orphan     = `{"metadata":{"name":"n9-k8s-x-eth0","namespace":"prod"},"spec":{"orchestrator":"k8s","node":"n9","pod":"x","endpoint":"eth0","ipNetworks":["10.65.0.8/32"]}}`
)

// blockWith is a block of n1's in which the first address is somebody's.
func blockWith(attribute string) string {
	return `{"cidr":"10.65.0.8/29","affinity":"host:n1","allocations":[0,null,null,null,null,null,null,null],"unallocated":[1,2,3,4,5,6,7],` +
		`"attributes":[` + attribute + `],"sequenceNumber":3,"sequenceNumberForAllocation":{"0":2},"deleted":false}`
}

func owned(handle, owner string) string {
	return fmt.Sprintf(`{"handle_id":%q,"secondary":{%s}}`, handle, owner)
}

const (
	confirmed = `{"state":"confirmed","deleted":false}`
	one8      = `{"block":{"10.65.0.8/29":1},"deleted":false}`
	stored    = `"namespace":"prod","pod":"x","node":"n1"` // as upstream's IPAM, and ours under another main plugin, stores a pod
	pod       = stored + `,"note":"container"`             // as our main plugin does, which promises an endpoint
	long      = `,"timestamp":"2026-11-21 07:00:00.123 +0000 UTC"`
	recent    = `,"timestamp":"2026-11-21 07:50:00.123 +0000 UTC m=+0.5"`
)

// planted changes the cluster and says what must be found, and what of the keys
// must be left after the repair.
type planted struct {
	name string
	set  map[string]string // empty: deleted
	want string            // kind, subject: problem; what is done
	then map[string]string // key: what its value must contain, or "not found"
}

var plants = append([]planted{
	{"nothing", nil, "", map[string]string{block0: `"sequenceNumber":9`}},
	{
		"a pod that is gone",
		map[string]string{block8: blockWith(owned("k8s-pod-network.x", pod+long)), claim8: confirmed, handleX: one8},
		"leak 10.65.0.8: it was given to prod/x, which was to have a WorkloadEndpoint, and none has it; free it",
		map[string]string{block8: `"allocations":[null,`, handleX: "not found", claim8: "confirmed"},
	},
	{
		"a pod under another main plugin, which makes no endpoint",
		map[string]string{block8: blockWith(owned("k8s-pod-network.x", stored+long)), claim8: confirmed, handleX: one8},
		"leak 10.65.0.8: no WorkloadEndpoint has it, and nothing says that prod/x was to have one; kept: nothing proves that it is leaked: look on n1 whether prod/x is still there; `twill ipam release --ip=10.65.0.8`",
		map[string]string{block8: `[0,null`, handleX: "1"},
	},
	{
		"a container under another main plugin, which makes no endpoint",
		map[string]string{block8: blockWith(owned("k8s-pod-network.x", `"node":"n1"`+long)), claim8: confirmed, handleX: one8},
		"leak 10.65.0.8: no WorkloadEndpoint has it, and nothing says that the container of handle k8s-pod-network.x was to have one; kept: nothing proves that it is leaked: look on n1 whether the container of handle k8s-pod-network.x is still there;",
		map[string]string{block8: `[0,null`, handleX: "1"},
	},
	{
		"a pod under another main plugin, whose handle somebody deleted",
		map[string]string{block8: blockWith(owned("k8s-pod-network.x", stored+long)), claim8: confirmed},
		"leak 10.65.0.8: no WorkloadEndpoint has it, and nothing says that prod/x was to have one; kept: nothing proves | " +
			"handle k8s-pod-network.x: it counts 0 of 10.65.0.8/29, which has 1; make it, with its count",
		map[string]string{block8: `[0,null`, handleX: "1"},
	},
	{
		"an address that was given without a handle",
		map[string]string{block8: blockWith(`{"handle_id":null,"secondary":{"node":"n1"` + long + `}}`), claim8: confirmed},
		"leak 10.65.0.8: no WorkloadEndpoint has it, and nothing says that its user was to have one; kept: nothing proves",
		map[string]string{block8: `[0,null`},
	},
	{
		"a pod that is about to have its endpoint",
		map[string]string{block8: blockWith(owned("k8s-pod-network.x", pod+recent)), claim8: confirmed, handleX: one8},
		"leak 10.65.0.8: it was given to prod/x, which was to have a WorkloadEndpoint, and none has it; kept: it is 9m59s old",
		map[string]string{block8: `[0,null`, handleX: "1"},
	},
	{
		"a pod of unknown age",
		map[string]string{block8: blockWith(owned("k8s-pod-network.x", pod)), claim8: confirmed, handleX: one8},
		"leak 10.65.0.8: it was given to prod/x, which was to have a WorkloadEndpoint, and none has it; kept: nothing says how old it is",
		map[string]string{block8: `[0,null`, handleX: "1"},
	},
	{
		"somebody of whom nothing is known",
		map[string]string{block8: blockWith(owned("k8s-pod-network.x", `"note":"mine"`)), claim8: confirmed, handleX: one8},
		"leak 10.65.0.8: no WorkloadEndpoint has it, and nothing says that the container of handle k8s-pod-network.x was to have one; kept: nothing proves",
		map[string]string{block8: `[0,null`},
	},
	{
		"a tunnel that has another address",
		map[string]string{
			block8: blockWith(owned("ipip-tunnel-addr-n1", `"node":"n1","type":"ipipTunnelAddress"`+long)), claim8: confirmed,
			"/calico/ipam/v2/handle/ipip-tunnel-addr-n1": `{"block":{"10.65.0.0/29":1,"10.65.0.8/29":1},"deleted":false}`,
		},
		"leak 10.65.0.8: it is the ipipTunnelAddress of node n1, which has 10.65.0.0; free it",
		map[string]string{block8: `"allocations":[null,`, "/calico/ipam/v2/handle/ipip-tunnel-addr-n1": `{"block":{"10.65.0.0/29":1},`},
	},
	{
		"a handle that does not exist, of an endpoint that does",
		map[string]string{"/calico/ipam/v2/handle/k8s-pod-network.web": ""},
		"handle k8s-pod-network.web: it counts 0 of 10.65.0.0/29, which has 1; make it, with its count",
		map[string]string{"/calico/ipam/v2/handle/k8s-pod-network.web": upstream["/calico/ipam/v2/handle/k8s-pod-network.web"], block0: `"sequenceNumber":9`},
	},
	{
		"a handle that counts too many",
		map[string]string{"/calico/ipam/v2/handle/k8s-pod-network.web": `{"block":{"10.65.0.0/29":2,"10.65.0.16/29":1},"deleted":false}`},
		"handle k8s-pod-network.web: it counts 2 of 10.65.0.0/29, which has 1; it counts 1 of 10.65.0.16/29, which has 0; count anew",
		map[string]string{"/calico/ipam/v2/handle/k8s-pod-network.web": upstream["/calico/ipam/v2/handle/k8s-pod-network.web"]},
	},
	{
		"a handle without an address",
		map[string]string{handleX: one8},
		"handle k8s-pod-network.x: it counts 1 of 10.65.0.8/29, which has 0; delete it",
		map[string]string{handleX: "not found"},
	},
	{
		"a claim whose block was never made",
		map[string]string{claim8: `{"state":"pending","deleted":false}`},
		"claim 10.65.0.8/29: the block does not exist; delete the claim",
		map[string]string{claim8: "not found"},
	},
	{
		"a claim to another's block",
		map[string]string{
			strings.Replace(claim8, "n1", "n2", 1): confirmed, claim8: confirmed,
			block8: strings.Replace(blockWith(owned("k8s-pod-network.x", pod+long)), "[0,null", "[null,null", 1),
		},
		"block 10.65.0.8/29: 10.65.0.8 is neither allocated nor in the free list; make the list anew from the allocations | " +
			"claim 10.65.0.8/29: the block is n1's; delete the claim",
		map[string]string{strings.Replace(claim8, "n1", "n2", 1): "not found", claim8: confirmed, block8: `"unallocated":[1,2,3,4,5,6,7,0]`},
	},
	{
		"a claim that was not confirmed",
		map[string]string{"/calico/ipam/v2/host/n1/ipv4/block/10.65.0.0-29": `{"state":"pending","deleted":false}`},
		"claim 10.65.0.0/29: its state is pending, and the block is its; confirm it",
		map[string]string{"/calico/ipam/v2/host/n1/ipv4/block/10.65.0.0-29": confirmed},
	},
	{
		"a block without its claim",
		map[string]string{"/calico/ipam/v2/host/n1/ipv4/block/10.65.0.0-29": ""},
		"claim 10.65.0.0/29: /calico/ipam/v2/host/n1/ipv4/block/10.65.0.0-29 does not exist; write the claim",
		map[string]string{"/calico/ipam/v2/host/n1/ipv4/block/10.65.0.0-29": confirmed},
	},
	{
		"a host that has endpoints, and no node",
		map[string]string{
			block8: strings.Replace(blockWith(owned("k8s-pod-network.x", pod+long)), "host:n1", "host:n9", 1), handleX: one8,
			strings.Replace(claim8, "n1", "n9", 1): confirmed,
			wep + "n9-k8s-x-eth0":                  orphan,
		},
		"leak 10.65.0.8: WorkloadEndpoint prod/n9-k8s-x-eth0 has it, and node n9 does not exist; kept: nothing says whether that host lives: `twill delete node n9 --cascade`", nil,
	},
	{
		"a host that has endpoints, no node, and an agent that lives",
		map[string]string{
			block8: strings.Replace(blockWith(owned("k8s-pod-network.x", pod+long)), "host:n1", "host:n9", 1), handleX: one8,
			strings.Replace(claim8, "n1", "n9", 1): confirmed,
			wep + "n9-k8s-x-eth0":                  orphan,
			lastReport:                             `{}`, "/calico/felix/v2/no-region/host/n9/status": `{}`,
		},
		"", nil,
	},
	{
		"a host that has endpoints, no node, and an agent that reported and does no more",
		map[string]string{
			block8: strings.Replace(blockWith(owned("k8s-pod-network.x", pod+long)), "host:n1", "host:n9", 1), handleX: one8,
			strings.Replace(claim8, "n1", "n9", 1): confirmed,
			wep + "n9-k8s-x-eth0":                  orphan,
			lastReport:                             `{}`,
		},
		"leak 10.65.0.8: WorkloadEndpoint prod/n9-k8s-x-eth0 has it, and node n9 does not exist, and its last report has expired; delete the endpoint, and free it | " +
			"claim 10.65.0.8/29: the datastore has no node n9, and its last report has expired; give it up",
		map[string]string{block8: "not found", handleX: "not found", strings.Replace(claim8, "n1", "n9", 1): "not found", wep + "n9-k8s-x-eth0": "not found", wep + "n1-k8s-web-eth0": "10.65.0.1"},
	},
	{
		"such a host whose endpoint came a moment ago",
		map[string]string{
			block8: strings.Replace(blockWith(owned("k8s-pod-network.x", pod+recent)), "host:n1", "host:n9", 1), handleX: one8,
			strings.Replace(claim8, "n1", "n9", 1): confirmed,
			wep + "n9-k8s-x-eth0":                  orphan,
			lastReport:                             `{}`,
		},
		"leak 10.65.0.8: WorkloadEndpoint prod/n9-k8s-x-eth0 has it, and node n9 does not exist, and its last report has expired; kept: it is 9m59s old",
		map[string]string{block8: "[0,null", handleX: "1", wep + "n9-k8s-x-eth0": "10.65.0.8"},
	},
	{
		"an old claim without a value", map[string]string{"/calico/ipam/v2/host/n1/ipv4/block/10.65.0.0-29": " "}, "", nil,
	},
	{
		"a block of a pool that was deleted",
		map[string]string{
			"/calico/ipam/v2/assignment/ipv4/block/10.99.0.0-31": `{"cidr":"10.99.0.0/31","affinity":"host:n1",` +
				`"allocations":[null,null],"unallocated":[0,1],"attributes":[],"sequenceNumber":1,"sequenceNumberForAllocation":{},"deleted":false}`,
			"/calico/ipam/v2/host/n1/ipv4/block/10.99.0.0-31": confirmed,
		},
		"block 10.99.0.0/31: no IPPool contains 10.99.0.0/31; delete it: nobody has an address of it",
		map[string]string{"/calico/ipam/v2/assignment/ipv4/block/10.99.0.0-31": "not found", "/calico/ipam/v2/host/n1/ipv4/block/10.99.0.0-31": "not found"},
	},
	{
		"a block of a pool that was deleted, with addresses that are used",
		map[string]string{"/calico/resources/v3/projectcalico.org/ippools/p": ""},
		"block 10.65.0.0/29: no IPPool contains 10.65.0.0/29; kept: 4 addresses of it are in use or cool down; it goes with the last of them, or make a pool for it",
		map[string]string{block0: `"allocations":[0,1,2,3,`, "/calico/ipam/v2/host/n1/ipv4/block/10.65.0.0-29": confirmed},
	},
	{
		"an endpoint whose address is not its own",
		map[string]string{wep + "n1-k8s-y-eth0": `{"metadata":{"name":"n1-k8s-y-eth0","namespace":"prod"},"spec":{"orchestrator":"k8s","node":"n1","pod":"y","endpoint":"eth0","ipNetworks":["10.65.0.6/32"]}}`},
		"endpoint 10.65.0.6: WorkloadEndpoint prod/n1-k8s-y-eth0 has it, and pool p may give it to another; kept: make the endpoint anew",
		map[string]string{block0: `"sequenceNumber":9`},
	},
	{
		"a block that is larger than the blocks of the pool which has its addresses now",
		map[string]string{
			"/calico/resources/v3/projectcalico.org/ippools/p": `{"metadata":{"name":"p"},"spec":{"cidr":"10.65.0.0/30","blockSize":31}}`,
			wep + "n1-k8s-y-eth0":                              `{"metadata":{"name":"n1-k8s-y-eth0","namespace":"prod"},"spec":{"orchestrator":"k8s","node":"n1","pod":"y","endpoint":"eth0","ipNetworks":["10.65.0.6/32"]}}`,
		},
		"block 10.65.0.0/29: no IPPool contains 10.65.0.0/29; kept: 4 addresses of it are in use or cool down; it goes with the last of them, or make a pool for it", nil,
	},
	{
		"an endpoint whose address is free in such a block",
		map[string]string{
			"/calico/resources/v3/projectcalico.org/ippools/p": `{"metadata":{"name":"p"},"spec":{"cidr":"10.65.0.0/24","blockSize":30}}`,
			wep + "n1-k8s-y-eth0":                              `{"metadata":{"name":"n1-k8s-y-eth0","namespace":"prod"},"spec":{"orchestrator":"k8s","node":"n1","pod":"y","endpoint":"eth0","ipNetworks":["10.65.0.6/32"]}}`,
		},
		"endpoint 10.65.0.6: WorkloadEndpoint prod/n1-k8s-y-eth0 has it, and whoever asks for this very address gets it: it is free in block 10.65.0.0/29 of a former pool; kept: make the endpoint anew", nil,
	},
	{
		"an endpoint whose address is reserved",
		map[string]string{
			"/calico/resources/v3/projectcalico.org/ipreservations/r": `{"metadata":{"name":"r"},"spec":{"reservedCIDRs":["10.65.0.6/32"]}}`,
			wep + "n1-k8s-y-eth0": `{"metadata":{"name":"n1-k8s-y-eth0","namespace":"prod"},"spec":{"orchestrator":"k8s","node":"n1","pod":"y","endpoint":"eth0","ipNetworks":["10.65.0.6/32"]}}`,
		},
		"", nil,
	},
	{
		"two endpoints with one address",
		map[string]string{wep + "n2-k8s-y-eth0": `{"metadata":{"name":"n2-k8s-y-eth0","namespace":"prod"},"spec":{"orchestrator":"k8s","node":"n2","pod":"y","endpoint":"eth0","ipNetworks":["10.65.0.1/32"]}}`},
		"endpoint 10.65.0.1: WorkloadEndpoint prod/n1-k8s-web-eth0 and WorkloadEndpoint prod/n2-k8s-y-eth0 have it; kept: delete the endpoint that is not there any more", nil,
	},
	{
		"a value that cannot be read",
		map[string]string{block8: `{`, claim8: confirmed},
		"broken " + block8 + " cannot be read: " + block8 + ": unexpected end of JSON input; kept: nobody knows which addresses it has",
		map[string]string{block8: `{`, claim8: confirmed},
	},
}, plantsWithoutNodes...)

// words says a finding in one line.
func (x Finding) words() string {
	subject := x.Handle
	switch {
	case x.Kind == FoundBroken:
		subject = x.Problem
	case x.Address.IsValid():
		subject = x.Address.String()
	case x.Block != "":
		subject = x.Block
	}
	do := x.Fix
	if do == "" {
		do = "kept: " + x.Kept
	}
	return fmt.Sprintf("%s %s: %s; %s", x.Kind, subject, x.Proof, do)
}

func (p planted) in(t *testing.T) *fixture {
	f := newFixture(t)
	f.store.Delete(t.Context(), api.ResourcesPrefix+"ippools/p6", api.Revision{})
	for k, v := range upstream {
		f.raw(k, v)
	}
	for k, v := range p.set {
		if v == "" {
			if err := f.store.Delete(t.Context(), k, api.Revision{}); err != nil {
				t.Fatal(err)
			}
			continue
		}
		f.raw(k, strings.TrimSpace(v))
	}
	return f
}

// standing is what is found in healthy data: a load balancer's address, of which etcd does not tell whose it is.
const standing = "leak 10.66.0.0: "

func (f *fixture) findings() (out []Finding) {
	f.Helper()
	v, err := f.ReadSurvey(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	for _, x := range v.Check(CheckOptions{Now: f.now, Grace: 15 * time.Minute}) {
		if !strings.HasPrefix(x.words(), standing) {
			out = append(out, x)
		} else if x.Fix != "" {
			f.Errorf("would be repaired: %s", x.words())
		}
	}
	return out
}

func TestPlantedLeaksAreFoundExplainedAndRepaired(t *testing.T) {
	for _, p := range plants {
		t.Run(p.name, func(t *testing.T) {
			f := p.in(t)
			found := f.findings()
			var wants []string
			if p.want != "" {
				wants = strings.Split(p.want, " | ")
			}
			for i, x := range found {
				if i >= len(wants) || !strings.HasPrefix(x.words(), wants[i]) {
					t.Errorf("found: %s", x.words())
				}
			}
			if len(found) != len(wants) {
				t.Errorf("%d findings, want %d: %v", len(found), len(wants), wants)
			}
			before := f.store.Revision()
			for _, r := range f.Repair(t.Context(), found) {
				if r.Err != nil {
					t.Errorf("repair of %s: %v", r.words(), r.Err)
				}
			}
			for k, want := range p.then {
				if got := f.get(k); !strings.Contains(got, want) {
					t.Errorf("%s: %s, want %s", k, got, want)
				}
			}
			if strings.Count(p.want, "kept: ") == len(wants) && f.store.Revision() != before {
				t.Error("something was written although nothing is to be repaired")
			}
			for _, x := range f.findings() {
				if x.Fix != "" {
					t.Errorf("after the repair: %s", x.words())
				}
			}
		})
	}
}

func TestWhatChangesMeanwhileIsNotRepaired(t *testing.T) {
	for _, p := range plants {
		if p.want == "" || strings.Contains(p.want, "kept: ") {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			f := p.in(t)
			found := f.findings()
			for key := range found[0].seen { // anything that it was concluded from
				g := newFixture(t)
				g.store.(*memstore.Store).Rewind(f.store.(*memstore.Store)) // the same, with the same revisions
				if is := g.get(key); strings.Contains(is, "not found") {
					g.raw(key, `{"block":{},"state":"confirmed"}`)
				} else {
					g.raw(key, is)
				}
				before := g.store.Revision()
				for _, r := range g.Repair(t.Context(), found[:1]) {
					if !errors.Is(r.Err, errStale) {
						t.Errorf("%s changed: %v", key, r.Err)
					}
				}
				if g.store.Revision() != before {
					t.Errorf("%s changed, and it was repaired nevertheless", key)
				}
				g.store.(*memstore.Store).Rewind(f.store.(*memstore.Store))
				a := g.through(func(verb, _ string) fault {
					if verb == "transact" { // after all was read and found to be the same
						g.raw(key, "{}")
					}
					return works
				}, false, nil)
				if r := a.Repair(t.Context(), found[:1]); !errors.Is(r[0].Err, errStale) || g.store.Revision() != f.store.Revision()+1 {
					t.Errorf("%s changed at the last moment: %v", key, r[0].Err)
				}
			}
			g := newFixture(t)
			g.store.(*memstore.Store).Rewind(f.store.(*memstore.Store))
			if r := g.Repair(t.Context(), found[:1]); r[0].Err != nil {
				t.Errorf("nothing changed: %v", r[0].Err)
			}
		})
	}
}

func TestWhatIsOnlyUnderWayIsNotRepaired(t *testing.T) {
	p := plants[1]
	f := p.in(t)
	first := f.findings()
	if same := Both(first, f.findings()); len(same) != 1 {
		t.Errorf("nothing changed, and %d of 1 are left", len(same))
	}
	f.raw(handleX, one8) // written again, with the same value
	if same := Both(first, f.findings()); len(same) != 0 {
		t.Errorf("its handle was written meanwhile: %+v", same)
	}
}

// TestAnOrphanGoesBeforeItsAddress lets the repair of an endpoint whose node is gone die at each call, with transactions and without.
func TestAnOrphanGoesBeforeItsAddress(t *testing.T) {
	i := slices.IndexFunc(plants, func(p planted) bool { return strings.Contains(p.want, "delete the endpoint, and free it") })
	for _, twoPhase := range phases() {
		for k, done := 1, false; !done; k++ {
			f := plants[i].in(t)
			a := f.allocator(f.store, Config{TwoPhase: twoPhase})
			found := f.findings()
			n := 0
			f.store.Fail(func(memstore.Op) error {
				if n++; n >= k {
					return errors.New("died")
				}
				return nil
			})
			a.Repair(t.Context(), found)
			f.store.Fail(nil)
			done = n < k
			endpoint := !strings.Contains(f.get(wep+"n9-k8s-x-eth0"), "not found")
			block := f.get(block8)
			if allocated := strings.Contains(block, `"allocations":[0`); endpoint && !allocated {
				t.Errorf("two-phase %v, dead from call %d on: the address is free, and an endpoint has it", twoPhase, k)
			}
			if done && endpoint {
				t.Errorf("two-phase %v: the endpoint is left", twoPhase)
			}
		}
	}
}
