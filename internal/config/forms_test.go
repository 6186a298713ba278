package config_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/config"
)

// TestFormsOfValues: what a text of the environment becomes, or what is said of one that means nothing.
func TestFormsOfValues(t *testing.T) {
	in := func(s config.Settings) string { return fmt.Sprint(s.FailsafeIn) }
	nat := func(s config.Settings) string { return fmt.Sprint(s.NAT.Addr, s.NAT.Ports, s.NAT.Link) }
	metadata := func(s config.Settings) string { return s.Target().String() }
	for _, tt := range []struct {
		variable    string
		of          func(config.Settings) string
		want, wrong string
	}{
		{"FELIX_FAILSAFEINBOUNDHOSTPORTS=none", in, "[]", ""},
		{"FELIX_FAILSAFEINBOUNDHOSTPORTS=tcp:22,udp:68, SCTP:9", in, fmt.Sprint([]config.Failsafe{{Protocol: 6, Port: 22}, {Protocol: 17, Port: 68}, {Protocol: 132, Port: 9}}), ""},
		{"FELIX_FAILSAFEINBOUNDHOSTPORTS=22", in, fmt.Sprint([]config.Failsafe{{Protocol: 6, Port: 22}}), ""},
		{
			"FELIX_FAILSAFEINBOUNDHOSTPORTS=tcp:192.0.2.9/24:22,udp:[2001:db8::/64]:53", in,
			fmt.Sprint([]config.Failsafe{{Protocol: 6, Port: 22, Net: netip.MustParsePrefix("192.0.2.0/24")}, {Protocol: 17, Port: 53, Net: netip.MustParsePrefix("2001:db8::/64")}}), "",
		},
		{"FELIX_FAILSAFEINBOUNDHOSTPORTS=icmp:22", in, "", `has "icmp:22": want protocol:port`},
		{"FELIX_FAILSAFEINBOUNDHOSTPORTS=tcp:ssh", in, "", `has "tcp:ssh"`},
		{
			"FELIX_FAILSAFEINBOUNDHOSTPORTS=tcp:192.0.2.1:22,tcp:[2001:db8::1]:22,tcp:2001:db8::2:22", in,
			fmt.Sprint([]config.Failsafe{
				{Protocol: 6, Port: 22, Net: netip.MustParsePrefix("192.0.2.1/32")},
				{Protocol: 6, Port: 22, Net: netip.MustParsePrefix("2001:db8::1/128")},
				{Protocol: 6, Port: 22, Net: netip.MustParsePrefix("2001:db8::2/128")},
			}), "",
		},
		{"FELIX_FAILSAFEINBOUNDHOSTPORTS=tcp:192.0.2.300:22", in, "", `has "tcp:192.0.2.300:22"`},
		{"FELIX_FAILSAFEINBOUNDHOSTPORTS=tcp:65536", in, "", `has "tcp:65536"`},
		{"FELIX_INTERFACEEXCLUDE=kube-ipvs0,//", in, fmt.Sprint(config.New("h1").Resolve().Settings.FailsafeIn), "matches every interface"},
		{"FELIX_NATOUTGOINGADDRESS=192.0.2.7", nat, "192.0.2.7 [0 0]", ""},
		{"FELIX_NATOUTGOINGADDRESS=2001:db8::7", nat, "", "want an IPv4 address"},
		{"FELIX_METADATAADDR=192.0.2.7", metadata, "192.0.2.7:8775", ""},
		{"FELIX_METADATAADDR=None", metadata, "invalid AddrPort", ""},
		{"FELIX_METADATAADDR=nova.example.org", metadata, "", "want the IPv4 address of one host, or none"},
		{"FELIX_METADATAADDR=0.0.0.0", metadata, "", "want the IPv4 address of one host, or none"},
		{"FELIX_METADATAPORT=0", metadata, "", "want a port"},
		{"FELIX_INTERFACEPREFIX=tap,cali", metadata, "127.0.0.1:8775", ""},
		{"FELIX_INTERFACEPREFIX=tapas", metadata, "invalid AddrPort", ""},
		{"FELIX_NATPORTRANGE=1000:2000", nat, "invalid IP [1000 2000]", ""},
		{"FELIX_NATPORTRANGE=1000", nat, "invalid IP [1000 1000]", ""},
		{"FELIX_NATPORTRANGE=2000:1000", nat, "", "want a range"},
		{"FELIX_NATPORTRANGE=0:9", nat, "", "want a range"},
		{"FELIX_NATPORTRANGE=9:x", nat, "", "want a range"},
		{"FELIX_IPTABLESNATOUTGOINGINTERFACEFILTER=eth+", nat, "invalid IP [0 0]eth*", ""},
		{"FELIX_IPTABLESNATOUTGOINGINTERFACEFILTER=eth0", nat, "invalid IP [0 0]eth0", ""},
		{"FELIX_IPTABLESNATOUTGOINGINTERFACEFILTER=a name", nat, "", "want the beginning"},
		{"FELIX_HEALTHTIMEOUTOVERRIDES=calc=10s,Dataplane=2m", func(s config.Settings) string { return fmt.Sprint(s.HealthTimeouts) }, fmt.Sprint(map[string]time.Duration{"calc": 10 * time.Second, "dataplane": 2 * time.Minute}), ""},
		{"FELIX_HEALTHTIMEOUTOVERRIDES=CalculationGraph=10s,InternalDataplaneMainLoop=2m", func(s config.Settings) string { return fmt.Sprint(s.HealthTimeouts) }, fmt.Sprint(map[string]time.Duration{"calc": 10 * time.Second, "dataplane": 2 * time.Minute}), ""},
		{"FELIX_HEALTHTIMEOUTOVERRIDES=calc=0s", nat, "", "want part=duration"},
		{"FELIX_LOGACTIONRATELIMITBURST=10000", nat, "", "want 1 to 9999"},
		{"FELIX_LOGLEVEL=debug", func(s config.Settings) string { return s.LogSeverity }, "Debug", ""},
		{"FELIX_ETCDADDR=http://192.0.2.1:2379", func(s config.Settings) string { return s.Etcd.Endpoints[0] }, "http://192.0.2.1:2379", ""},
		{"FELIX_ROUTETABLERANGE=7-9", func(s config.Settings) string { return fmt.Sprint(s.Routes.Tables) }, "[{7 9}]", ""},
		{"FELIX_IPTABLESLOCKTIMEOUTSECS=9", nat, "", "has no effect: "},
		{"FELIX_IPTABLESLOCKPROBEINTERVALMILLIS=9", nat, "", "has no effect: "},
		{"FELIX_BPFLOGLEVEL=Debug", nat, "", "has no effect: policy is enforced with nftables"},
		{"FELIX_ETCDSCHEME=ftp", nat, "", `is "ftp": want http or https`},
		{"TWILL_ETCD_CA_CERT_FILE=/ca", func(s config.Settings) string { return s.Etcd.CACertFile }, "/ca", ""},
		{"TWILL_NODE=n", func(s config.Settings) string { return s.Node }, "n", ""},
	} {
		t.Run(tt.variable, func(t *testing.T) {
			l, problems := config.FromEnv([]string{tt.variable})
			e := config.New("h1", l).Resolve()
			problems = append(problems, e.Problems...)
			if tt.wrong != "" {
				if len(problems) != 1 || !strings.Contains(problems[0].Reason, tt.wrong) {
					t.Errorf("problems %v, want one with %q", problems, tt.wrong)
				}
				if got, want := tt.of(e.Settings), tt.of(config.New("h1").Resolve().Settings); got != want {
					t.Errorf("it is %s, want the default %s", got, want)
				}
				return
			}
			if got := tt.of(e.Settings); got != tt.want || len(problems) > 0 {
				t.Errorf("it is %s, want %s; problems %v", got, tt.want, problems)
			}
		})
	}
}

// TestStoredFailsafePortsArrive: none, without a protocol, and with a net of either family.
func TestStoredFailsafePortsArrive(t *testing.T) {
	four, six := "192.0.2.0/24", "2001:db8::/64"
	f := felix("default", "", "")
	f.Spec.FailsafeInboundHostPorts = &[]api.ProtoPort{{Port: 22}, {Protocol: "UDP", Port: 53, Net: &six}, {Protocol: "TCP", Port: 179, Net: &four}}
	f.Spec.FailsafeOutboundHostPorts = &[]api.ProtoPort{}
	r := config.New("h1")
	r.Set(f)
	s := r.Resolve().Settings
	want := []config.Failsafe{{Protocol: 6, Port: 22}, {Protocol: 17, Port: 53, Net: netip.MustParsePrefix(six)}, {Protocol: 6, Port: 179, Net: netip.MustParsePrefix(four)}}
	if fmt.Sprint(s.FailsafeIn) != fmt.Sprint(want) || len(s.FailsafeOut) > 0 {
		t.Errorf("inbound %v, want %v; outbound %v, want none", s.FailsafeIn, want, s.FailsafeOut)
	}
	if s := config.New("h1").Resolve().Settings; len(s.FailsafeIn) < 8 || len(s.FailsafeOut) < 8 {
		t.Errorf("by default %v and %v", s.FailsafeIn, s.FailsafeOut)
	}
}

// TestEndpointsHaveTheirScheme: upstream's EtcdAddr is HOST:PORT, and EtcdScheme stands beside it, before or after.
func TestEndpointsHaveTheirScheme(t *testing.T) {
	for _, tt := range []struct{ says, want string }{
		{"EtcdAddr=192.0.2.1:2379", "192.0.2.1:2379"},
		{"EtcdAddr=192.0.2.1:2379 EtcdScheme=https", "https://192.0.2.1:2379"},
		{"EtcdScheme=HTTP EtcdAddr=192.0.2.1:2379", "http://192.0.2.1:2379"},
		{"EtcdEndpoints=http://a:1,b:2 EtcdScheme=https", "http://a:1,https://b:2"},
		{"EtcdScheme=https", ""},
		{"EtcdAddr=a:1 EtcdScheme=", "a:1"},
	} {
		file, wrong := config.FromFile("f", strings.ReplaceAll(tt.says, " ", "\n"))
		var vars []string
		for _, v := range strings.Fields(tt.says) {
			vars = append(vars, "FELIX_"+strings.ToUpper(v[:strings.IndexByte(v, '=')])+v[strings.IndexByte(v, '='):])
		}
		env, problems := config.FromEnv(vars)
		if got, also := file.Values["etcdEndpoints"], env.Values["etcdEndpoints"]; got != tt.want || also != tt.want || len(wrong)+len(problems) > 0 {
			t.Errorf("%s: a file says %q, and the environment %q, want %q; problems %v, %v", tt.says, got, also, tt.want, wrong, problems)
		}
	}
}

// TestUpstreamsParametersSayWhyTheyHaveNoEffect: those that no FelixConfiguration has, too, in each form of their names.
func TestUpstreamsParametersSayWhyTheyHaveNoEffect(t *testing.T) {
	for name, want := range map[string]string{
		"TyphaWriteTimeout": "has no effect: what a relay takes too slowly", "TYPHAWRITETIMEOUT": "has no effect: what a relay takes too slowly", "ClusterGUID": "has no effect: it is in the ClusterInformation",
		"DebugSimulateDataRace": "has no effect: it is for finding faults", "DebugBPFMapRepinEnabled": "has no effect: policy is enforced with nftables", "Variant": "has no effect: there is one",
		"TyphaWriteTimeouts": "there is no such parameter",
	} {
		_, problems := config.FromEnv([]string{"FELIX_" + name + "=1"})
		_, wrong := config.FromFile("f", name+" = 1\n")
		if len(problems) != 1 || len(wrong) != 1 || !strings.HasPrefix(problems[0].Reason, want) || problems[0].Reason != wrong[0].Reason {
			t.Errorf("%s: %v, %v, want %s", name, problems, wrong, want)
		}
	}
}

func TestLinesOfAFile(t *testing.T) {
	l, problems := config.FromFile("f", "[global]\n\n  # a comment\n; another\n LogPrefix = \"x\" \nno value\nNoSuch = 1\nbpfEnabled = true\n")
	if got := config.New("h1", l).Resolve().Settings.Log.Prefix; got != "x" || len(l.Values) != 1 {
		t.Errorf("prefix %q of %v", got, l.Values)
	}
	want := `[{f:6 no value want name = value} {f:7 NoSuch there is no such parameter; ` + "`twill config params` lists those there are" + `} {f:8 bpfEnabled has no effect: policy is enforced with nftables, not eBPF; services are kube-proxy's to translate}]`
	if got := fmt.Sprint(problems); got != want {
		t.Errorf("problems\n%s, want\n%s", got, want)
	}
}
