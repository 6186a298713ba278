package kubestore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/translate"
)

func TestPlacesOfKeys(t *testing.T) {
	s := cluster(t)
	const prefix = api.ResourcesPrefix
	for _, g := range groups {
		judge := datastore.JudgeOf(open(t, s, g))
		for key, want := range map[string]datastore.Place{
			prefix + "globalnetworksets/a":                       datastore.PlaceOwn,
			prefix + "networkpolicies/prod/web":                  datastore.PlaceOwn,
			prefix + "networkpolicies/prod/knp.default.web":      datastore.PlaceView,
			prefix + "globalnetworkpolicies/kcnp.web":            datastore.PlaceView,
			prefix + "profiles/kns.prod":                         datastore.PlaceView,
			prefix + "profiles/ksa.prod.sa":                      datastore.PlaceView,
			prefix + "profiles/mine":                             datastore.PlaceNone,
			prefix + "nodes/n1":                                  datastore.PlacePart,
			prefix + "workloadendpoints/prod/n1-k8s-web-eth0":    datastore.PlacePart,
			prefix + "workloadendpoints/prod/n1-k8s-web-net1":    datastore.PlaceNone,
			prefix + "workloadendpoints/prod/n1-cni-c1-eth0":     datastore.PlaceNone,
			prefix + "laterkinds/a":                              datastore.PlaceNone,
			prefix + "ipamconfigurations/default":                datastore.PlaceView, // of the object of the next
			api.IPAMConfigKey:                                    datastore.PlaceOwn,
			api.IPAMPrefix + "handle/x":                          datastore.PlaceOwn,
			api.IPAMPrefix + "assignment/ipv4/block/10.0.0.0-26": datastore.PlaceOwn,
			translate.KeyLabelsAreCopied:                         datastore.PlaceOwn,
		} {
			if got, err := judge.PlaceOf(t.Context(), key); err != nil || got != want {
				t.Errorf("%s: %s has the place %d, want %d, error %v", g, key, got, want, err)
			}
		}
	}
}

func TestWhatIsTriedIsJudgedAndNotKept(t *testing.T) {
	s := cluster(t)
	for _, g := range groups {
		t.Run(string(g), func(t *testing.T) {
			s.Clear(t, string(g), "globalnetworksets", "ipamhandles")
			c := open(t, s, g)
			judge := datastore.JudgeOf(c)
			try := func(key, value string) (string, error) {
				u, err := judge.Try(t.Context(), api.Update{Key: key, Value: []byte(value)})
				if err == nil && u.Key != key {
					t.Errorf("it is of the key %q, want %q", u.Key, key)
				}
				return string(u.Value), err
			}
			key := api.ResourcesPrefix + "globalnetworksets/tried"
			of := func(nets string) string {
				return `{"kind":"GlobalNetworkSet","metadata":{"name":"tried"},"spec":{"nets":` + nets + `,"newer":{"a":[1]}}}`
			}
			value, err := try(key, of(`["10.0.0.0/8"]`))
			if err != nil || !strings.Contains(value, `"nets":["10.0.0.0/8"]`) || !strings.Contains(value, `"newer":{"a":[1]}`) {
				t.Errorf("%s, error %v", value, err)
			}
			if _, err := c.Get(t.Context(), key); !errors.Is(err, datastore.ErrNotFound) {
				t.Errorf("what was tried is there: %v", err)
			}
			if _, err := try(key, of(`7`)); err == nil || !strings.Contains(err.Error(), "refused by Kubernetes") {
				t.Errorf("what the API server refuses: %v", err)
			}
			handle := api.IPAMPrefix + "handle/NET.c1" // its object's name is in small letters
			if value, err := try(handle, `{"block":{"10.0.0.0/26":1},"deleted":false}`); err != nil || !strings.Contains(value, `{"10.0.0.0/26":1}`) {
				t.Errorf("a handle: %s, error %v", value, err)
			}
			if _, err := try(api.ResourcesPrefix+"networksets/nowhere/a", `{"kind":"NetworkSet","metadata":{"name":"a","namespace":"nowhere"},"spec":{}}`); err == nil || errors.Is(err, datastore.ErrNotFound) || !strings.Contains(err.Error(), "no such namespace") {
				t.Errorf("without a namespace: %v", err)
			}
			if _, err := try(api.ResourcesPrefix+"profiles/kns.nowhere", `{}`); err == nil || !strings.Contains(err.Error(), "with kubectl") {
				t.Errorf("a view: %v", err)
			}
			if _, err := c.Create(t.Context(), api.Update{Key: key, Value: []byte(of(`["10.0.0.0/8"]`))}); err != nil {
				t.Fatal(err)
			}
			if value, err := try(key, of(`["10.0.0.0/9"]`)); err != nil || !strings.Contains(value, "10.0.0.0/9") {
				t.Errorf("of what is there: %s, error %v", value, err)
			}
			if u, err := c.Get(t.Context(), key); err != nil || !strings.Contains(string(u.Value), "10.0.0.0/8") {
				t.Errorf("%s, error %v", u.Value, err)
			}
		})
	}
}
