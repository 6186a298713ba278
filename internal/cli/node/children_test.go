package node

import (
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/cli/bgp"
	"github.com/twillnet/twill/internal/cli/clitest"
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
	for _, o := range []nodeOptions{{bgp: "yes"}, {bgp: "reflector", alone: true}, {bgp: "on", registration: bgp.Registration{Cluster: "244.0.0.1"}}} {
		if err := o.check(); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
}
