package intent

import (
	"net/netip"
	"slices"
	"testing"
)

// A profile's name, which endpoints choose freely, may have a slash, and so may an endpoint's: texts are for people.
func TestIDsThatReadTheSameAreTwoKeys(t *testing.T) {
	for _, pair := range [][2]Key{
		{PolicyID{"Profile", "", "a/b"}, PolicyID{"Profile", "a", "b"}},
		{EndpointID{Workload, "prod", "a/b"}, EndpointID{Workload, "prod/a", "b"}},
		{SetID("h1 VXLAN"), PeerID{Node: "h1"}},
		{SetID("10.65.0.0/26"), Route{Dst: netip.MustParsePrefix("10.65.0.0/26")}.ID()},
		{SetID(""), HostID("")},
	} {
		if pair[0].String() != pair[1].String() {
			t.Errorf("%#v and %#v do not read the same, so they are no case", pair[0], pair[1])
		}
		if m := map[Key]bool{pair[0]: true}; pair[0] == pair[1] || m[pair[1]] {
			t.Errorf("%#v and %#v are one key", pair[0], pair[1])
		}
	}
}

func TestKeysAreInTheOrderOfWhatDependsOnWhat(t *testing.T) {
	want := []Key{
		nil, SetID("a"), SetID("b"),
		PolicyID{"NetworkPolicy", "prod", "web"},
		PolicyID{"Profile", "", "a"},
		EndpointID{Host, "", "a"},
		EndpointID{Workload, "a", "a"},
		Route{Dst: netip.MustParsePrefix("10.65.0.0/26")}.ID(),
		PeerID{Node: "h1"},
		HostID(""),
	}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, CompareKeys)
	if !slices.Equal(got, want) {
		t.Errorf("sorted %v, want %v", got, want)
	}
}
