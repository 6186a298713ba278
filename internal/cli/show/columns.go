package show

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/resources"
	"github.com/twillnet/twill/internal/translate"
)

// header names the columns of a kind.
func header(k api.Kind, o Options) []string {
	var out []string
	if k.Namespaced && (o.All || o.Format.Name == "wide") {
		out = append(out, "NAMESPACE")
	}
	out = append(out, "NAME")
	out = append(out, columns(k.Kind)...)
	if k.Kind != api.KindBlockAffinity { // a view, which has no time
		out = append(out, "AGE")
	}
	if o.Format.Name == "wide" {
		if o.Realised != nil && enforced(k) {
			out = append(out, "REALISED")
		}
		if o.Hits != nil && enforced(k) {
			out = append(out, "PACKETS HERE")
		}
		out = append(out, "LABELS", "WRONG")
	}
	return out
}

func columns(kind string) []string {
	switch kind {
	case api.KindNetworkPolicy, api.KindGlobalNetworkPolicy, api.KindStagedNetworkPolicy, api.KindStagedGlobalNetworkPolicy, api.KindStagedKubernetesNetworkPolicy:
		return []string{"TIER", "ORDER", "TYPES", "RULES", "SELECTOR"}
	case api.KindTier:
		return []string{"ORDER", "DEFAULT"}
	case api.KindNetworkSet, api.KindGlobalNetworkSet:
		return []string{"NETS"}
	case api.KindProfile:
		return []string{"RULES", "LABELS TO APPLY"}
	case api.KindWorkloadEndpoint:
		return []string{"WORKLOAD", "NODE", "NETWORKS", "INTERFACE", "PROFILES"}
	case api.KindHostEndpoint:
		return []string{"NODE", "INTERFACE", "IPS"}
	case api.KindLiveMigration:
		return []string{"FROM", "TO"}
	case api.KindIPPool:
		return []string{"CIDR", "SELECTOR"}
	case api.KindIPAMConfiguration:
		return []string{"STRICT AFFINITY", "AUTO ALLOCATE", "MAX BLOCKS", "COOL-DOWN"}
	case api.KindBlockAffinity:
		return []string{"CIDR", "TYPE", "NODE", "STATE"}
	case api.KindIPReservation:
		return []string{"RESERVED"}
	case api.KindNode:
		return []string{"IPV4", "IPV6"}
	case api.KindCalicoNodeStatus:
		return []string{"NODE", "CLASSES", "EVERY", "UPDATED", "BGP", "IPV4 PEERS", "IPV6 PEERS", "ROUTES"}
	case api.KindBGPConfiguration:
		return []string{"MESH", "AS"}
	case api.KindBGPPeer:
		return []string{"PEER", "NODES", "AS"}
	case api.KindBGPFilter:
		return []string{"EXPORT", "IMPORT"}
	case api.KindKubeControllersConfiguration:
		return []string{"HOST ENDPOINTS", "DEFAULT", "TEMPLATES"}
	}
	return nil
}

func row(f Found, o Options) []string {
	var out []string
	if f.kind.Namespaced && (o.All || o.Format.Name == "wide") {
		out = append(out, f.Ref.Namespace)
	}
	name := f.Ref.Name
	if o.several {
		name = resources.Singular(f.kind) + "/" + name
	}
	out = append(out, name)
	cells := values(f.Res)
	for len(cells) < len(columns(f.kind.Kind)) {
		cells = append(cells, "?") // it could not be read; WRONG says why
	}
	var meta api.ObjectMeta
	if f.Res != nil {
		meta = *f.Res.Meta()
	}
	out = append(out, cells...)
	if f.kind.Kind != api.KindBlockAffinity {
		out = append(out, Age(meta.CreationTimestamp, time.Now()))
	}
	if o.Format.Name == "wide" {
		if o.Realised != nil && enforced(f.kind) {
			out = append(out, cmp.Or(o.Realised[f.Value.Key], "?"))
		}
		if o.Hits != nil && enforced(f.kind) {
			out = append(out, o.Hits[hitsKey(f)])
		}
		out = append(out, Pairs(meta.Labels), f.Note)
	}
	return out
}

func values(r api.Resource) []string {
	switch r := r.(type) {
	case *api.NetworkPolicy:
		return policyRow(r.Spec.Tier, r.Spec.Order, r.Spec.Types, r.Spec.Ingress, r.Spec.Egress, Applies(r.Spec.Selector, "", r.Spec.ServiceAccountSelector))
	case *api.StagedNetworkPolicy:
		return policyRow(r.Spec.Tier, r.Spec.Order, r.Spec.Types, r.Spec.Ingress, r.Spec.Egress, Applies(r.Spec.Selector, "", r.Spec.ServiceAccountSelector))
	case *api.StagedKubernetesNetworkPolicy: // as it is judged
		p, _ := translate.Staged(r)
		return values(p)
	case *api.GlobalNetworkPolicy:
		return policyRow(r.Spec.Tier, r.Spec.Order, r.Spec.Types, r.Spec.Ingress, r.Spec.Egress, Applies(r.Spec.Selector, r.Spec.NamespaceSelector, r.Spec.ServiceAccountSelector))
	case *api.StagedGlobalNetworkPolicy:
		return policyRow(r.Spec.Tier, r.Spec.Order, r.Spec.Types, r.Spec.Ingress, r.Spec.Egress, Applies(r.Spec.Selector, r.Spec.NamespaceSelector, r.Spec.ServiceAccountSelector))
	case *api.Tier:
		return []string{Number(r.Spec.Order), string(TierAction(r.Spec))}
	case *api.NetworkSet:
		return []string{list(r.Spec.Nets)}
	case *api.GlobalNetworkSet:
		return []string{list(r.Spec.Nets)}
	case *api.Profile:
		return []string{rules(r.Spec.Ingress, r.Spec.Egress), Pairs(r.Spec.LabelsToApply)}
	case *api.WorkloadEndpoint:
		workload := r.Spec.Pod
		if workload == "" {
			workload = r.Spec.Workload
		}
		return []string{workload, r.Spec.Node, list(r.Spec.IPNetworks), r.Spec.InterfaceName, list(r.Spec.Profiles)}
	case *api.HostEndpoint:
		return []string{r.Spec.Node, r.Spec.InterfaceName, list(r.Spec.ExpectedIPs)}
	case *api.LiveMigration:
		return []string{r.Spec.From(), r.Spec.To()}
	case *api.IPPool:
		return []string{r.Spec.CIDR, r.Spec.NodeSelector}
	case *api.IPAMConfiguration:
		s := r.Spec
		return []string{strconv.FormatBool(s.StrictAffinity), strconv.FormatBool(s.AutoAllocateBlocks), strconv.Itoa(s.MaxBlocksPerHost), strconv.Itoa(s.IPCooldownSeconds)}
	case *api.BlockAffinity:
		return []string{r.Spec.CIDR, r.Spec.Type, r.Spec.Node, r.Spec.State}
	case *api.IPReservation:
		return []string{list(r.Spec.ReservedCIDRs)}
	case *api.Node:
		if r.Spec.BGP == nil {
			return []string{"", ""}
		}
		return []string{r.Spec.BGP.IPv4Address, r.Spec.BGP.IPv6Address}
	case *api.KubeControllersConfiguration:
		h := r.HostEndpoints()
		return []string{h.AutoCreate, h.CreateDefaultHostEndpoint, strconv.Itoa(len(h.Templates))}
	}
	return bgpValues(r)
}

func bgpValues(r api.Resource) []string {
	switch r := r.(type) {
	case *api.BGPConfiguration:
		mesh, as := "", ""
		if r.Spec.NodeToNodeMeshEnabled != nil {
			mesh = strconv.FormatBool(*r.Spec.NodeToNodeMeshEnabled)
		}
		if r.Spec.ASNumber != nil {
			as = strconv.Itoa(int(*r.Spec.ASNumber))
		}
		return []string{mesh, as}
	case *api.BGPPeer:
		as := ""
		if r.Spec.ASNumber != 0 {
			as = strconv.Itoa(int(r.Spec.ASNumber))
		}
		return []string{r.Spec.PeerIP + r.Spec.PeerSelector, cmp.Or(r.Spec.Node, r.Spec.NodeSelector, "all()"), as}
	case *api.CalicoNodeStatus:
		return nodeStatusRow(r)
	case *api.BGPFilter:
		return []string{
			fmt.Sprintf("%d rules", len(r.Spec.ExportV4)+len(r.Spec.ExportV6)),
			fmt.Sprintf("%d rules", len(r.Spec.ImportV4)+len(r.Spec.ImportV6)),
		}
	}
	return nil
}

// nodeStatusRow shows a status; what it was not asked to have, or has not yet, is empty.
func nodeStatusRow(r *api.CalicoNodeStatus) []string {
	every, updated := "", "never"
	if p := r.Spec.UpdatePeriodSeconds; p != nil {
		every = (time.Duration(*p) * time.Second).String()
		if *p == 0 {
			every = "never"
		}
	}
	s := r.Status
	out := []string{r.Spec.Node, list(r.Spec.Classes), every, updated, "", "", "", ""}
	if s.LastUpdated == nil {
		return out
	}
	out[3] = *s.LastUpdated
	if slices.Contains(r.Spec.Classes, api.ClassAgent) {
		out[4] = s.Agent.BIRDV4.State
	}
	if b := s.BGP; slices.Contains(r.Spec.Classes, api.ClassBGP) {
		out[5] = fmt.Sprintf("%d of %d up", b.NumberEstablishedV4, b.NumberEstablishedV4+b.NumberNotEstablishedV4)
		out[6] = fmt.Sprintf("%d of %d up", b.NumberEstablishedV6, b.NumberEstablishedV6+b.NumberNotEstablishedV6)
	}
	if slices.Contains(r.Spec.Classes, api.ClassRoutes) {
		out[7] = strconv.Itoa(len(s.Routes.RoutesV4) + len(s.Routes.RoutesV6) + s.Routes.OmittedV4 + s.Routes.OmittedV6)
	}
	return out
}

func policyRow(tier string, order *float64, types []api.PolicyType, in, out []api.Rule, selector string) []string {
	var ts []string
	for _, t := range types {
		ts = append(ts, string(t))
	}
	if tier == "" {
		tier = api.TierDefault
	}
	return []string{tier, Number(order), strings.Join(ts, ","), rules(in, out), selector}
}

// Applies says in one cell to what a policy applies.
func Applies(selector, namespaces, accounts string) string {
	if selector == "" {
		selector = "all()"
	}
	if namespaces != "" {
		selector += "; namespaces " + namespaces
	}
	if accounts != "" {
		selector += "; service accounts " + accounts
	}
	return selector
}

func rules(in, out []api.Rule) string { return fmt.Sprintf("%d in, %d out", len(in), len(out)) }

func TierAction(t api.TierSpec) api.Action {
	if t.DefaultAction == nil {
		return api.Deny
	}
	return *t.DefaultAction
}

// Number shows an order; none is last.
func Number(f *float64) string {
	if f == nil {
		return "last"
	}
	return strconv.FormatFloat(*f, 'f', -1, 64)
}

// list shows the first of many.
func list(texts []string) string {
	const most = 3
	if len(texts) > most {
		return strings.Join(texts[:most], ",") + fmt.Sprintf(" and %d more", len(texts)-most)
	}
	return strings.Join(texts, ",")
}

func Pairs(m map[string]string) string {
	var out []string
	for _, k := range sortedKeys(m) {
		out = append(out, k+"="+m[k])
	}
	return strings.Join(out, ",")
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// AnyEnforced reports whether there is a policy among them of which agents say where it is in force.
func AnyEnforced(all []Found) bool {
	return slices.ContainsFunc(all, func(f Found) bool { return enforced(f.kind) })
}

func enforced(k api.Kind) bool { return slices.Contains(resources.PolicyKinds, k.Kind) }

// hitsKey names a policy as the agent does.
func hitsKey(f Found) string {
	name := f.Value.Key[strings.LastIndexByte(f.Value.Key, '/')+1:]
	if f.kind.Namespaced {
		return f.kind.Kind + "/" + f.Ref.Namespace + "/" + name
	}
	return f.kind.Kind + "/" + name
}
