package translate

import "github.com/twillnet/twill/api"

// rules are one for each peer and protocol, which allow. Those of too many would not be read, and there are none.
func (o *object) rules(path string, peers []api.EntityRule, matches []match, rule func(api.EntityRule, match) api.Rule) (out []api.Rule) {
	if !o.fits(path, peers, matches) {
		return nil
	}
	for _, peer := range peers {
		for _, m := range matches {
			one := rule(peer, m)
			one.Action = api.Allow
			out = append(out, one)
		}
	}
	return out
}

// fromPeer is the rule for what comes from a peer.
func fromPeer(peer api.EntityRule, m match) api.Rule {
	return api.Rule{Protocol: m.protocol, Source: peer, Destination: api.EntityRule{Ports: m.ports}}
}

// toPeer is the rule for what goes to a peer.
func toPeer(peer api.EntityRule, m match) api.Rule {
	peer.Ports = m.ports
	return api.Rule{Protocol: m.protocol, Destination: peer}
}

// fits: the rules for each peer with each match, with all before them, are no more than is read of a policy ([api.MaxElements],
// [api.MaxValue]). A few thousand peers and ports would else make millions of both.
func (o *object) fits(path string, peers []api.EntityRule, matches []match) bool {
	const ofRule, ofNet, ofPort = 512, 48, 20 // bytes, at most
	for _, m := range matches {
		o.elements += len(peers) * (1 + len(m.ports))
		o.bytes += len(peers) * (ofRule + ofPort*len(m.ports))
	}
	for _, peer := range peers {
		nets := len(peer.Nets) + len(peer.NotNets)
		o.elements += len(matches) * nets
		o.bytes += len(matches) * (ofNet*nets + len(peer.Selector) + len(peer.NamespaceSelector))
	}
	if o.elements > api.MaxElements/2 || o.bytes > api.MaxValue/2 {
		o.fail(path, "makes too many rules, one for each peer and protocol, with those before it: at most %d with their ports and prefixes, of %d bytes, are read", api.MaxElements/2, api.MaxValue/2)
		return false
	}
	return true
}
