package ipam

import (
	"errors"
	"maps"
	"net/netip"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore/memstore"
)

func TestHandlesOfMachinesAreUpstreams(t *testing.T) {
	long := strings.Repeat("v", 128-len("net.vmi.prod."))
	for _, tt := range []struct {
		name, network string
		of            Machine
		want          string
	}{
		{"as it is", "k8s-pod-network", Machine{"default", "vm1"}, "k8s-pod-network.vmi.default.vm1"},
		{"dots in its name", "net", Machine{"prod", "a.b"}, "net.vmi.prod.a.b"},
		{"as long as it may be", "net", Machine{"prod", long}, "net.vmi.prod." + long},
		{"longer by one: the first 43 characters are all of the hash", "net", Machine{"prod", long + "v"}, "net.vmi._Fkban9cFB1aebYrqtKLTGIXxsrdn_jakIndVlDzsplc"},
		{"a network that leaves no room", strings.Repeat("n", 120), Machine{"prod", "vm"}, strings.Repeat("n", 120) + ".vmi._"},
	} {
		got := tt.of.Handle(tt.network)
		if tt.name == "a network that leaves no room" {
			if !strings.HasPrefix(got, tt.want) || got == (Machine{"prod", "vn"}).Handle(tt.network) {
				t.Errorf("%s: %s", tt.name, got)
			}
			continue
		}
		if got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestAnAddressIsAMachines(t *testing.T) {
	owner := map[string]string{"namespace": "prod", "vmi-name": "vm", "pod": "virt-launcher-vm-x", "node": "n1"}
	for _, tt := range []struct {
		name   string
		handle string
		attr   api.BlockAttribute
		want   Machine
		is     bool
	}{
		{"its owner says it", "net.vmi.prod.vm", api.BlockAttribute{Owner: owner}, Machine{"prod", "vm"}, true},
		{"its other owner says it", "net.vmi.prod.vm", api.BlockAttribute{Alternate: owner}, Machine{"prod", "vm"}, true},
		{"only its handle does", "net.vmi.prod.vm.example", api.BlockAttribute{}, Machine{"prod", "vm.example"}, true},
		{"its handle says it, and not which", "net.vmi._abc", api.BlockAttribute{}, Machine{}, true},
		{"a namespace of an odd name", "net.vmi.vmi.vm", api.BlockAttribute{}, Machine{"vmi", "vm"}, true},
		{"a network of an odd name", "a.vmi.b.vmi.prod.vm", api.BlockAttribute{}, Machine{"prod", "vm"}, true},
		{"such a network, and a handle that does not say which", "a.vmi.b.vmi._abc", api.BlockAttribute{}, Machine{}, true},
		{"a container of an odd name", "net.vmi.prod.c", api.BlockAttribute{Owner: map[string]string{"node": "n1"}}, Machine{}, false},
		{"a container", "net.0123456789abcdef", api.BlockAttribute{}, Machine{}, false},
	} {
		tt.attr.Handle = &tt.handle
		if got, is := (Allocation{Attr: &tt.attr}).Machine(); got != tt.want || is != tt.is {
			t.Errorf("%s: got %v, %v", tt.name, got, is)
		}
	}
}

// TestOwnersOfAnAddressChange: only those of the handle's addresses that are meant, and nothing else.
func TestOwnersOfAnAddressChange(t *testing.T) {
	a := newFixture(t)
	before := map[string]string{"pod": "one", "node": "n1"}
	args := AutoArgs{Node: "n1", Handle: "net.vmi.prod.vm", Num4: 1, Num6: 1, Attributes: before}
	got, err := a.Assign(t.Context(), args)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Assign(t.Context(), AutoArgs{Node: "n1", Handle: "other", Num4: 1, Attributes: before}); err != nil {
		t.Fatal(err)
	}
	now := map[string]string{"pod": "two", "node": "n2"}
	four := got[0].Addr
	for range 2 { // the second time nothing changes
		err = a.SetOwners(t.Context(), args.Handle, func(addr netip.Addr, o Owners) Owners {
			if addr == four {
				return Owners{Active: now, Alternate: before}
			}
			return o
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	all, err := a.Leases(t.Context(), args.Handle)
	if err != nil || len(all) != 2 {
		t.Fatalf("%v, %v", all, err)
	}
	for i, l := range all {
		active, alternate := now, before
		if i == 1 {
			active, alternate = before, nil
		}
		if l.Addr != got[i].Addr || (l.Sequence == got[i].Sequence) != (i == 1) || !maps.Equal(l.Owner, active) || !maps.Equal(l.Alternate, alternate) {
			t.Errorf("%+v", l)
		}
	}
	if _, err := a.Release(t.Context(), Release{Addr: four, Handle: args.Handle, Sequence: &got[0].Sequence}); !errors.Is(err, ErrReused) {
		t.Errorf("released by who saw its last owner: %v", err)
	}
	other, err := a.Leases(t.Context(), "other")
	if err != nil || len(other) != 1 || !maps.Equal(other[0].Owner, before) {
		t.Errorf("another's: %+v, %v", other, err)
	}
	v, err := a.ReadSurvey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range v.Check(CheckOptions{}) {
		if f.Kind != FoundLeak {
			t.Errorf("found %+v", f)
		}
	}
	if err := a.SetOwners(t.Context(), "nobody", func(netip.Addr, Owners) Owners { return Owners{} }); err != nil {
		t.Error(err)
	}
	away := errors.New("away")
	a.store.Fail(func(memstore.Op) error { return away })
	if err := a.SetOwners(t.Context(), args.Handle, func(_ netip.Addr, o Owners) Owners { return o }); !errors.Is(err, away) {
		t.Errorf("the datastore is away: %v", err)
	}
}
