package podtest

import (
	"context"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/kubetest"
)

// saysOfPeers waits until "twill bgp peers" has all these words.
func (n *node) saysOfPeers(words ...string) {
	n.t.Helper()
	n.await("saying of its peers "+strings.Join(words, ", "), func(ctx context.Context) bool {
		peers, _ := n.ask(ctx, "peers") // an error only says that a session is down
		for _, w := range words {
			if !strings.Contains(peers, w) {
				return false
			}
		}
		return true
	})
}

// passwordIs writes a Secret with one key.
func passwordIs(s *kubetest.Server, t *testing.T, name, key, password string) {
	t.Helper()
	s.Apply(t, "apiVersion: v1\nkind: Secret\nmetadata: {name: "+name+", namespace: kube-system}\nstringData: {"+key+": "+password+"}\n")
}

const secrets = "/api/v1/namespaces/kube-system/secrets/"

// TestPasswordsOfBGPAreSecrets: two nodes, whose session has a password that the API server holds, and a role that lets them read it alone.
func TestPasswordsOfBGPAreSecrets(t *testing.T) {
	s := kubetest.Start(t)
	a, b := linked(t, s, "guarded", "guarding")
	a.define()
	s.Clear(t, "projectcalico.org/v3", "ippools", "bgpconfigurations", "bgppeers")
	defer s.Clear(t, "projectcalico.org/v3", "bgpconfigurations", "bgppeers")
	mesh := func(name, key string) {
		t.Helper()
		s.Apply(t, "apiVersion: projectcalico.org/v3\nkind: BGPConfiguration\nmetadata: {name: default}\nspec: {nodeMeshPassword: {secretKeyRef: {name: "+name+", key: "+key+"}}}\n")
	}
	mesh("bgp-mesh", "password")
	account := a.account("node", "--bgp-secrets", "bgp-mesh")
	for _, n := range []*node{a, b} {
		n.whole(account)
	}
	for _, n := range []*node{a, b} {
		n.saysOfPeers("Closed", "not opened: password: there is no Secret kube-system/bgp-mesh")
	}

	passwordIs(s, t, "bgp-mesh", "password", "sesame")
	t.Cleanup(func() {
		if err := s.Admin().Call(context.WithoutCancel(t.Context()), "DELETE", secrets+"bgp-mesh", nil, nil); err != nil {
			t.Error(err)
		}
	})
	for _, n := range []*node{a, b} {
		n.saysOfPeers("Established")
	}

	// Another key of it, which is not there.
	mesh("bgp-mesh", "word")
	for _, n := range []*node{a, b} {
		n.saysOfPeers("Closed", "not opened: password: Secret kube-system/bgp-mesh has no key word")
	}
	passwordIs(s, t, "bgp-mesh", "word", "open")
	for _, n := range []*node{a, b} {
		n.saysOfPeers("Established")
	}

	// A Secret that the role does not name.
	mesh("other", "password")
	for _, n := range []*node{a, b} {
		n.saysOfPeers("Closed", "forbidden", "twill kube node --bgp-secrets other")
	}

	// One end has another password: the kernel drops what the other sends.
	mesh("bgp-mesh", "password")
	for _, n := range []*node{a, b} {
		n.saysOfPeers("Established")
	}
	s.Apply(t, "apiVersion: projectcalico.org/v3\nkind: BGPPeer\nmetadata: {name: wrong}\nspec: {node: guarding, peerIP: 192.0.2.1, asNumber: 64512, reversePeering: Manual, password: {secretKeyRef: {name: bgp-mesh, key: wrong}}}\n")
	b.saysOfPeers("Closed", "has no key wrong")
	passwordIs(s, t, "bgp-mesh", "wrong", "other")
	a.saysOfPeers("packets whose password is not that of their session") // it is b that connects
	for _, n := range []*node{a, b} {
		if peers, err := n.ask(t.Context(), "peers"); err == nil || strings.Contains(peers, "Established") {
			t.Errorf("%s, with two passwords: %v\n%s", n.name, err, peers)
		}
	}
	passwordIs(s, t, "bgp-mesh", "wrong", "sesame") // changed, live
	for _, n := range []*node{a, b} {
		n.saysOfPeers("Established")
	}
}

// TestFilesOfPasswordsComeBeforeSecrets: a host that has a directory of them asks for no Secret.
func TestFilesOfPasswordsComeBeforeSecrets(t *testing.T) {
	s := kubetest.Start(t)
	n := newNode(t, s, "with-files")
	n.define()
	n.Veth("eth0", "router")
	n.Addr("eth0", "192.0.2.6/24")
	s.Apply(t, "apiVersion: projectcalico.org/v3\nkind: BGPPeer\nmetadata: {name: tor}\nspec: {node: with-files, peerIP: 192.0.2.99, asNumber: 65001, password: {secretKeyRef: {name: bgp, key: tor}}}\n")
	defer s.Clear(t, "projectcalico.org/v3", "bgppeers")
	n.whole(n.account("node"), "TWILL_SECRETS_DIR=/etc/nowhere")
	n.saysOfPeers("Closed", "open /etc/nowhere/bgp/tor: no such file or directory")
}
