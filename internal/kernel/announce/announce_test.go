package announce

import (
	"errors"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/packet"
)

var (
	machine = MAC{2, 0, 0, 0, 0, 5}
	addr    = netip.MustParseAddr("10.65.0.5")
)

func TestWhatAnnouncesAMachine(t *testing.T) {
	arp, rarp := Announcement{machine, addr}, Announcement{MAC: machine}
	set := func(f []byte, at int, b byte) []byte {
		f[at] = b
		return f
	}
	with := func(a Announcement, at int, b byte) []byte { return set(a.Frame(), at, b) }
	for _, tt := range []struct {
		name  string
		frame []byte
		want  Announcement
	}{
		{"a gratuitous request", arp.Frame(), arp},
		{"a gratuitous reply", with(arp, header+7, 2), arp},
		{"a request of RARP", rarp.Frame(), rarp},
		{"padding of Ethernet", append(arp.Frame(), make([]byte, 18)...), arp},
		{"a request for another's address", with(arp, header+27, 6), Announcement{}},
		{"an operation that there is not", with(arp, header+7, 9), Announcement{}},
		{"a reply of RARP", with(rarp, header+7, 4), Announcement{}},
		{"RARP about another", with(rarp, header+23, 6), Announcement{}},
		{"ARP in another's name", with(arp, header+13, 6), Announcement{}},
		{"RARP in another's name", set(with(rarp, header+13, 6), header+23, 6), Announcement{}},
		{"a probe, which has no sender's address", Announcement{machine, netip.IPv4Unspecified()}.Frame(), Announcement{}},
		{"another protocol", with(arp, header+2, 0x86), Announcement{}},
		{"addresses of another size", with(arp, header+4, 8), Announcement{}},
		{"another EtherType", with(arp, 13, 0), Announcement{}},
		{"half a packet", arp.Frame()[:header+size-1], Announcement{}},
		{"nothing", nil, Announcement{}},
		{"a machine without a hardware address", Announcement{Addr: addr}.Frame(), Announcement{}},
	} {
		if got, ok := Parse(tt.frame); got != tt.want || ok != (tt.want != Announcement{}) {
			t.Errorf("%s: %+v, %v; want %+v", tt.name, got, ok, tt.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(Announcement{machine, addr}.Frame())
	f.Add(Announcement{MAC: machine}.Frame())
	f.Fuzz(func(t *testing.T, frame []byte) {
		a, ok := Parse(frame)
		if again, _ := Parse(a.Frame()); ok && again != a {
			t.Errorf("%x: %+v, and written again %+v", frame, a, again)
		}
	})
}

// rig is a socket on one end of a pair of interfaces, and one that sends from the other.
func rig(t *testing.T) (ns *netnstest.NS, in *Socket, send func(link string, frame []byte)) {
	ns = netnstest.New(t)
	ns.Veth("wl1", "wl1p")
	var out *packet.Socket
	var err, err2 error
	ns.Do(func() {
		in, err = Open(ns.Link("wl1").Index, machine)
		out, err2 = packet.Open()
	})
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	t.Cleanup(func() { _, _ = in.Close(), out.Close() })
	return ns, in, func(link string, frame []byte) {
		if err := out.Send(ns.Link(link).Index, frame); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWhatOthersSendCountsForNothing: the kernel passes over what has another source, and what goes out by the link itself.
func TestWhatOthersSendCountsForNothing(t *testing.T) {
	_, in, send := rig(t)
	other := MAC{2, 0, 0, 0, 0, 6}
	for range 3 * most { // more than may be looked at, if anybody did
		send("wl1p", Announcement{other, addr}.Frame())
		send("wl1", Announcement{machine, addr}.Frame())
	}
	send("wl1p", Announcement{MAC: machine}.Frame())
	if a, err := in.Next(); err != nil || a != (Announcement{MAC: machine}) {
		t.Fatalf("%+v, %v", a, err)
	}
	if in.looked != 1 {
		t.Errorf("%d packets were looked at", in.looked)
	}
}

// TestOfAMachineThatFloodsNoMoreIsLookedAtThanABudgetAllows: of what it sends itself, no more is looked at than a budget allows.
func TestOfAMachineThatFloodsNoMoreIsLookedAtThanABudgetAllows(t *testing.T) {
	defer netnstest.OneCore(t)()
	inOnePeriod := false
	for tries := 0; !inOnePeriod && tries < 20; tries++ { // on a busy machine the next may begin while they are looked at
		_, in, send := rig(t)
		ask := Announcement{machine, addr}.Frame()
		ask[header+27]++ // for another's address, as machines do
		for range most {
			send("wl1p", ask)
		}
		send("wl1p", Announcement{machine, addr}.Frame())
		began := time.Now()
		if a, err := in.Next(); err != nil || a != (Announcement{machine, addr}) {
			t.Fatalf("%+v, %v", a, err)
		}
		if inOnePeriod = in.since.Sub(began) < period; inOnePeriod && in.looked != most+1 {
			t.Errorf("%d packets were looked at before the machine's", in.looked)
		}
	}
	if !inOnePeriod {
		t.Errorf("in no try were %d packets looked at within %s", most+1, period)
	}
}

func TestASocketThatIsClosedEnds(t *testing.T) {
	_, in, _ := rig(t)
	ended := make(chan error, 1)
	go func() {
		_, err := in.Next()
		ended <- err
	}()
	_ = in.Close()
	if err := <-ended; !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
}
