// Package crds has the custom resource definitions that a cluster needs.
//
// In: the group of the resources, as package form has them. Out: objects for
// `kubectl apply`. Their schemas are made of the Go types of package api, and in the group V3 have its validation as far as a
// schema can say it (limits.go), so that both say the same. It is pure.
package crds

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore/kubestore/form"
)

// column is one that `kubectl get` shows.
type column struct{ name, kind, path string }

// realisedColumn says whether a policy is in force on all nodes.
var realisedColumn = column{"Realised", "string", `.status.conditions[?(@.type=="Realised")].status`}

// columns of each kind beside its name; age comes last on all.
var columns = map[string][]column{
	api.KindNetworkPolicy:                 {{"Tier", "string", ".spec.tier"}, {"Order", "number", ".spec.order"}, {"Selector", "string", ".spec.selector"}, realisedColumn},
	api.KindGlobalNetworkPolicy:           {{"Tier", "string", ".spec.tier"}, {"Order", "number", ".spec.order"}, {"Selector", "string", ".spec.selector"}, realisedColumn},
	api.KindStagedNetworkPolicy:           {{"Tier", "string", ".spec.tier"}, {"Order", "number", ".spec.order"}, {"Action", "string", ".spec.stagedAction"}, realisedColumn},
	api.KindStagedGlobalNetworkPolicy:     {{"Tier", "string", ".spec.tier"}, {"Order", "number", ".spec.order"}, {"Action", "string", ".spec.stagedAction"}, realisedColumn},
	api.KindStagedKubernetesNetworkPolicy: {{"Action", "string", ".spec.stagedAction"}, realisedColumn},
	api.KindTier:                          {{"Order", "number", ".spec.order"}, {"Default", "string", ".spec.defaultAction"}},
	api.KindIPPool:                        {{"CIDR", "string", ".spec.cidr"}, {"VXLAN", "string", ".spec.vxlanMode"}, {"IPIP", "string", ".spec.ipipMode"}, {"NAT", "boolean", ".spec.natOutgoing"}, {"Disabled", "boolean", ".spec.disabled"}},
	api.KindIPReservation:                 {{"CIDRs", "string", ".spec.reservedCIDRs"}},
	api.KindBGPPeer:                       {{"Peer", "string", ".spec.peerIP"}, {"AS", "string", ".spec.asNumber"}, {"Node", "string", ".spec.node"}},
	api.KindBGPConfiguration:              {{"AS", "string", ".spec.asNumber"}, {"Mesh", "boolean", ".spec.nodeToNodeMeshEnabled"}},
	api.KindHostEndpoint:                  {{"Node", "string", ".spec.node"}, {"Interface", "string", ".spec.interfaceName"}, {"IPs", "string", ".spec.expectedIPs"}},
	api.KindNetworkSet:                    {{"Nets", "string", ".spec.nets"}},
	api.KindGlobalNetworkSet:              {{"Nets", "string", ".spec.nets"}},
	api.KindCalicoNodeStatus:              {{"Node", "string", ".spec.node"}},
	api.KindClusterInformation:            {{"GUID", "string", ".spec.clusterGUID"}, {"Ready", "boolean", ".spec.datastoreReady"}},
	"IPAMBlock":                           {{"CIDR", "string", ".spec.cidr"}, {"Affinity", "string", ".spec.affinity"}},
	"IPAMHandle":                          {{"Handle", "string", ".spec.handleID"}},
	api.KindBlockAffinity:                 {{"CIDR", "string", ".spec.cidr"}, {"Node", "string", ".spec.node"}, {"State", "string", ".spec.state"}},
	"Record":                              {{"Key", "string", ".spec.key"}},
}

// definition is what a CustomResourceDefinition says of a kind.
type definition struct {
	group, version, plural, kind string
	aliases                      []string
	namespaced, status           bool
	schema                       map[string]any
}

// Definitions are the objects that a cluster needs to hold resources in a group, and the records of [form.Own], as JSON objects.
func Definitions(g form.Group) []map[string]any {
	group, version, _ := strings.Cut(string(g), "/")
	var out []map[string]any
	seen := map[string]bool{}
	for _, k := range form.Kinds(g) {
		if !strings.HasPrefix(k.Path, "/apis/"+group+"/") || seen[k.Plural] {
			continue
		}
		seen[k.Plural] = true
		d := definition{group: group, version: version, plural: k.Plural, namespaced: k.Namespaced}
		if kind, ok := api.LookupKind(k.Plural); ok && kind.Plural == k.Plural && !kind.View {
			d.kind, d.schema = kind.Kind, schemas{limited: g == form.V3}.of(reflect.TypeOf(api.New(kind.Kind)).Elem())
			// In V1 the status of other kinds is written as a part of the object, by upstream; that of policies is written by nobody but us.
			d.status = (g == form.V3 || strings.HasSuffix(kind.Plural, "networkpolicies")) && d.schema["properties"].(map[string]any)["status"] != nil
			if g == form.V3 {
				d.aliases = aliasesOf(kind)
			}
		} else {
			d.kind, d.schema = addressKinds[k.Plural], anything()
		}
		out = append(out, d.object())
	}
	return append(out, Own()...)
}

// Documents are objects as a sequence of YAML documents, each of them as JSON, which is YAML.
func Documents(objects []map[string]any) (string, error) {
	var out strings.Builder
	for _, o := range objects {
		text, err := json.Marshal(o)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&out, "---\n%s\n", text)
	}
	return out.String(), nil
}

// Own are the objects of [form.Own], which a cluster that runs Calico needs besides its own.
func Own() []map[string]any {
	group, version, _ := strings.Cut(string(form.Own), "/")
	record := definition{group: group, version: version, plural: "records", kind: "Record", schema: anything()}
	return []map[string]any{record.object()}
}

// addressKinds are the kinds of address management, whose values have no Go type of a resource.
var addressKinds = map[string]string{"ipamblocks": "IPAMBlock", "ipamhandles": "IPAMHandle", "blockaffinities": api.KindBlockAffinity, "ipamconfigs": "IPAMConfig"}

// aliasesOf are a kind's short names; those that Kubernetes itself has, for its own kinds, are left to it.
func aliasesOf(k api.Kind) []string {
	var out []string
	for _, a := range k.Aliases {
		switch {
		case a == "no" || a == "nos" || strings.Contains(a, "calico"), k.Kind == api.KindNetworkPolicy && !strings.HasPrefix(a, "c"):
		default:
			out = append(out, a)
		}
	}
	return out
}

func (d definition) object() map[string]any {
	scope := "Cluster"
	if d.namespaced {
		scope = "Namespaced"
	}
	names := map[string]any{"kind": d.kind, "listKind": d.kind + "List", "plural": d.plural, "singular": strings.ToLower(d.kind), "categories": []any{"calico", "twill"}}
	if len(d.aliases) > 0 {
		short := make([]any, len(d.aliases))
		for i, a := range d.aliases {
			short[i] = a
		}
		names["shortNames"] = short
	}
	var shown []any
	for _, c := range columns[d.kind] {
		shown = append(shown, map[string]any{"name": c.name, "type": c.kind, "jsonPath": c.path})
	}
	version := map[string]any{
		"name": d.version, "served": true, "storage": true,
		"schema":                   map[string]any{"openAPIV3Schema": d.schema},
		"additionalPrinterColumns": append(shown, map[string]any{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}),
	}
	if d.status {
		version["subresources"] = map[string]any{"status": map[string]any{}}
	}
	return map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": d.plural + "." + d.group},
		"spec": map[string]any{
			"group": d.group, "scope": scope, "names": names, "preserveUnknownFields": false,
			"versions": []any{version},
		},
	}
}

// anything is the schema of an object whose spec is not looked into.
func anything() map[string]any {
	return map[string]any{"type": "object", "properties": map[string]any{
		"spec": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
	}}
}
