package node_test

import (
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/node"
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
				c.Raw("nodes/r1", tt.stored)
			}
			for range 2 { // a restart
				if err := node.Register(t.Context(), c.Store, "r1", "244.0.0.1"); err != nil {
					t.Fatal(err)
				}
			}
			got := c.Stored("nodes/r1")
			clitest.Contains(t, got, tt.want...)
			if st, err := api.DecodeStored(api.Update{Key: api.ResourcesPrefix + "nodes/r1", Value: []byte(got)}); err != nil || st.Closed != "" {
				t.Errorf("%v, %+v", err, st)
			}
		})
	}
}

func TestAReflectorOfAWrongNameIsNotRegistered(t *testing.T) {
	c := newCLI(t)
	if err := node.Register(t.Context(), c.Store, "rr_1", "244.0.0.1"); err == nil || !strings.Contains(err.Error(), "metadata.name") {
		t.Errorf("got %v", err)
	}
	clitest.Contains(t, c.Stored("nodes/rr_1"), "not found")
}
