package calctest

import (
	"math/rand/v2"

	"github.com/twillnet/twill/api"
)

var (
	// portNames and the numbers that an endpoint may give them.
	portNames   = []string{"http", "dns"}
	portNumbers = map[string][]int{"http": {80, 80, 8080}, "dns": {53, 53, 443}}
)

// policy is any of the four kinds.
func (w *Cluster) policy(kind, namespace, name string) object {
	spec := object{"tier": pick(w, []string{"t1", "t2", "t3", "default", "default", "default", "kube-admin", "kube-baseline", "ghost"})}
	if w.maybe(0.1) {
		delete(spec, "tier")
	}
	if w.maybe(0.7) {
		spec["order"] = pick(w, []float64{1, 2.5, 2.5, 100, -3})
	}
	if w.maybe(0.9) {
		spec["selector"] = w.narrowSelector()
	}
	if w.maybe(0.2) {
		spec["serviceAccountSelector"] = w.inherited()
	}
	global := namespace == ""
	if global && w.maybe(0.3) {
		spec["namespaceSelector"] = pick(w, []string{w.inherited(), "all()"})
	}
	if global && kind != api.KindNetworkPolicy && w.maybe(0.5) {
		spec["applyOnForward"] = true
		spec[pick(w, []string{"doNotTrack", "doNotTrack", "preDNAT", "preDNAT", "applyOnForward"})] = true
		if w.maybe(0.6) { // host endpoints are few
			spec["selector"] = "all()"
			delete(spec, "namespaceSelector")
			delete(spec, "serviceAccountSelector")
		}
	}
	if w.maybe(0.75) {
		spec["ingress"] = w.rules(5, true, false)
		if spec["applyOnForward"] == nil {
			w.askOfRequests(spec["ingress"].([]object))
		}
	}
	if w.maybe(0.75) && spec["preDNAT"] == nil {
		spec["egress"] = w.rules(5, true, true)
	}
	if w.maybe(0.5) && spec["preDNAT"] == nil {
		spec["types"] = pick(w, [][]string{{"Ingress"}, {"Egress"}, {"Ingress", "Egress"}})
	}
	return resource(kind, namespace, name, object{api.LabelTier: spec["tier"]}, spec)
}

// staged is a policy that is not enforced; of a name that a policy has, too, it is for that one's place.
func (w *Cluster) staged(kind, namespace, name string) object {
	o := w.policy(kind, namespace, name)
	spec := o["spec"].(object)
	switch share := w.rng.Float64(); {
	case share < 0.3:
		spec["stagedAction"] = "Set"
	case share < 0.5:
		o["spec"] = object{"tier": pick(w, []string{"t1", "t2", "default", "default"}), "stagedAction": "Delete"}
	case share < 0.6: // which do nothing
		spec["stagedAction"] = pick(w, []string{"Learn", "Ignore"})
	}
	return o
}

// stagedKubernetes is one of Kubernetes' form.
func (w *Cluster) stagedKubernetes(namespace, name string) object {
	labels := func() object {
		return pick(w, []object{
			{},
			{},
			{"matchLabels": object{"app": "web"}},
			{"matchLabels": object{"app": "db"}},
			{"matchExpressions": []object{{"key": "role", "operator": "Exists"}}},
			{"matchExpressions": []object{{"key": "app", "operator": "NotIn", "values": []string{"web", "cache"}}}},
		})
	}
	namespaces := func() object { return pick(w, []object{{}, {"matchLabels": object{"env": "prod"}}}) }
	peers := func() (out []object) {
		for range 1 + w.rng.IntN(2) {
			out = append(out, pick(w, []object{
				{"podSelector": labels()},
				{"namespaceSelector": namespaces()},
				{"podSelector": labels(), "namespaceSelector": namespaces()},
				{"ipBlock": object{"cidr": "10.65.0.0/16", "except": []string{"10.65.1.0/24"}}},
				{"ipBlock": object{"cidr": "fd00:65::/64"}},
			}))
		}
		return out
	}
	ports := func() []object {
		return pick(w, [][]object{nil, {{"port": 80}}, {{"port": "http"}, {"port": 53, "protocol": "UDP"}}, {{"port": 1, "endPort": 9000}}})
	}
	spec := object{"podSelector": labels()}
	if w.maybe(0.7) {
		spec["ingress"] = []object{{"from": peers(), "ports": ports()}}
	}
	if w.maybe(0.5) {
		spec["egress"] = []object{{"to": peers(), "ports": ports()}}
	}
	if w.maybe(0.4) {
		spec["policyTypes"] = pick(w, [][]string{{"Ingress"}, {"Egress"}, {"Ingress", "Egress"}})
	}
	if w.maybe(0.5) {
		spec["stagedAction"] = pick(w, []string{"Set", "Set", "Delete", "Learn", "Ignore"})
	}
	return resource(api.KindStagedKubernetesNetworkPolicy, namespace, name, nil, spec)
}

// rules are up to most; those of a profile must not pass.
func (w *Cluster) rules(most int, pass, egress bool) []object {
	var out []object
	for range 1 + w.rng.IntN(most) {
		r := w.rule(egress)
		if r["action"] == "Pass" && !pass {
			r["action"] = "Deny"
		}
		out = append(out, r)
	}
	return out
}

// askOfRequests has some rules ask what only proxies see.
func (w *Cluster) askOfRequests(rules []object) {
	for _, r := range rules {
		if p := r["protocol"]; r["action"] == "Allow" && (p == nil || p == "TCP" || p == 6) && r["icmp"] == nil && r["notICMP"] == nil && w.maybe(0.45) {
			r["http"] = pick(w, []object{{"methods": []string{"GET"}}, {"paths": []object{{"exact": "/a"}, {"prefix": "/b"}}}, {}})
		}
	}
}

// Proxied picks workloads whose proxies enforce what rules ask of requests, by the names that intents have of them.
func (w *Cluster) Proxied(rng *rand.Rand) (out []string) {
	for i := range w.cfg.Workloads {
		if rng.IntN(2) > 0 {
			p := w.place(i)
			out = append(out, "workload/"+p.namespace+"/"+p.resource)
		}
	}
	return out
}

// rule demands one to three things of a packet, so that many packets match.
func (w *Cluster) rule(egress bool) object {
	r := object{"action": pick(w, []string{"Allow", "Allow", "Allow", "Allow", "Allow", "Deny", "Log", "Pass"})}
	if r["action"] == "Deny" && w.maybe(0.4) {
		r["metadata"] = object{"annotations": object{api.AnnotationReject: "true"}}
	}
	source, destination := object{}, object{}
	for range pick(w, []int{0, 1, 1, 1, 1, 1, 1, 2, 2, 3}) {
		side := source
		if w.maybe(0.45) {
			side = destination
		}
		pick(w, []func(){
			func() { w.protocolField(r) },
			func() { w.icmpField(r) },
			func() { w.icmpField(r) },
			func() { w.icmpField(r) },
			func() { w.icmpField(r) },
			func() { w.netField(side) },
			func() { w.netField(side) },
			func() { w.netField(side) },
			func() { w.selectorField(side) },
			func() { w.selectorField(side) },
			func() { w.selectorField(side) },
			func() { w.selectorField(side) },
			func() { w.portField(r, side) },
			func() { w.portField(r, side) },
			func() { w.namedPortField(r, side) },
			func() { w.namedPortField(r, side) },
			func() { w.portField(r, side) },
			func() { w.namedPortField(r, side) },
		})()
	}
	if n := r["protocol"]; n == "ICMP" || n == "ICMPv6" { // named ports may have come before it
		for _, side := range []object{source, destination} {
			delete(side, "ports")
			delete(side, "notPorts")
		}
	}
	if chance := map[bool]float64{false: 0.15, true: 0.25}[egress]; w.maybe(chance) {
		service := object{"name": pick(w, []string{"svc1", "svc1", "svc2"}), "namespace": numbered("ns", 1+w.rng.IntN(w.cfg.Namespaces))}
		if source = (object{"services": service}); egress {
			source, destination = object{}, source
			delete(r, "icmp")
			delete(r, "notICMP")
			if n := r["protocol"]; n == "ICMP" || n == "ICMPv6" {
				delete(r, "protocol")
			}
		}
	}
	if len(source) > 0 {
		r["source"] = source
	}
	if len(destination) > 0 {
		r["destination"] = destination
	}
	return r
}

func (w *Cluster) protocolField(r object) {
	switch {
	case r["protocol"] != nil:
	case w.maybe(0.4):
		r["ipVersion"] = pick(w, []int{4, 6})
	case w.maybe(0.5):
		r["notProtocol"] = pick(w, []any{"UDP", "ICMP", "SCTP", 47, "ICMPv6"})
	case r["ipVersion"] == nil:
		r["protocol"] = pick(w, []any{"TCP", "TCP", "UDP", 6, 17, "SCTP", "ICMP"})
	}
}

func (w *Cluster) icmpField(r object) {
	if r["protocol"] != nil || r["ipVersion"] != nil || r["notProtocol"] != nil {
		return
	}
	protocol, echo := "ICMP", 8
	if w.maybe(0.5) {
		protocol, echo = "ICMPv6", 128
	}
	r["protocol"] = protocol
	if w.maybe(0.55) {
		r["icmp"] = pick(w, []object{{"type": echo}, {"type": echo}, {"type": echo, "code": 0}, {"type": 3}})
		return
	}
	r["notICMP"] = pick(w, []object{{"type": echo, "code": 1}, {"type": 13}, {"type": echo}})
}

func (w *Cluster) netField(side object) {
	if w.maybe(0.4) {
		side["nets"] = some(w, 4, w.maskedNets()...)
		return
	}
	switch w.rng.IntN(8) {
	case 0: // one family, or both, at random
		side["notNets"] = some(w, 2, "10.65.1.0/24", "fd00:65::/112", "203.0.113.0/25", "192.0.2.0/24", "203.0.113.5/32", "0.0.0.0/0", "::/0")
	case 1, 2:
		side["notNets"] = some(w, 2, "10.65.1.0/24", "203.0.113.0/25", "192.0.2.0/24", "203.0.113.5/32")
	case 3:
		side["notNets"] = some(w, 2, "fd00:65:1::/64", "2001:db8:ffff::/48")
	case 4, 5: // everything of one, and of the other something
		side["notNets"] = pick(w, [][]string{{"0.0.0.0/0", "2001:db8:ffff::/48"}, {"::/0", "203.0.113.0/25"}})
	default:
		side["notNets"] = pick(w, [][]string{{"10.65.1.0/24", "2001:db8:ffff::/48"}, {"203.0.113.0/25", "fd00:65:1::/64"}, {"192.0.2.0/24", "203.0.113.5/32", "2001:db8::/64"}})
	}
}

func (w *Cluster) selectorField(side object) {
	switch w.rng.IntN(11) {
	case 0, 1, 9, 10: // some of these match nobody
		side["selector"] = w.selector()
	case 2, 6:
		side["notSelector"] = pick(w, []string{w.selector(), `app == "cache"`, `role == "a" && app == "web"`, `zone == "nowhere"`})
	case 3, 7:
		side["namespaceSelector"] = pick(w, []string{w.inherited(), `env != "prod"`, `!has(team)`, "all()", "all()", "global()", `all() || env == "prod"`, `!all()`, `all() && !has(team)`})
	case 4, 5, 8:
		side["serviceAccounts"] = pick(w, []object{
			{"names": accounts},
			{"names": accounts[:1]},
			{"selector": w.inherited()},
			{"names": accounts, "selector": w.inherited()},
		})
	}
}

func (w *Cluster) portField(r, side object) {
	if r["notProtocol"] != nil || r["icmp"] != nil || r["notICMP"] != nil {
		return
	}
	if p := r["protocol"]; p == nil || p == "ICMP" || p == "ICMPv6" {
		r["protocol"] = pick(w, []any{"TCP", "TCP", "UDP", 17})
	}
	if w.maybe(0.4) {
		side["notPorts"] = some(w, 2, []any{80, "1000:1100", "8080:8090", "dns"}...)
		return
	}
	side["ports"] = some(w, 3, []any{80, 443, 53, "50:9000", "1:65535", "http", "30000:40000"}...)
}

// namedPortField is apart from portField, since names match so seldom.
func (w *Cluster) namedPortField(r, side object) {
	if r["protocol"] != nil || r["notProtocol"] != nil {
		return
	}
	if w.maybe(0.4) {
		r["protocol"] = pick(w, []any{"TCP", "TCP", "TCP", 6, "UDP"})
	} else if w.maybe(0.15) { // each port has its own
		side["notPorts"] = []any{"http", "dns"}
		return
	}
	ports := []any{"http", "dns"}
	for range pick(w, []int{0, 0, 0, 50}) { // they are one set, however many they are
		ports = append(ports, numbered("p", w.rng.IntN(200)))
	}
	side["ports"] = ports
}

func (w *Cluster) selector() string {
	return pick(w, []string{
		"all()", "all()", `app == "web"`, `app != "web"`, `app in {"web", "db"}`, `app not in {"cache"}`, "has(role)", "!has(role)",
		`role == "a" || app == "db"`, `role == "b" && has(app)`, `zone starts with "north"`, `zone contains "east"`, `env == "prod"`,
		`has(projectcalico.org/namespace)`, `projectcalico.org/namespace == "ns1"`, `pcns.env == "prod"`,
		`has(twill.net/node) && rack == "a"`, `twill.net/node in {"h1", "h2"}`, `has(twill.net/node) || app == "web"`,
	})
}

// narrowSelector is what policies apply to: not to all, or profiles would never
// be asked.
func (w *Cluster) narrowSelector() string {
	if w.maybe(0.35) {
		return w.selector()
	}
	return pick(w, []string{
		`app == "web"`, `app == "db"`, `role == "a"`, `app == "cache" || role == "b"`, `zone ends with "east"`, `!has(app)`,
		`env == "prod" && has(role)`, `app == "nobody"`,
	})
}

// inherited asks for labels of namespaces or service accounts.
func (w *Cluster) inherited() string {
	return pick(w, []string{
		`env == "prod"`, `has(team)`, `team in {"red", "blue"}`, `env == "prod"`, `has(team)`,
		`env != "prod"`, `!has(team) || env == "test"`, `team not in {"red"}`, `!has(env)`, `!has(team)`,
	})
}

// spoil makes a resource wrong in one of the ways of docs/wrong-input.md.
func (w *Cluster) spoil(o object) {
	spec, ok := o["spec"].(object)
	if !ok {
		o["endpoints"] = 7 // a slice, which then gives nothing
		return
	}
	rules, _ := spec["ingress"].([]object)
	if len(rules) == 0 {
		rules, _ = spec["egress"].([]object)
	}
	if len(rules) == 0 {
		spec["nobodyKnowsThis"] = true
		return
	}
	r := rules[w.rng.IntN(len(rules))]
	switch w.rng.IntN(10) {
	case 0:
		spec["selector"] = "app =="
	case 1:
		r["source"] = object{"selector": "has("}
	case 2:
		r["destination"] = object{"services": object{"name": "svc1"}, "nets": []string{"10.65.0.0/16"}}
	case 3:
		r["http"] = object{"methods": []string{"GET"}}
	case 4:
		r["action"] = "Perhaps"
	case 5:
		r["source"] = object{"nets": []string{"10.65.0.0/33", "10.65.0.0/16"}}
	case 6:
		delete(r, "protocol")
		r["destination"] = object{"ports": []any{80}}
	case 7:
		r["source"] = object{"nobodyKnowsThis": "x"}
	case 8:
		spec["types"] = []string{"Sideways"}
	case 9:
		r["action"] = "Pass" // which a profile must not
	}
}
