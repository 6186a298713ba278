package ipam_test

import (
	"os"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore/crds"
	"github.com/twillnet/twill/internal/datastore/kubestore/form"
	"github.com/twillnet/twill/internal/datastore/stores"
	"github.com/twillnet/twill/internal/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m.Run, kubetest.Config{})) }

// kubernetes is a store on a real API server, with the pools of [etcd], in one of the forms that clusters have.
func kubernetes(t testing.TB, g form.Group) datastore.Client {
	t.Helper()
	s := kubetest.Start(t)
	all, err := crds.Documents(crds.Definitions(g))
	if err != nil {
		t.Fatal(err)
	}
	s.Apply(t, all)
	c, err := stores.Open(t.Context(), datastore.Config{Type: "kubernetes", Kubeconfig: s.Kubeconfig, Group: string(g), QPS: 10_000, RequestTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	putPools(t, c, "10.65.0.0/24", 28)
	return c
}

func TestManyAssignAtOnceOnKubernetes(t *testing.T) {
	for _, g := range []form.Group{form.V3, form.V1} {
		t.Run(string(g), func(t *testing.T) { manyAssignAtOnce(t, kubernetes(t, g)) })
	}
}
