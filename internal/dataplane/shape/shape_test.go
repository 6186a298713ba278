package shape_test

import (
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/dataplane/shape"
	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

var id = intent.EndpointID{Namespace: "default", Name: "a"}

// limited is a batch of a workload at cali1 that receives (in) and sends (out) so much.
func limited(in, out intent.Bandwidth) intent.Batch {
	e := intent.Endpoint{ID: id, Link: "cali1"}
	e.QoS.Bandwidth = [2]intent.Bandwidth{intent.Ingress: in, intent.Egress: out}
	return intent.Batch{Endpoints: []intent.Endpoint{e}, InSync: true}
}

func bits(n uint64) intent.Bandwidth { return intent.Bandwidth{Rate: n} }

var none intent.Bandwidth

type rig struct {
	*testing.T
	ns, workload *netnstest.NS
	d            *shape.Driver
}

func newRig(t *testing.T) rig {
	r := rig{t, netnstest.New(t), netnstest.New(t), nil}
	r.ns.VethTo(r.workload, "cali1", "eth0")
	r.ns.Addr("cali1", "192.0.2.1/24")
	r.workload.Addr("eth0", "192.0.2.2/24")
	r.d = shape.New(r.ns.Rtnl())
	return r
}

// apply merges a batch and returns the outcome of the workload's endpoint.
func (r rig) apply(b intent.Batch) error {
	r.Helper()
	r.d.Merge(b)
	out, err := r.d.Apply(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	for _, o := range out {
		if o.Key == intent.Key(id) {
			return o.Err
		}
	}
	return nil
}

// tc is what the kernel has.
func (r rig) tc() string {
	r.Helper()
	return regexp.MustCompile(` refcnt \d+`).ReplaceAllString(r.ns.Run("tc", "qdisc", "show"), "") + r.ns.Run("tc", "filter", "show", "dev", "cali1", "ingress") + r.ns.Run("ip", "-o", "link", "show", "type", "ifb")
}

// want compares the kernel with pieces of tc's words; one with a ! before it must not be there. Then nothing differs from the intents.
func (r rig) want(when string, pieces ...string) {
	r.Helper()
	text := r.tc()
	for _, p := range pieces {
		if p, no := strings.CutPrefix(p, "!"); strings.Contains(text, p) == no {
			r.Errorf("%s: %q there: %v\n%s", when, p, no, text)
		}
	}
	if found, err := r.d.Differences(r.Context()); err != nil || len(found) > 0 {
		r.Errorf("%s: %v differ, %v\n%s", when, found, err, text)
	}
}

// TestBandwidthFollowsTheIntents in both directions: made, changed in place, repaired after others, kept by the next agent, and removed.
func TestBandwidthFollowsTheIntents(t *testing.T) {
	r := newRig(t)
	ifb := shape.Device("cali1")
	const in, out = "tbf 7717: dev cali1 root", "qdisc clsact ffff: dev cali1"
	steps := func(b intent.Batch) {
		t.Helper()
		if err := r.apply(b); err != nil {
			t.Fatal(err)
		}
	}
	steps(limited(bits(8_000_000), none))
	r.want("what it receives", in+" rate 8Mbit", "!"+out, "!"+ifb)
	steps(limited(none, bits(16_000_000)))
	r.want("what it sends", "!"+in, out, "tbf 7717: dev "+ifb+" root rate 16Mbit", "mirred (Egress Redirect to device "+ifb)
	before := r.ns.Run("ip", "-o", "link", "show", ifb)
	steps(limited(bits(9_000_000), intent.Bandwidth{Rate: 32_000_000, Burst: 800_000, Peak: 64_000_000, PeakBurst: 3000}))
	r.want("both, and the second changed", in+" rate 9Mbit", "dev "+ifb+" root rate 32Mbit burst 100000b peakrate 64Mbit")
	if after := r.ns.Run("ip", "-o", "link", "show", ifb); after != before {
		t.Errorf("the device was made again:\n%s\n%s", before, after)
	}
	if n := len(r.d.Repairs()); n > 0 {
		t.Errorf("%d repairs of what nobody changed", n)
	}

	all := limited(bits(9_000_000), bits(32_000_000))
	steps(all)
	for what, by := range map[string][]string{
		"the rate is another's":    {"qdisc", "replace", "dev", "cali1", "root", "handle", "7717:", "tbf", "rate", "1mbit", "burst", "9k", "latency", "50ms"},
		"the bucket is gone":       {"qdisc", "del", "dev", "cali1", "root"},
		"the filter is gone":       {"filter", "del", "dev", "cali1", "ingress"},
		"clsact is gone":           {"qdisc", "del", "dev", "cali1", "clsact"},
		"the device has no bucket": {"qdisc", "del", "dev", ifb, "root"},
	} {
		r.ns.Run("tc", by...)
		if err := r.d.Resync(t.Context()); err != nil {
			t.Fatal(err)
		}
		steps(intent.Batch{})
		r.want(what, in+" rate 9Mbit", "dev "+ifb+" root rate 32Mbit", "Redirect to device "+ifb)
		if got := r.d.Repairs(); len(got) != 1 || got[0].Cause != intent.ByReadBack {
			t.Errorf("%s: repairs %v, want one", what, got)
		}
	}
	r.ns.Run("ip", "link", "del", ifb) // an event says so
	r.d.Links([]ifmon.Change{{Link: ifmon.Link{Name: ifb}, Gone: true}})
	steps(intent.Batch{})
	r.want("the device is gone", "dev "+ifb+" root rate 32Mbit", "Redirect to device "+ifb)

	kept := r.tc()
	r.d = shape.New(r.ns.Rtnl()) // the next agent, which knows nothing yet
	steps(intent.Batch{})
	if now := r.tc(); now != kept {
		t.Errorf("changed before all was known:\n%s\nto\n%s", kept, now)
	}
	steps(all)
	if now := r.tc(); now != kept {
		t.Errorf("changed although all is as wanted:\n%s\nto\n%s", kept, now)
	}
	r.d = shape.New(r.ns.Rtnl()) // one for which the limits went meanwhile
	steps(limited(none, none))
	r.want("nothing is limited", "!tbf", "!clsact", "!"+ifb)

	steps(all)
	steps(intent.Batch{Removed: []intent.Key{id}})
	r.want("the endpoint is gone", "!tbf", "!clsact", "!"+ifb)
	steps(intent.Batch{Endpoints: []intent.Endpoint{{ID: id, Link: "cali2", QoS: all.Endpoints[0].QoS}}}) // an interface that is not there
	r.want("no interface", "!tbf")
}

// TestWhatOthersHaveStays: filters of theirs, and a device with the name of ours, of which the outcome says so.
func TestWhatOthersHaveStays(t *testing.T) {
	r := newRig(t)
	ifb := shape.Device("cali1")
	r.ns.Run("tc", "qdisc", "add", "dev", "cali1", "clsact")
	r.ns.Run("tc", "filter", "add", "dev", "cali1", "ingress", "prio", "9", "protocol", "ip", "u32", "match", "u32", "1", "0xffffffff", "flowid", "1:1")
	if err := r.apply(limited(none, bits(16_000_000))); err != nil {
		t.Fatal(err)
	}
	r.want("beside another filter", "pref 9 u32", "Redirect to device "+ifb)
	if err := r.apply(limited(none, none)); err != nil {
		t.Fatal(err)
	}
	r.want("ours is gone", "pref 9 u32", "clsact", "!Redirect", "!"+ifb)
	r.ns.Run("ip", "link", "add", ifb, "type", "bridge")
	if err := r.apply(limited(bits(8_000_000), bits(8_000_000))); err == nil || !strings.Contains(err.Error(), ifb+" is another's") {
		t.Errorf("a link of that name is another's: %v", err)
	}
	if text := r.tc(); !strings.Contains(text, "dev cali1 root rate 8Mbit") {
		t.Errorf("the other direction is limited all the same:\n%s", text)
	}
	r.ns.Run("ip", "link", "del", ifb)
	r.d.Retry()
	if err := r.apply(intent.Batch{}); err != nil {
		t.Error(err)
	}
	r.want("tried again", "Redirect to device "+ifb)
}

// TestMoreThanTheBandwidthDoesNotArrive of datagrams that are sent at once: what the bucket holds and what may wait, and then only as fast as the rate.
func TestMoreThanTheBandwidthDoesNotArrive(t *testing.T) {
	const sent, size = 2000, 1000
	for _, tt := range []struct {
		name          string
		in, out       intent.Bandwidth
		toWork, bites bool
	}{
		{"received", bits(80_000), none, true, true},
		{"received, and the other is limited", none, bits(80_000), true, false},
		{"sent", none, bits(80_000), false, true},
		{"sent, and the other is limited", bits(80_000), none, false, false},
	} {
		r := newRig(t)
		from, to, at := r.workload, r.ns, netip.MustParseAddrPort("192.0.2.1:9")
		if tt.toWork {
			from, to, at = r.ns, r.workload, netip.MustParseAddrPort("192.0.2.2:9")
		}
		tx, err := from.ListenUDP(netip.AddrPort{})
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Close()
		if err := r.apply(limited(tt.in, tt.out)); err != nil {
			t.Fatal(err)
		}
		send := func(datagrams int) {
			for range datagrams {
				_, _ = tx.WriteToUDPAddrPort(make([]byte, size), at) // a queue that is full is an error for the sender
			}
		}
		begin := time.Now()
		send(sent)
		n, enough := arrived(t, to), map[bool]int{true: 1, false: sent / 2}[tt.bites]
		for deadline := time.Now().Add(netnstest.Patience); n < enough && time.Now().Before(deadline); n = arrived(t, to) {
			send(10) // a busy kernel loses what comes faster than it passes it on
		}
		most := 60 + int(time.Since(begin).Seconds()*80_000/8/size)
		if !tt.bites && n < sent/2 || tt.bites && (n > most || n == 0) {
			t.Errorf("%s: of %d datagrams %d arrived; want most of them, or if that is limited 1 to %d", tt.name, sent, n, most)
		}
	}
}

// arrived is how many datagrams came to a namespace, for a port at which nobody listens.
func arrived(t *testing.T, ns *netnstest.NS) int {
	t.Helper()
	var n int
	for _, line := range strings.Split(ns.Run("cat", "/proc/net/snmp"), "\n") {
		if f := strings.Fields(line); len(f) > 2 && f[0] == "Udp:" && f[2] != "NoPorts" {
			n, _ = strconv.Atoi(f[2])
		}
	}
	return n
}

// TestBucketsHoldWhatUsersSay, at least one packet of the link, and no more than the kernel counts.
func TestBucketsHoldWhatUsersSay(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   intent.Bandwidth
		want rtnl.Shaper
	}{
		{"nothing", none, rtnl.Shaper{}},
		{"a slow rate", bits(1000), rtnl.Shaper{Rate: 125, Burst: 1518, Queue: 20*1518 + 1518}},
		{"a tenth of a second", bits(80_000_000), rtnl.Shaper{Rate: 10_000_000, Burst: 1_000_000, Queue: 1_500_000}},
		{"a burst", intent.Bandwidth{Rate: 80_000_000, Burst: 80_000}, rtnl.Shaper{Rate: 10_000_000, Burst: 10_000, Queue: 510_000}},
		{"a burst that holds no packet", intent.Bandwidth{Rate: 80_000_000, Burst: 1000}, rtnl.Shaper{Rate: 10_000_000, Burst: 1518, Queue: 501_518}},
		{"upstream's default burst", intent.Bandwidth{Rate: 80_000_000, Burst: 4 << 30}, rtnl.Shaper{Rate: 10_000_000, Burst: 40_000_000, Queue: 40_500_000}},
		{"a peak", intent.Bandwidth{Rate: 80_000_000, Burst: 80_000, Peak: 160_000_000}, rtnl.Shaper{Rate: 10_000_000, Burst: 10_000, Queue: 510_000, Peak: 20_000_000, PeakBurst: 1518}},
		{"the fastest", bits(1_000_000_000_000_000), rtnl.Shaper{Rate: 125_000_000_000_000, Burst: 12_500_000_000_000, Queue: 1<<32 - 1}},
	} {
		if got := shape.Shaper(tt.in, 1500); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}
