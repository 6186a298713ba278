package calicoctl_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli"
	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/member"
	"github.com/twillnet/twill/internal/datastore/stores"
)

// endpoint is where the etcd of this package's tests answers; each test begins with nothing in it.
var endpoint string

func TestMain(m *testing.M) {
	os.Exit(withEtcd(m.Run))
}

// withEtcd runs tests with an etcd of their own.
func withEtcd(run func() int) int {
	dir, err := os.MkdirTemp("", "calicoctl")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	endpoint = "unix://" + filepath.Join(dir, "etcd.sock")
	etcd, err := member.Start(context.Background(), member.Config{Dir: filepath.Join(dir, "data"), ListenClient: []string{endpoint}, StartTimeout: clitest.Patience})
	if err != nil {
		panic(err)
	}
	defer etcd.Close()
	return run()
}

// session is calicoctl on an etcd with nothing in it.
type session struct {
	*testing.T
	store datastore.Store
	dir   string
}

func start(t *testing.T) *session {
	t.Helper()
	clitest.ClearStoreEnv(t)
	t.Setenv("ETCD_ENDPOINTS", endpoint)
	t.Setenv("DATASTORE_TYPE", "etcdv3")
	s, err := stores.Open(t.Context(), datastore.Config{Endpoints: []string{endpoint}, RequestTimeout: clitest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	snap, err := s.List(t.Context(), api.Root)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range snap.Items {
		if err := s.Delete(t.Context(), u.Key, api.Revision{}); err != nil {
			t.Fatal(err)
		}
	}
	return &session{t, s, t.TempDir()}
}

// run runs calicoctl; {} in args is a file with the text. It returns the exit code and both streams, as they came.
func (s *session) run(args, text string) (code int, out string) {
	s.Helper()
	words := clitest.Words(strings.ReplaceAll(args, "{}", filepath.Join(s.dir, "resources.yaml")))
	if err := os.WriteFile(filepath.Join(s.dir, "resources.yaml"), []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
	var b bytes.Buffer
	code = cli.RunIn(s.Context(), clitest.Env(cli.Stdio{In: strings.NewReader(text), Out: &b, Err: &b}), append([]string{"/usr/local/bin/calicoctl"}, words...))
	return code, b.String()
}

// step is one call.
type step struct {
	args, text string
	fails      bool     // exit code 1
	want       string   // exactly, without blanks at both ends; REV stands for any revision
	has, not   []string // parts of what was printed
}

func (s *session) follow(steps ...step) {
	s.Helper()
	for _, st := range steps {
		code, out := s.run(st.args, st.text)
		if (code != 0) != st.fails || code > 1 {
			s.Errorf("calicoctl %s: exit code %d\n%s", st.args, code, out)
		}
		if st.want != "" && strings.TrimSpace(out) != strings.TrimSpace(st.want) {
			s.Errorf("calicoctl %s: got\n%s\nwant\n%s", st.args, out, st.want)
		}
		for _, part := range st.has {
			if !strings.Contains(out, part) {
				s.Errorf("calicoctl %s: %q is not in\n%s", st.args, part, out)
			}
		}
		for _, part := range st.not {
			if strings.Contains(out, part) {
				s.Errorf("calicoctl %s: %q is in\n%s", st.args, part, out)
			}
		}
	}
}

// resource is a document in one line.
func resource(kind, metadata, spec string) string {
	return "{apiVersion: projectcalico.org/v3, kind: " + kind + ", metadata: {" + metadata + "}, spec: {" + spec + "}}"
}

// list is a file of several resources.
func list(resources ...string) string { return "[" + strings.Join(resources, ", ") + "]" }

const notFound = "resource does not exist"

var (
	pool4 = resource("IPPool", "name: pool-a", "cidr: 10.0.1.0/24, ipipMode: Always, vxlanMode: Never, blockSize: 27, nodeSelector: \"foo == 'bar'\"")
	pool6 = resource("IPPool", "name: pool-b", "cidr: 'fed0:8001::/64', ipipMode: Never, vxlanMode: Never, blockSize: 123, nodeSelector: all()")
	peer  = resource("BGPPeer", "name: peer-a", "node: node1, peerIP: 192.168.0.250, asNumber: 64514")
	np    = resource("NetworkPolicy", "name: web, namespace: default", "order: 100, selector: app == 'web', ingress: [{action: Allow}]")
	gnp   = resource("GlobalNetworkPolicy", "name: all", "order: 100, selector: \"type=='database'\", types: [Ingress, Egress]")
	node1 = resource("Node", "name: node1", "bgp: {ipv4Address: 1.2.3.4/24, ipv6Address: 'aa:bb:cc::ff/120'}")
	wep1  = resource("WorkloadEndpoint", "name: node1-k8s-abcd-eth0, namespace: ns1, labels: {type: database}", "node: node1, orchestrator: k8s, pod: abcd, endpoint: eth0, containerID: c1, ipNetworks: [1.2.3.4/32], interfaceName: cali1, profiles: [p1, p2]")
)

// badPeer is one that could not be.
func badPeer(name string) string {
	return resource("BGPPeer", "name: "+name, "node: node1, peerIP: badpeerIP, asNumber: 64515")
}

// exec is run for words that may be empty.
func (s *session) exec(words ...string) (code int, out string) {
	s.Helper()
	var b bytes.Buffer
	code = cli.RunIn(s.Context(), clitest.Env(cli.Stdio{In: strings.NewReader(""), Out: &b, Err: &b}), append([]string{"calicoctl"}, words...))
	return code, b.String()
}

// patchCluster writes what only a node would.
func (s *session) patchCluster(patch string) {
	s.Helper()
	var b bytes.Buffer
	if code := cli.RunIn(s.Context(), clitest.Env(cli.Stdio{In: strings.NewReader(""), Out: &b, Err: &b}), []string{"twill", "patch", "clusterinformation", "default", "-p", patch}); code != 0 {
		s.Fatal(b.String())
	}
}

// put stores what IPAM would.
func (s *session) put(key, value string) {
	s.Helper()
	if err := datastore.Put(s.Context(), s.store, api.Update{Key: api.Root + key, Value: []byte(value)}); err != nil {
		s.Fatal(err)
	}
}
