package ctl

import (
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/nodeaddr"
)

// nothingSet takes away what the machine's environment says of addresses and pools.
func nothingSet(t *testing.T) {
	t.Helper()
	for _, name := range []string{
		"IP", "IP6", "IP_AUTODETECTION_METHOD", "IP6_AUTODETECTION_METHOD", "AS", "DISABLE_NODE_IP_CHECK", "AUTODETECT_POLL_INTERVAL",
		"NO_DEFAULT_POOLS", "CALICO_IPV4POOL_CIDR", "CALICO_IPV6POOL_CIDR",
	} {
		t.Setenv(name, "")
	}
}

func TestTheEnvironmentOfCalicoNodeIsRead(t *testing.T) {
	nothingSet(t)
	root := func() addressing { // as the flags of a fresh command have it
		var a addressing
		cmd := newRoot(&command{})
		node, _, err := cmd.Find([]string{"node"})
		if err != nil {
			t.Fatal(err)
		}
		for flag, v := range map[string]*string{"ip": &a.ip, "ip6": &a.ip6, "ip-autodetection-method": &a.method, "ip6-autodetection-method": &a.method6, "as": &a.as} {
			*v = node.Flags().Lookup(flag).Value.String()
		}
		return a
	}
	for _, tt := range []struct{ name, value, wrong string }{
		{"IP", "autodetect", ""},
		{"IP6", "2001:db8::1/64", ""},
		{"IP6_AUTODETECTION_METHOD", "can-reach=2001:db8::9", ""},
		{"AS", "64999", ""},
		{"AS", "1.10", ""},
		{"DISABLE_NODE_IP_CHECK", "true", ""},
		{"AUTODETECT_POLL_INTERVAL", "10s", ""},
		{"AS", "as", `--as (AS) is "as": `},
		{"AUTODETECT_POLL_INTERVAL", "soon", `AUTODETECT_POLL_INTERVAL is "soon": want a duration`},
		{"IP", "eth0", `--ip (IP) is "eth0": want autodetect, none, or an IPv4 address`},
		{"IP_AUTODETECTION_METHOD", "kubernetes-internal-ip", "--ip-autodetection-method (IP_AUTODETECTION_METHOD): kubernetes-internal-ip: this version has no access"},
	} {
		t.Run(tt.name+"="+tt.value, func(t *testing.T) {
			t.Setenv(tt.name, tt.value)
			a := root()
			cfg, err := a.config()
			if tt.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wrong) {
					t.Errorf("got %v, want %s", err, tt.wrong)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			as := api.ASNumber(0)
			if cfg.AS != nil {
				as = *cfg.AS
			}
			got := map[string]bool{
				"IP":                       cfg.Wants[0].Order == nodeaddr.Detect,
				"IP6":                      cfg.Wants[1].Fixed.String() == "2001:db8::1/64",
				"IP6_AUTODETECTION_METHOD": cfg.Wants[1].Method.String() == "can-reach=2001:db8::9",
				"AS":                       as == 64999 || as == 1<<16+10,
				"DISABLE_NODE_IP_CHECK":    cfg.Anyway,
				"AUTODETECT_POLL_INTERVAL": cfg.Poll == 10*time.Second,
			}
			for name, is := range got {
				if is != (name == tt.name) {
					t.Errorf("%s is honoured: %v", name, is)
				}
			}
		})
	}
}

func TestPoolsOfTheEnvironmentAreMadeOnce(t *testing.T) {
	nothingSet(t)
	c := newCLI(t)
	pools := func() string {
		t.Helper()
		if err := ensurePools(t.Context(), c.store); err != nil {
			return err.Error()
		}
		_, out, _ := c.run("", "get", "ippools")
		return strings.Join(strings.Fields(out), " ")
	}
	equal(t, pools(), "")
	t.Setenv("CALICO_IPV4POOL_CIDR", "10.48.0.0/16")
	t.Setenv("NO_DEFAULT_POOLS", "true")
	equal(t, pools(), "")
	t.Setenv("NO_DEFAULT_POOLS", "")
	t.Setenv("CALICO_IPV4POOL_BLOCK_SIZE", "1000")
	contains(t, pools(), "CALICO_IPV4POOL_…: ", "spec.blockSize")
	_, _, errs := c.run("", "node", "--data-dir", t.TempDir())
	contains(t, errs, "twill: node: CALICO_IPV4POOL_…: ") // at the start, and not for ever after
	t.Setenv("CALICO_IPV4POOL_BLOCK_SIZE", "28")
	t.Setenv("CALICO_IPV4POOL_VXLAN", "Off")
	t.Setenv("CALICO_IPV4POOL_DISABLE_BGP_EXPORT", "true")
	t.Setenv("CALICO_IPV4POOL_NODE_SELECTOR", "rack == 'a'")
	equal(t, pools(), "NAME CIDR SELECTOR default-ipv4-ippool 10.48.0.0/16 rack == 'a'")
	contains(t, c.stored("ippools/default-ipv4-ippool"), `"cidr":"10.48.0.0/16","vxlanMode":"Never","ipipMode":"Never","natOutgoing":true,`, `"blockSize":28`, `"nodeSelector":"rack == 'a'"`, `"disableBGPExport":true`)
	t.Setenv("CALICO_IPV4POOL_CIDR", "10.49.0.0/16") // there is a pool: it stays the only one
	t.Setenv("CALICO_IPV6POOL_CIDR", "fd48::/48")
	equal(t, pools(), "NAME CIDR SELECTOR default-ipv4-ippool 10.48.0.0/16 rack == 'a' default-ipv6-ippool fd48::/48 all()")
}
