package caliconode

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/cli/node"
	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/member"
	"github.com/twillnet/twill/internal/datastore/stores"
)

// call runs a command line, and returns which command of twill's it ran, its exit code, and what was printed.
func call(ctx context.Context, args ...string) (ran string, code int, out string) {
	var b bytes.Buffer
	record := func(as string) Twill {
		return func(_ context.Context, _ *conn.Env, args []string) int {
			ran = as + strings.Join(args, " ")
			return 7
		}
	}
	e := clitest.Env(console.Stdio{In: strings.NewReader(""), Out: &b, Err: &b})
	code = Run(ctx, e, record("twill "), record("calicoctl "), args)
	return ran, code, b.String()
}

// TestEachArgumentHasItsDaemon: names and arguments as upstream's manifests and units have them.
func TestEachArgumentHasItsDaemon(t *testing.T) {
	alone(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		args, ran string
		code      int
		out       string // a part of what is printed
	}{
		{"calico-node -felix", "twill agent", 7, ""},
		{"calico-node --felix", "twill agent", 7, ""},
		{"calico-node -confd", "twill confd --confdir=/etc/calico/confd", 7, ""},
		{"calico-node -confd -confd-run-once -confd-keep-stage-file", "twill confd --onetime --keep-stage-file --confdir=/etc/calico/confd", 7, ""},
		{"calico-node -confd -confd-confdir /etc/x", "twill confd --output=/etc/x/config/bird.cfg --confdir=/etc/x", 7, ""},
		{"calico-node -init", "twill node boot", 7, ""},
		{"calico-node -init -best-effort", "twill node boot", 0, ""},
		{"calico-node -shutdown", "", 0, ""},
		{"calico-node -complete-startup", "", 0, ""},
		{"calico-node -hostpath-init", "", 0, ""},
		{"calico-node -allocate-tunnel-addrs", "", 0, ""},
		{"calico-node -allocate-tunnel-addrs -allocate-tunnel-addrs-run-once", "", 0, ""},
		{"calico-node -status-reporter", "", 0, ""},
		{"calico-node -monitor-token", "", 0, ""},
		{"calico-node -show-status", "calicoctl node status", 7, ""},
		{"calico-node -flows 5", "twill flows --last 5", 7, ""},
		{"calico-node -flows -1", "twill flows --follow", 7, ""},
		{"calico-node -bpf", "", 1, "Twill has no BPF dataplane"},
		{"calico-node -v", "", 0, conn.Version},
		{"calico-node", "", 1, "No valid options provided. Usage:"},
		{"calico-node -nonsense", "", 1, "flag provided but not defined: -nonsense"},
		{"calico-node -felix -confd", "", 1, "More than one incompatible argument provided"},
		{"calico-felix", "twill agent", 7, ""},
		{"calico-typha --config-file /nowhere/typha.cfg", "", 1, "read settings: open /nowhere/typha.cfg"},
		{"calico-typha -x", "twill relay --health=127.0.0.1:9098 --metrics=", 7, "warning: calico-typha: -x has no effect"},
		{"calico component kube-controllers --x=1 -y", "twill kube-controllers", 7, "kube-controllers: -y has no effect"},
		{"calico component confd", "twill confd --confdir=/etc/calico/confd", 7, ""},
		{"calico-felix --version", "", 0, conn.Version},
		{"calico-typha", "twill relay --health=127.0.0.1:9098 --metrics=", 7, ""},
		{"kube-controllers", "twill kube-controllers", 7, ""},
		{"calico component felix", "twill agent", 7, ""},
		{"calico component node shutdown", "", 0, ""},
		{"calico component node init --best-effort", "twill node boot", 0, ""},
		{"calico component goldmane", "", 1, "Twill has no such part"},
		{"calico cni install", "twill cni install", 7, ""},
		{"calico ctl get nodes", "calicoctl get nodes", 7, ""},
		{"calico version", "", 0, conn.Version},
		{"calico", "", 1, "CNI_COMMAND"},
		{"calico-ipam", "", 1, "CNI_COMMAND"},
		{"calico-ipam -v", "", 0, conn.Version},
	} {
		args := strings.Fields(tt.args)
		ran, code, out := call(ended, append([]string{"/usr/bin/" + args[0]}, args[1:]...)...)
		if ran != tt.ran || code != tt.code || !strings.Contains(out, tt.out) {
			t.Errorf("%s: ran %q, exit code %d, want %q, %d\n%s", tt.args, ran, code, tt.ran, tt.code, out)
		}
	}
}

// alone keeps this machine's settings and name out of a test.
func alone(t *testing.T) {
	t.Helper()
	clitest.ClearStoreEnv(t)
	clitest.NothingSet(t)
	t.Setenv("TWILL_BGP_SOCKET", filepath.Join(t.TempDir(), "none"))
	t.Setenv("NODENAME", "h1")
	was, wasFile, wasTypha, wasName := node.DataDir, FelixConfig, TyphaConfig, conn.UpstreamsNameFile
	t.Cleanup(func() {
		node.DataDir, FelixConfig, TyphaConfig, conn.UpstreamsNameFile = was, wasFile, wasTypha, wasName
	})
	conn.UpstreamsNameFile = filepath.Join(t.TempDir(), "nodename")
	none := filepath.Join(t.TempDir(), "none")
	node.DataDir, FelixConfig, TyphaConfig = t.TempDir(), none, none
}

// TestProbesAskTheAgentAndTheSpeaker: 200 is 0, all else is 1, as kubelet wants it.
func TestProbesAskTheAgentAndTheSpeaker(t *testing.T) {
	alone(t)
	status := map[string]int{"/liveness": http.StatusOK, "/readiness": http.StatusServiceUnavailable}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(status[r.URL.Path]) }))
	defer srv.Close()
	t.Setenv("FELIX_HEALTHHOST", "127.0.0.1")
	t.Setenv("FELIX_HEALTHPORT", srv.URL[strings.LastIndex(srv.URL, ":")+1:])
	want := func(code int, part string, args ...string) {
		t.Helper()
		if _, got, out := call(t.Context(), append([]string{"calico-node"}, args...)...); got != code || !strings.Contains(out, part) {
			t.Errorf("%q: exit code %d, want %d\n%s", args, got, code, out)
		}
	}
	want(0, "", "-felix-live")
	want(1, "calico/node is not ready: felix is not ready", "-felix-ready")
	status["/readiness"] = http.StatusOK
	want(0, "", "-felix-ready", "-felix-live")
	want(1, "calico/node is not ready: BIRD is not live", "-bird-live", "-felix-live")
	want(1, "calico/node is not ready: BIRD is not live", "-bird-ready", "-felix-ready", "-threshold-time=30s")
	want(1, "BIRD is not live", "-bird6-ready")
	t.Setenv("CALICO_NETWORKING_BACKEND", "vxlan")
	want(0, "", "-bird-ready", "-felix-ready")
	srv.Close()
	want(1, "felix is not ready", "-bird-ready", "-felix-ready")
}

// TestFelixConfigIsReadUnderUpstreamsNames, unless another file is named.
func TestFelixConfigIsReadUnderUpstreamsNames(t *testing.T) {
	alone(t)
	FelixConfig = clitest.File(t, "felix.cfg", "[global]\nHealthPort = 1\nHealthHost = 127.0.0.9\n")
	t.Cleanup(func() { _ = os.Unsetenv("TWILL_CONFIG") })
	if _, code, out := call(t.Context(), "calico-node", "-felix-live"); code != 1 || !strings.Contains(out, "http://127.0.0.9:1/liveness") {
		t.Errorf("%d %s", code, out)
	}
	for _, args := range []string{"calico-felix --config-file ", "felix --config-file=", "calico component felix -c "} {
		file := clitest.File(t, "given.cfg", "[global]\n")
		if ran, _, out := call(t.Context(), strings.Fields(args+file)...); ran != "twill agent" || os.Getenv("TWILL_CONFIG") != file || out != "" {
			t.Errorf("%s: the file is %q\n%s", args, os.Getenv("TWILL_CONFIG"), out)
		}
	}
	t.Setenv("TWILL_CONFIG", clitest.File(t, "own.conf", "healthHost = 127.0.0.8\n"))
	if _, code, out := call(t.Context(), "calico-node", "-felix-live"); code != 1 || !strings.Contains(out, "127.0.0.8:9099") {
		t.Errorf("%d %s", code, out)
	}
}

// TestUnderUpstreamsNamesTheHostWinsOverTheDatastore, unless the variable says otherwise; under our own name it does not.
func TestUnderUpstreamsNamesTheHostWinsOverTheDatastore(t *testing.T) {
	alone(t)
	for _, tt := range []struct {
		program, order, want string
	}{
		{"calico-node -felix", "", "Accept"},
		{"felix", "", "Accept"},
		{"calico component felix", "", "Accept"},
		{"calico-node -felix", conn.DatastoreLast, "Return"},
		{"", "", "Return"},
		{"", conn.LocalLast, "Accept"},
	} {
		t.Run(tt.program+" "+tt.order, func(t *testing.T) {
			t.Setenv("FELIX_DEFAULTENDPOINTTOHOSTACTION", "Accept")
			t.Setenv(conn.OrderVariable, tt.order)
			if tt.program != "" {
				call(t.Context(), strings.Fields(tt.program)...)
			}
			l, err := node.Local()
			if err != nil {
				t.Fatal(err)
			}
			r := config.New("h1", l.Layers...)
			f := api.New(api.KindFelixConfiguration).(*api.FelixConfiguration)
			f.Metadata.Name, f.Spec.DefaultEndpointToHostAction = "node.h1", "Return"
			r.Set(f)
			if got := r.Resolve().Settings.EndpointToHost; got != tt.want {
				t.Errorf("in effect is %s, want %s", got, tt.want)
			}
		})
	}
	t.Setenv(conn.OrderVariable, "last")
	if _, err := node.Local(); err == nil || !strings.Contains(err.Error(), "want local-last or datastore-last") {
		t.Errorf("an order that is none: %v", err)
	}
}

// TestStartupMakesTheNodeAndEnds, on an etcd: the address that IP says, the AS number, and a pool.
func TestStartupMakesTheNodeAndEnds(t *testing.T) {
	alone(t)
	dir := t.TempDir()
	endpoint := "unix://" + filepath.Join(dir, "etcd.sock")
	etcd, err := member.Start(t.Context(), member.Config{Dir: filepath.Join(dir, "data"), ListenClient: []string{endpoint}, StartTimeout: clitest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	for name, value := range map[string]string{
		"ETCD_ENDPOINTS": endpoint, "DATASTORE_TYPE": "etcdv3", "IP": "198.51.100.7/24", "AS": "64600", "CALICO_IPV4POOL_CIDR": "10.77.0.0/16",
		"CLUSTER_TYPE": "k8s, bgp", "CALICO_K8S_NODE_REF": "kube-h1",
	} {
		t.Setenv(name, value)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, code, out := call(ctx, "calico-node", "-startup"); code != 0 {
		t.Fatalf("%d %s", code, out)
	}
	s, err := stores.Open(ctx, datastore.Config{Endpoints: []string{endpoint}, RequestTimeout: clitest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for key, want := range map[string]string{
		"nodes/h1": `"ipv4Address":"198.51.100.7/24"`, "ippools/default-ipv4-ippool": "10.77.0.0/16", "clusterinformations/default": `"clusterType":"twill,k8s,bgp"`,
		"felixconfigurations/default": `"reportingInterval":"0s"`, "felixconfigurations/node.h1": `"Return"`, "bgpconfigurations/default": "spec",
	} {
		u, err := s.Get(ctx, api.ResourcesPrefix+key)
		if err != nil || !strings.Contains(string(u.Value), want) {
			t.Errorf("%s: %s, %v; want %s", key, u.Value, err, want)
		}
	}
	if u, err := s.Get(ctx, api.ResourcesPrefix+"nodes/h1"); err != nil || !strings.Contains(string(u.Value), `"orchRefs":[{"nodeName":"kube-h1","orchestrator":"k8s"}]`) {
		t.Errorf("node: %s, %v", u.Value, err)
	}
	if b, err := os.ReadFile(conn.UpstreamsNameFile); err != nil || string(b) != "h1" {
		t.Errorf("the name is written down as %q, %v", b, err)
	}
	t.Setenv("IP", "none")
	t.Setenv("AS", "")
	if _, code, out := call(ctx, "calico-node", "-startup"); code != 0 {
		t.Errorf("again, with nothing to write: %d %s", code, out)
	}
}

// TestAStartWithoutPoolsMakesUpstreams, of both families where the host has both. It begins before the datastore, and waits.
func TestAStartWithoutPoolsMakesUpstreams(t *testing.T) {
	alone(t)
	dir := t.TempDir()
	endpoint := "unix://" + filepath.Join(dir, "etcd.sock")
	t.Setenv("ETCD_ENDPOINTS", endpoint)
	t.Setenv("IP", "none")
	t.Setenv("WAIT_FOR_DATASTORE", "true")
	conn.UpstreamsNameFile = filepath.Join(dir, "nowhere", "nodename") // the volume of a container that has none
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan string, 1)
	go func() {
		_, code, out := call(ctx, "calico-node", "-startup")
		ended <- fmt.Sprint(code, out)
	}()
	etcd, err := member.Start(t.Context(), member.Config{Dir: filepath.Join(dir, "data"), ListenClient: []string{endpoint}, StartTimeout: clitest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	if got := <-ended; !strings.HasPrefix(got, "0") || strings.Contains(got, "no effect") {
		t.Fatal(got)
	}
	s, err := stores.Open(ctx, datastore.Config{Endpoints: []string{endpoint}, RequestTimeout: clitest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, err = os.Stat("/proc/sys/net/ipv6")
	for name, want := range map[string]bool{"default-ipv4-ippool": true, "default-ipv6-ippool": err == nil} {
		u, err := s.Get(ctx, api.KeyPrefix(api.KindIPPool, "")+name)
		if made := err == nil; made != want {
			t.Errorf("%s: %s, %v; want one: %t", name, u.Value, err, want)
		}
	}
}

// TestNamesAreThoseOfUpstreamsPrograms alone.
func TestNamesAreThoseOfUpstreamsPrograms(t *testing.T) {
	for name, want := range map[string]bool{"calico-node": true, "/bin/calico-node": true, "calico-felix": true, "felix": true, "calico-typha": true, "kube-controllers": true, "calico": true, "calico-ipam": true, "twill": false, "confd": false, "calicoctl": false, "twill-ipam": false} {
		if Called(name) != want {
			t.Errorf("%s: %t", name, !want)
		}
	}
}
