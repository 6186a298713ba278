package manifests_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/cli/show"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
)

// What calicoctl prints: the list of a kind, with the revision that it is as of, or a sequence of documents.
func TestGetPrintsSeveralAsCalicoctlDoes(t *testing.T) {
	c := newCLI(t)
	c.Want(0, clitest.Gns("a", "b"), "apply", "-f", "-")
	list := c.Want(0, "", "get", "gns", "-o", "json")
	head := "{\n  \"kind\": \"GlobalNetworkSetList\",\n  \"apiVersion\": \"projectcalico.org/v3\",\n  \"metadata\": {\n    \"resourceVersion\": \"7\"\n  },\n  \"items\": ["
	clitest.Contains(t, clitest.WithoutPositions(list), clitest.WithoutPositions(head))
	clitest.Contains(t, c.Want(0, list, "apply", "-f", "-"), "globalnetworkset/a unchanged\nglobalnetworkset/b unchanged")
	clitest.Contains(t, c.Want(0, "", "get", "netsets", "-o", "yaml"), "items: []\nkind: NetworkSetList\nmetadata:\n  resourceVersion:")
	if out := c.Want(0, "", "get", "gns", "-o", "yaml", "--export"); strings.Contains(out, "resourceVersion") {
		t.Errorf("what belongs to the cluster is in\n%s", out)
	}
	some := c.Want(0, "", "get", "gns", "a", "b", "-o", "yaml")
	if !strings.HasPrefix(some, "- apiVersion: projectcalico.org/v3\n  kind: GlobalNetworkSet\n") {
		t.Errorf("no sequence:\n%s", some)
	}
	clitest.Contains(t, c.Want(0, some, "replace", "-f", "-"), "globalnetworkset/b unchanged")
	kinds := c.Want(0, "", "get", "gns,tiers", "-o", "json")
	if !strings.HasPrefix(kinds, "[\n") {
		t.Errorf("no sequence:\n%s", kinds)
	}
	clitest.Contains(t, c.Want(0, kinds, "apply", "-f", "-"), "tier/kube-admin unchanged")
	clitest.Equal(t, c.Want(0, "", "get", "gns", "a", "b", "-o", "jsonpath={.items[*].metadata.name}"), "a b")
	clitest.Contains(t, c.Want(0, list, "delete", "-f", "-"), "globalnetworkset/b deleted\nglobalnetworkset/a deleted")
}

// The built-in profile is in upstream's lists, too, and cannot be written.
func TestTheBuiltInProfileIsTakenAsItIsRead(t *testing.T) {
	c := newCLI(t)
	clitest.Contains(t, c.Want(0, "", "get", "profiles", "-o", "yaml"), "name: projectcalico-default-allow")
	const profile = "apiVersion: projectcalico.org/v3\nkind: Profile\nmetadata: {name: projectcalico-default-allow, creationTimestamp: null}\n" +
		"spec: {ingress: [{action: Allow, destination: {}, source: {}}], egress: [{action: Allow, destination: {}, source: {}}]}\n"
	clitest.Contains(t, c.Want(0, profile, "apply", "-f", "-"), "projectcalico-default-allow unchanged")
	clitest.Contains(t, c.Want(0, profile, "replace", "-f", "-"), "projectcalico-default-allow unchanged")
	clitest.Contains(t, c.Want(1, profile, "create", "-f", "-"), "exists already")
	clitest.Contains(t, c.Want(1, strings.Replace(profile, "Allow", "Deny", 1), "apply", "-f", "-"), "spec", "cannot be changed")
	clitest.Contains(t, c.Want(1, strings.Replace(profile, "creationTimestamp: null", "labels: {a: b}", 1), "apply", "-f", "-"), "metadata.labels", "cannot be changed")
	if got := c.Stored("profiles/projectcalico-default-allow"); !strings.Contains(got, "not found") {
		t.Errorf("it is stored: %s", got)
	}
}

func TestANamespaceOfAKindThatHasNoneIsUsage(t *testing.T) {
	c := newCLI(t)
	for _, args := range [][]string{
		{"get", "nodes"},
		{"get", "nodes,tiers"},
		{"describe", "gnp", "a"},
		{"delete", "tier", "a"},
		{"label", "node", "a", "b=c"},
		{"patch", "ippool", "a", "-p", "spec: {}"},
		{"edit", "gns", "a"},
	} {
		clitest.Contains(t, c.Want(2, "", append(args, "-n", "prod")...), "-n prod", "have no namespace; leave -n out")
	}
	c.Want(0, "", "get", "np,gnp", "-n", "prod") // one of them has
	c.Want(0, "", "get", "all", "-n", "prod")
}

func TestGetShowsWhatFilesName(t *testing.T) {
	c := newCLI(t)
	c.Want(0, "", "apply", "-f", clitest.Prod)
	clitest.Equal(t, c.Want(0, "", "get", "-f", clitest.Prod, "-o", "name"), c.Want(0, "", "get", "-f", clitest.Prod, "-o", "name"))
	clitest.Contains(t, c.Want(0, "", "get", "-f", clitest.Prod, "-o", "name"), "node/h1", "workloadendpoint/prod/h2-k8s-db-eth0")
	one := c.Want(0, clitest.Web+"---\n", "apply", "-f", "-")
	clitest.Contains(t, one, "networkpolicy/prod/web created")
	clitest.Contains(t, c.Want(0, clitest.Web, "get", "-f", "-", "-o", "yaml"), "kind: NetworkPolicy\nmetadata:", "uid:")
	out := c.Want(1, clitest.Web+"---\n"+clitest.TierNamed("gone"), "get", "-f", "-", "-o", "name")
	clitest.Contains(t, out, "networkpolicy/prod/web", "standard input: tier/gone does not exist")
	clitest.Contains(t, c.Want(2, "", "get", "np", "-f", clitest.Prod), "not both")
	clitest.Contains(t, c.Want(1, "", "get", "-f", "-"), "no resource in 1 file")
	c.Want(0, "", "get", "-f", "-", "--skip-empty")
}

func TestOfSeveralNamesThoseThatExistAreDone(t *testing.T) {
	c := newCLI(t)
	c.Want(0, clitest.TierNamed("a", "b", "c"), "apply", "-f", "-")
	out := c.Want(1, "", "get", "tiers", "a", "no", "c", "-o", "name")
	clitest.Contains(t, out, "tier/a\ntier/c\n", "tier/no does not exist")
	clitest.Contains(t, c.Want(1, "", "describe", "tiers", "a", "no"), "Name:       a\n", "tier/no does not exist")
	clitest.Contains(t, c.Want(1, "", "get", "tiers", "no"), "tier/no does not exist")
	out = c.Want(1, "", "delete", "tiers", "a", "no", "default", "b")
	clitest.Contains(t, out, "tier/a deleted\ntier/b deleted", "tier/no does not exist", "tier/default is built in")
	clitest.Contains(t, c.Want(1, clitest.TierNamed("b", "c"), "delete", "-f", "-"), "tier/c deleted", "tier/b does not exist")
	c.Want(0, "", "delete", "tiers", "a", "b", "--skip-not-exists")
}

func TestAStaleRevisionIsAConflict(t *testing.T) {
	for _, verb := range []string{"apply", "replace", "delete"} {
		c := newCLI(t)
		c.Want(0, clitest.TierNamed("a", "b"), "apply", "-f", "-")
		old := c.Want(0, "", "get", "tiers", "a", "b", "-o", "yaml")
		c.Want(0, "", "patch", "tier", "b", "-p", "spec: {order: 8}")
		before := c.Store.Revision()
		out := c.Want(1, strings.ReplaceAll(old, "order: 7", "order: 9"), verb, "-f", "-")
		clitest.Contains(t, out, "tier/b was changed by another writer", "get it again", "leave resourceVersion out")
		if c.Store.Revision() != before {
			t.Errorf("%s: something was written", verb)
		}
	}
	// And one that becomes stale after all were looked at.
	c := newCLI(t)
	c.Want(0, clitest.TierNamed("a"), "apply", "-f", "-")
	seen := c.Want(0, "", "get", "tier", "a", "-o", "yaml")
	changed := false
	c.Store.Fail(func(o memstore.Op) error {
		if o.Verb != "delete" || changed {
			return nil
		}
		changed = true
		u, _ := c.Store.Get(t.Context(), o.Key)
		_, err := c.Store.Update(t.Context(), api.Update{Key: u.Key, Value: bytes.Replace(u.Value, []byte(`"order":7`), []byte(`"order":8`), 1)})
		return err
	})
	clitest.Contains(t, c.Want(1, seen, "delete", "-f", "-"), "tier/a was changed by another writer")
	c.Want(0, "", "get", "tier", "a")
}

// Upstream's tools write what is unchanged, and move its revision; kubectl and Twill do not.
func TestWhatIsUnchangedKeepsItsRevision(t *testing.T) {
	c := newCLI(t)
	c.Want(0, clitest.TierNamed("a"), "apply", "-f", "-")
	before := c.Store.Revision()
	for _, args := range [][]string{{"apply", "-f", "-"}, {"replace", "-f", "-"}, {"patch", "tier", "a", "-p", "spec: {order: 7}"}} {
		clitest.Contains(t, c.Want(0, clitest.TierNamed("a"), args...), "tier/a unchanged")
	}
	c.Want(0, "", "label", "tier", "a", "b=c")
	c.Want(0, "", "label", "tier", "a", "b=c")
	if c.Store.Revision() != before+1 {
		t.Errorf("the revision was %d and is %d", before, c.Store.Revision())
	}
}

func TestTheFirstWriteMakesWhatUpstreamsAgentWaitsFor(t *testing.T) {
	for _, verb := range []string{"apply", "create"} {
		c := newCLI(t)
		c.Want(0, clitest.TierNamed("a"), verb, "-f", "-", "--dry-run")
		if c.Store.Revision() != 1 {
			t.Errorf("%s --dry-run wrote something", verb)
		}
		c.Want(0, clitest.TierNamed("a"), verb, "-f", "-")
		clitest.Contains(t, c.Stored("clusterinformations/default"), `"clusterGUID":"`, `"datastoreReady":true`)
		clitest.Contains(t, c.Stored("tiers/kube-baseline"), `"order":10000000`)
	}
	c := newCLI(t)
	c.Want(0, "", "datastore", "lock")
	c.Want(0, clitest.TierNamed("a"), "apply", "-f", "-")
	clitest.Contains(t, c.Stored("clusterinformations/default"), `"clusterGUID":"`, `"datastoreReady":false`)
	c = newCLI(t)
	c.Raw("clusterinformations/default", `{"kind":"ClusterInformation","metadata":{"name":"default"},"spec":{"clusterGUID":"g","newer":7}}`)
	c.Want(0, clitest.TierNamed("a"), "apply", "-f", "-")
	clitest.Contains(t, c.Stored("clusterinformations/default"), `"clusterGUID":"g"`, `"datastoreReady":true`, `"newer":7`)

	// Who may not write it may write what else he may.
	c = newCLI(t)
	c.Store.Fail(func(o memstore.Op) error {
		if o.Verb == "create" && strings.Contains(o.Key, "clusterinformations") {
			return datastore.ErrUnauthorized
		}
		return nil
	})
	clitest.Equal(t, c.Want(0, clitest.TierNamed("a"), "apply", "-f", "-"), "tier/a created")
}

// A tier without an order is stored with that of the default tier, as upstream stores it.
func TestATierHasAnOrderInTheDatastore(t *testing.T) {
	c := newCLI(t)
	c.Want(0, strings.Replace(clitest.TierNamed("a"), "{order: 7}", "{}", 1), "apply", "-f", "-")
	clitest.Contains(t, c.Stored("tiers/a"), `"order":1000000`, `"defaultAction":"Deny"`)
}

// The names that calicoctl and the CustomResourceDefinitions have for kinds.
func TestKindsHaveAllNamesOfUpstream(t *testing.T) {
	for kind, names := range map[string]string{
		"BGPConfiguration":              "bgpconfiguration bgpconfigurations bgpconfig bgpconfigs",
		"BGPFilter":                     "bgpfilter bgpfilters bgpf bgpfs bf bfs",
		"BGPPeer":                       "bgppeer bgppeers bgpp bgpps bp bps",
		"BlockAffinity":                 "blockaffinity blockaffinities affinity affinities",
		"CalicoNodeStatus":              "caliconodestatus caliconodestatuses nodestatus nodestatuses",
		"ClusterInformation":            "clusterinformation clusterinformations clusterinfo clusterinfos",
		"FelixConfiguration":            "felixconfiguration felixconfigurations felixconfig felixconfigs",
		"GlobalNetworkPolicy":           "globalnetworkpolicy globalnetworkpolicies gnp gnps cgnp",
		"GlobalNetworkSet":              "globalnetworkset globalnetworksets gnetsets",
		"HostEndpoint":                  "hostendpoint hostendpoints hep heps",
		"IPAMConfiguration":             "ipamconfiguration ipamconfigurations ipamconfig ipamconfigs",
		"IPPool":                        "ippool ippools ipp ipps pool pools",
		"IPReservation":                 "ipreservation ipreservations reservation reservations",
		"KubeControllersConfiguration":  "kubecontrollersconfiguration kubecontrollersconfigurations kubecontrollersconfig kubecontrollersconfigs kcc kccs",
		"NetworkPolicy":                 "networkpolicy networkpolicies policy policies np pol pols cnp caliconetworkpolicy caliconetworkpolicies",
		"NetworkSet":                    "networkset networksets netsets",
		"Node":                          "node nodes no nos",
		"Profile":                       "profile profiles pro pros",
		"StagedGlobalNetworkPolicy":     "stagedglobalnetworkpolicy stagedglobalnetworkpolicies sgnp sgnps",
		"StagedKubernetesNetworkPolicy": "stagedkubernetesnetworkpolicy stagedkubernetesnetworkpolicies stagedkubernetespolicy stagedkubernetespolicies sknp skpol skpols",
		"StagedNetworkPolicy":           "stagednetworkpolicy stagednetworkpolicies stagedpolicy stagedpolicies snp spol spols",
		"Tier":                          "tier tiers",
		"WorkloadEndpoint":              "workloadendpoint workloadendpoints wep weps",
	} {
		for name := range strings.FieldsSeq(names) {
			for _, n := range []string{name, strings.ToUpper(name), name + ".projectcalico.org", name + ".v3.projectcalico.org", name + ".p"} {
				if k, err := show.LookupKind(n); err != nil || k.Kind != kind {
					t.Errorf("%s is %q, %v: want %s", n, k.Kind, err, kind)
				}
			}
		}
	}
	for _, n := range []string{"networkpolicies.networking.k8s.io", "np.x", "pods"} {
		if k, err := show.LookupKind(n); err == nil {
			t.Errorf("%s is %s", n, k.Kind)
		}
	}
}

func TestTheNamespaceOfTheFlagIsThatOfResourcesThatNameNone(t *testing.T) {
	const (
		bare  = "apiVersion: projectcalico.org/v3\nkind: NetworkPolicy\nmetadata: {name: a}\nspec: {selector: all()}\n"
		named = "---\napiVersion: projectcalico.org/v3\nkind: NetworkPolicy\nmetadata: {name: b, namespace: prod}\nspec: {selector: all()}\n"
		set   = "---\napiVersion: projectcalico.org/v3\nkind: NetworkSetList\nitems: [{metadata: {name: s}, spec: {nets: [10.0.0.0/8]}}]\n"
	)
	for _, verb := range []string{"create", "apply", "replace"} {
		c := newCLI(t)
		if verb == "replace" {
			c.Want(0, bare+named+set, "create", "-n", "prod", "-f", "-")
		}
		in := bare + named + set + "---\n" + clitest.TierNamed("global")
		if verb == "replace" {
			in = bare + named + set
		}
		clitest.Contains(t, c.Want(0, in, verb, "-n", "prod", "-f", "-"), "networkpolicy/prod/a ", "networkpolicy/prod/b ", "networkset/prod/s ")
		if got := c.Stored("networkpolicies/default/a"); !strings.Contains(got, "not found") {
			t.Errorf("%s -n prod wrote into namespace default: %s", verb, got)
		}
		clitest.Contains(t, c.Want(1, bare+named, verb, "--namespace", "demo", "-f", "-"),
			`standard input: NetworkPolicy prod/b (line 6): metadata.namespace: is "prod", and -n says "demo": leave one of them out`)
		if got := c.Stored("networkpolicies/demo/a"); !strings.Contains(got, "not found") {
			t.Errorf("%s: something of a file that is refused was written: %s", verb, got)
		}
	}
	c := newCLI(t)
	c.Want(0, bare, "apply", "-f", "-")
	c.Want(0, bare, "apply", "-n", "demo", "-f", "-")
	clitest.Equal(t, c.Want(0, bare, "get", "-n", "demo", "-f", "-", "-o", "name"), "networkpolicy/demo/a")
	clitest.Equal(t, c.Want(0, bare, "delete", "-n", "demo", "-f", "-"), "networkpolicy/demo/a deleted")
	clitest.Equal(t, c.Want(0, "", "get", "np", "-A", "-o", "name"), "networkpolicy/default/a")
	clitest.Contains(t, c.Want(1, named, "get", "-n", "demo", "-f", "-"), `-n says "demo"`)
	clitest.Contains(t, c.Want(1, named, "delete", "-n", "demo", "-f", "-"), `-n says "demo"`)
	clitest.Contains(t, c.Want(1, named, "validate", "-n", "demo", "-f", "-"), `-n says "demo"`)
	clitest.Contains(t, c.Want(1, bare, "validate", "-n", "De mo", "-f", "-"), "metadata.namespace", "De mo")
	for _, verb := range []string{"create", "apply", "replace", "delete", "get", "validate"} {
		clitest.Contains(t, c.Want(2, clitest.TierNamed("x"), verb, "-n", "prod", "-f", "-"), "-n prod: nothing in these files has a namespace; leave -n out")
	}
}
