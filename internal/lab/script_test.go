package lab

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/kernel/netns"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/rtnl"
	"github.com/twillnet/twill/internal/lab/script"
)

var bundleDir = flag.String("bundle", "", "where a failed scenario leaves what it knows")

// TestScript runs each scenario of testdata/script, in namespaces of its own.
func TestScript(t *testing.T) {
	files, err := filepath.Glob("../../testdata/script/*.txt")
	must(t, err)
	if len(files) == 0 {
		t.Fatal("no scenario in testdata/script")
	}
	exe := testBinary(t)
	for _, f := range files {
		text, err := os.ReadFile(f)
		must(t, err)
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) {
			t.Parallel()
			if strings.Contains(string(text), " bird") {
				machinetest.Program(t, "bird")
			}
			for _, client := range []string{"udhcpc", "dhclient"} {
				if strings.Contains(string(text), "\n"+client+" ") {
					machinetest.Program(t, client)
				}
			}
			if strings.Contains(string(text), "python3") {
				machinetest.Program(t, "python3")
			}
			if strings.Contains(string(text), intent.LinkIPIP) { // make vm has a kernel with it
				if err := netnstest.New(t).Rtnl().AddIPIP(intent.LinkIPIP); !errors.Is(err, rtnl.ErrExists) {
					machinetest.Supported(t, err)
				}
			}
			runScript(t, Runner{Exe: exe}, f, string(text))
		})
	}
}

func runScript(t *testing.T, r Runner, file, text string) {
	t.Helper()
	s, err := script.Parse(file, text)
	must(t, err)
	var out strings.Builder
	r.Out, r.Verbose, r.Bundle = &out, true, *bundleDir
	if res := r.Run(t.Context(), s); res.Err != nil {
		t.Errorf("%v\n%sbundle: %s", res.Err, out.String(), res.Bundle)
	}
}

// TestHostEndpointsInEitherForm runs the scenarios of host endpoints with policy as chains and as look-ups.
func TestHostEndpointsInEitherForm(t *testing.T) {
	exe := testBinary(t)
	for _, name := range []string{"host_endpoint", "auto_host_endpoint"} {
		for _, form := range []string{"Chains", "Compiled"} {
			t.Run(name+"/"+form, func(t *testing.T) {
				t.Parallel()
				file := "../../testdata/script/" + name + ".txt"
				b, err := os.ReadFile(file)
				must(t, err)
				text := strings.Replace(string(b), "hosts h1 h2\n", "hosts h1 h2\napply form.yaml\nwait settled\nexec h1 nft list table inet twill\n"+map[string]string{"Chains": "!", "Compiled": ""}[form]+" stdout class4\n", 1)
				runScript(t, Runner{Exe: exe}, file, text+fmt.Sprintf(`
-- form.yaml --
apiVersion: projectcalico.org/v3
kind: FelixConfiguration
metadata: {name: default}
spec: {policyRendering: %s}
`, form))
			})
		}
	}
}

// TestScriptWithBIRD runs scenarios of BGP on hosts that keep BIRD, all or some: they must not see a difference.
func TestScriptWithBIRD(t *testing.T) {
	machinetest.Program(t, "bird")
	exe := testBinary(t)
	for _, tt := range []struct {
		name string
		bird []string
	}{
		{"bgp_live", []string{AllHosts}},
		{"bgp_live", []string{"h2"}},
		{"bgp_node_status", []string{AllHosts}},
		{"bgp_restart", []string{AllHosts}},
		{"bgp_restart", []string{"h2"}},
		{"bgp_mesh_to_reflectors", []string{AllHosts}},
		{"bgp_dedicated_reflectors", []string{"r1", "r2"}},
	} {
		t.Run(tt.name+"/"+tt.bird[0], func(t *testing.T) {
			t.Parallel()
			file := "../../testdata/script/" + tt.name + ".txt"
			text, err := os.ReadFile(file)
			must(t, err)
			runScript(t, Runner{Exe: exe, BIRD: tt.bird}, file, string(text))
		})
	}
}

// TestScriptBehindARelay runs scenarios whose hosts read the datastore by a relay: they must not see a difference.
func TestScriptBehindARelay(t *testing.T) {
	exe := testBinary(t)
	t.Run("who reads by it", func(t *testing.T) {
		t.Parallel()
		runScript(t, Runner{Exe: exe, Relay: true}, "relay.txt", "# The agent, and BGP.\nhosts h1\nwait log h1 '(?s)is read by a relay.*is read by a relay'\n")
	})
	for _, name := range []string{"agent_killed", "bgp_live", "bgp_node_status", "node_address", "not_ready", "own_blocks", "store_restart", "vxlan_ways"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := "../../testdata/script/" + name + ".txt"
			text, err := os.ReadFile(file)
			must(t, err)
			runScript(t, Runner{Exe: exe, Relay: true}, file, string(text))
		})
	}
}

// TestScriptBehindAnEtcdProxy runs scenarios whose hosts reach etcd by a proxy of their own: they must not see a difference.
func TestScriptBehindAnEtcdProxy(t *testing.T) {
	exe := testBinary(t)
	t.Run("not where a member is", func(t *testing.T) {
		t.Parallel()
		runScript(t, Runner{Exe: exe, Proxy: true}, "member.txt", `# One host has the member, the other a proxy.
hosts h1 h2 store h1
wait log h1 'no etcd proxy: a member of etcd is on this host'
wait log h2 'etcd is reached by the proxy of this host'
workload h1 web 10.65.1.5
workload h2 client 10.65.2.7
reach client web tcp/80
exec h1 /bin/sh -c '! ls $(dirname $TWILL_SOCKET)/etcd-proxy.sock'
exec h2 /bin/sh -c 'ls $(dirname $TWILL_SOCKET)/etcd-proxy.sock'
`)
	})
	for _, name := range []string{"agent_killed", "bgp_live", "bgp_node_status", "node_address", "not_ready", "own_blocks", "store_compacted", "store_cut", "store_restart"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := "../../testdata/script/" + name + ".txt"
			text, err := os.ReadFile(file)
			must(t, err)
			runScript(t, Runner{Exe: exe, Proxy: true}, file, string(text))
		})
	}
}

func TestBIRDIsForHostsThatThereAre(t *testing.T) {
	machinetest.Root(t)
	s, err := script.Parse("bird.txt", "hosts h1\n")
	must(t, err)
	res := Runner{Exe: "/bin/false", BIRD: []string{"h1", "h9"}, Bundle: t.TempDir()}.Run(t.Context(), s)
	if res.Err == nil || !strings.Contains(res.Err.Error(), "h9") {
		t.Errorf("BIRD on a host that there is not: %v", res.Err)
	}
}

// TestAFailedScenarioLeavesWhatItKnew wants of each failure its place, a
// bundle, and a count; and that what is kept can be taken down.
func TestAFailedScenarioLeavesWhatItKnew(t *testing.T) {
	const text = "# Title.\nhosts h1\nworkload h1 web 10.65.1.5 app=web\nreach h1 web tcp/80\ncapture web eth0 seen\nexec ! h1 true\n"
	failing, err := script.Parse("some/dir/failing.txt", text)
	must(t, err)
	passing, err := script.Parse("passing.txt", "# Title.\nhosts h1\nwait agent h1\n")
	must(t, err)
	var out strings.Builder
	r := Runner{Exe: testBinary(t), Out: &out, Bundle: t.TempDir()}
	if passed, failed := r.RunAll(t.Context(), []*script.Script{failing, passing}); passed != 1 || failed != 1 {
		t.Errorf("%d passed, %d failed; want 1 and 1", passed, failed)
	}
	for _, want := range []string{"FAILED: some/dir/failing.txt:6: exec ! h1 true: it succeeded, and should not", "\n  bundle: " + r.Bundle, "\n1 passed, 1 failed\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it wrote\n%swant %s", out.String(), want)
		}
	}
	bundles, _ := filepath.Glob(filepath.Join(r.Bundle, "twill-failing-*"))
	if len(bundles) != 1 {
		t.Fatalf("bundles: %v", bundles)
	}
	for file, want := range map[string]string{
		"scenario.txt": text, "failure.txt": "failing.txt:6", "steps.txt": "workload h1 web", "h1/node.log": "agent runs",
		"h1/table.txt": "table inet twill", "h1/routes.txt": "10.65.1.5", "h1/sysctl.txt": "rp_filter = 1", "h1/verify.txt": "",
		"h1/addresses.txt": "172.30.0.1", "web/addresses.txt": "10.65.1.5", "store/calico.json": "workloadendpoints/default/h1-k8s-web-eth0",
		"store/node.log": "", "captures/seen.txt": "",
	} {
		b, err := os.ReadFile(filepath.Join(bundles[0], file))
		if err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%s: %v; want %q in\n%s", file, err, want, b)
		}
	}
}

// TestWaitExecAwaitsWhatTheProgramWrites: a program that has succeeded may still write what was true before.
func TestWaitExecAwaitsWhatTheProgramWrites(t *testing.T) {
	runScript(t, Runner{Exe: testBinary(t)}, "awaited.txt", `# Title.
hosts h1
wait exec h1 sh count.sh first
stdout '^3 times$'
! stdout '^4 times$'
stderr '^done$'
exec h1 true
wait exec ! h1 sh count.sh second
! stdout '^[12] times$'
-- count.sh --
f=$(dirname $TWILL_SOCKET)/$1
echo >>$f
echo $(wc -l <$f) times
echo done >&2
[ $1 = first ]
`)
}

// TestAScenarioLeavesNoProcess: not even one that has no parent, as a BIRD that goes into the background.
func TestAScenarioLeavesNoProcess(t *testing.T) {
	at := filepath.Join(t.TempDir(), "pid")
	s, err := script.Parse("left.txt", "# Title.\nhosts h1\nexec h1 sh -c 'setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $! >"+at+"'\n")
	must(t, err)
	must(t, Runner{Exe: testBinary(t)}.Run(t.Context(), s).Err)
	pid, err := os.ReadFile(at)
	must(t, err)
	await(t, "it has ended", func() bool {
		cmdline, _ := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/cmdline") // empty, of one that nobody has waited for
		return len(cmdline) == 0
	})
}

// TestAKeptScenarioIsALab keeps one, opens it, and takes it down.
func TestAKeptScenarioIsALab(t *testing.T) {
	s, err := script.Parse("kept.txt", "hosts h1\nworkload h1 web 10.65.1.5\nreach h1 web tcp/80\n")
	must(t, err)
	res := Runner{Exe: testBinary(t), Keep: true}.Run(t.Context(), s)
	must(t, res.Err)
	l, err := Open(res.Kept)
	must(t, err)
	var out strings.Builder
	if down := l.PrintStatus(&out); down != 0 {
		t.Errorf("%d hosts are down:\n%s", down, out.String())
	}
	if ok, err := l.Reach("h1", "web", 81, false); !ok || err != nil {
		t.Errorf("reach: %v, %v", ok, err)
	}
	for _, want := range []string{"Lab down: h1, datastore stopped; 4 network namespaces and " + l.Dir + " removed.\n", "No lab in " + l.Dir + ": nothing to remove.\n"} {
		out.Reset()
		l.Out = &out
		must(t, l.Down())
		if out.String() != want {
			t.Errorf("it prints %q, want %q", out.String(), want)
		}
	}
	names, err := netns.List()
	must(t, err)
	for _, n := range names {
		if strings.HasPrefix(n, l.Spec.Prefix) {
			t.Errorf("%s is still there", n)
		}
	}
	if l.runs(storeName, l.Spec.StorePID) || l.runs("h1", l.Spec.Hosts[0].PID) {
		t.Error("its processes still run")
	}
}

// testBinary is twill of this tree; a test that needs it needs root too.
func testBinary(t testing.TB) string {
	t.Helper()
	machinetest.Root(t)
	dir, err := programs()
	must(t, err)
	return filepath.Join(dir, "twill")
}

// programs builds twill and twill-cni once for all tests, each of which would else link them for itself. TestMain removes the directory.
var programs = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "lab-programs-")
	if err != nil {
		return "", err
	}
	built = dir
	const cmd = "github.com/twillnet/twill/cmd/"
	if out, err := exec.Command("go", "build", "-o", dir, cmd+"twill", cmd+"twill-cni").CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return dir, nil
})

// built is the directory of programs; empty: none was needed.
var built string
