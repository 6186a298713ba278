package form

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha3"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/twillnet/twill/api"
)

// ipam is the codec of a kind of address management. etcd holds these without metadata, so the value is made of the spec.
//
// Upstream marks an object as deleted before it deletes it, since older API servers could not delete an object of a version only: such
// a one counts as gone.
type ipam struct {
	group Group
	kind  string // of the objects
	name  func(key string) (string, bool)
	// fromSpec is the key and value of a spec; toSpec the inverse.
	fromSpec func(spec map[string]json.RawMessage) (key string, value []byte, err error)
	toSpec   func(key string, value []byte) (map[string]json.RawMessage, error)
	labels   func(key string) map[string]string
}

func (ipam) Accept() string { return mediaJSON }

func (c ipam) List(body []byte) (Page, error) { return pageOf(body, c.Object) }

func (c ipam) Object(raw []byte) (Entry, error) {
	o, err := decodeObject(raw)
	if err != nil {
		return Entry{}, err
	}
	spec := map[string]json.RawMessage{}
	_ = json.Unmarshal(o.Spec, &spec) // what is no object has no key
	key, value, err := c.fromSpec(spec)
	if name, ok := c.name(key); err != nil || !ok || name != o.Metadata.Name {
		return Entry{Version: o.Metadata.ResourceVersion}, nil // an object that does not say what its name does is of no key
	}
	if text := strings.Trim(string(spec["deleted"]), `"`); text == "true" {
		value = nil
	}
	return Entry{Key: key, Value: value, Version: o.Metadata.ResourceVersion}, nil
}

func (c ipam) Name(key string) (namespace, name string, ok bool) {
	name, ok = c.name(key)
	return "", name, ok
}

func (c ipam) request(kv api.Update, method, version string) (Request, error) {
	spec, err := c.toSpec(kv.Key, kv.Value)
	if err != nil {
		return Request{}, fmt.Errorf("%s: %w", kv.Key, err)
	}
	name, _ := c.name(kv.Key)
	o := object{APIVersion: string(c.group), Kind: c.kind}
	if o.Spec, err = json.Marshal(spec); err != nil {
		return Request{}, err
	}
	o.Metadata.Name, o.Metadata.ResourceVersion = name, version
	if c.labels != nil {
		o.Metadata.Labels = c.labels(kv.Key)
	}
	body, err := json.Marshal(o)
	out := Request{Method: method, ContentType: mediaJSON, Body: body}
	if method == "PUT" {
		out.Name = name
	}
	return out, err
}

func (c ipam) Create(kv api.Update) (Request, error) { return c.request(kv, "POST", "") }

func (c ipam) Replace(kv api.Update, was []byte) (Request, error) {
	version, err := versionOf(kv, was)
	if err != nil {
		return Request{}, err
	}
	return c.request(kv, "PUT", version)
}

func (c ipam) Remove(key string, revision api.Revision) (Request, error) {
	name, _ := c.name(key)
	return deletion("", name, revision), nil
}

// cidrName is a prefix as the name of an object.
func cidrName(p netip.Prefix) string {
	return strings.NewReplacer(".", "-", ":", "-", "/", "-").Replace(p.String())
}

// renamed is an object with members under other names: pairs of its name in values and in specs.
func renamed(in map[string]json.RawMessage, names map[string]string) map[string]json.RawMessage {
	out := make(map[string]json.RawMessage, len(in))
	for name, value := range in {
		if to, ok := names[name]; ok {
			name = to
		}
		if name != "" {
			out[name] = value
		}
	}
	return out
}

func text(raw json.RawMessage) string {
	var s string
	_ = json.Unmarshal(raw, &s) // what is no text is none
	return s
}

func members(value []byte) (map[string]json.RawMessage, error) {
	out := map[string]json.RawMessage{}
	if len(bytes.TrimSpace(value)) == 0 {
		return out, nil
	}
	err := json.Unmarshal(value, &out)
	return out, err
}

func blocks(g Group) ipam {
	return ipam{
		group: g, kind: "IPAMBlock",
		name: func(key string) (string, bool) {
			p, ok := api.ParseBlockKey(key)
			return cidrName(p), ok
		},
		fromSpec: func(spec map[string]json.RawMessage) (string, []byte, error) {
			p, err := netip.ParsePrefix(text(spec["cidr"]))
			if err != nil {
				return "", nil, err
			}
			out := renamed(spec, map[string]string{"affinityClaimTime": "affinity_claim_time"})
			if _, has := out["affinity"]; !has {
				out["affinity"] = json.RawMessage("null") // as etcd holds it
			}
			value, err := json.Marshal(out)
			return api.BlockKey(p), value, err
		},
		toSpec: func(_ string, value []byte) (map[string]json.RawMessage, error) {
			in, err := members(value)
			out := renamed(in, map[string]string{"affinity_claim_time": "affinityClaimTime"})
			if string(out["affinity"]) == "null" {
				delete(out, "affinity")
			}
			return out, err
		},
	}
}

func handles(g Group) ipam {
	return ipam{
		group: g, kind: "IPAMHandle",
		name: func(key string) (string, bool) {
			id, ok := api.ParseHandleKey(key)
			return strings.ToLower(id), ok
		},
		fromSpec: func(spec map[string]json.RawMessage) (string, []byte, error) {
			value, err := json.Marshal(renamed(spec, map[string]string{"handleID": ""}))
			return api.HandleKey(text(spec["handleID"])), value, err
		},
		toSpec: func(key string, value []byte) (map[string]json.RawMessage, error) {
			out, err := members(value)
			id, _ := api.ParseHandleKey(key)
			out["handleID"], _ = json.Marshal(id)
			return out, err
		},
	}
}

// longestName is what Kubernetes allows.
const longestName = 253

func affinities(g Group) ipam {
	return ipam{
		group: g, kind: api.KindBlockAffinity,
		name: func(key string) (string, bool) {
			own, p, ok := api.ParseAffinityKey(key)
			name := own.Name + "-" + cidrName(p)
			if len(name) >= longestName { // as upstream shortens it
				cidr := cidrName(p)
				sum := sha256.Sum256([]byte(own.Name + "+" + cidr))
				name = own.Name[:max(longestName-1-len(cidr)-13, 0)] + "-" + cidr + "-" + hex.EncodeToString(sum[:])[:11]
			}
			return name, ok
		},
		fromSpec: func(spec map[string]json.RawMessage) (string, []byte, error) {
			p, err := netip.ParsePrefix(text(spec["cidr"]))
			if err != nil {
				return "", nil, err
			}
			own := api.Owner{Type: text(spec["type"]), Name: text(spec["node"])}
			if own.Type == "" {
				own.Type = api.OwnerHost // old versions knew no other
			}
			out := renamed(spec, map[string]string{"cidr": "", "node": "", "type": ""})
			out["deleted"] = json.RawMessage(strconv.FormatBool(strings.Trim(string(spec["deleted"]), `"`) == "true"))
			value, err := json.Marshal(out)
			return api.AffinityKey(own, p), value, err
		},
		toSpec: func(key string, value []byte) (map[string]json.RawMessage, error) {
			own, p, _ := api.ParseAffinityKey(key)
			out, err := members(value)
			for name, v := range map[string]string{"cidr": p.String(), "node": own.Name, "type": own.Type} {
				out[name], _ = json.Marshal(v) // text always encodes
			}
			deleted := strconv.FormatBool(string(out["deleted"]) == "true")
			if g == V1 {
				deleted = strconv.Quote(deleted)
			}
			out["deleted"] = json.RawMessage(deleted)
			return out, err
		},
		labels: func(key string) map[string]string {
			own, p, _ := api.ParseAffinityKey(key)
			sum := sha3.Sum256([]byte(own.Name))
			version := "4"
			if p.Addr().Is6() {
				version = "6"
			}
			return map[string]string{ // by which upstream lists those of one node
				"projectcalico.org/hostname-hash": base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:]),
				"projectcalico.org/affinity-type": own.Type, "projectcalico.org/ip-version": version,
			}
		},
	}
}

// ipamConfigNames are the members of the configuration in etcd, and in Kubernetes.
var ipamConfigNames = map[string]string{"strict_affinity": "strictAffinity", "auto_allocate_blocks": "autoAllocateBlocks"}

func ipamConfig(g Group) ipam {
	kind := "IPAMConfig"
	if g == V3 {
		kind = api.KindIPAMConfiguration
	}
	return ipam{
		group: g, kind: kind,
		name: func(key string) (string, bool) { return api.IPAMConfigurationName, key == api.IPAMConfigKey },
		fromSpec: func(spec map[string]json.RawMessage) (string, []byte, error) {
			inverse := map[string]string{}
			for stored, shown := range ipamConfigNames {
				inverse[shown] = stored
			}
			value, err := json.Marshal(renamed(spec, inverse))
			return api.IPAMConfigKey, value, err
		},
		toSpec: func(_ string, value []byte) (map[string]json.RawMessage, error) {
			in, err := members(value)
			out := renamed(in, ipamConfigNames)
			for _, name := range ipamConfigNames { // both are required
				if out[name] == nil {
					out[name] = json.RawMessage("false")
				}
			}
			return out, err
		},
	}
}
