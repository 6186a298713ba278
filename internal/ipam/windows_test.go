package ipam

import "testing"

func TestBlocksForWindowsKeepFourAddresses(t *testing.T) {
	f := newFixture(t)
	f.put("ippools/p", `"cidr":"10.0.0.0/29","blockSize":29`)
	got, err := f.Assign(t.Context(), AutoArgs{Node: "w1", Handle: "a", Num4: 4, Windows: true})
	if err != nil || addrs(got) != "10.0.0.3 10.0.0.4 10.0.0.5 10.0.0.6" {
		t.Errorf("got %s, %v", addrs(got), err)
	}
	if kept, err := f.QueryIP(t.Context(), addr("10.0.0.7")); err != nil || kept.Handle != "windows-reserved-ipam-handle" {
		t.Errorf("the last address of the block: %+v, %v", kept, err)
	}
	f.clean()
	if freed, err := f.Release(t.Context(), Release{Addr: addr("10.0.0.3"), Handle: "a"}); err != nil || len(freed) != 1 {
		t.Fatalf("released %v, %v", freed, err)
	}
	f.refused(AutoArgs{Node: "w2", Handle: "b", Num4: 1, Windows: true}, "no address is left for w2")
	f.equal("borrowed, not for Windows", f.assign("w2", "b", 1), "10.0.0.3")
	if _, err := f.ReleaseByHandle(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.ReleaseByHandle(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if err := f.ReleaseHostAffinities(t.Context(), "w1", true); err != nil {
		t.Errorf("a block that holds only what Windows needs is empty: %v", err)
	}
	f.equal("state", f.state(), "")
}
