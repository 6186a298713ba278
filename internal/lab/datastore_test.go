package lab

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/kernel/machinetest"
)

// aloneHost is a machine of its own as far as files below /run and networks go, with `twill node` and no setting at all but
// those of its environment.
type aloneHost struct {
	t      *testing.T
	exe    string
	dir    string // of its data
	log    string // file of what it and its daemons say
	extras []string
	node   *exec.Cmd
}

// newAloneHost runs it once its network is as a command makes it.
func newAloneHost(t *testing.T, network string, environment ...string) *aloneHost {
	t.Helper()
	h := &aloneHost{t: t, exe: testBinary(t), dir: t.TempDir(), log: filepath.Join(t.TempDir(), "log"), extras: environment}
	log, err := os.Create(h.log)
	must(t, err)
	for dir := filepath.Dir(h.exe); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		must(t, os.Chmod(dir, 0o755)) // anybody may run it
	}
	script := `mount -t tmpfs none /run && ip link set lo up && ` + network + ` && exec "$0" node --data-dir "$1"`
	h.node = exec.Command(machinetest.Program(t, "unshare"), "--mount", "--net", "sh", "-c", script, h.exe, h.dir)
	h.node.Env = h.env()
	h.node.Stdout, h.node.Stderr = log, log
	must(t, h.node.Start())
	t.Cleanup(func() {
		_ = h.node.Process.Signal(os.Interrupt)
		_ = h.node.Wait()
		if text, err := os.ReadFile(h.log); t.Failed() {
			t.Logf("%s%v", text, err)
		}
		_ = log.Close()
	})
	await(t, "the node runs in namespaces of its own, which others can enter", func() bool {
		exe, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(h.node.Process.Pid), "exe"))
		must(t, err)
		return exe == h.exe
	})
	return h
}

// env is the environment without what says where a datastore is.
func (h *aloneHost) env() (out []string) {
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "ETCD_") && !strings.HasPrefix(e, "TWILL_") && !strings.HasPrefix(e, "FELIX_") {
			out = append(out, e)
		}
	}
	return append(append(out, "NODENAME=alone"), h.extras...)
}

// run runs twill on that host as a user, and returns what it said and its exit code.
func (h *aloneHost) run(uid int, args ...string) (output string, code int) {
	h.t.Helper()
	id := strconv.Itoa(uid)
	cmd := exec.Command(machinetest.Program(h.t, "nsenter"), append([]string{"-t", strconv.Itoa(h.node.Process.Pid), "-m", "-n", "-S", id, "-G", id, h.exe}, args...)...)
	cmd.Env = h.env()
	out, _ := cmd.CombinedOutput()
	return string(out), cmd.ProcessState.ExitCode()
}

func TestADefaultNodesDatastoreIsRootsAlone(t *testing.T) {
	const nobody = 65534
	h := newAloneHost(t, "true", "TWILL_BGP=off", "IP=none")
	await(t, "root reads what the node wrote", func() bool {
		output, code := h.run(0, "get", "tiers")
		return code == 0 && strings.Contains(output, "default")
	})
	for _, args := range [][]string{{"get", "tiers"}, {"delete", "clusterinformation", "default"}, {"datastore", "lock"}} {
		output, code := h.run(nobody, append(args, "--timeout=3s")...)
		if code != 1 || !strings.Contains(output, "permission denied") || !strings.Contains(output, "run this as root") {
			t.Errorf("as nobody, twill %s: exit code %d\n%s", strings.Join(args, " "), code, output)
		}
	}
	if output, code := h.run(nobody, "get", "tiers", "--timeout=3s", "--etcd=http://127.0.0.1:2379"); code != 1 || !strings.Contains(output, "No datastore answers") {
		t.Errorf("as nobody, over loopback: exit code %d\n%s", code, output)
	}
	if output, code := h.run(0, "get", "clusterinformation", "default"); code != 0 {
		t.Errorf("it is gone: %s", output)
	}
	for _, table := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(h.node.Process.Pid), "net", table))
		must(t, err)
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 3 && f[3] == "0A" && f[1] != "0100007F:238B" { // the agent's health, 127.0.0.1:9099
				t.Errorf("a TCP socket listens: %s", line)
			}
		}
	}
}

// TestTheAgentIsAskedForItsSettings: what its environment says, which the shell of whoever asks does not have, and which wins.
func TestTheAgentIsAskedForItsSettings(t *testing.T) {
	h := newAloneHost(t, "true", "TWILL_BGP=off", "IP=none", "TWILL_SETTINGS_ORDER=local-last", "FELIX_DEFAULTENDPOINTTOHOSTACTION=Return", "FELIX_LOGFORMAT=xml")
	file := filepath.Join(t.TempDir(), "felix.yaml")
	must(t, os.WriteFile(file, []byte("apiVersion: projectcalico.org/v3\nkind: FelixConfiguration\nmetadata: {name: default}\nspec: {defaultEndpointToHostAction: Accept, logSeverityScreen: Debug}\n"), 0o600))
	await(t, "a FelixConfiguration is stored", func() bool {
		_, code := h.run(0, "apply", "-f", file)
		return code == 0
	})
	h.extras = nil // those who ask now have none of it
	line := func(args ...string) string {
		output, _ := h.run(0, append([]string{"config"}, args...)...)
		return strings.Join(strings.Fields(output), " ")
	}
	await(t, "the agent answers", func() bool { return strings.Contains(line(), "environment") })
	for _, tt := range []struct{ args, want, not string }{
		{"", "defaultEndpointToHostAction Return environment", "Accept"},
		{"--node alone", "defaultEndpointToHostAction Return environment", "Accept"},
		{"", "logSeverityScreen Debug", "logSeverityScreen Debug environment"},
		{"", "Passed over: 1 setting. environment: logFormat is \"xml\"", "logFormat xml environment"},
		{"--node other", "defaultEndpointToHostAction Accept", "Return"},
		{"--as-started-here", "defaultEndpointToHostAction Accept", "Return"},
	} {
		if got := line(strings.Fields(tt.args)...); !strings.Contains(got, tt.want) || strings.Contains(got, tt.not) {
			t.Errorf("twill config %s: want %q and not %q, got\n%s", tt.args, tt.want, tt.not, got)
		}
	}
	await(t, "the kernel has what that agent wants", func() bool {
		_, code := h.run(0, "verify")
		return code == 0
	})
	if output, code := h.run(0, "verify", "--interface-prefix", "cali"); code == 0 { // flags of one's own: those of another agent
		t.Errorf("verify with settings that are not the agent's sees no difference:\n%s", output)
	}
}

// TestTheEnvironmentOfANodeIsWhatItBecomes: what calico/node's variables ask for is in the datastore, in the file of the node's
// name and in the daemons' answers.
func TestTheEnvironmentOfANodeIsWhatItBecomes(t *testing.T) {
	logs := filepath.Join(t.TempDir(), "log")
	h := newAloneHost(t, "ip link add eth0 type veth peer name up0 && ip addr add 192.0.2.5/24 dev eth0 && ip link set eth0 up && ip link set up0 up",
		"TWILL_LOG_DIR="+logs, "IP=autodetect", "AS=64999", "CALICO_ROUTER_ID=10.0.0.9", "CALICO_IPV4POOL_CIDR=10.48.0.0/16", "CALICO_IPV4POOL_IPIP=CrossSubnet", "CALICO_IPV4POOL_NAT_OUTGOING=false",
		"CALICO_IPV6POOL_CIDR=fd48::/48", "CALICO_IPV6POOL_NAT_OUTGOING=true", "TWILL_LOG_FORMAT=json")
	for what, want := range map[string]string{
		"get node alone -o custom-columns=A:.spec.bgp.ipv4Address,B:.spec.bgp.asNumber":                      "192.0.2.5/24 64999",
		"get ippool default-ipv4-ippool -o custom-columns=A:.spec.cidr,B:.spec.ipipMode,C:.spec.natOutgoing": "10.48.0.0/16 CrossSubnet <none>",
		"get ippool default-ipv6-ippool -o custom-columns=A:.spec.cidr,C:.spec.natOutgoing":                  "fd48::/48 true",
		"get clusterinformation default -o custom-columns=A:.spec.datastoreReady":                            "true",
		"get tier kube-admin -o custom-columns=A:.spec.order,B:.spec.defaultAction":                          "1000 Pass",
		"get tier kube-baseline -o custom-columns=A:.spec.order,B:.spec.defaultAction":                       "10000000 Pass",
		"get tier default -o custom-columns=A:.spec.order":                                                   "1000000",
		"bgp peers": "AS 64999, router id 10.0.0.9",
	} {
		output := ""
		await(t, what+" says "+want, func() bool {
			output, _ = h.run(0, strings.Fields(what)...)
			return strings.Contains(strings.Join(strings.Fields(output), " "), want)
		})
	}
	for daemon, line := range map[string]string{"agent": `"msg":"agent runs"`, "bgp": `"msg":"bgp runs"`, "node": `msg="child started" child=agent`} {
		for _, file := range []string{h.log, filepath.Join(logs, daemon, "current")} {
			await(t, line+" in "+file, func() bool {
				text, err := os.ReadFile(file)
				return err == nil && strings.Contains(string(text), line)
			})
		}
	}
	name, err := os.ReadFile(filepath.Join(h.dir, "nodename"))
	if err != nil || strings.TrimSpace(string(name)) != "alone" {
		t.Errorf("the node's name is written down as %q, %v", name, err)
	}
}
