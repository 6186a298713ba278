package kubecontrollers

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/internal/datastore/kubestore/apiserver"
)

// What a service says of its load balancer.
const (
	typeLoadBalancer      = "LoadBalancer"
	classCalico           = "calico"
	annotationIPv4Pools   = "projectcalico.org/ipv4pools"       // names or CIDRs of pools, as a list in JSON
	annotationIPv6Pools   = "projectcalico.org/ipv6pools"       // likewise
	annotationBalancerIPs = "projectcalico.org/loadBalancerIPs" // addresses, at most one of each family, as a list in JSON
)

// balancerNode is the name under which blocks are load balancers'.
const balancerNode = "load-balancer"

// serviceHandle is the handle of a service's addresses, as upstream makes it.
func serviceHandle(s apiserver.Service) string {
	sum := sha256.Sum256([]byte(strings.ToLower(s.Name + "-" + s.Namespace + "-" + s.UID)))
	return "lb-" + strings.NewReplacer("-", "", "_", "", ".", "").Replace(base64.RawURLEncoding.EncodeToString(sum[:]))
}

// managed reports whether a service is to get addresses: all of type LoadBalancer, or only those that ask for them.
func managed(s apiserver.Service, all bool) bool {
	switch {
	case s.Type != typeLoadBalancer, s.Class != "" && s.Class != classCalico:
		return false
	}
	return all || asksByName(s)
}

// asksByName reports whether a service asks for addresses of Calico's load balancer, rather than of any.
func asksByName(s apiserver.Service) bool {
	return s.Class == classCalico || s.Annotations[annotationIPv4Pools] != "" || s.Annotations[annotationIPv6Pools] != "" || s.Annotations[annotationBalancerIPs] != ""
}

// wish is what a service asks for in one family.
type wish struct {
	four  bool
	addr  netip.Addr // this one; invalid: any
	pools []string   // names or CIDRs; empty: those that fit
}

// wishOf reads what a service asks for: an address of each of its families, or those alone that it names. Of what it names in vain it says why.
func wishOf(s apiserver.Service) (out []wish, vain, err error) {
	families := s.Families
	if len(families) == 0 {
		families = []string{"IPv4"}
	}
	named, err := listIn(s, annotationBalancerIPs)
	if err != nil {
		return nil, nil, err
	}
	for _, f := range families {
		w := wish{four: f == "IPv4"}
		annotation := annotationIPv6Pools
		if w.four {
			annotation = annotationIPv4Pools
		}
		if w.pools, err = listIn(s, annotation); err != nil {
			return nil, nil, err
		}
		out = append(out, w)
	}
	if len(named) == 0 {
		return out, nil, nil
	}
	return addressed(out, named)
}

// addressed are the wishes of a service that names its addresses: its other families have none. An address of a family that it does not have is
// passed over, with a warning, unless it names no other.
func addressed(wishes []wish, named []string) (out []wish, vain, err error) {
	taken := map[bool]bool{}
	var others []string
	for _, text := range named {
		a, err := netip.ParseAddr(text)
		a = a.Unmap()
		switch {
		case err != nil || a.Zone() != "":
			return nil, nil, fmt.Errorf("annotation %s: %.100q is no address", annotationBalancerIPs, text)
		case taken[a.Is4()]:
			return nil, nil, fmt.Errorf("annotation %s names two addresses of a family: want at most one", annotationBalancerIPs)
		}
		taken[a.Is4()] = true
		if !slices.ContainsFunc(wishes, func(w wish) bool { return w.four == a.Is4() }) {
			others = append(others, a.String())
			continue
		}
		out = append(out, wish{four: a.Is4(), addr: a})
	}
	if len(others) > 0 {
		vain = fmt.Errorf("annotation %s: %s is not of a family of the service (spec.ipFamilies)", annotationBalancerIPs, strings.Join(others, ", "))
		if len(out) == 0 {
			return nil, nil, vain
		}
		vain = fmt.Errorf("%w: it gets what else it names", vain)
	}
	return out, vain, nil
}

// listIn reads an annotation that is a list; none is empty.
func listIn(s apiserver.Service, annotation string) (out []string, err error) {
	text := s.Annotations[annotation]
	if text == "" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		return nil, fmt.Errorf("annotation %s is %.100q: want a list in JSON, such as [\"one\"]", annotation, text)
	}
	return out, nil
}

// addressOf is the address of an ingress; invalid: it has none.
func addressOf(i apiserver.Ingress) netip.Addr {
	a, err := netip.ParseAddr(i.IP())
	if err != nil {
		return netip.Addr{}
	}
	return a.Unmap()
}
