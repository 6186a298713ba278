package ipset

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

func TestSetsAreNamedAndDestroyedUnlessInUse(t *testing.T) {
	machinetest.Program(t, "ipset")
	machinetest.Program(t, "iptables-nft")
	ns := netnstest.New(t)
	want := func(names ...string) {
		t.Helper()
		var got []string
		var err error
		ns.Do(func() { got, err = Names() })
		if err != nil || !slices.Equal(got, names) {
			t.Errorf("sets are %q (%v), want %q", got, err, names)
		}
	}
	destroy := func(name string) (err error) { ns.Do(func() { err = Destroy(name) }); return err }
	want()
	ns.Run("ipset", "create", "cali40used", "hash:net")
	ns.Run("ipset", "create", "cali60free", "hash:net", "family", "inet6")
	for i := range 200 {
		ns.Run("ipset", "add", "cali40used", fmt.Sprintf("192.0.2.%d", i+1))
	}
	ns.Run("iptables-nft", "-A", "FORWARD", "-m", "set", "--match-set", "cali40used", "src", "-j", "DROP")
	want("cali40used", "cali60free")
	if err := destroy("cali40used"); !errors.Is(err, ErrInUse) {
		t.Errorf("a set that a rule matches: %v", err)
	}
	for range 2 { // the second time it is gone
		if err := destroy("cali60free"); err != nil {
			t.Error(err)
		}
	}
	want("cali40used")
}
