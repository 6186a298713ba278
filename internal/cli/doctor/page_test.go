package doctor_test

import (
	"context"
	"flag"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/ipam"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

var update = flag.Bool("update", false, "write docs/takeover.md again; read it before you commit it")

// ofTheMoment is what differs from run to run, and from machine to machine.
var ofTheMoment = []struct{ pattern, text string }{{`\(pid \d+\)`, "(pid 812)"}, {`Linux [^ ]+`, "Linux 6.1.0-32-amd64"}}

// TestThePageShowsWhatIsPrinted: docs/takeover.md has what is printed for a host of Calico's before Twill comes, and after nothing is left.
func TestThePageShowsWhatIsPrinted(t *testing.T) {
	clitest.ClearStoreEnv(t)
	c, dir := newCLI(t), t.TempDir()
	c.Want(0, resources, "apply", "-f", "-")
	c.Want(0, "apiVersion: projectcalico.org/v3\nkind: BGPConfiguration\nmetadata: {name: default}\nspec: {}\n", "apply", "-f", "-")
	c.Raw("networkpolicies/shop/default.web", `{"kind":"NetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":"default.web","namespace":"shop"},"spec":{"selector":"app == 'web'",`+
		`"egress":[{"action":"Allow","http":{"methods":["GET"]}}],"types":["Egress"]}}`)
	handle := "k8s-pod-network.1"
	_, err := ipam.New(c.Store, ipam.Config{}).AssignIP(t.Context(), ipam.IPArgs{Node: "h1", Handle: handle, Addr: netip.MustParseAddr("10.65.0.5")})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "10-calico.conflist"), []byte(`{"name":"k8s-pod-network","cniVersion":"0.3.1","plugins":[{"type":"calico","ipam":{"type":"calico-ipam"}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	before := ofCalico(t)
	before.Run("iptables-legacy", "-P", "FORWARD", "DROP")
	before.Called("calico-node", "FELIX_DEFAULTENDPOINTTOHOSTACTION=ACCEPT", "FELIX_LOGSEVERITYSCREEN=Warning", "CLUSTER_TYPE=k8s,bgp", "WAIT_FOR_DATASTORE=true", "USE_POD_CIDR=true", "ETCD_ENDPOINTS=http://192.0.2.9:2379")
	after := netnstest.New(t)
	after.Veth("eth0", "eth0p")
	after.Addr("eth0", "192.0.2.1/24")
	after.Veth("cali1", "web")
	printed := []string{forPeople(t, c, before, 1, dir, filepath.Join(dir, "none"))}
	c.Want(0, "", "delete", "networkpolicy", "web", "-n", "shop")
	printed = append(printed, forPeople(t, c, after, 0, t.TempDir(), readyAgent(t, dir)))
	comparePage(t, "../../docs/takeover.md", printed)
}

func forPeople(t *testing.T, c *clitest.CLI, ns *netnstest.NS, code int, networks, socket string) (out string) {
	t.Helper()
	dir := t.TempDir()
	ns.Do(func() {
		out = c.Want(code, "", "doctor", "--take-over", "--node", "h1", "--etcd", "http://192.0.2.9:2379", "--socket", socket, "--data-dir", dir,
			"--felix-config", filepath.Join(dir, "felix.cfg"), "--conf-dir", networks, "--bin-dir", dir)
	})
	for _, m := range ofTheMoment {
		out = regexp.MustCompile(m.pattern).ReplaceAllString(out, m.text)
	}
	out = strings.ReplaceAll(out, networks, "/etc/cni/net.d")
	return strings.ReplaceAll(out, filepath.Join(dir, "felix.cfg"), "/etc/calico/felix.cfg")
}

// readyAgent answers at a socket as an agent that has nothing to complain of.
func readyAgent(t *testing.T, dir string) string { return agentThatSays(t, dir, "{}") }

func agentThatSays(t *testing.T, dir, answer string) string {
	t.Helper()
	socket := filepath.Join(dir, "agent.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(answer)) })}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Shutdown(context.Background()) })
	return socket
}

// comparePage compares the blocks of a page that call twill doctor --take-over with what it printed, or writes them again.
func comparePage(t *testing.T, path string, printed []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const call = "# twill doctor --take-over\n"
	parts, at := strings.Split(string(text), "```\n"), 0
	for i, p := range parts {
		had, is := strings.CutPrefix(p, call)
		if !is || at >= len(printed) {
			continue
		}
		if *update {
			parts[i] = call + printed[at]
		} else {
			clitest.Equal(t, printed[at], had)
		}
		at++
	}
	if at != len(printed) {
		t.Errorf("%s has %d of %d calls", path, at, len(printed))
	}
	if *update {
		if err := os.WriteFile(path, []byte(strings.Join(parts, "```\n")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
