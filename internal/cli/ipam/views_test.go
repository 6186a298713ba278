package ipam_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/resources"
)

const configuration = "apiVersion: projectcalico.org/v3\nkind: IPAMConfiguration\nmetadata: {name: default}\nspec: {strictAffinity: true, autoAllocateBlocks: true, maxBlocksPerHost: 4}\n"

// configured wants the configuration as address management reads it. What is false may be there, or be left out.
func configured(c *clitest.CLI, want string) {
	c.T.Helper()
	found := func(text string) map[string]any {
		var all map[string]any
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			c.T.Fatal(err)
		}
		maps.DeleteFunc(all, func(_ string, v any) bool { return v == false })
		return all
	}
	if got := clitest.IpamKeys(c, "config")[0]; !reflect.DeepEqual(found(got), found(want)) {
		c.T.Errorf("got %s, want %s", got, want)
	}
}

func TestViewsOfAddressManagement(t *testing.T) {
	c := clitest.WithAddresses(newCLI(t))
	clitest.Contains(t, c.Want(0, "", "get", "ipamconfig"), "nothing found")
	clitest.Contains(t, c.Want(0, configuration, "create", "-f", "-"), "ipamconfiguration/default created")
	configured(c, `{"strict_affinity":true,"auto_allocate_blocks":true,"maxBlocksPerHost":4}`)
	clitest.Contains(t, c.Want(0, configuration, "apply", "-f", "-"), "unchanged")
	clitest.Contains(t, c.Want(1, configuration, "create", "-f", "-"), "exists already")
	clitest.Contains(t, c.Want(0, "", "get", "ipamconfigurations"), "default  true")
	// What another version wrote stays, and what is shown can be given back.
	if err := datastore.Put(t.Context(), c.Store, api.Update{Key: api.IPAMConfigKey, Value: []byte(`{"auto_allocate_blocks":true,"newer":7}`)}); err != nil {
		t.Fatal(err)
	}
	clitest.Contains(t, c.Want(0, "", "patch", "ipamconfig", "default", "-p", "spec: {strictAffinity: true}"), "patched")
	configured(c, `{"strict_affinity":true,"auto_allocate_blocks":true,"newer":7}`)
	shown := c.Want(0, "", "get", "ipamconfig", "default", "-o", "yaml")
	clitest.Contains(t, c.Want(0, shown, "replace", "-f", "-"), "unchanged")
	clitest.Contains(t, c.Want(0, "", "describe", "ipamconfig"), "Findings:")
	clitest.Contains(t, c.Want(1, "", "patch", "ipamconfig", "default", "-p", "spec: {strictAffinity: false, autoAllocateBlocks: false}"), "cannot both be false")
	clitest.Contains(t, c.Want(1, "", "label", "ipamconfig", "default", "a=b"), "the datastore keeps none of it")
	clitest.Contains(t, c.Want(1, strings.Replace(configuration, "strictAffinity: true", "strictAffinity: false", 1), "apply", "-f", "-"), "needs spec.strictAffinity")
	clitest.Contains(t, c.Want(1, strings.Replace(configuration, "name: default", "name: other", 1), "apply", "-f", "-"), "there is only one")
	clitest.Contains(t, c.Want(0, "", "delete", "ipamconfig", "default"), "deleted")
	clitest.Contains(t, c.Want(0, "", "get", "ipamconfig"), "nothing found")
	if _, err := c.Store.Get(t.Context(), resources.TheConfiguration); err == nil {
		t.Error("the resource that calicoctl reads is still there")
	}

	clitest.Contains(t, c.Want(0, "", "get", "blockaffinities"), "n1-10-65-0-0-28   10.65.0.0/28   host  n1    confirmed", "n2-10-65-0-32-28  10.65.0.32/28  host  n2    pending")
	clitest.Contains(t, c.Want(0, "", "get", "affinity", "n1-10-65-0-0-28", "-o", "yaml"), "cidr: 10.65.0.0/28", "node: n1", "state: confirmed")
	clitest.Contains(t, c.Want(1, "", "delete", "affinity", "n1-10-65-0-0-28"), "cannot be changed")
	clitest.Contains(t, c.Want(1, "apiVersion: projectcalico.org/v3\nkind: BlockAffinity\nmetadata: {name: a}\nspec: {cidr: 10.65.0.0/28, node: n1, state: confirmed, deleted: false}", "apply", "-f", "-"), "is a view")
}

// In etcd, calicoctl reads and writes an IPAMConfiguration under the key of a resource, and its address management goes by
// another key, as ours does.
func TestTheIPAMConfigurationOfCalicoctlSaysTheSame(t *testing.T) {
	c := newCLI(t)
	says := func(strict, blocks string) {
		t.Helper()
		clitest.Contains(t, c.Stored("ipamconfigurations/default"), `"strictAffinity":`+strict, blocks, `"uid":"`)
		if got := strings.Contains(clitest.IpamKeys(c, "config")[0], `"strict_affinity":true`); got != (strict == "true") {
			t.Errorf("the key says %s", clitest.IpamKeys(c, "config")[0])
		}
	}
	c.Want(0, configuration, "apply", "-f", "-")
	says("true", `"maxBlocksPerHost":4`)
	c.Want(0, "", "ipam", "configure", "--strictaffinity=true", "--maxblocks=7")
	says("true", `"maxBlocksPerHost":7`)
	c.Want(0, "", "patch", "ipamconfig", "default", "-p", "spec: {strictAffinity: false, maxBlocksPerHost: 0}")
	says("false", `"autoAllocateBlocks":true`)
	clitest.Contains(t, c.Want(0, "", "get", "ipamconfig", "-o", "yaml"), "strictAffinity: false")

	// calicoctl apply, which changes nothing of how addresses are given out.
	other := strings.Replace(c.Stored("ipamconfigurations/default"), `"strictAffinity":false`, `"strictAffinity":true`, 1)
	if err := datastore.Put(t.Context(), c.Store, api.Update{Key: resources.TheConfiguration, Value: []byte(other)}); err != nil {
		t.Fatal(err)
	}
	clitest.Contains(t, c.Want(0, "", "get", "ipamconfig"), "no address management reads it, with strictAffinity true", "in force is strictAffinity false")
	clitest.Contains(t, c.Want(0, "", "ipam", "show", "--show-configuration"), "no address management reads it, with strictAffinity true")
	c.Want(0, configuration, "apply", "-f", "-")
	says("true", `"maxBlocksPerHost":4`)

	alone := newCLI(t)
	alone.Raw("ipamconfigurations/default", other)
	clitest.Contains(t, alone.Want(0, "", "get", "ipamconfig"), "no address management reads it")
	alone.Want(0, configuration, "apply", "-f", "-")
	if got := alone.Want(0, "", "get", "ipamconfig"); strings.Contains(got, "no address management") {
		t.Errorf("both say the same, and it says\n%s", got)
	}
}
