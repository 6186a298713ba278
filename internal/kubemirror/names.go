package kubemirror

import (
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/translate"
)

// alive is the profile of a namespace that every cluster has, and that nobody can delete.
var alive = api.KeyPrefix(api.KindProfile, "") + translate.NamespacePrefix + "kube-system"

// controllerOf is the controller whose a key is; empty: nobody's here. A name that stands for no object of Kubernetes is nobody's.
func controllerOf(ref api.Ref) string {
	begins := func(prefixes ...string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return len(ref.Name) > len(p) && strings.HasPrefix(ref.Name, p) })
	}
	switch ref.Kind {
	case api.KindNetworkPolicy:
		if begins(translate.PolicyPrefix) {
			return Policies
		}
	case api.KindGlobalNetworkPolicy:
		if begins(translate.ClusterPrefix, translate.AdminPrefix, translate.BaselinePrefix) {
			return Policies
		}
	case api.KindProfile:
		switch namespace, account := profileOf(ref.Name); {
		case namespace == "":
		case account == "":
			return Namespaces
		default:
			return ServiceAccounts
		}
	}
	return ""
}

// profileOf is the namespace that a profile is of, and the service account, if it is one's.
func profileOf(name string) (namespace, account string) {
	if rest, ok := strings.CutPrefix(name, translate.NamespacePrefix); ok && !strings.Contains(rest, ".") {
		return rest, ""
	}
	rest, ok := strings.CutPrefix(name, translate.ServiceAccountPrefix)
	namespace, account, dot := strings.Cut(rest, ".") // a namespace has no dot
	if !ok || !dot || namespace == "" || account == "" {
		return "", ""
	}
	return namespace, account
}

// namespaceOf is the namespace that a resource is in, or that a profile is of; empty: none.
func namespaceOf(ref api.Ref) string {
	if ref.Kind == api.KindProfile {
		namespace, _ := profileOf(ref.Name)
		return namespace
	}
	return ref.Namespace
}

// namespaceKey is the key of a namespace's profile.
func namespaceKey(namespace string) string {
	return api.KeyPrefix(api.KindProfile, "") + translate.NamespacePrefix + namespace
}
