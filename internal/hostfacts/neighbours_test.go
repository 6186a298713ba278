package hostfacts

import (
	"os"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/doctor"
)

func TestNeighboursAreCounted(t *testing.T) {
	const names = "entries  allocs   destroys table_fulls\n"
	for _, tt := range []struct {
		name, stat, limit string
		want              doctor.Neighbours
		ok                bool
	}{
		{"two processors", names + "00000048 00007030 00007306 0000009a\n00000048 0000b4a1 0000b183 00000199\n", "1024\n", doctor.Neighbours{Count: 72, Max: 1024, Full: 563}, true},
		{"before table_fulls was counted", "entries  allocs\n00000003 00000009\n", "1024", doctor.Neighbours{Count: 3, Max: 1024}, true},
		{"nothing", "", "", doctor.Neighbours{}, false},
		{"no processor", names, "1024", doctor.Neighbours{Max: 1024}, false},
		{"more numbers than names", "entries\n00000003 00000009\n", "1024", doctor.Neighbours{Count: 3, Max: 1024}, false},
		{"no number", names + "x\n", "1024", doctor.Neighbours{Max: 1024}, false},
	} {
		if got, ok := readNeighbours(tt.stat, tt.limit); got != tt.want || ok != tt.ok {
			t.Errorf("%s: %+v, %v; want %+v, %v", tt.name, got, ok, tt.want, tt.ok)
		}
	}
	stat, err := os.ReadFile("/proc/net/stat/arp_cache")
	if err != nil {
		return // this is not the machine's first network namespace
	}
	if _, ok := readNeighbours(string(stat), "1"); !ok || !strings.Contains(string(stat), "table_fulls") {
		t.Errorf("what this kernel says is not understood:\n%s", stat)
	}
}
