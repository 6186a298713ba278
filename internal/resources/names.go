package resources

import (
	"strings"

	"github.com/twillnet/twill/api"
)

// Short is how a resource is called in messages: networkpolicy/prod/web.
func Short(ref api.Ref) string {
	k, _ := api.LookupKind(ref.Kind)
	name := ref.Name
	if ref.Namespace != "" {
		name = ref.Namespace + "/" + name
	}
	if ref.Kind == KindNamespace {
		return "namespace/" + name
	}
	return Singular(k) + "/" + name
}

// KindNamespace is the kind of an [api.Ref] by which [Delete] deletes all that is in a namespace. No resource has it.
const KindNamespace = "Namespace"

func Singular(k api.Kind) string { return strings.ToLower(k.Kind) }
