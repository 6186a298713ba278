package form

import (
	"fmt"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/translate"
)

// clusterWide are the kinds of Kubernetes' cluster-wide policies. They are custom resources, of which a cluster has those that somebody
// has installed.
var clusterWide = []clusterPolicies{
	{"v1alpha2", "clusternetworkpolicies", translate.KindCluster, translate.ClusterPrefix},
	{"v1alpha1", "adminnetworkpolicies", translate.KindAdmin, translate.AdminPrefix},
	{"v1alpha1", "baselineadminnetworkpolicies", translate.KindBaseline, translate.BaselinePrefix},
}

// clusterPolicies is the codec of one of them: its objects are views.
type clusterPolicies struct{ version, plural, kind, prefix string }

// Accept is part of Codec.
func (clusterPolicies) Accept() string { return mediaJSON }

// Object is part of Codec. What the translation could not take is closed in what it returned, and named in an annotation.
func (c clusterPolicies) Object(raw []byte) (Entry, error) {
	o, err := decodeObject(raw)
	if err != nil {
		return Entry{}, err
	}
	p, wrong := translate.Kept(c.kind, raw)
	translate.MarkClosed(p, wrong)
	value, err := api.EncodeStored(p)
	return Entry{Key: keyOf(p), Value: value, Version: o.Metadata.ResourceVersion}, err
}

// List is part of Codec.
func (c clusterPolicies) List(body []byte) (Page, error) { return pageOf(body, c.Object) }

// Name is part of Codec.
func (c clusterPolicies) Name(key string) (namespace, name string, ok bool) {
	return after(api.KindGlobalNetworkPolicy, c.prefix)(key)
}

func (c clusterPolicies) readOnly(key string) error {
	return &ReadOnlyError{key, fmt.Sprintf("is of Kubernetes, a kind %s: change that, with kubectl", c.kind)}
}

// Create is part of Codec.
func (c clusterPolicies) Create(kv api.Update) (Request, error) {
	return Request{}, c.readOnly(kv.Key)
}

// Replace is part of Codec.
func (c clusterPolicies) Replace(kv api.Update, _ []byte) (Request, error) {
	return Request{}, c.readOnly(kv.Key)
}

// Remove is part of Codec.
func (c clusterPolicies) Remove(key string, _ api.Revision) (Request, error) {
	return Request{}, c.readOnly(key)
}

// Origin is an object of Kubernetes of which a policy is made.
type Origin struct {
	APIVersion, Kind, Namespace, Name string
	Path                              string // of the object, on the API server
}

// OriginOf is the object of Kubernetes of which the policy with a key is made; false: it is made of none.
func OriginOf(key string) (Origin, bool) {
	for _, k := range kubernetes(podViews()) {
		namespace, name, ok := k.Name(key)
		if !ok {
			continue
		}
		out := Origin{APIVersion: strings.TrimPrefix(k.Path, "/apis/"), Namespace: namespace, Name: name, Path: k.Path + "/" + k.Plural + "/" + name}
		switch c := k.Codec.(type) {
		case clusterPolicies:
			out.Kind = c.kind
		default:
			if k.Plural != "networkpolicies" {
				return Origin{}, false
			}
			out.Kind, out.Path = "NetworkPolicy", k.Path+"/namespaces/"+namespace+"/"+k.Plural+"/"+name
		}
		return out, true
	}
	return Origin{}, false
}
