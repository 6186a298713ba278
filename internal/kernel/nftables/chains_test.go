package nftables

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/twillnet/twill/internal/kernel/machinetest"
)

func TestChainsOfEverybodyAreListed(t *testing.T) {
	nft := machinetest.Program(t, "nft")
	n := newNet(t)
	file := filepath.Join(t.TempDir(), "rules")
	const rules = `table ip filter {
chain FORWARD { type filter hook forward priority 0; policy drop; }
chain cali-FORWARD { }
}
table ip6 calico {
chain x { }
}
table inet other {
chain in { type filter hook input priority 0; policy accept; }
}
`
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	n.do(func() {
		if out, err := exec.Command(nft, "-f", file).CombinedOutput(); err != nil {
			t.Errorf("nft: %v: %s", err, out)
		}
	})
	chains, err := n.AllChains()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range chains {
		text := c.Family + " " + c.Table + " " + c.Name
		if c.Base != nil {
			text += map[HookNum]string{HookForward: " forward", HookInput: " input"}[c.Base.Hook] + map[VerdictCode]string{VerdictDrop: " drop", VerdictAccept: " accept"}[c.Base.Policy]
		}
		got = append(got, text)
	}
	slices.Sort(got)
	want := []string{"inet other in input accept", "ip filter FORWARD forward drop", "ip filter cali-FORWARD", "ip6 calico x"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
