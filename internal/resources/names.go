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
	return Singular(k) + "/" + name
}

func Singular(k api.Kind) string { return strings.ToLower(k.Kind) }
