package node

import (
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/cli/bgp"
	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/datastore"
)

func TestWhatAHostRuns(t *testing.T) {
	for _, tt := range []struct {
		name string
		o    nodeOptions
		own  bool
		want string
	}{
		{"agent and BGP", nodeOptions{bgp: "on"}, false, "agent --etcd=x | bfd --data-dir /d | bgp --data-dir /d --etcd=x"},
		{"with a store", nodeOptions{bgp: "off", listen: []string{"http://[::1]:1"}}, true, "etcd --data-dir /d/etcd --listen http://[::1]:1 | agent --etcd=x"},
		{"a compute host of OpenStack", nodeOptions{bgp: "off", dhcp: true}, false, "agent --etcd=x | dhcp --etcd=x"},
		{"BIRD", nodeOptions{bgp: "bird"}, false, "agent --etcd=x | confd --data-dir /d --etcd=x | bird"},
		{
			"a reflector has no agent",
			nodeOptions{bgp: "reflector", registration: bgp.Registration{Cluster: "244.0.0.1"}},
			false,
			"bfd --data-dir /d | bgp --data-dir /d --etcd=x --reflector --cluster-id=244.0.0.1",
		},
		{
			"a reflector by BIRD",
			nodeOptions{bgp: "bird-reflector", registration: bgp.Registration{Cluster: "244.0.0.1"}},
			false,
			"confd --data-dir /d --etcd=x --reflector --cluster-id=244.0.0.1 | bird --reflector",
		},
		{
			"a reflector and a store",
			nodeOptions{bgp: "reflector", listen: []string{"http://192.0.2.7:2379"}},
			true,
			"etcd --data-dir /d/etcd --listen http://192.0.2.7:2379 | bfd --data-dir /d | bgp --data-dir /d --etcd=x --reflector",
		},
	} {
		tt.o.local.Dir, tt.o.local.Node = "/d", "h1"
		if err := tt.o.check(); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		var got []string
		for _, c := range tt.o.children(tt.own, []string{"--etcd=x"}) {
			got = append(got, strings.Join(c.Args, " "))
			if c.Name != "etcd" && !slices.Equal(c.Env, []string{"NODENAME=h1", "TWILL_NODENAME=h1"}) {
				t.Errorf("%s: %v", c.Name, c.Env)
			}
		}
		clitest.Equal(t, strings.Join(got, " | "), tt.want)
	}
	for _, o := range []nodeOptions{{bgp: "yes"}, {bgp: "reflector", alone: true}, {bgp: "reflector", dhcp: true}, {bgp: "on", registration: bgp.Registration{Cluster: "244.0.0.1"}}} {
		if err := o.check(); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
}

func TestDHCPIsAskedFor(t *testing.T) {
	for _, tt := range []struct {
		text     string
		want, ok bool
	}{
		{"", false, true},
		{"true", true, true},
		{"0", false, true},
		{"yes please", false, false},
	} {
		o := nodeOptions{dhcpText: tt.text}
		if err := o.readDHCP(); o.dhcp != tt.want || (err == nil) != tt.ok {
			t.Errorf("%q: %v, %v", tt.text, o.dhcp, err)
		}
	}
	o := nodeOptions{dhcp: true}
	if _, err := o.ownStore(datastore.Config{Type: "kubernetes"}, ""); err == nil {
		t.Error("it is served from Kubernetes")
	}
}
