package agreetest

// Rules that name services. The service db of namespace prod is served by 203.0.113.5 and 2001:db8:ffff::5 on ports 5432 of TCP,
// which is what no protocol means in an EndpointSlice, and 53 of UDP.
const (
	ofServices  = "upstream: ServiceMatch: a destination's addresses with their ports, a source's addresses; Kubernetes: EndpointSlice ports are TCP by default"
	otherClient = "198.51.100.7"
	slicesOfDB  = `
- {kind: KubernetesEndpointSlice, metadata: {namespace: prod, name: db-4, labels: {kubernetes.io/service-name: db}}, addressType: IPv4,
   endpoints: [{addresses: [203.0.113.5], conditions: {ready: false}}], ports: [{port: 5432}, {port: 53, protocol: UDP}, {name: any}]}
- {kind: KubernetesEndpointSlice, metadata: {namespace: prod, name: db-6, labels: {kubernetes.io/service-name: db}}, addressType: IPv6,
   endpoints: [{addresses: ["2001:db8:ffff::5"]}], ports: [{port: 5432}]}
- {kind: KubernetesEndpointSlice, metadata: {namespace: test, name: db-4, labels: {kubernetes.io/service-name: db}}, addressType: IPv4,
   endpoints: [{addresses: [198.51.100.7]}], ports: [{port: 5432}]}
- {kind: KubernetesEndpointSlice, metadata: {namespace: prod, name: db-lost}, addressType: IPv4, endpoints: [{addresses: [198.51.100.7]}], ports: [{port: 5432}]}`
)

var serviceCases = []handCase{
	{
		"a destination's service is its addresses with their ports, ready or not", ofServices, `egress: {action: Allow, destination: {services: {name: db, namespace: prod}}}`,
		[]string{">" + four + " tcp/5432", ">" + four + " udp/53", ">" + six + " tcp/5432"},
		[]string{">" + four + " tcp/53", ">" + four + " udp/5432", ">" + six + " udp/53", ">" + four + " icmp/8", ">" + otherClient + " tcp/5432"},
		slicesOfDB,
	},
	{
		"a deny of a service leaves the rest", ofServices, `egress: {action: Deny, destination: {services: {name: db, namespace: prod}}}, {action: Allow}`,
		[]string{">" + four + " tcp/53", ">" + six + " udp/53", ">" + otherClient + " tcp/5432"},
		[]string{">" + four + " tcp/5432", ">" + six + " tcp/5432"},
		slicesOfDB,
	},
	{
		"a source's service is its addresses, with any port", ofServices, `{action: Allow, source: {services: {name: db, namespace: prod}}}`,
		[]string{four + " tcp/80", four + " udp/9", six + " tcp/80", four + " icmp/8"},
		[]string{otherClient + " tcp/80"},
		slicesOfDB,
	},
	{
		"the service of that name in another namespace is another", ofServices, `{action: Allow, source: {services: {name: db, namespace: test}}}`,
		[]string{otherClient + " tcp/80"},
		[]string{four + " tcp/80"},
		slicesOfDB,
	},
	{"a service of which no slice is known allows nothing", ofServices, `{action: Allow, source: {services: {name: ghost, namespace: prod}}}`, nil, []string{four + " tcp/80", six + " tcp/80"}, slicesOfDB},
	{"and denies nothing", ofServices, `{action: Deny, source: {services: {name: ghost, namespace: prod}}}, {action: Allow}`, []string{four + " tcp/80"}, nil, slicesOfDB},
}
