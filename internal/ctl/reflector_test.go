package ctl

import (
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
)

func TestADedicatedReflectorRegistersItself(t *testing.T) {
	for _, tt := range []struct {
		name, stored string
		want         []string
	}{
		{"a new Node", "", []string{`"labels":{"route-reflector":""}`, `"routeReflectorClusterID":"244.0.0.1"`}},
		{
			"one that is there keeps what it has",
			`{"kind":"Node","apiVersion":"projectcalico.org/v3","metadata":{"name":"r1","uid":"u","labels":{"route-reflector":"mine","rack":"a"}},` +
				`"spec":{"bgp":{"ipv4Address":"192.0.2.7/24","asNumber":65001},"unknown":{"x":1}},"status":{}}`,
			[]string{
				`"route-reflector":"mine"`, `"rack":"a"`, `"asNumber":65001`, `"ipv4Address":"192.0.2.7/24"`, `"routeReflectorClusterID":"244.0.0.1"`,
				`"uid":"u"`, `"unknown":{"x":1}`,
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCLI(t)
			if tt.stored != "" {
				c.raw("nodes/r1", tt.stored)
			}
			r := registration{"244.0.0.1"}
			for range 2 { // a restart
				if err := r.register(t.Context(), c.store, "r1"); err != nil {
					t.Fatal(err)
				}
			}
			got := c.stored("nodes/r1")
			contains(t, got, tt.want...)
			if st, err := api.DecodeStored(api.Update{Key: api.ResourcesPrefix + "nodes/r1", Value: []byte(got)}); err != nil || st.Closed != "" {
				t.Errorf("%v, %+v", err, st)
			}
		})
	}
}

func TestAReflectorOfAWrongNameIsNotRegistered(t *testing.T) {
	c := newCLI(t)
	r := registration{"244.0.0.1"}
	if err := r.register(t.Context(), c.store, "rr_1"); err == nil || !strings.Contains(err.Error(), "metadata.name") {
		t.Errorf("got %v", err)
	}
	contains(t, c.stored("nodes/rr_1"), "not found")
}

func TestWhatAReflectorIsToldIsChecked(t *testing.T) {
	for _, text := range []string{"1", "2001:db8::1", "r1"} {
		r := registration{text}
		if err := r.check(true); err == nil || !strings.Contains(err.Error(), "--cluster-id="+text) {
			t.Errorf("%s: got %v", text, err)
		}
	}
	r := registration{"244.0.0.1"}
	if err := r.check(false); err == nil {
		t.Error("a host that is no dedicated reflector was told a cluster id")
	}
	if err := r.check(true); err != nil {
		t.Error(err)
	}
}

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
			nodeOptions{bgp: "reflector", registration: registration{"244.0.0.1"}},
			false,
			"bfd --data-dir /d | bgp --data-dir /d --etcd=x --reflector --cluster-id=244.0.0.1",
		},
		{
			"a reflector beside a store",
			nodeOptions{bgp: "reflector", listen: []string{"http://192.0.2.7:2379"}},
			true,
			"etcd --data-dir /d/etcd --listen http://192.0.2.7:2379 | bfd --data-dir /d | bgp --data-dir /d --etcd=x --reflector",
		},
	} {
		tt.o.local.dir, tt.o.local.node = "/d", "h1"
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
		equal(t, strings.Join(got, " | "), tt.want)
	}
	for _, o := range []nodeOptions{{bgp: "yes"}, {bgp: "reflector", alone: true}, {bgp: "on", registration: registration{"244.0.0.1"}}} {
		if err := o.check(); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
}
