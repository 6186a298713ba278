package world

const (
	asksMetadata = "prod/web > 169.254.169.254 tcp 80"
	webIsShut    = "NetworkPolicy prod/shut {types: [Egress]}\n"
)

// metadataCases are of workloads that ask for metadata. Who serves it on their host is a service of the host's; elsewhere their policy decides.
var metadataCases = []stageCase{
	{"nobody serves it", "PARITY: FLX-66", webIsShut, asksMetadata, endOfDefault},
	{"the host serves it", "PARITY: FLX-66", webIsShut + "FelixConfiguration default {metadataAddr: 127.0.0.1}", asksMetadata, "Allow: setting metadataAddr"},
	{"at its own address", "PARITY: FLX-66", webIsShut + "FelixConfiguration default {metadataAddr: 192.0.2.1, metadataPort: 81}", asksMetadata, "Allow: setting metadataAddr"},
	{"by upstream's default, with OpenStack's names", "PARITY: FLX-66", webIsShut + "FelixConfiguration default {interfacePrefix: \"tap,cali\"}", asksMetadata, "Allow: setting metadataAddr"},
	{"with a port alone", "decision 050", webIsShut + "FelixConfiguration default {metadataPort: 81}", asksMetadata, endOfDefault},
	{"by that, and a setting wants none", "PARITY: FLX-66", webIsShut + "FelixConfiguration default {interfacePrefix: \"tap,cali\", metadataAddr: None}", asksMetadata, endOfDefault},
	{"none on this node", "PARITY: FLX-66", webIsShut + "FelixConfiguration default {metadataAddr: 127.0.0.1}\nFelixConfiguration node.h1 {metadataAddr: none}", asksMetadata, endOfDefault},
	{"another port", "PARITY: FLX-66", webIsShut + "FelixConfiguration default {metadataAddr: 127.0.0.1}", "prod/web > 169.254.169.254 tcp 81", endOfDefault},
	{"somebody else serves it", "PARITY: FLX-66", webIsShut + "FelixConfiguration default {metadataAddr: 203.0.113.7}", asksMetadata, endOfDefault},
	{
		"somebody else, whom policy allows by address and port", "PARITY: FLX-66", "NetworkPolicy prod/a {types: [Egress], egress: [{action: Allow, protocol: TCP, destination: {nets: [203.0.113.7/32], ports: [8775]}}]}\n" +
			"FelixConfiguration default {metadataAddr: 203.0.113.7}", asksMetadata, "Allow: rule NetworkPolicy/prod/a#0",
	},
}
