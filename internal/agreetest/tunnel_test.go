package agreetest

// What workloads send that encapsulates other packets: VXLAN and IPIP are dropped unless a setting allows them (docs/design/stages.md).
const ofTunnels = "upstream: allowVXLANPacketsFromWorkloads, allowIPIPPacketsFromWorkloads"

const (
	allowAll     = `egress: {action: Allow}`
	toVXLAN      = ">" + four + " udp/4789"
	toVXLANSix   = ">" + six + " udp/4789"
	toIPIP       = ">" + four + " ipip/0"
	defaultVXLAN = `- {kind: FelixConfiguration, metadata: {name: default}, spec: {allowVXLANPacketsFromWorkloads: true}}`
	defaultIPIP  = `- {kind: FelixConfiguration, metadata: {name: default}, spec: {allowIPIPPacketsFromWorkloads: true}}`
	nodeNoVXLAN  = defaultVXLAN + `
- {kind: FelixConfiguration, metadata: {name: node.h1}, spec: {allowVXLANPacketsFromWorkloads: false}}`
)

var tunnelCases = []handCase{
	{"no policy allows a workload to encapsulate", ofTunnels, allowAll, []string{">" + four + " udp/4790", ">" + four + " tcp/4789"}, []string{toVXLAN, toVXLANSix, toIPIP}, ""},
	{"VXLAN that is allowed is policy's", ofTunnels, allowAll, []string{toVXLAN, toVXLANSix}, []string{toIPIP}, defaultVXLAN},
	{"and may be denied by it", ofTunnels, `egress: {action: Deny, protocol: UDP, destination: {ports: [4789]}}, {action: Allow}`, []string{">" + four + " udp/4790"}, []string{toVXLAN}, defaultVXLAN},
	{"IPIP that is allowed is policy's", ofTunnels, allowAll, []string{toIPIP}, []string{toVXLAN}, defaultIPIP},
	{"VXLAN is what is sent to the port of the settings", ofTunnels, allowAll, []string{toVXLAN, toVXLANSix}, []string{">" + four + " udp/8472", ">" + six + " udp/8472", toIPIP}, `- {kind: FelixConfiguration, metadata: {name: default}, spec: {vxlanPort: 8472}}`},
	{"a node's own setting beats that of all", ofTunnels, allowAll, nil, []string{toVXLAN, toVXLANSix}, nodeNoVXLAN},
	{"what is sent to a workload is policy's", ofTunnels, `{action: Allow}`, []string{four + " udp/4789", six + " udp/4789"}, nil, ""},
}
