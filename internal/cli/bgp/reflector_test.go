package bgp

import (
	"strings"
	"testing"
)

func TestClusterIDsOfReflectorsAreChecked(t *testing.T) {
	for _, text := range []string{"1", "2001:db8::1", "r1"} {
		r := Registration{text}
		if err := r.Check(true); err == nil || !strings.Contains(err.Error(), "--cluster-id="+text) {
			t.Errorf("%s: got %v", text, err)
		}
	}
	r := Registration{"244.0.0.1"}
	if err := r.Check(false); err == nil {
		t.Error("a host that is no dedicated reflector was given a cluster id")
	}
	if err := r.Check(true); err != nil {
		t.Error(err)
	}
}
