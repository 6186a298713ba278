package ctl

import (
	"context"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
)

func TestLockAndUnlock(t *testing.T) {
	c := newCLI(t)
	c.follow(
		told{"a cluster of which nothing is known", "", "version", 0, "twill dev\ncluster: nothing is known of it; no clusterinformation/default is stored"},
		told{"lock", "", "datastore lock", 0, "datastore locked"},
		told{"again", "", "datastore migrate lock", 0, "datastore locked already"},
		told{"version says so", "", "version", 0, "twill dev\ncluster GUID: not known\ncluster type: not known\ncluster version: not known\ndatastore: locked; twill datastore unlock opens it"},
		told{"unlock", "", "datastore unlock", 0, "datastore unlocked"},
		told{"the client alone", "", "version --client", 0, "twill dev"},
	)
	c.raw("clusterinformations/other", "{}")
	contains(t, c.stored("clusterinformations/default"), `"datastoreReady":true`)
	c.store.Fail(func(memstore.Op) error { return datastore.ErrUnavailable })
	contains(t, c.want(1, "", "version"), "twill dev", "No datastore answers")
}

// everything is the store without revisions.
func everything(t *testing.T, s *memstore.Store) map[string]string {
	t.Helper()
	snap, err := s.List(t.Context(), api.Root)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, u := range snap.Items {
		out[u.Key] = string(u.Value)
	}
	return out
}

func TestAnExportIsImportedAsItWas(t *testing.T) {
	from := newCLI(t)
	from.want(0, "", "apply", "-f", prod)
	from.put("clusterinformations/default", `{"kind":"ClusterInformation","apiVersion":"projectcalico.org/v3","metadata":{"name":"default","uid":"u"},"spec":{"clusterGUID":"g","newer":1,"datastoreReady":true}}`)
	from.raw("bgppeers/p1", `{"spec":{}}`) // a kind that this version does not know
	for key, value := range map[string]string{"ipam/v2/handle/x": "not\x00json", "felix/v2/no-region/host/h1/status": "{}"} {
		if _, err := from.store.Create(t.Context(), api.Update{Key: api.Root + key, Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
	}
	code, export, said := from.run("", "datastore", "export")
	if code != 0 {
		t.Fatal(said)
	}
	contains(t, said, "13 keys exported, as of revision ")
	to := newCLI(t)
	equal(t, to.want(0, export, "datastore", "import", "-f", "-"), "13 keys imported; the datastore is locked: twill datastore unlock starts the cluster")
	contains(t, to.stored("clusterinformations/default"), `"clusterGUID":"g","newer":1,"datastoreReady":false`)
	to.want(0, "", "datastore", "unlock")
	want, got := everything(t, from.store), everything(t, to.store)
	delete(want, api.Root+"felix/v2/no-region/host/h1/status") // of a process that runs elsewhere
	for key, value := range want {
		if got[key] != value {
			t.Errorf("%s:\ngot  %s\nwant %s", key, got[key], value)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d keys, want %d", len(got), len(want))
	}
	contains(t, to.want(1, export, "datastore", "import", "-f", "-"), "the datastore holds /calico/", "import only into an empty one")
}

func TestABrokenExportIsRefusedWhole(t *testing.T) {
	c := newCLI(t)
	for name, text := range map[string]string{
		"not of ours":    "kind: Tier\n",
		"cut off":        `{"key":"/calico/a","value":"e30="}` + "\n" + `{"key":"/calico/b","va`,
		"a strange key":  `{"key":"/registry/a","value":"e30="}`,
		"a key twice":    strings.Repeat(`{"key":"/calico/a","value":"e30="}`+"\n", 2),
		"nothing at all": "",
	} {
		t.Run(name, func(t *testing.T) {
			contains(t, (&cli{t, c.store}).want(1, text, "datastore", "import", "-f", "-"), "twill: -: ")
		})
	}
	if n := len(everything(t, c.store)); n != 0 {
		t.Errorf("%d keys were written", n)
	}
	contains(t, c.want(2, "", "datastore", "import"), "no file given")
}

func TestCalicoctlsConfigurationFileSaysWhereTheDatastoreIs(t *testing.T) {
	for _, env := range []string{"ETCD_ENDPOINTS", "ETCD_USERNAME"} {
		t.Setenv(env, "")
	}
	const text = "apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nmetadata:\nspec:\n  datastoreType: etcdv3\n  etcdEndpoints: https://192.0.2.1:2379\n  etcdUsername: u\n  etcdCACertFile: /ca\n"
	conn := connection{path: file(t, "cfg", text)}
	if err := conn.readFile(); err != nil {
		t.Fatal(err)
	}
	if got := conn.config(); got.Endpoints[0] != "https://192.0.2.1:2379" || got.Username != "u" || got.CAFile != "/ca" {
		t.Errorf("%+v", got)
	}
	t.Setenv("ETCD_ENDPOINTS", "http://env:2379")
	if got := conn.config().Endpoints[0]; got != "http://env:2379" {
		t.Errorf("the environment is the more specific: got %s", got)
	}
	if conn.endpoints = "http://flag:2379"; conn.config().Endpoints[0] != "http://flag:2379" {
		t.Error("a flag is the most specific")
	}
	c := newCLI(t)
	c.want(0, "", "get", "tiers", "-c", file(t, "cfg", text), "--allow-version-mismatch")
	contains(t, c.want(1, "", "get", "tiers", "-c", "/nope"), "configuration: ", "no such file")
	contains(t, c.want(1, "", "get", "tiers", "-c", file(t, "cfg", "kind: Tier\n")), `kind is "Tier": want CalicoAPIConfig`)
	contains(t, c.want(1, "", "get", "tiers", "-c", file(t, "cfg", strings.Replace(text, "etcdv3", "kubernetes", 1))), "only etcdv3 is supported yet")
	for field, why := range map[string]string{"etcdDiscoverySrv": "not looked up by DNS", "etcdCACert": "name that in etcdCACertFile", "etcdEndpoint": "no such field"} {
		contains(t, c.want(1, "", "get", "tiers", "-c", file(t, "cfg", text+"  "+field+": x\n")), "spec."+field+": ", why)
		c.want(0, "", "get", "tiers", "-c", file(t, "cfg", text+"  "+field+": \"\"\n  k8sAPIEndpoint: http://192.0.2.9\n"))
	}
	c.want(0, "", "get", "tiers", "-c", file(t, "cfg", text+"  etcdKey:\n  etcdpassword: p\n  K8SAPIEndpoint: http://192.0.2.9\n"))
	t.Setenv("ETCD_DISCOVERY_SRV", "example.org")
	contains(t, c.want(1, "", "get", "tiers", "-c", file(t, "cfg", text)), "ETCD_DISCOVERY_SRV: ")
}

func TestLongWorkHasADeadlineForEachCallNotForAll(t *testing.T) {
	var conn connection
	calls := 0
	conn.open = func(context.Context) (datastore.Store, func(), error) { return memstore.New(), func() {}, nil }
	err := conn.long(t.Context(), func(ctx context.Context, s datastore.Store) error {
		if _, has := ctx.Deadline(); has {
			t.Error("the work as a whole has a deadline")
		}
		conn.timeout = 0
		s = &timed{s, 0} // no time at all for a call
		for _, call := range []func() error{
			func() error { _, err := s.Get(ctx, "/a"); return err },
			func() error { _, err := s.List(ctx, "/a"); return err },
			func() error { _, err := s.Create(ctx, api.Update{Key: "/a"}); return err },
			func() error { _, err := s.Update(ctx, api.Update{Key: "/a"}); return err },
			func() error { return s.Delete(ctx, "/a", 0) },
		} {
			if calls++; call() == nil {
				t.Errorf("call %d took no time", calls)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
