package node_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/node"
)

func TestPoolsOfTheEnvironmentAreMadeOnce(t *testing.T) {
	clitest.NothingSet(t)
	c := newCLI(t)
	pools := func() string {
		t.Helper()
		if err := node.EnsurePools(t.Context(), c.Store, node.Pools{}); err != nil {
			return err.Error()
		}
		_, out, _ := c.Run("", "get", "ippools", "-o", "custom-columns=NAME:.metadata.name,CIDR:.spec.cidr,SELECTOR:.spec.nodeSelector")
		return strings.Join(strings.Fields(out), " ")
	}
	clitest.Equal(t, pools(), "")
	t.Setenv("CALICO_IPV4POOL_CIDR", "10.48.0.0/16")
	t.Setenv("NO_DEFAULT_POOLS", "true")
	clitest.Equal(t, pools(), "")
	t.Setenv("NO_DEFAULT_POOLS", "")
	t.Setenv("CALICO_IPV4POOL_BLOCK_SIZE", "1000")
	clitest.Contains(t, pools(), "CALICO_IPV4POOL_…: ", "spec.blockSize")
	_, _, errs := c.Run("", "node", "--data-dir", t.TempDir())
	clitest.Contains(t, errs, "twill: node: CALICO_IPV4POOL_…: ") // at the start, and not for ever after
	t.Setenv("CALICO_IPV4POOL_BLOCK_SIZE", "28")
	t.Setenv("CALICO_IPV4POOL_VXLAN", "Off")
	t.Setenv("CALICO_IPV4POOL_DISABLE_BGP_EXPORT", "true")
	t.Setenv("CALICO_IPV4POOL_NODE_SELECTOR", "rack == 'a'")
	clitest.Equal(t, pools(), "NAME CIDR SELECTOR default-ipv4-ippool 10.48.0.0/16 rack == 'a'")
	clitest.Contains(t, c.Stored("ippools/default-ipv4-ippool"), `"cidr":"10.48.0.0/16","vxlanMode":"Never","ipipMode":"Never","natOutgoing":true,`, `"blockSize":28`, `"nodeSelector":"rack == 'a'"`, `"disableBGPExport":true`)
	t.Setenv("CALICO_IPV4POOL_CIDR", "10.49.0.0/16") // there is a pool: it stays the only one
	t.Setenv("CALICO_IPV6POOL_CIDR", "fd48::/48")
	for name, value := range map[string]string{"VXLAN": "CrossSubnet", "BLOCK_SIZE": "124", "NODE_SELECTOR": "rack == 'b'", "DISABLE_BGP_EXPORT": "true", "NAT_OUTGOING": "true"} {
		t.Setenv("CALICO_IPV6POOL_"+name, value)
	}
	clitest.Equal(t, pools(), "NAME CIDR SELECTOR default-ipv4-ippool 10.48.0.0/16 rack == 'a' default-ipv6-ippool fd48::/48 rack == 'b'")
	clitest.Contains(t, c.Stored("ippools/default-ipv6-ippool"), `"vxlanMode":"CrossSubnet"`, `"natOutgoing":true`, `"blockSize":124`, `"disableBGPExport":true`)
}

// TestAPoolOverBlocksOfAnotherSizeIsNotMade, as `twill apply` would not: what is free in them would be out of reach. Nor does it keep a host from starting.
func TestAPoolOverBlocksOfAnotherSizeIsNotMade(t *testing.T) {
	for _, tt := range []struct {
		name, cidr string // CALICO_IPV4POOL_CIDR
		made       bool
	}{
		{"of another size than what a former pool left", "10.48.0.0/16", false},
		{"in another range", "10.49.0.0/16", true},
	} {
		clitest.NothingSet(t)
		t.Setenv("CALICO_IPV4POOL_CIDR", tt.cidr)
		t.Setenv("CALICO_IPV6POOL_CIDR", "fd48::/48")
		store := memstore.New()
		left := api.Update{Key: api.BlockKey(netip.MustParsePrefix("10.48.0.0/28")), Value: []byte(`{}`)}
		if _, err := store.Create(t.Context(), left); err != nil {
			t.Fatal(err)
		}
		if err := node.EnsurePools(t.Context(), store, node.Pools{}); (err == nil) != tt.made || err != nil && !strings.Contains(err.Error(), "10.48.0.0/28") {
			t.Errorf("%s: %v", tt.name, err)
		}
		s := start(t)
		if err := s.Fill(t.Context(), store); err != nil {
			t.Errorf("%s, and a host that starts: %v", tt.name, err)
		}
		if _, err := store.Get(t.Context(), api.KeyPrefix(api.KindIPPool, "")+"default-ipv4-ippool"); (err == nil) != tt.made {
			t.Errorf("%s: %v", tt.name, err)
		}
		if _, err := store.Get(t.Context(), api.KeyPrefix(api.KindIPPool, "")+"default-ipv6-ippool"); err != nil {
			t.Errorf("%s: the pool of the other family: %v", tt.name, err)
		}
	}
}
