package bench

import (
	"context"
	"encoding/json"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// Ports of a workload on which it is probed.
const (
	portTCP   = 5001 // connections, which the last rule of the last policy allows
	portUDP   = 7000 // probes from endpoints with the label role=prober
	portFirst = 20000
)

const (
	apps    = 50  // values of the label app
	netSets = 100 // network sets of a world
	nets    = 100 // prefixes of each
)

// World is what the datastore holds: a deterministic cluster, all of it made from numbers.
type World struct {
	Policies  int  // three rules each
	Endpoints int  // on other nodes
	All       bool // each policy applies to each workload; else to one label in 50
	Few       int  // with All: workloads with the label few have the first of the policies alone, that many, and the last
}

type object = map[string]any

func stored(kind, plural, namespace, name string, labels map[string]string, spec object) api.Update {
	meta, key := object{"name": name, "labels": labels}, api.ResourcesPrefix+plural+"/"+name
	if namespace != "" {
		meta["namespace"], key = namespace, api.ResourcesPrefix+plural+"/"+namespace+"/"+name
	}
	value, err := json.Marshal(object{"kind": kind, "apiVersion": "projectcalico.org/v3", "metadata": meta, "spec": spec})
	if err != nil {
		panic(err) // texts and numbers alone
	}
	return api.Update{Key: key, Value: value}
}

// remoteAddr is the address of an endpoint on another node; localAddr of a workload here; probeAddr of one that comes while it is measured.
func remoteAddr(i int) string { return fmt.Sprintf("10.%d.%d.%d", 66+i/62500, i/250%250, i%250+1) }
func localAddr(i int) string  { return fmt.Sprintf("10.65.%d.%d", i/250, i%250+1) }
func probeAddr(i int) string  { return fmt.Sprintf("10.100.%d.%d", i/250%250, i%250+1) }
func freshAddr(i int) string  { return fmt.Sprintf("10.65.%d.%d", 100+i/250%150, i%250+1) }
func linkOf(i int) string     { return fmt.Sprintf("cali%05d", i) }
func macOf(i int) string      { return fmt.Sprintf("02:00:00:%02x:%02x:%02x", i>>16&255, i>>8&255, i&255) }

func labelsOf(i int) map[string]string {
	return map[string]string{
		"app": fmt.Sprintf("app-%d", i%apps), "env": fmt.Sprintf("env-%d", i/apps%2), "zone": fmt.Sprintf("zone-%d", i/(2*apps)%8),
		"projectcalico.org/namespace": "default", "projectcalico.org/orchestrator": "cni",
	}
}

func endpoint(node string, id, link, mac, addr string, labels map[string]string) api.Update {
	name := fmt.Sprintf("%s-cni-%s-eth0", node, id)
	return stored(api.KindWorkloadEndpoint, "workloadendpoints", "default", name, labels, object{
		"node": node, "orchestrator": "cni", "containerID": id, "endpoint": "eth0", "interfaceName": link, "mac": mac,
		"ipNetworks": []string{addr + "/32"}, "profiles": []string{"kns.default"},
	})
}

// remote is an endpoint on another node. That of number 0 is the client.
func remote(i int) api.Update {
	labels := labelsOf(i)
	if i == 0 {
		labels["role"] = "prober"
	}
	return endpoint(fmt.Sprintf("r%05d", i/100), fmt.Sprintf("c%06d", i), fmt.Sprintf("cali%06x", i), macOf(i), remoteAddr(i), labels)
}

// local is a workload of a node of this machine.
func local(node string, i int, few bool) api.Update {
	labels := labelsOf(i)
	if few {
		labels["few"] = "yes"
	}
	return endpoint(node, fmt.Sprintf("l%05d", i), linkOf(i), macOf(i), localAddr(i), labels)
}

// policy is one of a world's; port, if it is not 0, makes a rule before the others, which lets the prober in there.
func (w World) policy(i, port int) api.Update {
	selector := fmt.Sprintf("app == 'app-%d'", i%apps)
	switch {
	case w.All && w.Few > 0 && i >= w.Few:
		selector = "!has(few)"
	case w.All:
		selector = "all()"
	}
	var rules []object
	if port != 0 {
		rules = append(rules, allow("UDP", "role == 'prober'", port))
	}
	for _, r := range rulesOf(i) {
		rules = append(rules, allow("TCP", r.peers.selector(), r.port))
	}
	return stored(api.KindNetworkPolicy, "networkpolicies", "default", fmt.Sprintf("p%05d", i), nil,
		object{"tier": "default", "order": 10 + i, "selector": selector, "types": []string{"Ingress"}, "ingress": rules})
}

func allow(protocol, peers string, port any) object {
	return object{"action": "Allow", "protocol": protocol, "source": object{"selector": peers}, "destination": object{"ports": []any{port}}}
}

// peers are those that one rule is about: endpoints with two labels, all endpoints (app is -1), or the addresses of a network set.
type peers struct {
	app, env int
	set      int
	isSet    bool
}

func (p peers) selector() string {
	switch {
	case p.isSet:
		return fmt.Sprintf("netset == 'ns-%d'", p.set)
	case p.app < 0:
		return "has(app)"
	}
	return fmt.Sprintf("app == 'app-%d' && env == 'env-%d'", p.app, p.env)
}

// peerRule is a rule in a form that scripts are made of, too.
type peerRule struct {
	peers peers
	port  int
}

// rulesOf are the three rules of a policy. None of them is about the port that is measured.
func rulesOf(i int) []peerRule {
	return []peerRule{
		{peers{app: (3*i + 1) % apps, env: i % 2}, 8000 + i%12000},
		{peers{app: (3*i + 7) % apps, env: (i + 1) % 2}, 20000 + i%20000*2},
		{peers{isSet: true, set: i % netSets}, 443},
	}
}

// last is the policy whose third rule is the only one that lets connections in.
func (w World) last() api.Update {
	rules := rulesOf(w.Policies)[:1]
	return stored(api.KindNetworkPolicy, "networkpolicies", "default", "zz-last", nil, object{
		"tier": "default", "order": 100_000, "selector": "all()", "types": []string{"Ingress"}, "ingress": []object{
			allow("TCP", rules[0].peers.selector(), rules[0].port), allow("UDP", "role == 'prober'", portUDP), allow("TCP", "has(app)", "5000:5999"),
		},
	})
}

func netSet(i int) api.Update {
	return stored(api.KindNetworkSet, "networksets", "default", fmt.Sprintf("ns%05d", i), map[string]string{"netset": fmt.Sprintf("ns-%d", i)}, object{"nets": prefixesOf(i)})
}

// prefixesOf are those of a network set; half of them are /24, half /26, and none is within another.
func prefixesOf(i int) (out []string) {
	for n := range nets {
		out = append(out, []string{fmt.Sprintf("20.%d.%d.0/24", i, n), fmt.Sprintf("40.%d.%d.64/26", i, n)}[n%2])
	}
	return out
}

// base is what a cluster has without workloads.
func base(nodes []string) []api.Update {
	all := object{"action": "Allow"}
	out := []api.Update{
		stored(api.KindClusterInformation, "clusterinformations", "", "default", nil, object{"clusterGUID": "bench", "datastoreReady": true}),
		stored(api.KindTier, "tiers", "", "default", nil, object{"order": 1_000_000, "defaultAction": "Deny"}),
		stored(api.KindProfile, "profiles", "", "kns.default", nil, object{"ingress": []object{all}, "egress": []object{all}}),
		stored(api.KindIPPool, "ippools", "", "workloads", nil, object{"cidr": "10.64.0.0/10", "ipipMode": "Never", "vxlanMode": "Never", "blockSize": 26, "nodeSelector": "all()"}),
	}
	for _, n := range nodes {
		out = append(out, stored(api.KindNode, "nodes", "", n, nil, object{}))
	}
	return out
}

// load writes a world with these nodes and workloads.
func (w World) load(ctx context.Context, store datastore.Store, nodes []string, locals []api.Update) error {
	all := append(base(nodes), locals...)
	for i := range netSets {
		all = append(all, netSet(i))
	}
	for i := range w.Policies - 1 {
		all = append(all, w.policy(i, 0))
	}
	all = append(all, w.last())
	for i := range w.Endpoints {
		all = append(all, remote(i))
	}
	return putAll(ctx, store, all)
}

// putAll writes in transactions, eight at once.
func putAll(ctx context.Context, store datastore.Store, all []api.Update) error {
	txn, ok := store.(datastore.Transactional)
	if !ok {
		return fmt.Errorf("a datastore without transactions")
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for len(all) > 0 {
		n := min(len(all), datastore.MostChanges)
		part := all[:n]
		all = all[n:]
		group.Go(func() error {
			_, err := txn.Transact(ctx, datastore.Txn{Put: part})
			return err
		})
	}
	return group.Wait()
}
