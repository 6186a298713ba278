package resources_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/datastore/storetest"
	"github.com/twillnet/twill/internal/resources"
)

// checkPool judges a pool that a user writes, as apply does.
func checkPool(t *testing.T, s datastore.Store, name, spec string) string {
	t.Helper()
	docs, err := api.Decode([]byte("apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {name: " + name + "}\nspec: {" + spec + "}\n"))
	if err != nil {
		t.Fatal(err)
	}
	api.Default(docs[0].Resource)
	if err := errors.Join(api.Validate(docs[0].Resource).Err(), resources.CheckPools(t.Context(), s, []resources.Manifest{{File: "f", Document: docs[0]}})); err != nil {
		return err.Error()
	}
	return ""
}

// TestANewPoolHasTheBlockSizeOfBlocksThatAreThere, as with calicoctl: else what is free in them would be out of reach.
func TestANewPoolHasTheBlockSizeOfBlocksThatAreThere(t *testing.T) {
	s := storetest.New(t)
	for _, key := range []string{"ipv4/block/10.65.0.64-26", "ipv6/block/fd65::40-122"} {
		if err := datastore.Put(t.Context(), s, api.Update{Key: api.BlockPrefix + key, Value: []byte(`{}`)}); err != nil {
			t.Fatal(err)
		}
	}
	const stored = `{"kind":"IPPool","apiVersion":"projectcalico.org/v3","metadata":{"name":"old"},"spec":{"cidr":"10.65.0.0/24","blockSize":28}}`
	if err := datastore.Put(t.Context(), s, api.Update{Key: api.ResourcesPrefix + "ippools/old", Value: []byte(stored)}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, pool, spec, want string }{
		{"other blocks", "a", "cidr: 10.65.0.0/16, blockSize: 28", "spec.blockSize: is 28, and a former pool left block 10.65.0.64/26: make it 26, or release"},
		{"a pool within a block", "a", "cidr: 10.65.0.64/28, blockSize: 28", "spec.blockSize: is 28"},
		{"a disabled one", "a", "cidr: 10.65.0.0/16, blockSize: 28, disabled: true", "spec.blockSize: is 28"},
		{"the other family", "a", "cidr: 'fd65::/112', blockSize: 124", "left block fd65::40/122: make it 122"},
		{"the size of IPv6 by itself", "a", "cidr: 'fd65::/112'", ""},
		{"the same blocks", "a", "cidr: 10.65.0.64/26", ""},
		{"blocks of another range", "a", "cidr: 10.66.0.0/16, blockSize: 28", ""},
		{"a pool that is there", "old", "cidr: 10.65.0.0/24, blockSize: 28, natOutgoing: true", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := checkPool(t, s, tt.pool, tt.spec) // some overlap old
			if (tt.want == "") != !strings.Contains(got, "spec.blockSize") || !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	s.Fail(func(o memstore.Op) error {
		if strings.HasPrefix(o.Key, api.BlockPrefix) {
			return datastore.ErrUnauthorized
		}
		return nil
	})
	if got := checkPool(t, s, "a", "cidr: 10.67.0.0/16, blockSize: 28"); got != "" {
		t.Errorf("who may not read blocks is refused: %s", got)
	}
}

// TestARangeInOtherWordsIsNoChangeOfAPool: of IPv6 there are many, and old versions stored bits beyond the length.
func TestARangeInOtherWordsIsNoChangeOfAPool(t *testing.T) {
	s := storetest.New(t)
	for name, cidr := range map[string]string{"six": "fd65:0:0::/48", "bits": "10.65.0.1/16"} {
		value := fmt.Sprintf(`{"kind":"IPPool","apiVersion":"projectcalico.org/v3","metadata":{"name":%q},"spec":{"cidr":%q}}`, name, cidr)
		if err := datastore.Put(t.Context(), s, api.Update{Key: api.ResourcesPrefix + "ippools/" + name, Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct{ pool, cidr, want string }{
		{"six", "fd65:0:0::/48", ""},
		{"six", "FD65::/48", ""},
		{"six", "fd65::/49", "cannot be changed from fd65:0:0::/48"},
		{"bits", "10.65.0.0/16", ""},
		{"bits", "10.65.0.1/16", "has bits beyond its length"},
		{"bits", "10.65.0.0/17", "cannot be changed from 10.65.0.1/16"},
	} {
		spec := "cidr: '" + tt.cidr + "', blockSize: 0"
		if got := checkPool(t, s, tt.pool, spec); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %s: got %q, want %q", tt.pool, tt.cidr, got, tt.want)
		}
	}
}
