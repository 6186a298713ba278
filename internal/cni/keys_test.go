package cni

import (
	"crypto/sha1" //nolint:gosec // names, as upstream has them
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"

	"github.com/twillnet/twill/internal/attach/wire"
)

var write = flag.Bool("write", false, "write the table of docs/cni.md anew")

// TestThePageOfKeysIsTrue: docs/cni.md has each key, and what becomes of it.
func TestThePageOfKeysIsTrue(t *testing.T) {
	const page = "../../docs/cni.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const head = "| key | | meaning, or why not |\n|---|---|---|\n"
	before, after, found := strings.Cut(string(text), head)
	_, rest, ended := strings.Cut(after, "\n\n")
	if !found || !ended {
		t.Fatalf("%s has no table that begins with\n%s", page, head)
	}
	table := head
	for _, k := range keys {
		table += strings.ReplaceAll(fmt.Sprintf("| `%s` | %s | %s |\n", k.name, k.support, k.isSet), "|  |", "| |")
	}
	want := before + table + "\n" + rest
	if *write {
		if err := os.WriteFile(page, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	} else if want != string(text) {
		t.Errorf("the table of %s is not that of the code: go test ./internal/cni -run PageOfKeys -write", page)
	}
}

func TestKeysOnWhichNothingActsAreNamed(t *testing.T) {
	for _, tt := range []struct{ name, conf, noEffect, refused string }{
		{
			"as upstream's manifest has it",
			`{"type": "calico", "name": "k8s-pod-network", "cniVersion": "0.3.1", "log_level": "info", "log_file_path": "/var/log/calico/cni/cni.log", "datastore_type": "kubernetes", "nodename": "h1", "mtu": 0,
			  "ipam": {"type": "calico-ipam", "assign_ipv4": "true"}, "policy": {"type": "k8s"}, "kubernetes": {"kubeconfig": "/etc/cni/net.d/calico-kubeconfig"}, "container_settings": {"allow_ip_forwarding": true}}`,
			"datastore_type kubernetes log_file_path log_level nodename", "",
		},
		{
			"each that upstream's plugin has",
			`{"num_queues": 2, "nodename_file": "/n", "nodename_file_optional": true, "log_file_max_size": 1, "log_file_max_age": 1, "log_file_max_count": 1, "etcd_endpoints": "http://192.0.2.9", "etcd_ca_cert_file": "/c",
			  "etcd_discovery_srv": "example.org", "device_type": "veth", "readiness_gates": ["http://192.0.2.9"], "policy_setup_timeout_seconds": 9, "endpoint_status_dir": "/s", "require_mtu_file": true}`,
			"device_type endpoint_status_dir etcd_ca_cert_file etcd_discovery_srv etcd_endpoints log_file_max_age log_file_max_count log_file_max_size nodename_file nodename_file_optional policy_setup_timeout_seconds require_mtu_file", "",
		},
		{"what asks for nothing", `{"etcd_endpoints": "", "num_queues": 0, "require_mtu_file": false, "readiness_gates": [], "feature_control": {"floating_ips": false, "ip_addrs_no_ipam": true}, "hostname": null}`, "", ""},
		{"how to reach Kubernetes, and what this version has not", `{"calico_api_group": "projectcalico.org/v3", "kubernetes": {"node_name": "h1", "k8s_api_root": "https://192.0.2.9"}, "feature_control": {"floating_ips": true}, "ipam_lock_file": "/l"}`, "calico_api_group feature_control.floating_ips ipam_lock_file kubernetes", ""},
		{"of an object, what is known by name", `{"policy": {"type": "k8s", "k8s_api_root": "https://192.0.2.9"}, "args": {"cni": {"labels": [{"key": "a"}]}, "other": {"a": 1}}}`, "args.other policy.k8s_api_root", ""},
		{"what nobody knows", `{"assign_ipv5": true, "ipam": {"type": "calico-ipam", "assign_ip4": false, "subnet": "10.0.0.0/8"}, "cni.dev/valid-attachments": [1]}`, "assign_ipv5 (not known) ipam.assign_ip4 (not known) ipam.subnet", ""},
		{"of another IPAM all is its own", `{"ipam": {"type": "host-local", "subnet": "10.0.0.0/8", "dataDir": "/x"}}`, "", ""},
		{"another dataplane", `{"log_level": "info", "dataplane_options": {"type": "grpc", "socket": "/run/vpp.sock"}}`, "", "dataplane_options is not honoured"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			idles, err := keysWithoutEffect([]byte(tt.conf))
			if got := strings.Join(idles, " "); got != tt.noEffect || (err == nil) != (tt.refused == "") || err != nil && !strings.HasPrefix(err.Error(), tt.refused) {
				t.Errorf("no effect: %q (%v), want %q, refused %q", got, err, tt.noEffect, tt.refused)
			}
		})
	}
}

func TestWhoMakesTheProfileOfANetwork(t *testing.T) {
	for conf, want := range map[string]bool{`{}`: false, `{"policy": {}}`: false, `{"policy": {"type": "k8s"}}`: true} {
		args := &skel.CmdArgs{StdinData: []byte(conf), ContainerID: "c1", IfName: "eth0"}
		c, err := readConf(args)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := c.request(args); err != nil || r.NoProfile != want {
			t.Errorf("%s: no profile is made: %v, %v; want %v", conf, r.NoProfile, err, want)
		}
	}
}

func TestInstallSaysWhichKeysHaveNoEffect(t *testing.T) {
	in, out := installIn(t, "v1")
	in.Network = []byte(`{"name": "n", "cniVersion": "0.3.1", "plugins": [{"type": "calico", "log_level": "info", "ipam": {"type": "calico-ipam"}}, {"type": "portmap", "snat": true}]}`)
	if err := in.Install(); err != nil || !strings.Contains(out.String(), "no effect in the network's configuration: log_level\n") {
		t.Errorf("%v; it says\n%s", err, out)
	}
	in.Network = []byte(`{"name": "n", "cniVersion": "0.3.1", "plugins": [{"type": "calico", "dataplane_options": {"type": "grpc"}}]}`)
	if err := in.Install(); err == nil || !strings.Contains(err.Error(), "dataplane_options") {
		t.Errorf("a network that ADD refuses is installed: %v", err)
	}
}

// TestEachKeyOfANetworkArrivesInTheRequest: what a key, or an argument of the runtime, makes different in what the agent is asked
// for; that, and nothing else.
func TestEachKeyOfANetworkArrivesInTheRequest(t *testing.T) {
	request := func(conf, args string) map[string]any {
		t.Helper()
		a := &skel.CmdArgs{StdinData: []byte(conf), ContainerID: "0123456789abcdef", IfName: "eth0", Args: args}
		c, err := readConf(a)
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.request(a)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(struct {
			wire.Request
			Socket      string
			MTU, Queues int
		}{r, c.Socket, c.MTU, c.Queues})
		var out map[string]any
		if err != nil || json.Unmarshal(text, &out) != nil {
			t.Fatal(err, string(text))
		}
		return out
	}
	none := request(`{}`, "")
	if none["link"] != "cali0123456789a" || none["ifname"] != "eth0" || none["containerID"] != "0123456789abcdef" || none["Socket"] != wire.DefaultSocket || fmt.Sprint(none["ipam"]) != "map[v4:true v6:false]" {
		t.Errorf("of an empty network: %v", none)
	}
	for _, tt := range []struct{ conf, args, want string }{
		{`{"name":"n"}`, "", "map[network:n]"},
		{`{"mtu":1400}`, "", "map[MTU:1400]"},
		{`{"num_queues":4}`, "", "map[Queues:4]"},
		{`{"socket":"/s"}`, "", "map[Socket:/s]"},
		{`{"ipam":{"assign_ipv4":"false","assign_ipv6":true}}`, "", "map[ipam:map[v4:false v6:true]]"},
		{`{"ipam":{"ipv4_pools":["a"],"ipv6_pools":["b","fd00::/64"]}}`, "", "map[ipam:map[pools4:[a] pools6:[b fd00::/64] v4:true v6:false]]"},
		{`{"policy":{"type":"k8s"}}`, "", "map[noProfile:true]"},
		{`{"feature_control":{"ip_addrs_no_ipam":true}}`, "", "map[allowNoIPAM:true]"},
		{`{"args":{"cni":{"labels":[{"key":"app","value":"web"},{"key":"env","value":""}]}}}`, "", "map[labels:map[app:web env:]]"},
		{`{"args":{"cni":{"ips":["10.65.0.7","fd00::7"]}}}`, "", "map[ipam:map[addrs:[10.65.0.7 fd00::7] v4:true v6:false]]"},
		{`{"args":{"cni":{"ips":["10.65.0.7"]}}}`, "IP=10.65.0.9", "map[ipam:map[addrs:[10.65.0.9] v4:true v6:false]]"},
		{`{}`, "IgnoreUnknown=1;K8S_POD_NAMESPACE=prod;K8S_POD_NAME=web", "map[link:cali" + podLink("prod.web") + " pod:map[name:web namespace:prod]]"},
	} {
		got := request(tt.conf, tt.args)
		maps.DeleteFunc(got, func(k string, v any) bool { return reflect.DeepEqual(v, none[k]) })
		if fmt.Sprint(got) != tt.want {
			t.Errorf("%s with %q makes %v, want %s", tt.conf, tt.args, got, tt.want)
		}
	}
}

// podLink is what upstream has after the prefix in the name of a pod's interface.
func podLink(pod string) string {
	sum := sha1.Sum([]byte(pod)) //nolint:gosec // it is a name
	return hex.EncodeToString(sum[:])[:11]
}
