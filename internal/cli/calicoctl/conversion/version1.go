package conversion

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
)

// version1 is the apiVersion of the resources that are read here.
const version1 = "v1"

// object is one of JSON.
type object map[string]any

// form is a resource of version 1.
type form interface {
	// v3 is its metadata and spec in version 3.
	v3() (kind string, metadata, spec object, err error)
}

var forms = map[string]func() form{
	"bgpPeer":          func() form { return &peer{} },
	"hostEndpoint":     func() form { return &hostEndpoint{} },
	"ipPool":           func() form { return &pool{} },
	"node":             func() form { return &node{} },
	"policy":           func() form { return &policy{} },
	"profile":          func() form { return &profile{} },
	"workloadEndpoint": func() form { return &workloadEndpoint{} },
}

// ofVersion1 returns the resource of version 3 that a document of version 1 means. Kinds begin with a small letter there.
func ofVersion1(doc []byte, name string) (api.Resource, error) {
	old := forms[name]()
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.DisallowUnknownFields()
	if err := dec.Decode(old); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	kind, metadata, spec, err := old.v3()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(object{"apiVersion": api.GroupVersion, "kind": kind, "metadata": metadata.set(), "spec": spec.set()})
	if err != nil {
		return nil, err
	}
	docs, err := api.Decode(text)
	if err != nil {
		return nil, err
	}
	return docs[0].Resource, nil // api.Decode returns one for one
}

// set is an object without what is not set in it.
func (o object) set() object {
	for name, v := range o {
		switch v := v.(type) {
		case nil:
			delete(o, name)
		case string:
			if v == "" {
				delete(o, name)
			}
		case bool:
			if !v {
				delete(o, name)
			}
		case []string:
			if len(v) == 0 {
				delete(o, name)
			}
		case []object:
			if len(v) == 0 {
				delete(o, name)
			}
		case json.RawMessage:
			if len(v) == 0 {
				delete(o, name)
			}
		case map[string]string:
			if len(v) == 0 {
				delete(o, name)
			}
		}
	}
	return o
}

var (
	noNameLetter = regexp.MustCompile(`[^-.a-z0-9]+`)
	aroundDots   = regexp.MustCompile(`[.-]*[.][.-]*`)
)

// normal is a name of the letters that version 3 allows. Names of nodes stay so: whoever asks a host for its own does the same.
func normal(name string) string {
	name = strings.ReplaceAll(strings.ToLower(name), "/", ".")
	name = aroundDots.ReplaceAllString(noNameLetter.ReplaceAllString(name, "-"), ".")
	return strings.Trim(name, ".-")
}

// named is a name of version 3; one that had to be changed ends in eight digits of a hash of what it was.
func named(name string) string { return hashed(name, normal(name)) }

// undotted is named without dots, which part a tier from a policy's name.
func undotted(name string) string { return hashed(name, strings.ReplaceAll(normal(name), ".", "-")) }

func hashed(was, is string) string {
	if was == is {
		return is
	}
	sum := sha1.Sum([]byte(was))
	return is + "-" + hex.EncodeToString(sum[:])[:8]
}

// profileName has the beginning that profiles of namespaces have now.
func profileName(name string) string {
	if ns, ok := strings.CutPrefix(name, "k8s_ns."); ok {
		return named("kns." + ns)
	}
	return named(name)
}

func profileNames(names []string) (out []string) {
	for _, n := range names {
		out = append(out, profileName(n))
	}
	return out
}

// addrName is an address as part of a name: 192-0-2-1, or eight groups of four digits.
func addrName(a netip.Addr) string {
	if a.Is4() {
		return strings.ReplaceAll(a.String(), ".", "-")
	}
	return strings.ReplaceAll(a.StringExpanded(), ":", "-")
}

// cidrName is a net as a name.
func cidrName(p netip.Prefix) string {
	return strings.NewReplacer(".", "-", ":", "-", "/", "-").Replace(p.String())
}

// parseNet reads a net, or an address, which is one of a single address.
func parseNet(field, text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, wrong(field, text)
	}
	return p, nil
}

// wrong is a value that cannot be read.
func wrong(field, value string) error { return fmt.Errorf("error with field %s = '%s'", field, value) }

// sorted has the addresses of IPv4 before those of IPv6, in their order else, as version 1 kept them.
func sorted[T any](all []T, is4 func(T) bool) []T {
	slices.SortStableFunc(all, func(a, b T) int {
		switch {
		case is4(a) == is4(b):
			return 0
		case is4(a):
			return -1
		}
		return 1
	})
	return all
}
