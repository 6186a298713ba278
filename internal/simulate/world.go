package simulate

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/twillnet/twill/api"
)

// Shape of a world, besides its size: docs/scale.md says why.
const (
	appsMost     = 8 // in a namespace
	teams        = 20
	zones        = 10 // global network sets
	netsOfZone   = 16
	blockSize    = 64
	mostAddrs    = 1 << 24 // in 10.0.0.0/8, the pool
	created      = "2026-01-01T00:00:00Z"
	orchestrator = "k8s"
)

var (
	roles = []string{"frontend", "backend", "database", "cache", "job"}
	envs  = []string{"prod", "staging", "dev"}
)

// world says what each resource is at the start, from the seed and its number alone: it holds none, however many there are.
type world struct {
	Config
	namespaces    int
	blocksPerNode int
}

func newWorld(c Config) *world {
	perNode := (c.Endpoints + c.Nodes - 1) / c.Nodes
	return &world{
		Config: c, namespaces: max(1, min(c.Policies/5, c.Endpoints/10)),
		// A quarter is free, and room for each node's share of what comes: addresses are not used twice, so that there is always one.
		blocksPerNode: (perNode + perNode/4 + c.events()/c.Nodes + blockSize) / blockSize,
	}
}

// pod is an endpoint: its number, how often its labels changed, and where it is.
type pod struct {
	index, gen, node, slot int
}

// hash is a number that follows from the seed and others, by the finalizer of splitmix64.
func (w *world) hash(of ...int) uint64 {
	h := w.Seed
	for _, x := range of {
		h += uint64(x) + 0x9e3779b97f4a7c15 //nolint:gosec // any bits do
		h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
		h = (h ^ h>>27) * 0x94d049bb133111eb
		h ^= h >> 31
	}
	return h
}

// pick is a hash below n. The first number says what for.
func (w *world) pick(n int, of ...int) int { return int(w.hash(of...) % uint64(n)) } //nolint:gosec // n is positive

// What a hash is for.
const (
	forNamespace = iota
	forApps
	forApp
	forRole
	forPeer
)

// first is endpoint i as it is at the start: nodes get them in turn.
func (w *world) first(i int) pod { return pod{index: i, node: i % w.Nodes, slot: i / w.Nodes} }

// namespace of an endpoint: the first ones are large, as in clusters that have grown. The share of the first x of all is √x.
func (w *world) namespace(p pod) int {
	u := float64(w.hash(forNamespace, p.index)>>11) / (1 << 53)
	return min(int(u*u*float64(w.namespaces)), w.namespaces-1)
}

func (w *world) app(p pod) int {
	ns := w.namespace(p)
	return w.pick(w.appsOf(ns), forApp, p.index, p.gen)
}

func (w *world) appsOf(ns int) int           { return 1 + w.pick(appsMost, forApps, ns) }
func (w *world) role(ns, app int) string     { return roles[w.pick(len(roles), forRole, ns, app)] }
func (w *world) env(ns int) string           { return envs[ns%len(envs)] }
func (w *world) team(ns int) int             { return ns % teams }
func (w *world) nodeName(n int) string       { return fmt.Sprintf("node-%d", n) }
func (w *world) namespaceName(ns int) string { return fmt.Sprintf("ns-%d", ns) }

// labels of an endpoint, as a deployment's pods have them.
func (w *world) labels(p pod) map[string]string {
	ns, app := w.namespace(p), w.app(p)
	return map[string]string{
		"app": fmt.Sprintf("app-%d", app), "role": w.role(ns, app), "env": w.env(ns), "team": fmt.Sprintf("team-%d", w.team(ns)),
		"pod-template-hash":     strconv.FormatUint(w.hash(ns, app)&0xffffffff, 36),
		api.LabelServiceAccount: "default",
	}
}

// block is the number of the block in which an endpoint has its address, and its ordinal in there.
func (w *world) block(p pod) (block, ordinal int) {
	return p.node*w.blocksPerNode + p.slot/blockSize, p.slot % blockSize
}

func cidrOf(block int) netip.Prefix {
	n := uint32(10<<24 + block*blockSize) //nolint:gosec // Check bounds it
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}), 26)
}

func (w *world) addr(p pod) netip.Addr {
	block, ordinal := w.block(p)
	a := cidrOf(block).Addr().As4()
	a[3] += byte(ordinal) //nolint:gosec // below the size of a block
	return netip.AddrFrom4(a)
}

func (w *world) podName(p pod) string { return fmt.Sprintf("pod-%d", p.index) }

// endpoint is the stored WorkloadEndpoint of a pod.
func (w *world) endpoint(p pod) api.Update {
	ns := w.namespaceName(w.namespace(p))
	ep := &api.WorkloadEndpoint{Spec: api.WorkloadEndpointSpec{
		Orchestrator: orchestrator, Node: w.nodeName(p.node), Pod: w.podName(p), Endpoint: "eth0", ServiceAccountName: "default",
		ContainerID: fmt.Sprintf("%016x%016x", w.hash(p.index), w.hash(p.index, p.node)),
		IPNetworks:  []string{w.addr(p).String() + "/32"}, Profiles: []string{"kns." + ns}, InterfaceName: fmt.Sprintf("cali%08x", p.index),
		MAC: "ee:ee:ee:ee:ee:ee",
	}}
	name, err := api.WorkloadEndpointName(ep.Spec)
	must(err)
	ep.Object = named(api.KindWorkloadEndpoint, ns, name)
	ep.Metadata.Labels = w.labels(p)
	return w.stored(ep)
}

// blockUpdate is a stored block, by who has each address.
func (w *world) blockUpdate(block int, has map[int]pod, writes int) api.Update {
	owner := "host:" + w.nodeName(block/w.blocksPerNode)
	b := api.Block{CIDR: cidrOf(block), Affinity: &owner, ClaimTime: created, Sequence: uint64(writes), Sequences: map[string]uint64{}} //nolint:gosec // positive
	b.Allocations = make([]*int, blockSize)
	b.Attributes, b.Unallocated = []api.BlockAttribute{}, []int{}
	for i := range blockSize {
		p, taken := has[i]
		if !taken {
			b.Unallocated = append(b.Unallocated, i)
			continue
		}
		at := len(b.Attributes)
		handle := fmt.Sprintf("k8s-pod-network.%016x%016x", w.hash(p.index), w.hash(p.index, p.node))
		b.Allocations[i] = &at
		b.Sequences[strconv.Itoa(i)] = uint64(at) //nolint:gosec // positive
		b.Attributes = append(b.Attributes, api.BlockAttribute{Handle: &handle, Owner: map[string]string{
			api.AttributeNamespace: w.namespaceName(w.namespace(p)), api.AttributeNode: w.nodeName(p.node), api.AttributePod: w.podName(p), api.AttributeTimestamp: created,
		}})
	}
	value, err := json.Marshal(b)
	must(err)
	return api.Update{Key: api.BlockKey(b.CIDR), Value: value, Revision: startRevision}
}

// firstBlock is who has the addresses of a block at the start.
func (w *world) firstBlock(block int) map[int]pod {
	has := map[int]pod{}
	node := block / w.blocksPerNode
	for i := range blockSize {
		slot := block%w.blocksPerNode*blockSize + i
		if p := w.first(slot*w.Nodes + node); p.index < w.Endpoints {
			has[i] = p
		}
	}
	return has
}

// startRevision is that of all that exists at the start.
var startRevision = api.RevisionOf("1")

// stored is a resource as twill writes it.
func (w *world) stored(r api.Resource) api.Update {
	ref := api.RefOf(r)
	key, err := ref.Key()
	must(err)
	h := w.hash(len(key))
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * 0x100000001b3
	}
	api.Prepare(r, fmt.Sprintf("%08x-%04x-4000-8000-%012x", uint32(h>>32), uint16(h>>16), h&0xffffffffffff), created) //nolint:gosec // any bits do
	value, err := api.EncodeStored(r)
	must(err)
	return api.Update{Key: key, Value: value, Revision: startRevision}
}

// must ends what cannot go on: the resources are our own, and always encode.
func must(err error) {
	if err != nil {
		panic("simulate: " + err.Error())
	}
}
