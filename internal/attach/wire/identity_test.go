package wire_test

import (
	"reflect"
	"testing"

	"github.com/twillnet/twill/internal/attach/wire"
)

// These names are on hosts and in datastores: none may ever change. Of the first interface they are upstream's.
func TestNamesOfAttachments(t *testing.T) {
	const id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	pod := &wire.Pod{Namespace: "prod", Name: "web"}
	for _, tt := range []struct {
		ref     wire.Ref
		links   []string
		handles []string
	}{
		{wire.Ref{Network: "net", ContainerID: id, Ifname: "eth0"}, []string{"cali0123456789a"}, []string{"net." + id}},
		{wire.Ref{Network: "net", ContainerID: id, Ifname: "eth0", Pod: pod}, []string{"calic36cb0217f8"}, []string{"net." + id}},
		{wire.Ref{Network: "net", ContainerID: id, Ifname: "net1"}, []string{"cali201878251e8", "cali0123456789a"}, []string{"net." + id + ".net1", "net." + id}},
		{wire.Ref{Network: "two", ContainerID: id, Ifname: "net1", Pod: pod}, []string{"cali08c4c080441", "calic36cb0217f8"}, []string{"two." + id + ".net1", "two." + id}},
		{wire.Ref{Network: "net", ContainerID: id, Ifname: "eth0", Docker: true}, []string{"cali0123456789a"}, []string{"net." + id}},
		{wire.Ref{Network: "two", ContainerID: "c1", Ifname: "eth0"}, []string{"calic1"}, []string{"two.c1"}},
	} {
		if got := tt.ref.Links(); !reflect.DeepEqual(got, tt.links) || got[0] != tt.ref.Link() {
			t.Errorf("%+v: links %v, want %v", tt.ref, got, tt.links)
		}
		if got := tt.ref.Handles(); !reflect.DeepEqual(got, tt.handles) || got[0] != tt.ref.Handle() {
			t.Errorf("%+v: handles %v, want %v", tt.ref, got, tt.handles)
		}
	}
}

func TestNoTwoAttachmentsOfAHostHaveOneLink(t *testing.T) {
	seen := map[string]wire.Ref{}
	add := func(r wire.Ref) {
		name := r.Link()
		if other, taken := seen[name]; taken || len(name) > 15 {
			t.Errorf("%+v and %+v have the link %s", r, other, name)
		}
		seen[name] = r
	}
	for _, ifname := range []string{"eth0", "eth1", "net1", "web", "a-very-long-one"} {
		for _, pod := range []wire.Pod{{Namespace: "prod", Name: "web"}, {Namespace: "prod", Name: "web.net1"}, {Namespace: "prod", Name: "web-net1"}, {Namespace: "k8s", Name: "prod.web"}, {Namespace: "cni", Name: "prod.web"}} {
			add(wire.Ref{Network: "net", ContainerID: "c", Ifname: ifname, Pod: &pod})
		}
		for _, id := range []string{"prod.web", "prod.web.net1", "k8s"} {
			add(wire.Ref{Network: "net", ContainerID: id, Ifname: ifname})
		}
	}
}
