package podtest

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore/form"
	"github.com/twillnet/twill/internal/datastore/member"
	"github.com/twillnet/twill/internal/datastore/stores"
	"github.com/twillnet/twill/internal/kubetest"
)

var moveObjects = flag.Int("move-objects", 500, "keys of TestADatastoreMovesThereAndBackThoughKilledAtEachStep")

// side is a datastore of a move, and how commands are told of it.
type side struct {
	name  string
	env   []string
	store datastore.Client
}

// moving is a move between two.
type moving struct {
	*testing.T
	twill string
}

func (m *moving) etcd(name string) side {
	m.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "etcd") // short, as the name of a socket must be
	if err != nil {
		m.Fatal(err)
	}
	m.Cleanup(func() { _ = os.RemoveAll(dir) })
	endpoint := "unix://" + filepath.Join(dir, "s")
	etcd, err := member.Start(m.Context(), member.Config{Dir: dir, ListenClient: []string{endpoint}, Logger: slog.New(slog.DiscardHandler), StartTimeout: 2 * time.Minute})
	if err != nil {
		m.Fatal(err)
	}
	m.Cleanup(etcd.Close)
	return m.open(name, datastore.Config{Endpoints: []string{endpoint}, RequestTimeout: time.Minute}, "DATASTORE_TYPE=etcdv3", "ETCD_ENDPOINTS="+endpoint)
}

func (m *moving) open(name string, cfg datastore.Config, env ...string) side {
	m.Helper()
	store, err := stores.Open(m.Context(), cfg)
	if err != nil {
		m.Fatal(err)
	}
	m.Cleanup(func() { _ = store.Close() })
	return side{name, env, store}
}

// holds are the values of all keys that a move is about, without what a datastore keeps of its own.
func (m *moving) holds(s side) map[string]any {
	m.Helper()
	out := map[string]any{}
	for _, prefix := range []string{api.IPAMPrefix, api.KeyPrefix(api.KindGlobalNetworkPolicy, ""), api.KeyPrefix(api.KindGlobalNetworkSet, "")} {
		snap, err := s.store.List(m.Context(), prefix)
		if err != nil {
			m.Fatalf("%s: %v", s.name, err)
		}
		for _, u := range snap.Items {
			var doc map[string]any
			if err := json.Unmarshal(u.Value, &doc); err != nil {
				m.Fatalf("%s: %s: %v", s.name, u.Key, err)
			}
			delete(doc, "apiVersion")
			if meta, is := doc["metadata"].(map[string]any); is {
				for _, own := range []string{"uid", "creationTimestamp", "generation", "resourceVersion", "annotations"} {
					delete(meta, own)
				}
			}
			out[u.Key] = doc
		}
	}
	return out
}

// same wants two datastores to hold the same.
func (m *moving) same(a, b map[string]any, what string) {
	m.Helper()
	wrong := 0
	for key := range a {
		if !reflect.DeepEqual(a[key], b[key]) {
			if wrong++; wrong < 5 {
				m.Errorf("%s: %s: %v, want %v", what, key, b[key], a[key])
			}
		}
	}
	if len(a) != len(b) || wrong > 0 {
		m.Fatalf("%s: %d keys are other than they were; %d keys, want %d", what, wrong, len(b), len(a))
	}
}

func (m *moving) command(on side, args ...string) *exec.Cmd {
	cmd := exec.Command(m.twill, args...)
	cmd.Env = append(append(os.Environ(), "K8S_CLIENT_QPS=5000"), on.env...)
	return cmd
}

// says runs a command that must succeed, and say something.
func (m *moving) says(on side, want string, args ...string) {
	m.Helper()
	out, err := m.command(on, args...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), want) {
		m.Fatalf("on %s, twill %v: %v\n%s\nwant %q", on.name, args, err, out, want)
	}
}

// move locks one datastore, exports it, and imports into the other, where the import is killed before its first write, after each fifth of the keys, and
// while it reads them again. What is moved from is as it was after each, and a last import completes it.
func (m *moving) move(from, to side) {
	m.Helper()
	m.says(from, "", "datastore", "lock")
	want := m.holds(from)
	file := filepath.Join(m.TempDir(), "export")
	out, err := m.command(from, "datastore", "export").Output()
	if err == nil {
		err = os.WriteFile(file, out, 0o600)
	}
	if err != nil {
		m.Fatal(err)
	}
	for fifth := range 6 {
		cmd := m.command(to, "datastore", "import", "-f", file)
		var says bytes.Buffer
		cmd.Stdout, cmd.Stderr = &says, &says
		if err := cmd.Start(); err != nil {
			m.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		has := 0
		for goes := true; goes && has < len(want)*fifth/5; {
			has = len(m.holds(to))
			goes = len(ended) == 0
		}
		select {
		case err := <-ended:
			if err != nil {
				m.Fatalf("import: %v\n%s", err, says.String())
			}
		case <-time.After(time.Duration(rand.IntN(200)) * time.Millisecond): // somewhere in it
			_ = cmd.Process.Kill()
			<-ended
		}
		m.Logf("import into %s killed with %d of %d keys", to.name, len(m.holds(to)), len(want))
		m.same(want, m.holds(from), from.name+", after an import that was killed")
	}
	m.says(to, "and read again: it is as exported", "datastore", "import", "-f", file)
	m.same(want, m.holds(to), to.name)
	m.says(to, "1 key would be imported, ", "datastore", "import", "-f", file, "--dry-run")
}

// TestADatastoreMovesThereAndBackThoughKilledAtEachStep: from an etcd to the API server, and from there, with what changed, to another etcd, with policies,
// sets, and addresses in use. Each import is killed several times; where it came from is as it was, and in the end the other one holds the same.
func TestADatastoreMovesThereAndBackThoughKilledAtEachStep(t *testing.T) {
	s := kubetest.New(t, kubetest.Config{})
	m := &moving{T: t, twill: program(t, "twill")}
	one, other := m.etcd("an etcd"), m.etcd("another etcd")
	definitions, err := exec.Command(m.twill, "kube", "crds", "--group", string(form.V3)).Output()
	if err != nil {
		t.Fatal(err)
	}
	s.Apply(t, string(definitions))
	cluster := m.open("the API server", datastore.Config{Type: "kubernetes", Kubeconfig: s.Kubeconfig, Group: string(form.V3), QPS: 5000, RequestTimeout: time.Minute},
		"DATASTORE_TYPE=kubernetes", "KUBECONFIG="+s.Kubeconfig, "CALICO_API_GROUP="+string(form.V3))
	m.fill(one.store, *moveObjects)

	m.move(one, cluster)
	m.says(cluster, "", "datastore", "unlock")
	set := api.KeyPrefix(api.KindGlobalNetworkSet, "")
	if err := cluster.store.Delete(t.Context(), set+"s-0", api.Revision{}); err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.store.Create(t.Context(), api.Update{Key: set + "new", Value: []byte(`{"kind":"GlobalNetworkSet","metadata":{"name":"new"},"spec":{"nets":["192.0.2.0/24"]}}`)}); err != nil {
		t.Fatal(err)
	}
	m.move(cluster, other)

	was, is := m.holds(one), m.holds(other)
	if is[set+"new"] == nil || is[set+"s-0"] != nil {
		t.Error("what changed in between is lost")
	}
	is[set+"s-0"] = was[set+"s-0"]
	delete(is, set+"new")
	m.same(was, is, "there and back")
}

// fill writes so many keys: of five, a policy, a set, and a block with an address in use, its affinity and its handle.
func (m *moving) fill(s datastore.Client, n int) {
	m.Helper()
	put := func(key, format string, args ...any) {
		m.Helper()
		if _, err := s.Create(m.Context(), api.Update{Key: key, Value: fmt.Appendf(nil, format, args...)}); err != nil {
			m.Fatal(err)
		}
	}
	put(api.KeyPrefix(api.KindIPPool, "")+"pods", `{"kind":"IPPool","metadata":{"name":"pods"},"spec":{"cidr":"10.64.0.0/14","blockSize":30,"nodeSelector":"all()","vxlanMode":"Never","ipipMode":"Never"}}`)
	for i := range n / 5 {
		put(fmt.Sprint(api.KeyPrefix(api.KindGlobalNetworkPolicy, ""), "p-", i),
			`{"kind":"GlobalNetworkPolicy","metadata":{"name":"p-%[1]d"},"spec":{"tier":"default","order":%[1]d,"selector":"app == 'a%[1]d'","types":["Ingress"],"ingress":[{"action":"Allow","protocol":"TCP","source":{"selector":"app == 'b%[1]d'"},"destination":{"ports":[80,"8000:8%03[2]d"]}}]}}`, i, i%1000)
		put(fmt.Sprint(api.KeyPrefix(api.KindGlobalNetworkSet, ""), "s-", i), `{"kind":"GlobalNetworkSet","metadata":{"name":"s-%[1]d","labels":{"n":"%[1]d"}},"spec":{"nets":["198.51.%[2]d.%[3]d/32"]}}`, i, i/256%256, i%256)
		block, host := fmt.Sprintf("10.64.%d.%d", i/64, i%64*4), fmt.Sprint("h", i%100)
		put(api.IPAMPrefix+"assignment/ipv4/block/"+block+"-30", `{"cidr":"%s/30","affinity":"host:%s","allocations":[null,0,null,null],"unallocated":[0,2,3],"attributes":[{"handle_id":"k-%d","secondary":{"node":"%[2]s"}}],"sequenceNumber":1,"sequenceNumberForAllocation":{"1":0},"deleted":false}`, block, host, i)
		put(api.IPAMPrefix+"host/"+host+"/ipv4/block/"+block+"-30", `{"state":"confirmed","deleted":false}`)
		put(fmt.Sprint(api.IPAMPrefix, "handle/k-", i), `{"block":{"%s/30":1},"deleted":false}`, block)
	}
}
