package calicoctl_test

import (
	"regexp"
	"strings"
	"testing"
)

const tableA = "NAME     CIDR          SELECTOR       \npool-a   10.0.1.0/24   foo == 'bar'   \n\n"

// TestResourcesComeAndGo: what a script sees of pools, by name and by file.
func TestResourcesComeAndGo(t *testing.T) {
	const tableB = "NAME     CIDR             SELECTOR   \npool-b   fed0:8001::/64   all()      \n\n"
	s := start(t)
	s.follow(
		step{args: "create -f {}", text: pool6, want: "Successfully created 1 'IPPool' resource(s)"},
		step{args: "create -f {}", text: pool4, want: "Successfully created 1 'IPPool' resource(s)"},
		step{args: "create -f {}", text: pool4, fails: true, want: "Failed to create 'IPPool' resource: [resource already exists: IPPool(pool-a)]"},
		step{args: "create -f {} --skip-exists", text: pool4, want: "Successfully created 1 'IPPool' resource(s)"},
		step{args: "create -f {}", text: list(pool4, pool6), fails: true, has: []string{"Failed to create any 'IPPool' resources: [resource already exists: IPPool(pool-a) resource already exists: IPPool(pool-b)]"}},
		step{args: "create -f {}", text: list(pool4, peer), fails: true, want: "Partial success: created 1 out of 2 resources:\nHit error: [resource already exists: IPPool(pool-a)]"},
		step{args: "get ippool pool-a", want: tableA},
		step{args: "get ippool pool-a pool-b", want: tableA + tableB},
		step{args: "get ippool pool-a nobody pool-b", fails: true, want: tableA + tableB + "resource does not exist: IPPool(nobody) with error: <nil>\n"},
		step{args: "delete ippool x y", fails: true, want: "Failed to delete 'IPPool' resource: resource does not exist: IPPool(x) with error: <nil>\nFailed to delete 'IPPool' resource: resource does not exist: IPPool(y) with error: <nil>"},
		step{args: "delete ippool pool-a nobody", fails: true, has: []string{"Successfully deleted 1 'IPPool' resource(s)", "IPPool(nobody)"}},
		step{args: "delete ippool pool-a -s", want: "Successfully deleted 1 'IPPool' resource(s)"},
		step{args: "delete -f {}", text: pool6, want: "Successfully deleted 1 'IPPool' resource(s)"},
		step{args: "get ippool -o yaml", has: []string{"apiVersion: projectcalico.org/v3\nitems: []\nkind: IPPoolList\nmetadata:\n  resourceVersion: "}},
		step{args: "apply -f -", text: list(np, gnp), want: "Successfully applied 2 resource(s)"},
		step{args: "replace -f -", text: list(np, np), want: "Successfully replaced 2 'NetworkPolicy' resource(s)"},
		step{args: "replace -f -", text: pool4, fails: true, has: []string{"Failed to replace 'IPPool' resource", notFound}},
		step{args: "delete -f -", text: list(np, gnp), want: "Successfully deleted 2 resource(s)"},
		step{args: "apply -f {}", text: "# nothing\n", fails: true, has: []string{"No resources specified in file "}},
		step{args: "apply -f {} --skip-empty", text: "# nothing\n", want: "No resources specified"},
	)
}

var revision = regexp.MustCompile(`resourceVersion: "(\d+)"`)

// TestAnOldRevisionIsAConflict, also where nothing but the revision has changed: each write makes one.
func TestAnOldRevisionIsAConflict(t *testing.T) {
	for _, verb := range []string{"replace", "apply"} {
		s := start(t)
		s.follow(step{args: "create -f {}", text: pool4})
		_, first := s.run("get ippool pool-a -o yaml", "")
		s.follow(step{args: verb + " -f {}", text: first})
		_, second := s.run("get ippool pool-a -o yaml", "")
		if a, b := revision.FindString(first), revision.FindString(second); a == b {
			t.Errorf("%s: the revision is %s as before", verb, a)
		}
		s.follow(
			step{args: verb + " -f {}", text: first, fails: true, has: []string{"update conflict: IPPool(pool-a)"}},
			step{args: "delete -f {}", text: first, fails: true, has: []string{"update conflict: IPPool(pool-a)"}},
			step{args: "delete -f {}", text: second},
		)
	}
}

// TestNamespaces: -n and -A, of what has a namespace and what has none.
func TestNamespaces(t *testing.T) {
	s := start(t)
	other := strings.ReplaceAll(np, "namespace: default", "namespace: prod")
	s.follow(
		step{args: "create -f {}", text: strings.ReplaceAll(np, ", namespace: default", "")},
		step{args: "create -f {}", text: other},
		step{args: "get np", has: []string{"NAME   TIER      \nweb    default   "}, not: []string{"NAMESPACE"}},
		step{args: "get np -A", want: "NAMESPACE   NAME   TIER      \ndefault     web    default   \nprod        web    default"},
		step{args: "get policy -a -o wide", has: []string{"NAMESPACE   NAME   TIER      ORDER   SELECTOR       \ndefault     web    default   100     app == 'web'   "}},
		step{args: "get np web -n prod -o yaml", has: []string{"namespace: prod"}},
		step{args: "get np web -n nowhere", fails: true, has: []string{notFound + ": NetworkPolicy(nowhere/web)"}},
		step{args: "get np web -A", fails: true, has: []string{"cannot use --all-namespace flag for getting a single resource"}},
		step{args: "get np -A -n prod", fails: true, has: []string{"cannot use both --namespace and --all-namespaces flags at the same time"}},
		step{args: "get -f {} -n default", text: other, fails: true, has: []string{"resource namespace does not match client namespace. prod != default"}},
		step{args: "get ippool -A", fails: true, has: []string{"IPPool is not namespaced"}},
		step{args: "get ippool x -n default", fails: true, has: []string{"IPPool is not namespaced"}},
		step{args: "delete np web", want: "Successfully deleted 1 'NetworkPolicy' resource(s)"},
		step{args: "delete np web", fails: true, has: []string{notFound}},
		step{args: "delete -f {}", text: other},
	)
}

// TestWhatIsInvalidIsNamedByItsField: the field by its name in Go, and its value.
func TestWhatIsInvalidIsNamedByItsField(t *testing.T) {
	policy := func(source string) string {
		return resource("NetworkPolicy", "name: p", "Egress: [{action: Deny, protocol: TCP, destination: {}, source: {"+source+"}}], order: 1")
	}
	profile := func(icmp string) string {
		return resource("Profile", "name: p", "Ingress: [{action: Deny, protocol: ICMP, ipVersion: 4, ICMP: {"+icmp+"}, source: {}}]")
	}
	pool := func(spec string) string { return resource("IPPool", "name: p", spec) }
	const small = " (IP pool size is too small for use with Calico IPAM. It must be equal to or greater than the block size.)"
	const lowPort = "error with field Port = '0' (port range invalid, port number must be between 1 and 65535)"
	for text, want := range map[string]string{
		badPeer("p"): "Failed to create 'BGPPeer' resource: [error with field PeerIP = 'badpeerIP'",
		resource("BGPPeer", "name: p", "node: h, peerIP: 192.168.0.256"):                                    "error with field PeerIP = '192.168.0.256'",
		resource("BGPPeer", "name: p", "node: h, peerIP: 'fd5f::6::ee'"):                                    "error with field PeerIP = 'fd5f::6::ee'",
		resource("BGPPeer", "name: p", "node: 'node 2', peerIP: 'fd5f::6:ee'"):                              "error with field Node = 'node 2'",
		resource("BGPPeer", "name: p", "node: h, peerIP: 192.168.0.250, asNumber: 4294967296, scope: node"): "cannot unmarshal number into Go value of type string",
		resource("BGPPeer", "name: p", "node: h, peerIP: 192.168.0.250, unknown: thing"):                    "field in document is not recognized or is in the wrong location: unknown",
		"{apiVersion: v7, kind: BGPPeer, metadata: {name: p}, spec: {}}":                                    "Unknown resource type (BGPPeer) and/or version (v7)",
		resource("HostEndpoint", "name: e", "interfaceName: wibblywobblyeth0, node: h"):                     "error with field InterfaceName = 'wibblywobblyeth0'",
		policy("protocol: TCP, ports: [10, 90, 65536]"):                                                     "cannot unmarshal number 65536 into Go value of type uint16",
		policy("protocol: TCP, ports: ['1:65536']"):                                                         "invalid maximum port number in range (1:65536)",
		policy("ports: ['0:65535']"):                                                                        lowPort,
		policy("ports: [0, 10, 80]"):                                                                        lowPort,
		policy("ports: ['65535:1']"):                                                                        "minimum port number (65535) is greater than maximum port number (1) in port range",
		strings.Replace(policy(""), "Deny", "jumpupanddown", 1):                                             "error with field Action = 'jumpupanddown'",
		profile("type: 256, code: 255"):                                                                     "error with field Type = '256'",
		profile("type: 19, code: 256"):                                                                      "error with field Code = '256'",
		pool("cidr: 10.0.1.0/33, ipipMode: Always"):                                                         "CIDR = '10.0.1.0/33'",
		pool("cidr: 10.0.256.0/24, ipipMode: Always"):                                                       "CIDR = '10.0.256.0/24'",
		pool("cidr: 10.0.250.0/32, ipipMode: Always"):                                                       "error with field IPPool.Spec.CIDR = '10.0.250.0/32'" + small,
		pool("cidr: 'fd5f::2::1/32', ipipMode: Never"):                                                      "CIDR = 'fd5f::2::1/32'",
		pool("cidr: '::/128', ipipMode: Never, vxlanMode: Never"):                                           "error with field IPPool.Spec.CIDR = '::/128'" + small,
		pool("cidr: 192.168.0.0/27"):                                                                        "error with field IPPool.Spec.CIDR = '192.168.0.0/27'" + small,
		pool("cidr: 'fd5f::1/123', ipipMode: Never"):                                                        "IPPool.Spec.CIDR = 'fd5f::/123'",
		pool("cidr: 10.0.1.0/24, disabled: 'True'"):                                                         "cannot parse string 'True' into field IPPoolSpec.disabled of type bool",
		pool("cidr: 10.0.1.0/24, disabled: 'Maybe'"):                                                        "cannot parse string 'Maybe' into field IPPoolSpec.disabled of type bool",
		resource("BGPConfiguration", "name: other", "nodeToNodeMeshEnabled: true"):                          "Cannot set nodeToNodeMeshEnabled on a non default BGP Configuration.",
		strings.Replace(np, "name: web", "name: knp.default.x", 1):                                          "is not supported on NetworkPolicy(default/knp.default.x): kubernetes network policies must be managed through the kubernetes API",
		list(badPeer("a"), badPeer("b")):                                                                    "Failed to create any 'BGPPeer' resources: [error with field PeerIP = 'badpeerIP'",
		list(peer, profile("type: 256, code: 1")):                                                           "error with field Type = '256'",
	} {
		s := start(t)
		s.follow(step{args: "create -f {}", text: text, fails: true, has: []string{want}})
		for _, kind := range []string{"np", "ippool", "hep", "bgpconfig"} {
			s.follow(step{args: "get " + kind + " -o yaml", has: []string{"items: []"}})
		}
	}
}

// TestCallsThatTheGrammarDoesNotHave fail with calicoctl's sentence.
func TestCallsThatTheGrammarDoesNotHave(t *testing.T) {
	const read = ". Use flag '--help' to read about a specific subcommand."
	start(t).follow(
		step{args: "-h", has: []string{"Usage:\n  calicoctl [options] <command> [<args>...]"}},
		step{args: "get -h", has: []string{"calicoctl get <KIND> [<NAME>...] [options]"}},
		step{args: "", fails: true, want: "Invalid option: ''" + read},
		step{args: "--allow-version-mismatch -m", fails: true, want: "Invalid option: '--allow-version-mismatch -m'" + read},
		step{args: "--unknown-flag", fails: true, want: "Invalid option: '--unknown-flag'" + read},
		step{args: "get", fails: true, want: "Invalid option: 'calicoctl get'" + read},
		step{args: "get np --foo", fails: true, want: "Invalid option: 'calicoctl get np --foo'" + read},
		step{args: "--allow-version-mismatch apply x", fails: true, want: "Invalid option: 'calicoctl apply x --allow-version-mismatch'" + read},
		step{args: "label np web", fails: true, want: "Invalid option: 'calicoctl label np web'" + read},
		step{args: "nonsense", fails: true, has: []string{`unknown command: "nonsense"`}},
		step{args: "ipam nonsense", fails: true, has: []string{`unknown command: "ipam nonsense"`}},
		step{args: "get somekind somename", fails: true, want: "Failed to get resources: resource type 'somekind' is not supported"},
		step{args: "get np -o xml", fails: true, want: "unrecognized output format 'xml'"},
		step{args: "-l nonsense get np", fails: true, has: []string{"Unknown log level: nonsense, expected one of: \npanic, fatal, error, warn, info, debug.\n"}},
		step{args: "-l debug get np", has: []string{"NAME   TIER"}},
		step{args: `patch np web -p '{"spec":{"order":1}} {"spec":{"order":2}}'`, fails: true, has: []string{"the patch is neither JSON nor YAML"}},
		step{args: "patch np web -p {} --type other", fails: true, has: []string{"want strategic, merge or json"}},
	)
	s := start(t)
	for _, args := range [][]string{{"get", "policy", ""}, {"get", "policy", "x", "", "y"}, {"delete", "policy", ""}, {"patch", "policy", "", "-p", "{}"}, {"label", "policy", "", "key", "--remove"}} {
		if code, out := s.exec(args...); code != 1 || !strings.Contains(out, "resource name may not be empty") {
			t.Errorf("%q: %d %s", args, code, out)
		}
	}
}

// TestLabelsAndPatches: one label at a time, and what else there was stays.
func TestLabelsAndPatches(t *testing.T) {
	s := start(t)
	s.follow(
		step{args: "create -f {}", text: wep1},
		step{args: "label workloadendpoint node1-k8s-abcd-eth0 app=web --namespace=ns1", want: "Successfully set label app on workloadendpoint node1-k8s-abcd-eth0"},
		step{args: "label wep node1-k8s-abcd-eth0 app=order -n ns1", fails: true, want: "failed to update label of wep node1-k8s-abcd-eth0, key app is already present. please use '--overwrite' to set a new value."},
		step{args: "label wep node1-k8s-abcd-eth0 app=order -n ns1 --overwrite", want: "Successfully updated label app on wep node1-k8s-abcd-eth0"},
		step{args: "get wep node1-k8s-abcd-eth0 -n ns1 -o yaml", has: []string{"app: order", "projectcalico.org/namespace: ns1", "projectcalico.org/orchestrator: k8s", "type: database"}},
		step{args: "label wep node1-k8s-abcd-eth0 app -n ns1 --remove", want: "Successfully removed label app from wep node1-k8s-abcd-eth0"},
		step{args: "get wep node1-k8s-abcd-eth0 -n ns1 -o yaml", not: []string{"app:"}, has: []string{"type: database"}},
		step{args: "create -f {}", text: node1},
		step{args: "label nodes node1 cluster=frontend", want: "Successfully set label cluster on nodes node1"},
		step{args: "apply -f {}", text: node1, want: "Successfully applied 1 'Node' resource(s)"},
		step{args: "label nodes node1 cluster --remove", fails: true, want: "can not remove label of nodes node1, key cluster does not exist"},
		step{args: "label nodes nobody cluster=a", fails: true, has: []string{notFound + ": Node(nobody)"}},
		step{args: `patch nodes node1 -p '{"spec":{"bgp":{"routeReflectorClusterID":"192.168.0.1"}}}'`, want: "Successfully patched 1 'Node' resource"},
		step{args: "get nodes node1 -o yaml", has: []string{"routeReflectorClusterID: 192.168.0.1", "ipv4Address: 1.2.3.4/24"}},
		step{args: `patch nodes node1 -p '{"http":{"exact":"path"}}'`, fails: true, has: []string{"Hit error: "}},
		step{args: `patch nodes node1 -p '{"metadata":{"finalizers":["a","b"]}}'`, has: []string{"Successfully patched 1 'Node' resource"}},
		step{args: `patch nodes node1 -p '{"metadata":{"finalizers":["c"],"$deleteFromPrimitiveList/finalizers":["a"]}}'`},
		step{args: "get nodes node1 -o yaml", has: []string{"  finalizers:\n  - c\n  - b\n"}},
		step{args: `patch wep node1-k8s-abcd-eth0 -n ns1 -p '{"spec":{"ipNetworks":[{"$patch":"delete"}]}}'`, fails: true, has: []string{"spec.ipNetworks.$patch"}},
		step{args: `patch nodes nobody -p '{"spec":{}}'`, fails: true, has: []string{notFound}},
	)
}

// TestTheClusterIsKnownOnceSomethingIsWritten, is nobody's to write, and its version must be one whose form is known.
func TestTheClusterIsKnownOnceSomethingIsWritten(t *testing.T) {
	s := start(t)
	info := resource("ClusterInformation", "name: default", "clusterGUID: guid1, datastoreReady: true")
	s.follow(
		step{args: "create -f {}", text: info, fails: true, has: []string{"operation create or apply is not supported on ClusterInformation"}},
		step{args: "get clusterinfo default -o yaml", fails: true, has: []string{notFound}},
		step{args: "replace -f {}", text: info, fails: true, has: []string{notFound}},
		step{args: "apply -f {}", text: info, fails: true, has: []string{"operation apply is not supported on ClusterInformation: resource is readonly"}},
		step{args: "delete clusterinfo default", fails: true, has: []string{"operation delete is not supported on ClusterInformation"}},
		step{args: "version", fails: true, has: []string{"Client Version:    ", "Git commit:        ", "Unable to retrieve Cluster Version or Type: "}},
		step{args: "create -f {}", text: node1},
		step{args: "get clusterinfo default -o yaml", has: []string{"clusterGUID: ", "datastoreReady: true"}, not: []string{"clusterType"}},
		step{args: "version", has: []string{"Cluster Version:   unknown\nCluster Type:      unknown\n"}},
	)
	for version, fails := range map[string]bool{"v3.31.2": false, "v0.0.0.1.2.3": true, "0.0.0.1.2.3": true, "3.31.2": false, "v3.32.0-0.dev-12-gabc": false, "v2": true, "master": false} {
		s.patchCluster(`{"spec":{"calicoVersion":"` + version + `"}}`)
		st := step{args: "replace -f {}", text: node1, fails: fails}
		if fails {
			st.has = []string{"Version mismatch.\nClient Version:   ", "Cluster Version:  " + strings.TrimPrefix(version, "v") + "\nUse --allow-version-mismatch to override.\n"}
		}
		lock, unlock := st, st
		lock.args, unlock.args = "datastore migrate lock", "datastore migrate unlock"
		s.follow(st, lock, unlock, step{args: "--allow-version-mismatch replace -f {}", text: node1}, step{args: "datastore migrate lock --allow-version-mismatch"}, step{args: "version", has: []string{"Cluster Version:   " + version}})
	}
}

// TestAnotherDatastoreIsAnError: nothing answers, and that is said, and no panic.
func TestAnotherDatastoreIsAnError(t *testing.T) {
	s := start(t)
	t.Setenv("ETCD_ENDPOINTS", "unix://"+s.dir+"/nobody.sock")
	s.follow(step{args: "create -f {}", text: pool4, fails: true, has: []string{"Failed to create Calico API client: "}})
}

// TestWhatCalicoctlTakesIsTaken: settings for no node and a session with nobody, with a warning; labels that the system gives, which are
// given anew; metadata that is not the user's; durations, which are written as Go writes them.
func TestWhatCalicoctlTakesIsTaken(t *testing.T) {
	s := start(t)
	s.follow(
		step{args: "apply -f {}", text: resource("FelixConfiguration", "name: mine", "chainInsertMode: append, netlinkTimeout: 125s, reportingTTL: 9910s, logPrefix: 90m"), has: []string{"Successfully applied 1 'FelixConfiguration' resource(s)", "warning: FelixConfiguration(mine) has no effect: spec.nodeSelector is missing"}},
		step{args: "get felixconfig mine -o yaml", has: []string{"netlinkTimeout: 2m5s", "reportingTTL: 2h45m10s", "logPrefix: 90m"}},
		step{args: "create -f {}", text: resource("BGPPeer", "name: gtsm", "node: somenode, ttlSecurity: 1"), has: []string{"Successfully created 1", "warning: BGPPeer(gtsm) has no effect"}},
		step{args: "get bgpp", has: []string{"gtsm", "somenode"}, not: []string{"global"}},
		step{args: "create -f {}", text: strings.Replace(strings.Replace(wep1, "ns1", "''", 1), "type: database", "projectcalico.org/namespace: other, type: database", 1)},
		step{args: "get wep -o yaml", has: []string{"projectcalico.org/namespace: default", "type: database"}},
		step{args: "create -f {}", text: resource("HostEndpoint", "name: e, uid: mine, selfLink: x, generation: 3, finalizers: [f], creationTimestamp: '2006-01-02T15:04:05Z', annotations: {k: v}", "interfaceName: eth0, node: h1")},
		step{args: "get hep e -o yaml", has: []string{"uid: ", "creationTimestamp: ", "k: v"}, not: []string{"uid: mine", "2006", "selfLink", "generation", "finalizers"}},
	)
}
