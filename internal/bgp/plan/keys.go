package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twillnet/twill/api"
)

// Key is the value of one of [Resources.Keys].
type Key struct {
	Value string
	// Secret is a password that has to be put in: as "password" into an object, and in the place of an empty Value.
	Secret *Secret `json:",omitempty"`
}

// keysBegin is what all of Calico's keys begin with.
const keysBegin = "/calico/"

// BlockKey is the key of a block of addresses that a node has, and its value. It is not among [Resources.Keys]: blocks are the agent's.
func BlockKey(node string, block netip.Prefix) (string, string) {
	return fmt.Sprintf("%sipam/v2/host/%s/ipv%s/block/%s", keysBegin, node, version(block.Addr()), dashed(block)), `{"state":"confirmed"}`
}

// Keys are the resources, and a plan that was made of them, in the form in which Calico's confd offers them to templates: keys of its first
// data model. Peers are those of the plan's node alone; a session that must not be opened has none.
func (w *Resources) Keys(p Plan) map[string]Key {
	k := keys{}
	k.configurations(w, p)
	for name, n := range w.nodes {
		k.node(name, n)
	}
	for _, pool := range api.FirstOfEachCIDR(w.pools) {
		k.pool(pool.Spec)
	}
	for name, f := range w.filters {
		if !void(f.Spec) {
			k.json("resources/v3/projectcalico.org/bgpfilters/"+name, f)
		}
	}
	for _, s := range p.Sessions {
		k.peer(w, p, s)
	}
	for _, r := range p.Originate {
		k.set("staticroutes"+suffix(r.Addr())+"/"+dashed(r), r.String())
	}
	for _, r := range p.Foreign {
		k.set("rejectcidrs"+suffix(r.Addr())+"/"+dashed(r), r.String())
	}
	return k
}

// void reports whether a filter has a rule that could not be read whole: what is left of it would let more pass.
func void(s api.BGPFilterSpec) bool {
	return slices.ContainsFunc(slices.Concat(s.ExportV4, s.ImportV4, s.ExportV6, s.ImportV6), func(r api.BGPFilterRule) bool { return r.Void })
}

// keys are under construction.
type keys map[string]Key

func (k keys) set(name, value string) { k[keysBegin+name] = Key{Value: value} }

// setIf sets a key that has a value.
func (k keys) setIf(name, value string) {
	if value != "" {
		k.set(name, value)
	}
}

func (k keys) json(name string, value any) {
	b, err := json.Marshal(value)
	if err != nil {
		return // it was read from JSON
	}
	k.set(name, string(b))
}

func version(a netip.Addr) string {
	if a.Is4() {
		return "4"
	}
	return "6"
}

// suffix is that of keys which have none for IPv4.
func suffix(a netip.Addr) string {
	if a.Is4() {
		return ""
	}
	return "v6"
}

// dashed is a prefix as a part of a key.
func dashed(p netip.Prefix) string { return strings.Replace(p.String(), "/", "-", 1) }

// configurations sets what BGPConfigurations say.
func (k keys) configurations(w *Resources, p Plan) {
	const global = "bgp/v1/global/"
	all := w.config("default")
	k.set(global+"as_num", strconv.FormatUint(uint64(w.clusterAS()), 10))
	k.set(global+"loglevel", "info")
	k.json(global+"node_mesh", map[string]bool{"enabled": (all.NodeToNodeMeshEnabled == nil || *all.NodeToNodeMeshEnabled) && !meshClosed(p)})
	k.settings(global, all)
	k.setIf(global+"bind_mode", all.BindMode)
	k.setIf(global+"svc_cluster_ips", list(all.ServiceClusterIPs))
	k.setIf(global+"svc_external_ips", list(all.ServiceExternalIPs))
	k.setIf(global+"svc_loadbalancer_ips", list(all.ServiceLoadBalancerIPs))
	k.setIf(global+"ignored_interfaces", strings.Join(all.IgnoredInterfaces, ","))
	if all.NodeMeshMaxRestartTime != "" {
		k.set(global+"node_mesh_restart_time", inSeconds(seconds(all.NodeMeshMaxRestartTime, DefaultRestart, api.MaxBGPRestart)))
	}
	if i := slices.IndexFunc(p.Sessions, func(s Session) bool { return s.Why == FromMesh && s.Password != nil }); i >= 0 {
		k[keysBegin+global+"node_mesh_password"] = Key{Secret: p.Sessions[i].Password}
	}
	for name := range w.configs {
		if node, ok := strings.CutPrefix(name, "node."); ok {
			k.settings("bgp/v1/host/"+node+"/", w.config(name))
		}
	}
}

// meshClosed reports whether sessions of the mesh must not be opened.
func meshClosed(p Plan) bool {
	return slices.ContainsFunc(p.Sessions, func(s Session) bool { return s.Why == FromMesh && s.Closed != "" })
}

// settings sets what a BGPConfiguration of all nodes or of one may say.
func (k keys) settings(at string, c *api.BGPConfigurationSpec) {
	if c.ListenPort != 0 {
		k.set(at+"listen_port", strconv.Itoa(int(c.ListenPort)))
	}
	switch level := strings.ToLower(c.LogSeverityScreen); level {
	case "":
	case "debug", "info":
		k.set(at+"loglevel", level)
	default:
		k.set(at+"loglevel", "none")
	}
	if len(c.PrefixAdvertisements) > 0 {
		k.json(at+"prefix_advertisements/ip_v4", advertisements(c, true))
		k.json(at+"prefix_advertisements/ip_v6", advertisements(c, false))
	}
}

// advertisement is a prefix with the values of its communities.
type advertisement struct {
	CIDR        string   `json:"cidr"`
	Communities []string `json:"communities"`
}

// advertisements are those of a family, with values in the place of names of communities; a name that nobody defines is left out.
func advertisements(c *api.BGPConfigurationSpec, four bool) []advertisement {
	values := map[string]string{}
	for _, def := range c.Communities {
		values[def.Name] = def.Value
	}
	out := []advertisement{}
	for _, a := range c.PrefixAdvertisements {
		if p := address(a.CIDR); !p.IsValid() || p.Addr().Is4() != four {
			continue
		}
		in := map[string]bool{}
		for _, name := range a.Communities {
			if v := cmp.Or(values[name], name); strings.Contains(v, ":") {
				in[v] = true
			}
		}
		out = append(out, advertisement{a.CIDR, append([]string{}, slices.Sorted(maps.Keys(in))...)})
	}
	return out
}

func list(blocks []api.BGPServiceBlock) string {
	var out []string
	for _, b := range blocks {
		out = append(out, b.CIDR)
	}
	return strings.Join(out, ",")
}

func inSeconds(d time.Duration) string { return strconv.Itoa(int(d.Round(time.Second).Seconds())) }

// node sets what a Node says. Addresses and cluster id are always there, perhaps empty.
func (k keys) node(name string, n *api.Node) {
	at := "bgp/v1/host/" + name + "/"
	var b api.NodeBGPSpec
	if n.Spec.BGP != nil {
		b = *n.Spec.BGP
	}
	for v, p := range map[string]netip.Prefix{"v4": n.BGPAddress(false), "v6": n.BGPAddress(true)} {
		k.set(at+"ip_addr_"+v, "")
		if p.IsValid() {
			k.set(at+"ip_addr_"+v, p.Addr().String())
			k.set(at+"network_"+v, p.Masked().String())
		}
	}
	k.set(at+"rr_cluster_id", b.RouteReflectorClusterID)
	if b.ASNumber != nil {
		k.set(at+"as_num", strconv.FormatUint(uint64(*b.ASNumber), 10))
	}
	if wg := n.Spec.Wireguard; wg != nil {
		k.setIf(at+"wireguard_addr_v4", wg.InterfaceIPv4Address)
		k.setIf(at+"wireguard_addr_v6", wg.InterfaceIPv6Address)
	}
}

// pool sets a pool, as upstream's first data model has it.
func (k keys) pool(s api.IPPoolSpec) {
	p := address(s.CIDR).Masked()
	if !p.IsValid() {
		return
	}
	mode := func(m string) string {
		return map[string]string{"Always": "always", "CrossSubnet": "cross-subnet"}[m]
	}
	device := ""
	if encapsulated(s.IPIPMode) {
		device = "tunl0"
	}
	assignment := api.AssignAutomatic
	if s.AssignmentMode != nil {
		assignment = *s.AssignmentMode
	}
	k.json("v1/ipam/v"+version(p.Addr())+"/pool/"+dashed(p), struct {
		CIDR           string `json:"cidr"`
		IPIP           string `json:"ipip"`
		IPIPMode       string `json:"ipip_mode"`
		VXLANMode      string `json:"vxlan_mode"`
		Masquerade     bool   `json:"masquerade"`
		IPAM           bool   `json:"ipam"`
		Disabled       bool   `json:"disabled"`
		NoExport       bool   `json:"disableBGPExport"`
		AssignmentMode string `json:"assignment_mode"`
	}{p.String(), device, mode(s.IPIPMode), mode(s.VXLANMode), s.NATOutgoing, !s.Disabled, s.Disabled, s.DisableBGPExport, assignment})
}

// peerValue is a session of a BGPPeer, as Calico's templates read it. Numbers of AS are texts: templates print large numbers with exponents.
type peerValue struct {
	IP           netip.Addr `json:"ip"`
	AS           string     `json:"as_num"`
	LocalAS      string     `json:"local_as_num"` // 0: the node's
	Cluster      string     `json:"rr_cluster_id"`
	Password     *string    `json:"password"`
	Source       string     `json:"source_addr"`
	Restart      string     `json:"restart_time"`   // in seconds; empty: BIRD's default, 120
	Keepalive    string     `json:"keepalive_time"` // in seconds; empty: the default
	Port         uint16     `json:"port"`           // 0: 179
	KeepNextHop  bool       `json:"keep_next_hop"`
	NextHopMode  string     `json:"next_hop_mode"`
	CalicoNode   bool       `json:"calico_node"`
	AllowLocalAS uint8      `json:"num_allow_local_as"`
	TTLSecurity  uint8      `json:"ttl_security"`
	Filters      []string   `json:"filters"`
	ReachableBy  string     `json:"reachable_by"`
	Passive      bool       `json:"passive_mode"`
	Workload     bool       `json:"local_bgp_peer"`
}

// peer sets a session of a BGPPeer; those of the mesh follow from nodes.
func (k keys) peer(w *Resources, p Plan, s Session) {
	name, ok := strings.CutPrefix(s.Why, "BGPPeer ")
	if !ok || s.Closed != "" {
		return
	}
	v := peerValue{
		IP: s.Peer, AS: strconv.FormatUint(uint64(s.AS), 10), LocalAS: "0", Source: "None", NextHopMode: "Auto", KeepNextHop: s.NextHop == NextHopKeep,
		CalicoNode: s.PeerNode != "", AllowLocalAS: s.AllowLocalAS, TTLSecurity: s.Hops, Passive: s.Passive, Workload: s.Workload != "", Filters: []string{},
	}
	if s.LocalAS != p.AS {
		v.LocalAS = strconv.FormatUint(uint64(s.LocalAS), 10)
	}
	if s.Source.IsValid() {
		v.Source = "UseNodeIP"
	}
	if n := w.nodes[s.PeerNode]; n != nil && n.Spec.BGP != nil {
		v.Cluster = n.Spec.BGP.RouteReflectorClusterID
	}
	if s.Restart != DefaultRestart {
		v.Restart = inSeconds(s.Restart)
	}
	if s.Keepalive != DefaultKeepalive {
		v.Keepalive = inSeconds(s.Keepalive)
	}
	if s.NextHop != NextHopAuto {
		v.NextHopMode = map[NextHop]string{NextHopSelf: "Self", NextHopKeep: "Keep"}[s.NextHop]
	}
	if s.Via.IsValid() {
		v.ReachableBy = s.Via.String()
	}
	if b := w.peers[name]; b != nil {
		v.Filters = append(v.Filters, b.Spec.Filters...)
	}
	key := s.Peer.String()
	if s.Port != DefaultPort {
		v.Port, key = s.Port, fmt.Sprintf("%s-%d", s.Peer, s.Port)
	}
	at := "bgp/v1/host/" + p.Node + "/"
	if s.Global {
		at = "bgp/v1/global/"
	}
	at += "peer_v" + version(s.Peer) + "/" + key
	k.json(at, v)
	set := k[keysBegin+at]
	set.Secret = s.Password
	k[keysBegin+at] = set
}
