// Package wording is how calicoctl writes things: the names of kinds, tables and their columns, documents, templates, and what is wrong
// in a field.
//
// In: resources, documents and errors of package api. Out: text as calicoctl writes it. Source: calicoctl's documentation and its public
// system tests.
package wording

import (
	"fmt"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
)

// column is one that a table of a kind can have.
type column struct {
	title string
	cell  func(r Shape) string
}

// Kind is one that calicoctl knows.
type Kind struct {
	api.Kind
	names        []string // in small letters, as the user writes them
	narrow, wide []string // titles of columns
	columns      []column // all that -o custom-columns may name
}

// Titles are those of the tables, without NAMESPACE.
func (k Kind) Titles(wide bool) []string {
	if wide {
		return k.wide
	}
	return k.narrow
}

func (k Kind) column(title string) (column, error) {
	var all []string
	for _, c := range k.columns {
		if c.title == title {
			return c, nil
		}
		all = append(all, c.title)
	}
	return column{}, fmt.Errorf("Unknown heading %s, valid values are: %s", title, strings.Join(all, ", "))
}

// at is a column with what is at a path of the resource, written as Go writes it.
func at(title string, path ...string) column {
	return column{title, func(r Shape) string { return r.text(path...) }}
}

// joined is a column with the elements of a list, or of a map, and commas between them, of so many characters at most; 0: all.
func joined(title string, most int, path ...string) column {
	return column{title, func(r Shape) string { return joinTruncated(r.at(path...), ",", most) }}
}

// or is a column in which something stands where there is nothing.
func or(title, otherwise string, path ...string) column {
	return column{title, func(r Shape) string {
		if v := r.at(path...); !isZero(v) {
			return goText(v)
		}
		return otherwise
	}}
}

// Namespace is the title of the column that stands first where several namespaces were asked for.
const Namespace = "NAMESPACE"

var (
	colName      = at("NAME", "ObjectMeta", "Name")
	colNamespace = at(Namespace, "ObjectMeta", "Namespace")
	colOrder     = at("ORDER", "Spec", "Order")
	colSelector  = at("SELECTOR", "Spec", "Selector")
	colTier      = or("TIER", api.TierDefault, "Spec", "Tier")
	colNets      = joined("NETS", mostOfList, "Spec", "Nets")
)

// mostOfList is how long a list may be in a table before it is cut.
const mostOfList = 80

// kindTable has a line for each kind.
func kindTable() []Kind {
	name := []string{"NAME"}
	row := func(k string, names string, narrow, wide []string, cs ...column) Kind {
		found, _ := api.LookupKind(k)
		return Kind{found, strings.Fields(names), narrow, wide, cs}
	}
	same := func(k, names string, titles []string, cs ...column) Kind { return row(k, names, titles, titles, cs...) }
	policy := func(k, names string) Kind {
		cs := []column{colName, colOrder, colSelector, colTier}
		if found, _ := api.LookupKind(k); found.Namespaced {
			cs = append(cs, colNamespace)
		}
		return row(k, names, []string{"NAME", "TIER"}, []string{"NAME", "TIER", "ORDER", "SELECTOR"}, cs...)
	}
	return []Kind{
		same(api.KindBGPConfiguration, "bgpconfiguration bgpconfigurations bgpconfig bgpconfigs", []string{"NAME", "LOGSEVERITY", "MESHENABLED", "ASNUMBER"},
			colName, at("LOGSEVERITY", "Spec", "LogSeverityScreen"), dashed("MESHENABLED", "Spec", "NodeToNodeMeshEnabled"), dashed("ASNUMBER", "Spec", "ASNumber")),
		same(api.KindBGPFilter, "bgpfilter bgpfilters bgpf bgpfs bf bfs", []string{"NAME", "NUMEXPORT", "NUMIMPORT"},
			colName, lengths("NUMEXPORT", "ExportV4", "ExportV6"), lengths("NUMIMPORT", "ImportV4", "ImportV6")),
		same(api.KindBGPPeer, "bgppeer bgppeers bgpp bgpps bp bps", []string{"NAME", "PEERIP", "NODE", "ASN"},
			colName, at("PEERIP", "Spec", "PeerIP"), column{"NODE", peerNode}, at("ASN", "Spec", "ASNumber")),
		same(api.KindClusterInformation, "clusterinformation clusterinformations clusterinfo clusterinfos", []string{"NAME", "CLUSTERGUID", "CLUSTERTYPE", "CALICOVERSION", "DATASTOREREADY"},
			colName, at("CLUSTERGUID", "Spec", "ClusterGUID"), at("CLUSTERTYPE", "Spec", "ClusterType"), at("CALICOVERSION", "Spec", "CalicoVersion"), at("DATASTOREREADY", "Spec", "DatastoreReady")),
		same(api.KindFelixConfiguration, "felixconfiguration felixconfigurations felixconfig felixconfigs", name, colName),
		policy(api.KindGlobalNetworkPolicy, "globalnetworkpolicy globalnetworkpolicies gnp gnps"),
		row(api.KindGlobalNetworkSet, "globalnetworkset globalnetworksets gnetsets", name, []string{"NAME", "NETS"}, colName, colNets),
		row(api.KindHostEndpoint, "hostendpoint hostendpoints hep heps", []string{"NAME", "NODE"}, []string{"NAME", "NODE", "INTERFACE", "IPS", "PROFILES"},
			colName, at("NODE", "Spec", "Node"), at("INTERFACE", "Spec", "InterfaceName"), joined("IPS", 0, "Spec", "ExpectedIPs"), joined("PROFILES", 0, "Spec", "Profiles")),
		row(api.KindIPAMConfiguration, "ipamconfiguration ipamconfigurations ipamconfig ipamconfigs", []string{"NAME", "STRICTAFFINITY", "AUTOALLOCATEBLOCKS"}, []string{"NAME", "STRICTAFFINITY", "AUTOALLOCATEBLOCKS", "MAXBLOCKSPERHOST"},
			colName, at("STRICTAFFINITY", "Spec", "StrictAffinity"), at("AUTOALLOCATEBLOCKS", "Spec", "AutoAllocateBlocks"), at("MAXBLOCKSPERHOST", "Spec", "MaxBlocksPerHost")),
		row(api.KindIPPool, "ippool ippools ipp ipps pool pools", []string{"NAME", "CIDR", "SELECTOR"}, []string{"NAME", "CIDR", "NAT", "IPIPMODE", "VXLANMODE", "DISABLED", "DISABLEBGPEXPORT", "SELECTOR"},
			colName, at("CIDR", "Spec", "CIDR"), at("NAT", "Spec", "NATOutgoing"), or("IPIPMODE", "Never", "Spec", "IPIPMode"), or("VXLANMODE", "Never", "Spec", "VXLANMode"),
			at("DISABLED", "Spec", "Disabled"), at("DISABLEBGPEXPORT", "Spec", "DisableBGPExport"), at("SELECTOR", "Spec", "NodeSelector")),
		row(api.KindIPReservation, "ipreservation ipreservations reservation reservations", name, []string{"NAME", "CIDRS"}, colName, joined("CIDRS", mostOfList, "Spec", "ReservedCIDRs")),
		same(api.KindKubeControllersConfiguration, "kubecontrollersconfiguration kubecontrollersconfigurations kubecontrollersconfig kubecontrollersconfigs", name, colName),
		policy(api.KindNetworkPolicy, "networkpolicy networkpolicies policy np policies pol pols"),
		row(api.KindNetworkSet, "networkset networksets netsets", name, []string{"NAME", "NETS"}, colName, colNamespace, colNets),
		row(api.KindNode, "node nodes no nos", name, []string{"NAME", "ASN", "IPV4", "IPV6"},
			colName, column{"ASN", nodeAS}, at("IPV4", "Spec", "BGP", "IPv4Address"), at("IPV6", "Spec", "BGP", "IPv6Address")),
		row(api.KindCalicoNodeStatus, "caliconodestatus caliconodestatuses nodestatus nodestatuses", []string{"NAME", "NODE"}, []string{"NAME", "NODE", "CLASSES"},
			colName, at("NODE", "Spec", "Node"), joined("CLASSES", 0, "Spec", "Classes")),
		row(api.KindProfile, "profile profiles pro pros", name, []string{"NAME", "LABELS"}, colName, joined("LABELS", 0, "Spec", "LabelsToApply")),
		policy(api.KindStagedGlobalNetworkPolicy, "stagedglobalnetworkpolicy stagedglobalnetworkpolicies sgnp sgnps"),
		row(api.KindStagedKubernetesNetworkPolicy, "stagedkubernetesnetworkpolicy stagedkubernetesnetworkpolicies stagedkubernetespolicy sknp stagedkubernetespolicies skpol skpols", name, []string{"NAME", "PODSELECTOR"},
			colName, colNamespace, at("PODSELECTOR", "Spec", "PodSelector")),
		policy(api.KindStagedNetworkPolicy, "stagednetworkpolicy stagednetworkpolicies stagedpolicy snp stagedpolicies spol spols"),
		same(api.KindTier, "tier tiers", []string{"NAME", "ORDER"}, colName, colOrder),
		row(api.KindWorkloadEndpoint, "workloadendpoint workloadendpoints wep weps", []string{"WORKLOAD", "NODE", "NETWORKS", "INTERFACE"}, []string{"NAME", "WORKLOAD", "NODE", "NETWORKS", "INTERFACE", "PROFILES", "NATS"},
			colName, colNamespace, at("NODE", "Spec", "Node"), at("ORCHESTRATOR", "Spec", "Orchestrator"), column{"WORKLOAD", workload}, joined("NETWORKS", 0, "Spec", "IPNetworks"),
			joined("NATS", 0, "Spec", "IPNATs"), joined("PROFILES", 0, "Spec", "Profiles"), at("INTERFACE", "Spec", "InterfaceName")),
	}
}

// LookupKind finds a kind by any of its names.
func LookupKind(word string) (Kind, error) {
	for _, k := range kindTable() {
		if slices.Contains(k.names, strings.ToLower(word)) {
			return k, nil
		}
	}
	return Kind{}, fmt.Errorf("resource type '%s' is not supported", word)
}

// KindOf is the kind of a resource.
func KindOf(name string) (Kind, bool) {
	for _, k := range kindTable() {
		if k.Kind.Kind == name {
			return k, true
		}
	}
	return Kind{}, false
}

// dashed is a column in which a dash stands where nothing is set; false and 0 are set.
func dashed(title string, path ...string) column {
	return column{title, func(r Shape) string {
		if v := r.at(path...); v != nil {
			return goText(v)
		}
		return "-"
	}}
}

// lengths is a column with the number of elements of lists of the spec.
func lengths(title string, lists ...string) column {
	return column{title, func(r Shape) string {
		n := 0
		for _, l := range lists {
			list, _ := r.at("Spec", l).([]any)
			n += len(list)
		}
		return fmt.Sprint(n)
	}}
}

func peerNode(r Shape) string {
	for _, field := range []string{"Node", "NodeSelector"} {
		if v := r.text("Spec", field); v != "" {
			return v
		}
	}
	return "(global)"
}

// nodeAS is a node's own AS number, or in parentheses the cluster's.
func nodeAS(r Shape) string {
	if r.at("Spec", "BGP") == nil {
		return ""
	}
	if v := r.at("Spec", "BGP", "ASNumber"); v != nil {
		return goText(v)
	}
	return "(" + r.text("asnumber") + ")"
}

func workload(r Shape) string {
	if v := r.text("Spec", "Workload"); v != "" {
		return v
	}
	return r.text("Spec", "Pod")
}
