package form

import (
	"slices"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/translate"
)

// older are the kinds that every version of upstream has, so that a cluster without one is broken, or not set up.
var older = []string{
	api.KindBGPConfiguration, api.KindBGPPeer, api.KindClusterInformation, api.KindFelixConfiguration, api.KindGlobalNetworkPolicy,
	api.KindGlobalNetworkSet, api.KindHostEndpoint, api.KindIPPool, api.KindNetworkPolicy, api.KindNetworkSet,
}

// native kinds of api.Kinds have no custom resource.
var viewed = []string{api.KindNode, api.KindProfile, api.KindWorkloadEndpoint, api.KindKubernetesEndpointSlice, api.KindKubernetesService, api.KindBlockAffinity, api.KindLiveMigration}

// Kinds are all that a cluster holds, given the group of its custom resources.
func Kinds(g Group) []Kind { return KindsWith(g, "") }

// KindsWith is Kinds where another plugin than Calico's or ours attaches pods, and the names of their interfaces begin otherwise (translate.LinkName).
func KindsWith(g Group, links string) []Kind {
	custompath := "/apis/" + string(g)
	var out []Kind
	for _, k := range api.Kinds() {
		if slices.Contains(viewed, k.Kind) {
			continue
		}
		c := custom{group: g, kind: k, object: k.Kind}
		plural := k.Plural
		if k.Kind == api.KindIPAMConfiguration && g == V1 {
			plural, c.object = "ipamconfigs", "IPAMConfig"
		}
		var codec Codec = c
		if foreign := foreignPolicies[k.Kind]; foreign != nil {
			codec = ownPolicies{c, foreign}
		}
		out = append(out, Kind{
			Path: custompath, Plural: plural, Namespaced: k.Namespaced, Optional: !slices.Contains(older, k.Kind), Prefix: api.KeyPrefix(k.Kind, ""), Codec: codec,
		})
	}
	config := "ipamconfigs"
	if g == V3 {
		config = "ipamconfigurations"
	}
	out = append(out, kubernetes(pods(links))...)
	return append(out,
		Kind{Path: custompath, Plural: "ipamblocks", Prefix: api.BlockPrefix, Whole: true, Codec: blocks(g)},
		Kind{Path: custompath, Plural: "ipamhandles", Prefix: api.HandlePrefix, Whole: true, Codec: handles(g)},
		Kind{Path: custompath, Plural: "blockaffinities", Prefix: api.IPAMPrefix, Whole: true, Codec: affinities(g)},
		Kind{Path: custompath, Plural: config, Prefix: api.IPAMConfigKey, As: "/config", Whole: true, Codec: ipamConfig(g)},
		Kind{Path: "/apis/" + string(Own), Plural: "records", Optional: true, Whole: true, Codec: record{}},
	)
}

// Views are the kinds that Kubernetes has itself, where the cluster holds nothing else: see Views of datastore.Config.
func Views() []Kind { return kubernetes(podViews()) }

// kubernetes are the kinds that Kubernetes has itself, given the codec of pods.
func kubernetes(pods Codec) []Kind {
	var out []Kind
	for _, c := range clusterWide {
		out = append(out, Kind{Path: "/apis/" + translate.PolicyAPI + "/" + c.version, Plural: c.plural, Optional: true, Prefix: api.KeyPrefix(api.KindGlobalNetworkPolicy, ""), Codec: c})
	}
	out = append(out,
		Kind{Path: "/apis/networking.k8s.io/v1", Plural: "networkpolicies", Namespaced: true, Prefix: api.KeyPrefix(api.KindNetworkPolicy, ""), Codec: policies()},
		Kind{Path: "/apis/discovery.k8s.io/v1", Plural: "endpointslices", Namespaced: true, Prefix: api.KeyPrefix(api.KindKubernetesEndpointSlice, ""), Codec: endpointSlices()},
		Kind{Path: "/api/v1", Plural: "services", Namespaced: true, Prefix: api.KeyPrefix(api.KindKubernetesService, ""), Codec: services()},
		Kind{Path: "/api/v1", Plural: "namespaces", Prefix: api.KeyPrefix(api.KindProfile, ""), Codec: namespaces()},
		Kind{Path: "/api/v1", Plural: "serviceaccounts", Namespaced: true, Prefix: api.KeyPrefix(api.KindProfile, ""), Codec: serviceAccounts()},
		Kind{Path: "/api/v1", Plural: "nodes", Prefix: api.KeyPrefix(api.KindNode, ""), Codec: nodes()},
		Kind{Path: "/api/v1", Plural: "pods", Namespaced: true, Prefix: api.KeyPrefix(api.KindWorkloadEndpoint, ""), Codec: pods},
	)
	for i := range out {
		out[i].View = true
	}
	return out
}
