package node_test

import (
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/cli/clitest"
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
