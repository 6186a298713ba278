package cluster_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
)

func TestLockAndUnlock(t *testing.T) {
	c := newCLI(t)
	c.Follow(
		clitest.Step{Name: "a cluster of which nothing is known", In: "", Args: "version", Code: 0, Want: "twill dev\ncluster: nothing is known of it; no clusterinformation/default is stored"},
		clitest.Step{Name: "lock", In: "", Args: "datastore lock", Code: 0, Want: "datastore locked"},
		clitest.Step{Name: "again", In: "", Args: "datastore migrate lock", Code: 0, Want: "datastore locked already"},
		clitest.Step{Name: "version says so", In: "", Args: "version", Code: 0, Want: "twill dev\ncluster GUID: not known\ncluster type: not known\ncluster version: not known\ndatastore: locked; twill datastore unlock opens it"},
		clitest.Step{Name: "unlock", In: "", Args: "datastore unlock", Code: 0, Want: "datastore unlocked"},
		clitest.Step{Name: "the client alone", In: "", Args: "version --client", Code: 0, Want: "twill dev"},
	)
	clitest.Contains(t, c.Stored("clusterinformations/default"), `"datastoreReady":true`)
	c.Store.Fail(func(memstore.Op) error { return datastore.ErrUnavailable })
	clitest.Contains(t, c.Want(1, "", "version"), "twill dev", "No datastore answers")
}

func TestALockIsInTheOneClusterInformation(t *testing.T) {
	c := newCLI(t)
	c.Raw("clusterinformations/other", "{}")
	c.Want(0, "", "datastore", "lock")
	clitest.Contains(t, c.Stored("clusterinformations/default"), `"datastoreReady":false`)
	clitest.Equal(t, c.Stored("clusterinformations/other"), "{}")
}

func TestAnExportIsImportedAsItWas(t *testing.T) {
	from := newCLI(t)
	from.Want(0, "", "apply", "-f", clitest.Prod)
	from.Put("clusterinformations/default", `{"kind":"ClusterInformation","apiVersion":"projectcalico.org/v3","metadata":{"name":"default","uid":"u"},"spec":{"clusterGUID":"g","newer":1,"datastoreReady":true}}`)
	from.Raw("bgppeers/p1", `{"spec":{}}`) // a kind that this version does not know
	for key, value := range map[string]string{"ipam/v2/handle/x": "not\x00json", "felix/v2/no-region/host/h1/status": "{}"} {
		if _, err := from.Store.Create(t.Context(), api.Update{Key: api.Root + key, Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
	}
	code, export, stderr := from.Run("", "datastore", "export")
	if code != 0 {
		t.Fatal(stderr)
	}
	clitest.Contains(t, stderr, "13 keys exported, as of revision ")
	to := newCLI(t)
	clitest.Contains(t, to.Want(0, export, "datastore", "import", "-f", "-"), "13 keys imported, and read again: it is as exported; the datastore is locked: twill datastore unlock starts the cluster\n", "bgppeer/p1 is written as it is")
	clitest.Contains(t, to.Stored("clusterinformations/default"), `"clusterGUID":"g","newer":1,"datastoreReady":false`)
	to.Want(0, "", "datastore", "unlock")
	want, got := clitest.Everything(t, from.Store), clitest.Everything(t, to.Store)
	delete(want, api.Root+"felix/v2/no-region/host/h1/status") // of a process that runs elsewhere
	for key, value := range want {
		if got[key] != value {
			t.Errorf("%s:\ngot  %s\nwant %s", key, got[key], value)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d keys, want %d", len(got), len(want))
	}
	clitest.Equal(t, to.Want(0, export, "datastore", "import", "--dry-run", "-f", "-"), "1 key would be imported, 12 are there already; nothing is written")
	clitest.Contains(t, to.Stored("clusterinformations/default"), `"datastoreReady":true`)
	clitest.Contains(t, to.Want(0, export, "datastore", "import", "--dry-run", "-f", "-", "-o", "wide"), "unchanged  /calico/ipam/v2/handle/x\n", "updated    /calico/resources/v3/projectcalico.org/clusterinformations/default")
	to.Want(0, "", "delete", "networkpolicy", "db", "-n", "prod")
	clitest.Contains(t, to.Want(0, export, "datastore", "import", "-f", "-"), "address management has 1 problem; twill ipam check", "2 keys imported, 11 are there already, and read again: it is as exported; the datastore is locked: twill datastore unlock starts the cluster")
	to.Put("bgppeers/p1", `{"spec":{"a":1}}`)
	to.Raw("globalnetworksets/other", `{}`)
	clitest.Contains(t, to.Want(1, export, "datastore", "import", "-f", "-"), "nothing was written, since", "bgppeer/p1 is there already, and is another: spec.a 1 → nothing",
		"globalnetworkset/other is there already, and is not in the export")
}

// TestWhatNobodyCouldApplyIsNamedWhenItIsImported: etcd takes any value, and a backup must come back as it was.
func TestWhatNobodyCouldApplyIsNamedWhenItIsImported(t *testing.T) {
	from := newCLI(t)
	from.Want(0, "", "apply", "-f", clitest.Prod)
	from.Raw("globalnetworksets/wrong", `{"kind":"GlobalNetworkSet","apiVersion":"projectcalico.org/v3","metadata":{"name":"wrong"},"spec":{"nets":["10.0.0.0/99"]}}`)
	from.Raw("globalnetworksets/unread", `{"kind":"GlobalNetworkSet","spec":[]}`)
	_, export, _ := from.Run("", "datastore", "export")
	code, _, stderr := newCLI(t).Run(export, "datastore", "import", "-f", "-")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	clitest.Contains(t, stderr, "globalnetworkset/wrong is written as it is, and apply would refuse it: GlobalNetworkSet wrong: spec.nets[0]: ", "globalnetworkset/unread is written as it is")
	if n := strings.Count(stderr, "would refuse it"); n != 2 {
		t.Errorf("%d are named, want the 2 that are wrong:\n%s", n, stderr)
	}
}

func TestABrokenExportIsRefusedWhole(t *testing.T) {
	c := newCLI(t)
	before := clitest.Everything(t, c.Store)
	for name, text := range map[string]string{
		"not of ours":                     "kind: Tier\n",
		"cut off":                         `{"key":"/calico/a","value":"e30="}` + "\n" + `{"key":"/calico/b","va`,
		"a strange key":                   `{"key":"/registry/a","value":"e30="}`,
		"a key twice":                     strings.Repeat(`{"key":"/calico/a","value":"e30="}`+"\n", 2),
		"nothing at all":                  "",
		"no key":                          `{"keys":0,"revision":"7"}` + "\n",
		"cut off at the end of a line":    `{"key":"/calico/a","value":"e30="}` + "\n",
		"a line is missing":               `{"key":"/calico/a","value":"e30="}` + "\n" + `{"keys":2,"revision":"7"}` + "\n",
		"something follows the last line": `{"key":"/calico/a","value":"e30="}` + "\n" + `{"keys":1}` + "\n" + `{"key":"/calico/b","value":"e30="}` + "\n",
		"a key in the last line":          `{"key":"/calico/a","value":"e30="}` + "\n" + `{"key":"/registry/a","keys":1}` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			clitest.Contains(t, c.On(t).Want(1, text, "datastore", "import", "-f", "-"), "twill: -: ")
		})
	}
	if after := clitest.Everything(t, c.Store); !maps.Equal(after, before) {
		t.Errorf("there was %v, and is %v", before, after)
	}
	clitest.Contains(t, c.Want(1, `{"key":"/calico/a","value":"e30="}`, "datastore", "import", "-f", "-"), `it was cut off after 1 key, or is of a version that wrote none: if you know that it is complete, append the line {"keys":1}`)
	clitest.Contains(t, c.Want(2, "", "datastore", "import"), "no file given")
}

// TestUpstreamsStepsOfAMigration, with its form of file.
func TestUpstreamsStepsOfAMigration(t *testing.T) {
	from := newCLI(t)
	from.Want(0, "", "apply", "-f", clitest.Prod)
	from.Raw("profiles/mine", `{"kind":"Profile","metadata":{"name":"mine"}}`)
	clitest.Contains(t, from.Want(1, "", "datastore", "migrate", "export"), "the datastore is not locked")
	from.Want(0, "", "datastore", "migrate", "lock")
	code, export, stderr := from.Run("", "datastore", "migrate", "export")
	if code != 0 {
		t.Fatal(stderr)
	}
	clitest.Contains(t, stderr, "profile/mine is left out: it is of no namespace and no account", "exported, ", " left out, as of revision ")
	clitest.Contains(t, export, "kind: NetworkPolicyList\n", "---\n===\n{\n", `"kind": "ClusterInformation"`)
	to := newCLI(t)
	clitest.Contains(t, to.Want(0, export, "datastore", "migrate", "import", "-f", "-", "--dry-run"), " would be imported; nothing is written")
	clitest.Contains(t, to.Want(0, export, "datastore", "migrate", "import", "-f", "-"), " imported, and read again: it is as exported; the datastore is locked")
	clitest.Contains(t, to.Want(0, export, "datastore", "migrate", "import", "-f", "-"), "1 key imported, ", " are there already, and read again")
	to.Want(0, "", "datastore", "migrate", "unlock")
	for _, kind := range []string{"networkpolicies", "nodes", "tiers"} {
		clitest.Equal(t, clitest.Ageless(to.Want(0, "", "get", kind, "-A")), clitest.Ageless(from.Want(0, "", "get", kind, "-A")))
	}
	clitest.Contains(t, to.Want(1, strings.ReplaceAll(export, "kind: NetworkPolicy\n", "kind: Future\n"), "datastore", "migrate", "import", "-f", "-"), `-: Future prod/db: this version knows no kind "Future"`)
}
