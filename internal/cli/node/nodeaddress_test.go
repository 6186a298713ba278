package node

import (
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/nodeaddr"
)

func TestTheEnvironmentOfCalicoNodeIsRead(t *testing.T) {
	clitest.NothingSet(t)
	root := func() addressing { // as the flags of a fresh command have it
		var a addressing
		node := (&command{&conn.Env{}}).nodeCmd()
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
		{"IP", "eth0", `--ip (IP) is "eth0": want autodetect, none, or an IPv4 address`},
		{"IP_AUTODETECTION_METHOD", "kubernetes-internal-ip", ""},
		{"IP_AUTODETECTION_METHOD", "kubernetes-external-ip", `--ip-autodetection-method (IP_AUTODETECTION_METHOD): "kubernetes-external-ip": want first-found`},
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
				"IP_AUTODETECTION_METHOD":  cfg.Wants[0].Method.String() == "kubernetes-internal-ip",
				"IP6_AUTODETECTION_METHOD": cfg.Wants[1].Method.String() == "can-reach=2001:db8::9",
				"AS":                       as == 64999 || as == 1<<16+10,
				"DISABLE_NODE_IP_CHECK":    cfg.Anyway,
				"AUTODETECT_POLL_INTERVAL": cfg.Interval == "10s",
			}
			for name, is := range got {
				if is != (name == tt.name) {
					t.Errorf("%s is honoured: %v", name, is)
				}
			}
		})
	}
}
