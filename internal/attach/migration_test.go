package attach

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/attach/wire"
	"github.com/twillnet/twill/internal/ipam"
)

// migrating is a server of node h2, to which the machine comes from h1, or has come.
func (b *bed) migrating(node string, change ...func(*hosting)) *Server {
	s := b.host("h2", append(change, func(h *hosting) { h.pods.Migration, h.node = "m", node })...)
	s.cfg.Notes = b.cfg.Notes // over restarts
	s.readTargets()
	return s
}

// has are the endpoints, and who has the machine's addresses, with who is to have them.
func (b *bed) has() string {
	b.Helper()
	var out []string
	for _, l := range b.left() {
		if name, is := strings.CutPrefix(l, "workloadendpoints/prod/"); is {
			out = append(out, name)
		}
	}
	all, err := ipam.New(b.store.InMemory, ipam.Config{}).Leases(b.Context(), "net.vmi.prod.vm")
	b.must(err)
	pod := func(o map[string]string) string {
		return strings.TrimPrefix(o[api.AttributePod], launcher) + "@" + o[api.AttributeNode] + map[bool]string{true: "*"}[o[api.AttributeMigration] != ""]
	}
	for _, l := range all {
		out = append(out, pod(l.Owner)+"|"+pod(l.Alternate))
	}
	return strings.Join(out, " ")
}

func (b *bed) wantHas(when, want string) {
	b.Helper()
	if got := b.has(); got != want {
		b.Errorf("%s: %s, want %s", when, got, want)
	}
}

const (
	atSource = "h1-k8s-virt--launcher--a-eth0"
	atTarget = "h2-k8s-virt--launcher--b-eth0"
)

func (b *bed) begin() []netip.Addr {
	b.Helper()
	out, err := b.host("h1").Attach(b.Context(), launched("c1", "a"))
	b.must(err)
	return out.Addrs
}

func TestALiveMigrationTakesTheAddressesWithIt(t *testing.T) {
	b := newBed(t)
	addrs := b.begin()
	two := b.migrating("h1")
	for range 2 { // a runtime may call it again
		out, err := two.Attach(t.Context(), launched("c2", "b"))
		b.must(err)
		if !slices.Equal(out.Addrs, addrs) || out.Endpoint != "" {
			t.Errorf("the target has %+v, the machine %v", out, addrs)
		}
	}
	before := atSource + " a@h1|b@h2* a@h1|b@h2*"
	b.wantHas("before it has come", before)
	b.must(second(two.Check(t.Context(), withAddrs(launched("c2", "b"), addrs))))
	if wait, err := two.takeOver(t.Context()); !wait || err != nil {
		t.Errorf("it waits: %v, %v", wait, err)
	}
	b.must(second(two.Collect(t.Context(), wire.Valid{Network: "net", Refs: []wire.Ref{launched("c2", "b").Ref}})))
	b.wantHas("before it has come", before)

	// A new process of the agent knows of it; and until all is done, it tries again.
	b.kernel.inForce = errFault
	two = b.migrating("h2")
	if wait, err := two.takeOver(t.Context()); !wait || err == nil {
		t.Errorf("what is not in force: %v, %v", wait, err)
	}
	b.kernel.inForce = nil
	for range 2 {
		if wait, err := two.takeOver(t.Context()); wait || err != nil {
			t.Errorf("it waits for nothing: %v, %v", wait, err)
		}
		b.wantHas("it has come", atSource+" "+atTarget+" b@h2*|a@h1 b@h2*|a@h1")
	}
	b.must(second(b.host("h1").Detach(t.Context(), launched("c1", "a").Ref)))
	b.wantHas("the source has gone", atTarget+" b@h2*|@ b@h2*|@")
	b.must(second(two.Detach(t.Context(), launched("c2", "b").Ref)))
	b.wantHas("it was stopped", "@|@ @|@")
	if files, _ := filepath.Glob(filepath.Join(b.cfg.Notes, "*")); len(files) > 0 {
		t.Errorf("files are left: %v", files)
	}
	again, err := b.host("h1").Attach(t.Context(), launched("c3", "c"))
	b.must(err)
	if !slices.Equal(again.Addrs, addrs) {
		t.Errorf("started again it has %v, had %v", again.Addrs, addrs)
	}
}

// A machine that was stopped while it was moved, and is another instance now, is not taken.
func TestAnotherInstanceDoesNotCome(t *testing.T) {
	b := newBed(t)
	b.begin()
	b.must(second(b.migrating("h1").Attach(t.Context(), launched("c2", "b"))))
	for _, tt := range []struct {
		name  string
		has   string // the UID of the instance
		waits bool
	}{{"there is none", "", true}, {"it is another", "other", false}} {
		two := b.migrating("h2", func(h *hosting) { h.has = tt.has })
		if wait, err := two.takeOver(t.Context()); wait || err != nil || two.waits(launched("c2", "b").Ref) != tt.waits {
			t.Errorf("%s: it waits %v, %v", tt.name, two.waits(launched("c2", "b").Ref), err)
		}
		b.wantHas(tt.name, atSource+" a@h1|b@h2* a@h1|b@h2*")
	}
}

// The target is deleted before the machine has come: it goes on where it is, and the next migration is another.
func TestAMigrationThatIsGivenUpLeavesTheMachineWhereItIs(t *testing.T) {
	b := newBed(t)
	b.begin()
	two := b.migrating("h1")
	b.must(second(two.Attach(t.Context(), launched("c2", "b"))))
	b.must(second(two.Detach(t.Context(), launched("c2", "b").Ref)))
	b.wantHas("given up", atSource+" a@h1|@ a@h1|@")
	two = b.migrating("h2")
	if wait, err := two.takeOver(t.Context()); wait || err != nil {
		t.Errorf("it waits: %v, %v", wait, err)
	}
	b.wantHas("given up, whatever KubeVirt says", atSource+" a@h1|@ a@h1|@")
	// A pod whose machine has come before it was attached, as after a restart of its sandbox, waits for nothing.
	b.must(second(b.host("h1").Detach(t.Context(), launched("c1", "a").Ref)))
	b.must(second(two.Attach(t.Context(), launched("c3", "b"))))
	b.wantHas("it runs here", atTarget+" b@h2|@ b@h2|@")
}

func TestAMachineWithoutAddressesIsNotMigrated(t *testing.T) {
	b := newBed(t)
	two := b.migrating("h1")
	if _, err := two.Attach(t.Context(), launched("c2", "b")); err == nil || !strings.Contains(err.Error(), "has no addresses to take with it") {
		t.Errorf("got %v", err)
	}
	b.wantHas("refused", "")
	if two.waits(launched("c2", "b").Ref) {
		t.Error("it waits")
	}
}

// At whichever call something fails, the machine has its addresses on one node, and in the end on that to which it came.
func TestAFaultInAMigrationLeavesTheMachineOnOneNode(t *testing.T) {
	for step := 0; ; step++ {
		b := newBed(t)
		b.begin()
		two := b.migrating("h1")
		b.store.left = step
		_, err := two.Attach(t.Context(), launched("c2", "b"))
		reached := b.store.left < 0
		b.store.left = -1
		if waits := two.waits(launched("c2", "b").Ref); waits != (err == nil) || !strings.HasPrefix(b.has(), atSource+" a@h1|") {
			t.Errorf("ADD, step %d: %v, it waits: %v; there is %s", step, err, waits, b.has())
		}
		if !reached {
			if step < 3 {
				t.Errorf("only %d steps: nothing was injected", step)
			}
			break
		}
	}
	for step := 0; ; step++ {
		b := newBed(t)
		b.begin()
		b.must(second(b.migrating("h1").Attach(t.Context(), launched("c2", "b"))))
		two := b.migrating("h2")
		b.store.left = step
		wait, err := two.takeOver(t.Context())
		reached := b.store.left < 0
		b.store.left = -1
		if wait != (err != nil) {
			t.Errorf("switch, step %d: %v, it waits: %v", step, err, wait)
		}
		_, err = two.takeOver(t.Context())
		b.must(err)
		b.wantHas(fmt.Sprintf("switch, step %d", step), atSource+" "+atTarget+" b@h2*|a@h1 b@h2*|a@h1")
		if !reached {
			if step < 3 {
				t.Errorf("only %d steps: nothing was injected", step)
			}
			break
		}
	}
}

func TestAFileOfATargetThatCannotBeReadIsPassedOver(t *testing.T) {
	b := newBed(t)
	b.must(os.MkdirAll(b.cfg.Notes, 0o700))
	for name, text := range map[string]string{"c1.eth0.target": "{", "c2.eth0.target": "{}", "c3.eth0.target": `{"request":{"containerID":"other","ifname":"eth0","pod":{}}}`} {
		b.must(os.WriteFile(filepath.Join(b.cfg.Notes, name), []byte(text), 0o600))
	}
	two := b.migrating("h2")
	if len(two.targets) > 0 {
		t.Errorf("it waits for %v", two.targets)
	}
}
