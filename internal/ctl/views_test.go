package ctl

import (
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

const configuration = "apiVersion: projectcalico.org/v3\nkind: IPAMConfiguration\nmetadata: {name: default}\nspec: {strictAffinity: true, autoAllocateBlocks: true, maxBlocksPerHost: 4}\n"

func TestViewsOfAddressManagement(t *testing.T) {
	c := withAddresses(t)
	contains(t, c.want(0, "", "get", "ipamconfig"), "nothing found")
	contains(t, c.want(0, configuration, "create", "-f", "-"), "ipamconfiguration/default created")
	equal(t, c.ipam("config")[0], `{"strict_affinity":true,"auto_allocate_blocks":true,"maxBlocksPerHost":4}`)
	contains(t, c.want(0, configuration, "apply", "-f", "-"), "unchanged")
	contains(t, c.want(1, configuration, "create", "-f", "-"), "exists already")
	contains(t, c.want(0, "", "get", "ipamconfigurations"), "default  true")
	// What another version wrote stays, and what is shown can be given back.
	if err := datastore.Put(t.Context(), c.store, api.Update{Key: api.IPAMConfigKey, Value: []byte(`{"auto_allocate_blocks":true,"newer":7}`)}); err != nil {
		t.Fatal(err)
	}
	contains(t, c.want(0, "", "patch", "ipamconfig", "default", "-p", "spec: {strictAffinity: true}"), "patched")
	equal(t, c.ipam("config")[0], `{"strict_affinity":true,"auto_allocate_blocks":true,"newer":7}`)
	shown := c.want(0, "", "get", "ipamconfig", "default", "-o", "yaml")
	contains(t, c.want(0, shown, "replace", "-f", "-"), "unchanged")
	contains(t, c.want(0, "", "describe", "ipamconfig"), "Findings:")
	contains(t, c.want(1, "", "patch", "ipamconfig", "default", "-p", "spec: {strictAffinity: false, autoAllocateBlocks: false}"), "cannot both be false")
	contains(t, c.want(1, "", "label", "ipamconfig", "default", "a=b"), "etcd keeps none of it")
	contains(t, c.want(1, strings.Replace(configuration, "strictAffinity: true", "strictAffinity: false", 1), "apply", "-f", "-"), "needs spec.strictAffinity")
	contains(t, c.want(1, strings.Replace(configuration, "name: default", "name: other", 1), "apply", "-f", "-"), "there is only one")
	contains(t, c.want(0, "", "delete", "ipamconfig", "default"), "deleted")
	contains(t, c.want(0, "", "get", "ipamconfig"), "nothing found")
	if _, err := c.store.Get(t.Context(), theConfiguration); err == nil {
		t.Error("the resource that calicoctl reads is still there")
	}

	contains(t, c.want(0, "", "get", "blockaffinities"), "n1-10-65-0-0-28   10.65.0.0/28   host  n1    confirmed", "n2-10-65-0-32-28  10.65.0.32/28  host  n2    pending")
	contains(t, c.want(0, "", "get", "affinity", "n1-10-65-0-0-28", "-o", "yaml"), "cidr: 10.65.0.0/28", "node: n1", "state: confirmed")
	contains(t, c.want(1, "", "delete", "affinity", "n1-10-65-0-0-28"), "cannot be changed")
	contains(t, c.want(1, "apiVersion: projectcalico.org/v3\nkind: BlockAffinity\nmetadata: {name: a}\nspec: {cidr: 10.65.0.0/28, node: n1, state: confirmed, deleted: false}", "apply", "-f", "-"), "is a view")
}

// In etcd, calicoctl reads and writes an IPAMConfiguration under the key of a resource, and its address management goes by
// another key, as ours does.
func TestTheIPAMConfigurationOfCalicoctlSaysTheSame(t *testing.T) {
	c := newCLI(t)
	says := func(strict, blocks string) {
		t.Helper()
		contains(t, c.stored("ipamconfigurations/default"), `"strictAffinity":`+strict, blocks, `"uid":"`)
		if got := strings.Contains(c.ipam("config")[0], `"strict_affinity":true`); got != (strict == "true") {
			t.Errorf("the key says %s", c.ipam("config")[0])
		}
	}
	c.want(0, configuration, "apply", "-f", "-")
	says("true", `"maxBlocksPerHost":4`)
	c.want(0, "", "ipam", "configure", "--strictaffinity=true", "--maxblocks=7")
	says("true", `"maxBlocksPerHost":7`)
	c.want(0, "", "patch", "ipamconfig", "default", "-p", "spec: {strictAffinity: false, maxBlocksPerHost: 0}")
	says("false", `"autoAllocateBlocks":true`)
	contains(t, c.want(0, "", "get", "ipamconfig", "-o", "yaml"), "strictAffinity: false")

	// calicoctl apply, which changes nothing of how addresses are given out.
	other := strings.Replace(c.stored("ipamconfigurations/default"), `"strictAffinity":false`, `"strictAffinity":true`, 1)
	if err := datastore.Put(t.Context(), c.store, api.Update{Key: theConfiguration, Value: []byte(other)}); err != nil {
		t.Fatal(err)
	}
	contains(t, c.want(0, "", "get", "ipamconfig"), "no address management reads it, with strictAffinity true", "in force is strictAffinity false")
	contains(t, c.want(0, "", "ipam", "show", "--show-configuration"), "no address management reads it, with strictAffinity true")
	c.want(0, configuration, "apply", "-f", "-")
	says("true", `"maxBlocksPerHost":4`)

	alone := newCLI(t)
	alone.raw("ipamconfigurations/default", other)
	contains(t, alone.want(0, "", "get", "ipamconfig"), "no address management reads it")
	alone.want(0, configuration, "apply", "-f", "-")
	if got := alone.want(0, "", "get", "ipamconfig"); strings.Contains(got, "no address management") {
		t.Errorf("both say the same, and it says\n%s", got)
	}
}
