package wg

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// TestMain is also the process of a device.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "serve" {
		if err := Serve(context.Background(), os.Args[2], os.Args[3], Started()); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// host is a namespace with a device.
type host struct {
	*netnstest.NS
	wg   *Handle
	kind string
}

// newHost makes a device, by a process.
func newHost(t *testing.T, name string) host {
	t.Helper()
	ns := netnstest.New(t)
	h := host{ns, New(ns.Handle(), Config{Dir: t.TempDir(), Command: []string{"/proc/self/exe", "serve"}, Patience: netnstest.Patience}), Userspace}
	if err := h.wg.Start(name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Delete(name) }) // and with it the process ends
	return h
}

// change changes the device.
func (h host) change(t *testing.T, name string, c Change) {
	t.Helper()
	if err := h.wg.Change(name, h.kind, c); err != nil {
		t.Fatal(err)
	}
}

func (h host) read(t *testing.T, name string) State {
	t.Helper()
	s, err := h.wg.Read(name, h.kind)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newKey(t *testing.T) Key {
	t.Helper()
	k, err := NewPrivate()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// pair are two hosts with a link between them, and devices that know each other. Only the first begins: if both do at once, each forgets what it began
// for what the other did, and tries again after 5 s.
func pair(t *testing.T, one, other host, name string) {
	t.Helper()
	one.VethTo(other.NS, "eth0", "eth0")
	for i, h := range []host{one, other} {
		h.Addr("eth0", []string{"192.0.2.1/24", "192.0.2.2/24"}[i])
		h.Up("eth0")
		h.Addr(name, []string{"10.65.1.1/32", "10.65.2.1/32"}[i])
		h.change(t, name, Change{Private: newKey(t), Port: 51820, Mark: kernel.MarkEncrypted})
		h.Up(name)
		h.Route([]string{"10.65.2.0/24 dev ", "10.65.1.0/24 dev "}[i] + name)
	}
	other.change(t, name, Change{Set: []Peer{{
		Key: one.read(t, name).Public, Host: netip.MustParseAddrPort("192.0.2.1:51820"), Allowed: []netip.Prefix{netip.MustParsePrefix("10.65.1.0/24")},
	}}})
	one.change(t, name, Change{Set: []Peer{{
		Key: other.read(t, name).Public, Host: netip.MustParseAddrPort("192.0.2.2:51820"), KeepAlive: 25 * time.Second, Allowed: []netip.Prefix{netip.MustParsePrefix("10.65.2.0/24")},
	}}})
}

func TestTwoDevicesCarryPackets(t *testing.T) {
	one, other := newHost(t, "wg-a"), newHost(t, "wg-a") // sockets do not collide
	pair(t, one, other, "wg-a")
	netnstest.Probe{From: one.NS, To: other.NS, Src: netip.MustParseAddr("10.65.1.1"), Dst: netip.MustParseAddrPort("10.65.2.1:80"), Proto: "tcp"}.WantReach(t)
	s := one.read(t, "wg-a")
	if s.Port != 51820 || s.Mark != kernel.MarkEncrypted || s.Public == (Key{}) || len(s.Peers) != 1 {
		t.Fatalf("the device has %+v", s)
	}
	p := s.Peers[0]
	if p.Key != other.read(t, "wg-a").Public || p.Host.String() != "192.0.2.2:51820" || p.KeepAlive != 25*time.Second || p.Handshake.IsZero() || p.Received == 0 || p.Sent == 0 ||
		!slices.Equal(p.Allowed, []netip.Prefix{netip.MustParsePrefix("10.65.2.0/24")}) {
		t.Errorf("the peer is %+v", p)
	}
	one.change(t, "wg-a", Change{Remove: []Key{p.Key}})
	if s := one.read(t, "wg-a"); len(s.Peers) != 0 {
		t.Errorf("removed peers are there: %+v", s.Peers)
	}
}

func TestAPrivateKeyDoesNotComeOut(t *testing.T) {
	h := newHost(t, "wg-b")
	k := newKey(t)
	h.change(t, "wg-b", Change{Private: k})
	if got := h.read(t, "wg-b").Public; got != k.Public() {
		t.Errorf("the public key is %v, want %v", got, k.Public())
	}
	if text := say(t, h.wg.socket("wg-b"), "get=1\n\n"); strings.Contains(text, "private") || !strings.Contains(text, ownKey) {
		t.Errorf("the process says %q", text)
	}
}

// TestADeviceIsMadeAgainAtOnce: at the port of one that was deleted, whose process takes a moment to end.
func TestADeviceIsMadeAgainAtOnce(t *testing.T) {
	h := newHost(t, "wg0")
	for range 10 {
		h.change(t, "wg0", Change{Private: newKey(t), Port: 51820})
		h.Up("wg0")
		h.Delete("wg0")
		if err := h.wg.Start("wg0"); err != nil {
			t.Fatal(err)
		}
	}
	h.change(t, "wg0", Change{Private: newKey(t), Port: 51820})
	h.Up("wg0")
	if s := h.read(t, "wg0"); s.Port != 51820 {
		t.Errorf("it has %+v", s)
	}
}

func TestAProcessRefusesWhatItDoesNotKnow(t *testing.T) {
	h := newHost(t, "wg-c")
	for _, text := range []string{"", "get", "\n", "put=1\n\n", "set=1\n", "set=1\nprivate_key=12\n\n", "set=1\npublic_key=zz\n\n", "set=1\nno line\n\n"} {
		if got := say(t, h.wg.socket("wg-c"), text); strings.Contains(got, "errno=0") {
			t.Errorf("%q is answered %q", text, got)
		}
	}
	h.read(t, "wg-c") // it lives
	info, err := os.Stat(h.wg.socket("wg-c"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v, %v", info, err)
	}
}

func TestADeviceThatIsNotThere(t *testing.T) {
	h := newHost(t, "wg-d")
	for _, name := range []string{"wg-e", "lo"} {
		if _, err := h.wg.Read(name, Userspace); !errors.Is(err, ErrNoDevice) {
			t.Errorf("%s: %v, want %v", name, err, ErrNoDevice)
		}
	}
	err := os.ErrDeadlineExceeded
	for h.wg.cfg.Patience = time.Second; errors.Is(err, os.ErrDeadlineExceeded) && h.wg.cfg.Patience < netnstest.Patience; h.wg.cfg.Patience *= 2 {
		err = h.wg.Start("wg-d") // the first does not end, and the second has as long to say why it cannot begin
	}
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(err.Error(), "wg-d") {
		t.Errorf("a second process for one device: %v", err)
	}
	h.wg.cfg.Patience = netnstest.Patience
	h.read(t, "wg-d")
}

func TestKeysAsText(t *testing.T) {
	k := newKey(t)
	if got, err := ParseKey(k.String()); got != k || err != nil {
		t.Errorf("%v, %v", got, err)
	}
	for _, text := range []string{"", "x", "lIZGNy2QqzQ=", k.String() + "A"} {
		if _, err := ParseKey(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

// FuzzAnswer: whatever a process says crashes nothing.
func FuzzAnswer(f *testing.F) {
	f.Add(ownKey + "=00\nlisten_port=1\npublic_key=" + strings.Repeat("ab", 32) + "\nallowed_ip=10.0.0.0/8\nerrno=0\n\n")
	f.Fuzz(func(_ *testing.T, text string) { _, _ = answer(strings.NewReader(text)) })
}

// say sends a text to a process, as it is, and returns its answer.
func say(t *testing.T, socket, text string) string {
	t.Helper()
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	_ = c.(*net.UnixConn).CloseWrite()
	all, _ := io.ReadAll(c)
	return string(all)
}
