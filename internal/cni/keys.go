package cni

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// support is how a key of a network's configuration is handled.
type support string

// A key is ignored only if that can neither allow what would be denied, nor deny or misroute what would pass.
const (
	honoured support = "honoured"
	noEffect support = "no effect" // said on standard error at ADD, and by twill cni install
	refused  support = "refused"   // ADD fails, and names it
)

// key is one that the specification of CNI, Calico's plugin or ours knows. A name with a dot is one within an object; one that ends
// in * stands for all that begin so, and the name of an object alone for all that is in it.
type key struct {
	name    string
	support support
	isSet   string
}

// keys are all that are known, as docs/cni.md shows them.
var keys = []key{
	{"mtu", honoured, "of both ends, in bytes; 0 or none: what the agent says, see [MTU](mtu.md)"},
	{"num_queues", honoured, "queues of both ends, each way; 0 or none: the kernel's default, which is one"},
	{"socket", honoured, "the agent's; default `/run/twill/agent.sock`"},
	{"ipam.type", honoured, "`twill-ipam` or `calico-ipam`: Twill's. Any other is a plugin that is asked, such as `host-local`, and its keys are its own. `usePodCidr` and `usePodCidrIPv6` in the place of a subnet of host-local's: the prefix that Kubernetes gave to the node (`spec.podCIDRs`)"},
	{"ipam.assign_ipv4", honoured, "whether an IPv4 address is wanted; default true"},
	{"ipam.assign_ipv6", honoured, "whether an IPv6 address is wanted; default false"},
	{"ipam.ipv4_pools", honoured, "names or prefixes of pools; default any that fits"},
	{"ipam.ipv6_pools", honoured, "the same"},
	{"policy.type", honoured, "none: the profile that is named after the network is made at the first ADD outside Kubernetes. `k8s`, or anything else: it is not, and containers are closed until somebody makes it"},
	{"readiness_gates", honoured, "URLs that must answer, below 400, before ADD does anything; it waits 30 s at most, and is then to be tried again"},
	{"include_default_routes", honoured, "default true, but false if `ipam` is another plugin that gives routes: these then lead over the link, whatever gateway they name"},
	{"feature_control.ip_addrs_no_ipam", honoured, "a pod may name addresses that no pool has, by an [annotation](#what-a-pod-asks-for)"},
	{"container_settings.allow_ip_forwarding", honoured, "the container may be a router"},
	{"args.cni.labels", honoured, "labels of the endpoint"},
	{"args.cni.ips", honoured, "exactly these addresses; `IP=` in `CNI_ARGS` is one"},
	{"cniVersion", honoured, "CNI's own, as the next are"},
	{"name", honoured, "of the network"},
	{"type", honoured, "of the plugin"},
	{"dns", honoured, "handed back in the result"},
	{"prevResult", honoured, "what CHECK compares with"},
	{"cni.dev/*", honoured, "what GC keeps"},
	{"cniVersions", honoured, "read by the runtime, as the next three are"},
	{"disableCheck", honoured, ""},
	{"disableGC", honoured, ""},
	{"capabilities", honoured, "none is asked for: plugins that are chained behind have them"},
	{"runtimeConfig", honoured, "the same"},
	{"args", noEffect, "other arguments"},
	{"nodename", noEffect, "the agent knows its node"},
	{"nodename_file", noEffect, "the same"},
	{"nodename_file_optional", noEffect, "the same"},
	{"hostname", noEffect, "the same"},
	{"datastore_type", noEffect, "only the agent reaches the datastore"},
	{"etcd_*", noEffect, "the same"},
	{"kubernetes", noEffect, "the same; its `node_name`, too, is the agent's"},
	{"calico_api_group", noEffect, "the same: the agent finds out which group a cluster has, or has it from `CALICO_API_GROUP`"},
	{"policy", noEffect, "where Kubernetes is: the same"},
	{"ipam_lock_file", noEffect, "the agent alone assigns addresses, those of a host one after the other"},
	{"log_*", noEffect, "the plugin has no log; what fails is in its answer, and the rest in the agent's log"},
	{"policy_setup_timeout_seconds", noEffect, "ADD always waits until policy is in force"},
	{"endpoint_status_dir", noEffect, "the agent is asked, whose files ([status.md](status.md)) are for other plugins"},
	{"feature_control.floating_ips", noEffect, "the setting `floatingIPs` alone says whether pods have the [floating addresses](floating.md) that they ask for"},
	{"device_type", noEffect, "a link is a veth pair"},
	{"require_mtu_file", noEffect, "the agent says the size, and no file is read"},
	{"ipam.upgrade_from", noEffect, "addresses of host-local are not taken over"},
	{"ipam.subnet", noEffect, "pools say it"},
	{"windows_*", noEffect, "for Windows"},
	{"vxlan_*", noEffect, "for Windows"},
	{"dataplane_options", refused, "another dataplane would make the link and decide about its packets"},
}

// keyOf finds the known key for a name.
func keyOf(name string) (key, bool) {
	i := slices.IndexFunc(keys, func(k key) bool {
		stem, wild := strings.CutSuffix(k.name, "*")
		return k.name == name || wild && strings.HasPrefix(name, stem)
	})
	if i < 0 {
		return key{}, false
	}
	return keys[i], true
}

// found is a key of a configuration.
type found struct {
	name  string
	known *key // nil: unknown
	isSet bool // its value is not the default
}

// parts are the keys of a configuration, each as deep as it is known by name; what is within an object that is known is known.
func parts(prefix string, around *key, object map[string]any, out []found) []found {
	for name, value := range object {
		name = prefix + name
		known := around
		if k, ok := keyOf(name); ok {
			known = &k
		}
		inner, is := value.(map[string]any)
		if is && slices.ContainsFunc(keys, func(k key) bool { return strings.HasPrefix(k.name, name+".") }) {
			out = parts(name+".", known, inner, out)
			continue
		}
		out = append(out, found{name, known, isSet(value)})
	}
	return out
}

// isSet reports whether a value differs from the default.
func isSet(value any) bool {
	switch v := value.(type) {
	case nil:
		return false
	case bool:
		return v
	case string:
		return v != ""
	case float64:
		return v != 0
	case []any:
		return len(v) > 0
	case map[string]any:
		return len(v) > 0
	}
	return true
}

// keysWithoutEffect returns the keys of a plugin's configuration without effect, sorted; an error names those that must not be ignored.
func keysWithoutEffect(conf []byte) (idles []string, err error) {
	var object map[string]any
	if err := json.Unmarshal(conf, &object); err != nil {
		return nil, err
	}
	if ipam, ok := object["ipam"].(map[string]any); ok {
		if kind, _ := ipam["type"].(string); !(ipamConf{Type: kind}).ours() {
			delete(object, "ipam") // that plugin's
		}
	}
	for _, f := range parts("", nil, object, nil) {
		switch {
		case f.known == nil:
			idles = append(idles, f.name+" (not known)")
		case f.known.support == refused && f.isSet:
			return nil, fmt.Errorf("%s is not honoured: %s", f.name, f.known.isSet)
		case f.known.support == noEffect && f.isSet:
			idles = append(idles, f.name)
		}
	}
	slices.Sort(idles)
	return idles, nil
}
