package kubecontrollers

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/ipam"
	"github.com/twillnet/twill/internal/metrics"
)

// filling is run with the controllers of pools and addresses, which frees none, and a way to assign addresses of a pool until it has so many in use.
func filling(t *testing.T, test func(b *bench, fill func(pool string, to int))) {
	t.Helper()
	holding(t, func(b *bench) {
		b.set(func() {
			node := *b.settings.Node
			node.Grace = 0
			b.settings.Node = &node
		})
		has := map[string]int{}
		test(b, func(pool string, to int) {
			b.Helper()
			for ; has[pool] < to; has[pool]++ {
				if _, err := b.addresses.Assign(b.Context(), ipam.AutoArgs{Node: "n1", Handle: fmt.Sprint(pool, has[pool]), Num4: 1, Pools4: []string{pool}}); err != nil {
					b.Fatal(err)
				}
			}
			b.after(defaultPeriod + time.Second)
		})
	})
}

// nearly is what a pool says of how full it is.
func (b *bench) nearly(name string) string {
	b.Helper()
	text, _, _ := strings.Cut(b.condition("ippools/"+name, api.ConditionNearlyFull), " projectcalico.org/")
	return strings.TrimSpace(text)
}

// TestAPoolThatIsNearlyFullSaysSo from 80 percent on, and no more below that: reserved addresses are taken, too, and those that are in use as well count once.
func TestAPoolThatIsNearlyFullSaysSo(t *testing.T) {
	filling(t, func(b *bench, fill func(string, int)) {
		b.put("ippools/q", fmt.Sprintf(`{"metadata":{"name":"q",`+made+`},"spec":{"cidr":"10.5.0.0/24","blockSize":26},"status":{"conditions":[{"type":"Else","status":"True","x":7}]}}`, 1))
		want := func(what, want string) {
			b.Helper()
			if got := b.nearly("q"); got != want {
				b.Errorf("%s it says %q, want %q", what, got, want)
			}
		}
		const full80 = "True ThresholdExceeded 80% of its 256 addresses are in use or reserved"
		fill("q", 204)
		want("with 204", "none")
		fill("q", 205)
		want("with 205", full80)
		at, _, _ := b.stored("ippools/q")
		fill("q", 206)
		b.after(time.Hour)
		if now, _, _ := b.stored("ippools/q"); now.Revision != at.Revision {
			b.Error("it is written although what it says is the same")
		}
		if _, err := b.addresses.ReleaseByHandle(b.Context(), "q205"); err != nil {
			b.Fatal(err)
		}
		if _, err := b.addresses.ReleaseByHandle(b.Context(), "q204"); err != nil {
			b.Fatal(err)
		}
		b.after(defaultPeriod)
		want("with 204 again", "none")
		u, _, conditions := b.stored("ippools/q")
		if len(conditions) != 2 || !strings.Contains(string(u.Value), `"x":7`) {
			b.Errorf("of the others' conditions are left %s", u.Value)
		}
		last := netip.MustParseAddr("10.5.0.255")
		if _, err := b.addresses.AssignIP(b.Context(), ipam.IPArgs{Addr: last, Node: "n1", Handle: "q-last"}); err != nil {
			b.Fatal(err)
		}
		b.after(defaultPeriod)
		want("with 205 again", full80)
		b.put("ipreservations/r", `{"spec":{"reservedCIDRs":["10.5.0.255/32"]}}`)
		b.after(defaultPeriod)
		want("with one in use and reserved", full80)
		b.put("ipreservations/r", `{"spec":{"reservedCIDRs":["10.5.0.252/30"]}}`)
		b.after(defaultPeriod)
		want("with 204 in use and four reserved", "True ThresholdExceeded 81% of its 256 addresses are in use or reserved")
		fill("q", 254) // two were released
		want("when it is used up", "True ThresholdExceeded 100% of its 256 addresses are in use or reserved")
	})
}

// TestWhichPoolsAreNeverNearlyFull: small ones, and a large one of IPv6. What upstream's controllers left goes, and stays while nobody has counted.
func TestWhichPoolsAreNeverNearlyFull(t *testing.T) {
	filling(t, func(b *bench, fill func(string, int)) {
		const left = `"status":{"conditions":[{"type":"AddressSpaceNearlyFull","status":"True","reason":"ThresholdExceeded","message":"80% of addresses are in use or reserved."}]}`
		pool := func(name, cidr, size string) {
			b.put("ippools/"+name, fmt.Sprintf(`{"metadata":{"name":"`+name+`",`+made+`},"spec":{"cidr":"`+cidr+`","blockSize":`+size+`},`+left+`}`, 1))
		}
		b.set(func() { b.settings.Node = nil })
		pool("small", "10.6.0.0/27", "28")
		pool("six", "fd65::/64", "122")
		b.after(time.Hour)
		for _, name := range []string{"small", "six"} {
			if got := b.nearly(name); !strings.HasPrefix(got, "True ThresholdExceeded") {
				b.Errorf("pool %s, of which nobody has counted the addresses, says %q", name, got)
			}
		}
		b.set(func() { b.settings, _ = Environment{}.Resolve(nil, true); b.settings.Node.Grace = 0 })
		b.collector.again()
		fill("small", 32)
		for _, name := range []string{"small", "six"} {
			if got := b.nearly(name); got != "none" {
				b.Errorf("pool %s says %q", name, got)
			}
		}
	})
}

// TestABlockFillsThePoolThatHasTheRange, and not a smaller one in it that gives no addresses.
func TestABlockFillsThePoolThatHasTheRange(t *testing.T) {
	filling(t, func(b *bench, fill func(string, int)) {
		b.put("ippools/wide", fmt.Sprintf(`{"metadata":{"name":"wide",`+made+`},"spec":{"cidr":"10.7.0.0/25","blockSize":26}}`, 1))
		b.put("ippools/narrow", fmt.Sprintf(`{"metadata":{"name":"narrow",`+made+`},"spec":{"cidr":"10.7.0.0/26","blockSize":26}}`, 2))
		fill("wide", 104)
		if got := b.nearly("wide"); got != "True ThresholdExceeded 81% of its 128 addresses are in use or reserved" {
			b.Errorf("the one that has the range says %q", got)
		}
		if got := b.nearly("narrow"); got != "none" {
			b.Errorf("the one in it says %q", got)
		}
	})
}

// TestAProcessCountsForItsPools: the controllers as a process makes them.
func TestAProcessCountsForItsPools(t *testing.T) {
	run(t, false, func(b *bench) {
		b.put("ippools/q", fmt.Sprintf(`{"metadata":{"name":"q",`+made+`},"spec":{"cidr":"10.5.0.0/26","blockSize":26}}`, 1))
		b.put("ipreservations/r", `{"spec":{"reservedCIDRs":["10.5.0.0/26"]}}`)
		p := &process{cfg: Config{Log: slog.New(slog.DiscardHandler)}, store: b.store, shown: b.store, same: true, settings: b.settings, metrics: metrics.NewControllers(prometheus.NewRegistry())}
		p.faults.metrics = p.metrics
		all := p.controllers()
		ctx, cancel := context.WithCancel(b.Context())
		var done sync.WaitGroup
		for _, name := range []string{"pools", "addresses"} {
			done.Go(func() { _ = all[name](ctx) })
		}
		b.stops = append(b.stops, func() { cancel(); done.Wait() })
		b.after(defaultPeriod)
		if got := b.nearly("q"); got != "True ThresholdExceeded 100% of its 64 addresses are in use or reserved" {
			b.Errorf("it says %q", got)
		}
	})
}
