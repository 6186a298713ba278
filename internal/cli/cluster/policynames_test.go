package cluster_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli"
	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/member"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/datastore/stores"
)

const (
	olderWeb = `{"kind":"NetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":"default.web","namespace":"prod","uid":"u"},"spec":{"tier":"default","order":10,"selector":"all()"}}`
	olderAll = `{"kind":"GlobalNetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":"default.all","uid":"v"},"spec":{"order":20,"selector":"all()"}}`
	newerAll = `{"kind":"GlobalNetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":"all","uid":"w","annotations":{"projectcalico.org/metadata":"{\"name\":\"all\"}"}},"spec":{"order":30,"selector":"all()"}}`
)

func TestPoliciesOfOlderVersionsGetTheNamesOfTheirUsers(t *testing.T) {
	c := newCLI(t)
	clitest.Equal(t, c.Want(0, "", "datastore", "migrate-policy-names"), "each policy is stored under the name that users know")
	clitest.Equal(t, c.Want(0, "", "datastore", "migrate-policy-names", "-o", "json"), "[]")
	c.Raw("networkpolicies/prod/default.web", olderWeb)
	c.Raw("globalnetworkpolicies/default.all", olderAll)
	c.Raw("nodes/h1", `{"kind":"Node","metadata":{"name":"h1"},"spec":{}}`)

	// An agent of Calico may run on h1.
	clitest.Contains(t, c.Want(1, "", "datastore", "migrate-policy-names"), "no agent of Twill's reports on h1,", "nothing was renamed: --force")
	code, out, errs := c.Run("", "datastore", "migrate-policy-names", "--dry-run")
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	clitest.Contains(t, errs, "on h1,", "without --dry-run this is refused")
	clitest.Equal(t, out, "POLICY                   STORED AS    WHAT\nglobalnetworkpolicy/all  default.all  renamed\nnetworkpolicy/prod/web   default.web  renamed\n2 of 2 older names would be renamed; nothing is written\n")
	clitest.Contains(t, c.Stored("networkpolicies/prod/default.web"), `"name":"default.web"`)
	if _, err := c.Store.Create(t.Context(), api.Update{Key: api.Root + "felix/v2/no-region/host/h1/status", Value: []byte(`{"time":"2026-01-02T03:04:05Z","version":"dev"}`)}); err != nil {
		t.Fatal(err)
	}

	// One of two names is taken by another policy.
	c.Raw("globalnetworkpolicies/all", newerAll)
	code, out, errs = c.Run("", "datastore", "migrate-policy-names", "-o", "name")
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	clitest.Equal(t, out, "globalnetworkpolicy/all\nnetworkpolicy/prod/web\n")
	clitest.Equal(t, errs, "twill: globalnetworkpolicy/all, stored as default.all, is refused: another policy of that name is stored as all (spec.order 20 → 30): delete the one that is wrong, or keep the newer name with --keep-newer\n")
	clitest.Contains(t, c.Stored("networkpolicies/prod/web"), `"name":"web"`, `"uid":"u"`)
	clitest.Contains(t, c.Stored("networkpolicies/prod/default.web"), "not found")
	clitest.Contains(t, c.Want(0, "", "datastore", "migrate-policy-names", "--keep-newer"), "globalnetworkpolicy/all  default.all  removed\n1 of 1 older name renamed\n")
	clitest.Contains(t, c.Stored("globalnetworkpolicies/all"), `"order":30`)

	// The datastore goes away.
	c.Raw("networkpolicies/prod/default.api", strings.Replace(olderWeb, "default.web", "default.api", 1))
	c.Store.Fail(func(op memstore.Op) error {
		if op.Verb == "transact" || op.Verb == "create" {
			return datastore.ErrUnavailable
		}
		return nil
	})
	clitest.Contains(t, c.Want(1, "", "datastore", "migrate-policy-names"), "networkpolicy/prod/api: ", "run it again when that is fixed")
}

// TestCalicoctlMigratesNamesOfPolicies on an etcd, under its name and with its words.
func TestCalicoctlMigratesNamesOfPolicies(t *testing.T) {
	clitest.ClearStoreEnv(t)
	endpoint := "unix://" + filepath.Join(t.TempDir(), "etcd.sock")
	etcd, err := member.Start(t.Context(), member.Config{Dir: t.TempDir(), ListenClient: []string{endpoint}, StartTimeout: clitest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	t.Setenv("ETCD_ENDPOINTS", endpoint)
	t.Setenv("DATASTORE_TYPE", "etcdv3")
	s, err := stores.Open(t.Context(), datastore.Config{Endpoints: []string{endpoint}, RequestTimeout: clitest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	calicoctl := func(fails bool, want string, args ...string) {
		t.Helper()
		var b bytes.Buffer
		code := cli.RunIn(t.Context(), clitest.Env(cli.Stdio{In: strings.NewReader(""), Out: &b, Err: &b}), append([]string{"calicoctl"}, args...))
		if code != map[bool]int{true: 1}[fails] || !strings.Contains(b.String(), want) {
			t.Errorf("calicoctl %s: exit code %d\n%s", strings.Join(args, " "), code, b.String())
		}
	}
	for key, value := range map[string]string{"networkpolicies/prod/default.web": olderWeb, "globalnetworkpolicies/default.all": olderAll, "nodes/h1": `{"kind":"Node","metadata":{"name":"h1"},"spec":{}}`} {
		if _, err := s.Create(t.Context(), api.Update{Key: api.ResourcesPrefix + key, Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
	}
	calicoctl(true, "no agent of Twill's reports on h1, and the cluster's calicoVersion is not v3.32 or later", "datastore", "migrate-policy-names")
	calicoctl(false, "Policy name migration complete, migrated 2 policies.\n", "datastore", "migrate-policy-names", "--allow-version-mismatch")
	calicoctl(false, "Policy name migration complete, migrated 0 policies.\n", "datastore", "migrate-policy-names")
	web, err := s.Get(t.Context(), api.ResourcesPrefix+"networkpolicies/prod/web")
	if err != nil {
		t.Fatal(err)
	}
	all, err := s.Get(t.Context(), api.ResourcesPrefix+"globalnetworkpolicies/all")
	if err != nil {
		t.Fatal(err)
	}
	clitest.Contains(t, string(web.Value)+string(all.Value), `"name":"web"`, `"name":"all"`)
	left, err := s.List(t.Context(), api.ResourcesPrefix)
	if err != nil || len(left.Items) != 3 {
		t.Errorf("%v: %d keys are left, want 3", err, len(left.Items))
	}
}
