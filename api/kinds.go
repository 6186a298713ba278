package api

import (
	"slices"
	"strings"
)

// Kind describes one kind of resource.
type Kind struct {
	Kind       string   // NetworkPolicy
	Plural     string   // networkpolicies: the word in keys and on the command line
	Aliases    []string // short names, as calicoctl and kubectl have them
	Namespaced bool
	Policy     bool // has a tier; its stored form carries the user's name in an annotation
	View       bool // nothing stores it: it is made of keys that are no resources, and only read
	new        func() Resource
}

// Kinds returns all kinds, in the order in which they can be created: what
// others refer to comes first.
func Kinds() []Kind {
	return []Kind{
		{Kind: KindClusterInformation, Plural: "clusterinformations", Aliases: []string{"clusterinfo", "clusterinfos"}, new: func() Resource { return &ClusterInformation{} }},
		{Kind: KindFelixConfiguration, Plural: "felixconfigurations", Aliases: []string{"felixconfig", "felixconfigs"}, new: func() Resource { return &FelixConfiguration{} }},
		{Kind: KindKubeControllersConfiguration, Plural: "kubecontrollersconfigurations", Aliases: []string{"kubecontrollersconfig", "kubecontrollersconfigs", "kcc", "kccs"}, new: func() Resource { return &KubeControllersConfiguration{} }},
		{Kind: KindNode, Plural: "nodes", Aliases: []string{"no", "nos"}, new: func() Resource { return &Node{} }},
		{Kind: KindIPPool, Plural: "ippools", Aliases: []string{"ipp", "ipps", "pool", "pools"}, new: func() Resource { return &IPPool{} }},
		{Kind: KindBGPConfiguration, Plural: "bgpconfigurations", Aliases: []string{"bgpconfig", "bgpconfigs"}, new: func() Resource { return &BGPConfiguration{} }},
		{Kind: KindBGPFilter, Plural: "bgpfilters", Aliases: []string{"bgpf", "bgpfs", "bf", "bfs"}, new: func() Resource { return &BGPFilter{} }},
		{Kind: KindBGPPeer, Plural: "bgppeers", Aliases: []string{"bgpp", "bgpps", "bp", "bps"}, new: func() Resource { return &BGPPeer{} }},
		{Kind: KindIPReservation, Plural: "ipreservations", Aliases: []string{"ipresv", "ipresvs", "ipr", "reservation", "reservations"}, new: func() Resource { return &IPReservation{} }},
		{Kind: KindIPAMConfiguration, Plural: "ipamconfigurations", Aliases: []string{"ipamconfig", "ipamconfigs"}, new: func() Resource { return &IPAMConfiguration{} }},
		{Kind: KindBlockAffinity, Plural: "blockaffinities", View: true, Aliases: []string{"affinity", "affinities"}, new: func() Resource { return &BlockAffinity{} }},
		{Kind: KindTier, Plural: "tiers", new: func() Resource { return &Tier{} }},
		{Kind: KindProfile, Plural: "profiles", Aliases: []string{"pro", "pros", "prof", "profs"}, new: func() Resource { return &Profile{} }},
		{Kind: KindGlobalNetworkSet, Plural: "globalnetworksets", Aliases: []string{"gns", "globalnetset", "globalnetsets", "gnetset", "gnetsets"}, new: func() Resource { return &GlobalNetworkSet{} }},
		{Kind: KindNetworkSet, Plural: "networksets", Namespaced: true, Aliases: []string{"netset", "netsets"}, new: func() Resource { return &NetworkSet{} }},
		{Kind: KindGlobalNetworkPolicy, Plural: "globalnetworkpolicies", Policy: true, Aliases: []string{"gnp", "gnps", "cgnp"}, new: func() Resource { return &GlobalNetworkPolicy{} }},
		{Kind: KindNetworkPolicy, Plural: "networkpolicies", Namespaced: true, Policy: true, Aliases: []string{"np", "nps", "cnp", "caliconetworkpolicy", "caliconetworkpolicies", "policy", "policies", "pol", "pols"}, new: func() Resource { return &NetworkPolicy{} }},
		{Kind: KindStagedGlobalNetworkPolicy, Plural: "stagedglobalnetworkpolicies", Policy: true, Aliases: []string{"sgnp", "sgnps"}, new: func() Resource { return &StagedGlobalNetworkPolicy{} }},
		{Kind: KindStagedNetworkPolicy, Plural: "stagednetworkpolicies", Namespaced: true, Policy: true, Aliases: []string{"snp", "snps", "stagedpolicy", "stagedpolicies", "spol", "spols"}, new: func() Resource { return &StagedNetworkPolicy{} }},
		{Kind: KindStagedKubernetesNetworkPolicy, Plural: "stagedkubernetesnetworkpolicies", Namespaced: true, Aliases: []string{"sknp", "sknps", "stagedkubernetespolicy", "stagedkubernetespolicies", "skpol", "skpols"}, new: func() Resource { return &StagedKubernetesNetworkPolicy{} }},
		{Kind: KindKubernetesEndpointSlice, Plural: "kubernetesendpointslices", Namespaced: true, Aliases: []string{"endpointslice", "endpointslices"}, new: func() Resource { return &KubernetesEndpointSlice{} }},
		{Kind: KindKubernetesService, Plural: "kubernetesservices", Namespaced: true, Aliases: []string{"service", "services", "svc"}, new: func() Resource { return &KubernetesService{} }},
		{Kind: KindCalicoNodeStatus, Plural: "caliconodestatuses", Aliases: []string{"nodestatus", "nodestatuses"}, new: func() Resource { return &CalicoNodeStatus{} }},
		{Kind: KindHostEndpoint, Plural: "hostendpoints", Aliases: []string{"hep", "heps"}, new: func() Resource { return &HostEndpoint{} }},
		{Kind: KindWorkloadEndpoint, Plural: "workloadendpoints", Namespaced: true, Aliases: []string{"wep", "weps"}, new: func() Resource { return &WorkloadEndpoint{} }},
		{Kind: KindLiveMigration, Plural: "livemigrations", Namespaced: true, Aliases: []string{"lm", "lms"}, new: func() Resource { return &LiveMigration{} }},
	}
}

var kinds = Kinds()

// LookupKind finds a kind by its name, plural or short name, in any case, perhaps with its group or group and version behind a
// dot, or the group's beginning, as kubectl takes it: networkpolicies.projectcalico.org, networkpolicy.p.
func LookupKind(nameOrAlias string) (Kind, bool) {
	n, group, _ := strings.Cut(strings.ToLower(nameOrAlias), ".")
	full, version, _ := strings.Cut(GroupVersion, "/")
	if !strings.HasPrefix(full, group) && group != version && group != version+"."+full {
		return Kind{}, false
	}
	for _, k := range kinds {
		if n == strings.ToLower(k.Kind) || n == k.Plural || slices.Contains(k.Aliases, n) {
			return k, true
		}
	}
	return Kind{}, false
}

// New returns an empty resource with its kind and version set; nil if there is
// no such kind.
func New(kind string) Resource {
	for _, k := range kinds {
		if k.Kind == kind {
			r := k.new()
			*r.Type() = TypeMeta{Kind: kind, APIVersion: GroupVersion}
			return r
		}
	}
	return nil
}

func kindOf(kind string) (Kind, bool) {
	for _, k := range kinds {
		if k.Kind == kind {
			return k, true
		}
	}
	return Kind{}, false
}
