package wording

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/ipam"
)

// TestACheckIsCountedAsCalicoctlCountsIt: a leak that is not proven is none; what is wrong is named if somebody wants it.
func TestACheckIsCountedAsCalicoctlCountsIt(t *testing.T) {
	c := Checked{Looked: ipam.Counts{Pools: 2, Blocks: 3, Addresses: 9, Handles: 5, Endpoints: 7}, Findings: []ipam.Finding{
		{Kind: ipam.FoundLeak, Address: netip.MustParseAddr("10.0.0.1"), Problem: "is allocated, and nobody has it", Proof: "because", Fix: "free it"},
		{Kind: ipam.FoundLeak, Address: netip.MustParseAddr("10.0.0.2"), Problem: "is young", Kept: "too young"},
		{Kind: ipam.FoundHandle, Handle: "h", Problem: "counts more", Proof: "than blocks"},
		{Kind: ipam.FoundBroken, Block: "10.0.0.0/26", Problem: "cannot be read", Proof: "no JSON"},
	}}
	for _, problems := range []bool{false, true} {
		var b strings.Builder
		Check(&b, c, problems)
		for part, want := range map[string]bool{
			"Found 3 IPAM blocks.\nIPAM blocks record 9 allocations.\n": true, "Found 2 active IP pools.\n": true,
			"Found 1 IPs that are allocated in IPAM but not actually in use.\n": true, "Found 0 in-use IPs that are in active IP pools but have no corresponding IPAM allocation.\n": true,
			"Found 1 handles with no matching IPs (and 4 handles with matches).\n": true, "10.0.0.0/26 cannot be read: no JSON\n": true, "Check complete; found 3 problems.\n": true,
			"  10.0.0.1 is allocated, and nobody has it: because\n": problems, "  h counts more: than blocks\n": problems, "10.0.0.2": false,
		} {
			if strings.Contains(b.String(), part) != want {
				t.Errorf("problems %v: %q is there: %v\n%s", problems, part, !want, &b)
			}
		}
	}
}

// TestOfSeveralReportsWhatIsInAllIsTaken: not what one alone has, nor an address that was given out anew between them.
func TestOfSeveralReportsWhatIsInAllIsTaken(t *testing.T) {
	const a, b, again = `{"kind":"leak","address":"10.0.0.1","handle":"h","sequence":1}`, `{"kind":"leak","address":"10.0.0.2","sequence":2}`, `{"kind":"leak","address":"10.0.0.2","sequence":9}`
	report := func(findings ...string) []byte {
		return []byte(`{"looked":{},"findings":[` + strings.Join(findings, ",") + `]}`)
	}
	for _, tt := range []struct {
		name    string
		reports [][]byte
		want    int
	}{
		{"one is as it is", [][]byte{report(a, b)}, 2},
		{"the same twice", [][]byte{report(a, b), report(b, a)}, 2},
		{"one in both", [][]byte{report(a, b), report(a)}, 1},
		{"given out anew", [][]byte{report(b), report(again)}, 0},
		{"none in all three", [][]byte{report(a), report(b), report(a)}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Common(tt.reports)
			var c struct{ Findings []json.RawMessage }
			if err != nil || json.Unmarshal(got, &c) != nil || len(c.Findings) != tt.want || c.Findings == nil {
				t.Errorf("got %s, %v, want %d findings", got, err, tt.want)
			}
		})
	}
	for _, bad := range []string{"", "[]", `{"allocations":{}}`} {
		if got, err := Common([][]byte{report(a), []byte(bad)}); err == nil {
			t.Errorf("%q is taken: %s", bad, got)
		}
	}
}
