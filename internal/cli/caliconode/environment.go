package caliconode

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// variable is one of upstream's environment: of its node, its confd, its start, or its installer of plugins.
type variable struct {
	name string
	test string // that shows its effect; empty: it has none here
	why  string // what it does, or why it has no effect
}

const (
	testAddress = "cli/node.TestTheEnvironmentOfCalicoNodeIsRead"
	testPools   = "node.TestPoolsOfTheEnvironmentAreMadeOnce"
	testEtcd    = "config.TestGeneralNamesOfTheEnvironmentSayWhereTheDatastoreIs"
	testInstall = "cli/node.TestInstallReadsTheEnvironmentOfUpstreamsInstaller"
	testKube    = "conn.TestUpstreamsVariablesAndFileSayWhereTheAPIServerIs"
	testHere    = "caliconode.TestTheEnvironmentIsThatOfUpstream"
	testWaits   = "caliconode.TestAStartWithoutPoolsMakesUpstreams"
	testUnasked = "node.TestPoolsThatNobodyNamed"
	testStart   = "caliconode.TestStartupMakesTheNodeAndEnds"
)

// variables are all that upstream documents and that a manifest or a unit may set.
func variables() []variable {
	return []variable{
		{"NODENAME", testStart, "the node's name"},
		{"IP", testStart, "the node's IPv4 address, autodetect or none"},
		{"IP6", testAddress, "the same for IPv6"},
		{"IP_AUTODETECTION_METHOD", testAddress, "how the address is found"},
		{"IP6_AUTODETECTION_METHOD", testAddress, "the same for IPv6"},
		{"AS", testStart, "the node's AS number"},
		{"DISABLE_NODE_IP_CHECK", testAddress, "write an address that another node has"},
		{"AUTODETECT_POLL_INTERVAL", testAddress, "how often to look for another address"},
		{"CALICO_NETWORKING_BACKEND", "caliconode.TestProbesAskTheAgentAndTheSpeaker", "vxlan and none: no BGP"},
		{"CALICO_ROUTER_ID", "lab.TestTheEnvironmentOfANodeIsWhatItBecomes", "the router ID, or hash"},
		{"NO_DEFAULT_POOLS", testUnasked, "make no pool"},
		{"CLUSTER_TYPE", testStart, "added to clusterType of ClusterInformation, as are kubeadm and rancher where -startup finds their ConfigMaps, and kdd with Kubernetes as the datastore"},
		{"CALICO_K8S_NODE_REF", testStart, "the node's name in Kubernetes, for spec.orchRefs of its Node; with Kubernetes as the datastore a node has the name that Kubernetes has for it"},
		{"CALICO_IPV4POOL_CIDR", testStart, "the first IPv4 pool, or none; without it -startup makes kubeadm's podSubnet one, or 192.168.0.0/16, or the first of 172.16.0.0/16 to 172.31.0.0/16 in which the host has no network; twill node makes none"},
		{"CALICO_IPV6POOL_CIDR", testPools, "the same for IPv6: kubeadm's podSubnet, or a random prefix of fd00::/8, if the host has IPv6"},
		{"CALICO_IPV4POOL_BLOCK_SIZE", testPools, "of that pool, as the next five; each has its like for IPv6"},
		{"CALICO_IPV4POOL_IPIP", testPools, "its ipipMode"},
		{"CALICO_IPV4POOL_VXLAN", testPools, "its vxlanMode"},
		{"CALICO_IPV4POOL_NAT_OUTGOING", testPools, "its natOutgoing"},
		{"CALICO_IPV4POOL_NODE_SELECTOR", testPools, "its nodeSelector"},
		{"CALICO_IPV4POOL_DISABLE_BGP_EXPORT", testPools, "its disableBGPExport"},
		{"KUBECONFIG", testKube, "how to reach Kubernetes; K8S_API_ENDPOINT, K8S_KEY_FILE, K8S_CERT_FILE, K8S_CA_FILE, K8S_API_TOKEN and K8S_INSECURE_SKIP_TLS_VERIFY, too"},
		{"DATASTORE_TYPE", testHere, "etcdv3 or kubernetes; empty is as not set"},
		{"ETCD_ENDPOINTS", testEtcd, "where etcd is"},
		{"ETCD_CA_CERT_FILE", testEtcd, "its authority"},
		{"ETCD_CERT_FILE", testEtcd, "our certificate"},
		{"ETCD_KEY_FILE", testEtcd, "its key"},
		{"ETCD_AUTHORITY", testHere, "HOST:PORT, where ETCD_ENDPOINTS is not set"},
		{"ETCD_SCHEME", testHere, "of ETCD_AUTHORITY; http unless it says https"},
		{"CALICO_STARTUP_LOGLEVEL", testHere, "the level of -startup's log"},
		{"CNI_NET_DIR", testInstall, "where networks are"},
		{"CNI_CONF_NAME", testInstall, "the network's file"},
		{"CNI_NETWORK_CONFIG", testInstall, "the network"},
		{"CNI_NETWORK_CONFIG_FILE", testInstall, "a file of it"},
		{"CNI_MTU", testInstall, "of containers' interfaces"},
		{"SKIP_CNI_BINARIES", testInstall, "plugins that are not written"},
		{"UPDATE_CNI_BINARIES", testInstall, "false: what is there stays"},
		{"WAIT_FOR_DATASTORE", testWaits, "true is what -startup always does"},
		{"CALICO_MANAGE_CNI", "", "the plugin needs no credentials that would have to be kept fresh"},
		{"USE_POD_CIDR", "", "addresses come from IPPools"},
		{"CALICO_UNKNOWN_NODE_IP", "", "a node without an address is left without one"},
		{"CALICO_DISABLE_FILE_LOGGING", "", "a daemon writes its log to standard error; twill node, which runs all of them, keeps files with --log-dir"},
		{"CALICO_LOG_DIR", "", "as CALICO_DISABLE_FILE_LOGGING"},
		{"BGP_LOGSEVERITYSCREEN", "", "the level is FELIX_LOGSEVERITYSCREEN's, for all daemons"},
		{"CALICO_EARLY_NETWORKING", "", "routes to a node's own addresses are the host's"},
		{"TLS_ASSETS_DIR", "", "the plugin needs no certificates"},
		{"SLEEP", "", "an installer ends when it is done"},
	}
}

// Idle are the names of variables of an environment, NAME=value, that upstream's daemons honour and that have no effect here, sorted.
func Idle(environ []string) (out []string) {
	for _, v := range variables() {
		if v.test == "" && slices.ContainsFunc(environ, func(e string) bool { value, is := strings.CutPrefix(e, v.name+"="); return is && value != "" }) {
			out = append(out, v.name)
		}
	}
	slices.Sort(out)
	return out
}

// prepare makes of upstream's forms of variables what our own parts read, and returns the names of those that are set and have no effect.
func prepare() (idle []string, err error) {
	for _, e := range os.Environ() {
		name, value, _ := strings.Cut(e, "=")
		upper := strings.ToUpper(name)
		if strings.HasPrefix(upper, "FELIX_") && upper != name && os.Getenv(upper) == "" { // upstream reads them in any case
			if err := os.Setenv(upper, value); err != nil {
				return nil, err
			}
		}
	}
	if at := os.Getenv("ETCD_AUTHORITY"); at != "" && os.Getenv("ETCD_ENDPOINTS") == "" {
		scheme := os.Getenv("ETCD_SCHEME")
		switch scheme {
		case "":
			scheme = "http"
		case "http", "https":
		default:
			return nil, fmt.Errorf("ETCD_SCHEME is %q: want http or https", scheme)
		}
		if err := os.Setenv("ETCD_ENDPOINTS", scheme+"://"+at); err != nil {
			return nil, err
		}
	}
	for _, v := range variables() {
		if v.test == "" && os.Getenv(v.name) != "" {
			idle = append(idle, fmt.Sprintf("%s has no effect: %s", v.name, v.why))
		}
	}
	slices.Sort(idle)
	return idle, nil
}
