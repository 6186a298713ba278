package chaostest_test

// resources are those of the network. The default profile allows all, so that a policy that is lost opens, and shows.
// What denies for good is a namespaced policy, which is closed when it cannot be read, and a global one, which stays as it was
// understood last (docs/wrong-input.md). BFD waits for 3 s: a machine that does not run for one is no fault of this network's. Two of three hosts are reflectors: one may die. Policy toggle is written again and again.
const resources = `apiVersion: projectcalico.org/v3
kind: Node
metadata: {name: h1, labels: {route-reflector: ""}}
spec: {bgp: {ipv4Address: 172.30.0.1/24, ipv6Address: "fd30::1/64", routeReflectorClusterID: 244.0.0.1}}
---
apiVersion: projectcalico.org/v3
kind: BGPPeer
metadata: {name: reflectors, annotations: {twill.net/bfd: 300msx10}}
spec: {nodeSelector: all(), peerSelector: has(route-reflector)}
---
apiVersion: projectcalico.org/v3
kind: Tier
metadata: {name: security}
spec: {order: 10, defaultAction: Pass}
---
apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: jail}
spec: {tier: security, order: 1, selector: jailed == "yes", types: [Egress], egress: [{action: Deny}]}
---
apiVersion: projectcalico.org/v3
kind: NetworkPolicy
metadata: {name: server, namespace: default}
spec:
  order: 10
  selector: app == "server"
  types: [Ingress]
  ingress:
    - {action: Deny, source: {selector: net == "burst", namespaceSelector: global()}}
    - {action: Allow, source: {selector: app == "client"}}
`

// Policy toggle, which decides about toggled flows, or passes those that it does not deny on to policies of the next tier.
const (
	decides = `---
apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: toggle}
spec: {order: 10, selector: app == "toggle", types: [Ingress], ingress: [{action: Allow, source: {selector: app == "client"}}]}
`
	passesOn = `---
apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: toggle}
spec: {tier: security, order: 10, selector: app == "toggle", types: [Ingress], ingress: [{action: Pass}]}
`
)

// ownership says whether agents own their tables.
const ownership = `---
apiVersion: projectcalico.org/v3
kind: FelixConfiguration
metadata: {name: default}
spec: {nftablesTableOwnerEnabled: %v}
`
