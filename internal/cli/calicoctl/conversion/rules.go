package conversion

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/twillnet/twill/api"
)

type policy struct {
	typed
	Metadata struct {
		Name        string            `json:"name"`
		Tier        string            `json:"tier"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Order      json.RawMessage `json:"order"`
		Ingress    []rule          `json:"ingress"`
		Egress     []rule          `json:"egress"`
		Selector   string          `json:"selector"`
		DoNotTrack bool            `json:"doNotTrack"`
		PreDNAT    bool            `json:"preDNAT"`
		Types      []string        `json:"types"`
	} `json:"spec"`
}

func (p *policy) v3() (string, object, object, error) {
	tier, s := api.TierDefault, p.Spec
	if p.Metadata.Tier != "" {
		tier = undotted(p.Metadata.Tier)
	}
	types, err := typesOf(s.Types, len(s.Ingress) > 0, len(s.Egress) > 0)
	if err != nil {
		return "", nil, nil, err
	}
	ingress, err := rulesOf(s.Ingress)
	if err != nil {
		return "", nil, nil, err
	}
	egress, err := rulesOf(s.Egress)
	name := undotted(p.Metadata.Name)
	if tier != api.TierDefault {
		name = tier + "." + name
	}
	meta := object{"name": name, "labels": map[string]string{api.LabelTier: tier}, "annotations": p.Metadata.Annotations}.set()
	return api.KindGlobalNetworkPolicy, meta, object{
		"tier": tier, "order": s.Order, "ingress": ingress, "egress": egress, "selector": selectorOf(s.Selector), "types": types,
		// In version 1 these applied to what is forwarded, by their nature; version 3 wants that said.
		"doNotTrack": s.DoNotTrack, "preDNAT": s.PreDNAT, "applyOnForward": s.DoNotTrack || s.PreDNAT,
	}, err
}

// typesOf are the directions that a policy restricts: those that it names, or else those that it has rules for; ingress, if it has none.
func typesOf(named []string, ingress, egress bool) (out []string, err error) {
	for _, t := range named {
		switch strings.ToLower(t) {
		case "ingress":
			out = append(out, string(api.Ingress))
		case "egress":
			out = append(out, string(api.Egress))
		default:
			return nil, fmt.Errorf("invalid policy type: '%s'", t)
		}
	}
	if len(named) > 0 {
		return out, nil
	}
	if ingress || !egress {
		out = append(out, string(api.Ingress))
	}
	if egress {
		out = append(out, string(api.Egress))
	}
	return out, nil
}

type icmp struct {
	Type json.RawMessage `json:"type"`
	Code json.RawMessage `json:"code"`
}

type rule struct {
	Action      string          `json:"action"`
	IPVersion   json.RawMessage `json:"ipVersion"`
	Protocol    json.RawMessage `json:"protocol"`
	NotProtocol json.RawMessage `json:"notProtocol"`
	ICMP        *icmp           `json:"icmp"`
	NotICMP     *icmp           `json:"notICMP"`
	Source      end             `json:"source"`
	Destination end             `json:"destination"`
}

// end is one end of a rule. Each list of nets may also be given as a single net.
type end struct {
	Tag         string          `json:"tag"`
	Net         string          `json:"net"`
	Nets        []string        `json:"nets"`
	Selector    string          `json:"selector"`
	Ports       json.RawMessage `json:"ports"`
	NotTag      string          `json:"notTag"`
	NotNet      string          `json:"notNet"`
	NotNets     []string        `json:"notNets"`
	NotSelector string          `json:"notSelector"`
	NotPorts    json.RawMessage `json:"notPorts"`
}

func rulesOf(rules []rule) (out []object, err error) {
	for _, r := range rules {
		o, err := r.v3()
		if err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	return out, nil
}

// actions of version 1, and how they are called now.
var actions = map[string]api.Action{"": api.Allow, "allow": api.Allow, "deny": api.Deny, "log": api.Log, "pass": api.Pass, "next-tier": api.Pass}

func (r rule) v3() (object, error) {
	action, ok := actions[strings.ToLower(r.Action)]
	if !ok {
		return nil, wrong("Action", r.Action)
	}
	protocol, err := protocolOf(r.Protocol)
	if err != nil {
		return nil, err
	}
	not, err := protocolOf(r.NotProtocol)
	if err != nil {
		return nil, err
	}
	source, err := r.Source.v3()
	if err != nil {
		return nil, err
	}
	destination, err := r.Destination.v3()
	return object{
		"action": action, "ipVersion": r.IPVersion, "protocol": protocol, "notProtocol": not, "icmp": r.ICMP.v3(), "notICMP": r.NotICMP.v3(),
		"source": source, "destination": destination,
	}.set(), err
}

func (i *icmp) v3() any {
	if i == nil || len(i.Type)+len(i.Code) == 0 {
		return nil
	}
	return object{"type": i.Type, "code": i.Code}.set()
}

func (e end) v3() (object, error) {
	nets, err := netsOf("Nets", e.Nets, e.Net)
	if err != nil {
		return nil, err
	}
	notNets, err := netsOf("NotNets", e.NotNets, e.NotNet)
	if err != nil {
		return nil, err
	}
	sel, err := withTag(e.Selector, "&&", e.Tag)
	if err != nil {
		return nil, err
	}
	// notSelector and notTag together mean neither: what is neither is not one or the other. With "and" the rule would match who is
	// one of the two, and an allowing one would let it pass. (calicoctl writes "and".)
	notSel, err := withTag(e.NotSelector, "||", e.NotTag)
	return object{
		"nets": nets, "selector": sel, "ports": e.Ports, "notNets": notNets, "notSelector": notSel, "notPorts": e.NotPorts,
	}.set(), err
}

// netsOf are nets without what stands behind their length, the single one last.
func netsOf(field string, nets []string, single string) (out []string, err error) {
	if single != "" {
		nets = append(nets, single)
	}
	for _, text := range nets {
		p, err := parseNet(field, text)
		if err != nil {
			return nil, err
		}
		out = append(out, p.Masked().String())
	}
	return out, nil
}

// withTag joins a selector and a tag: the label without a value that the tag has become.
func withTag(selector, operator, tag string) (string, error) {
	selector = selectorOf(selector)
	switch {
	case tag == "":
		return selector, nil
	case !tagName.MatchString(tag):
		return "", wrong("Tag", tag)
	case selector == "":
		return tag + " == ''", nil
	}
	return fmt.Sprintf("(%s) %s %s == ''", selector, operator, tag), nil
}

// quotedOrLabel finds texts in quotation marks, which stay, and the label that was renamed.
var quotedOrLabel = regexp.MustCompile(`"[^"]*"|'[^']*'|calico/k8s_ns\b`)

// selectorOf is a selector with the label of a namespace as it is called now.
func selectorOf(sel string) string {
	return quotedOrLabel.ReplaceAllStringFunc(sel, func(found string) string {
		if found == oldNamespaceLabel {
			return newNamespaceLabel
		}
		return found
	})
}

// protocols by their names in version 1.
var protocols = map[string]string{"tcp": "TCP", "udp": "UDP", "icmp": "ICMP", "icmpv6": "ICMPv6", "sctp": "SCTP", "udplite": "UDPLite"}

// protocolOf is a protocol, by name or by number.
func protocolOf(raw json.RawMessage) (any, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	var name string
	if json.Unmarshal(raw, &name) != nil {
		return raw, nil // a number; what else it may be version 3 refuses
	}
	if is, ok := protocols[strings.ToLower(name)]; ok {
		return is, nil
	}
	return nil, wrong("Protocol", name)
}
