package speaker

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestWhatIsNeverForTheKernel(t *testing.T) {
	own := map[netip.Addr]bool{netip.MustParseAddr("192.0.2.1"): true, netip.MustParseAddr("2001:db8::1"): true}
	for dst, want := range map[string]string{
		"0.0.0.0/0": "", "::/0": "", "10.0.0.0/8": "", "192.0.2.0/24": "", "192.0.2.2/32": "", "2001:db8::/32": "", "fd00::/8": "",
		"240.0.0.0/8": "", "128.0.0.0/1": "",
		"127.0.0.0/8": "loopback", "127.0.0.1/32": "loopback", "::1/128": "loopback", "169.254.1.1/32": "link-local", "fe80::/10": "link-local",
		"224.0.0.0/4": "multicast", "ff00::/8": "multicast", "0.0.0.0/8": "no host", "0.0.0.0/32": "no host", "::/128": "no host", "::ffff:0:0/96": "no host",
		"192.0.2.1/32": "this host", "2001:db8::1/128": "this host",
	} {
		if got := martian(netip.MustParsePrefix(dst), own); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s: got %q, want %q", dst, got, want)
		}
	}
}

func TestAClockThatIsSetBackIsSeen(t *testing.T) {
	now := time.Now()
	at := func(up bool, since time.Time) map[netip.Addr]sessionState {
		return map[netip.Addr]sessionState{netip.MustParseAddr("192.0.2.2"): {Up: up, Since: since}}
	}
	for _, tt := range []struct {
		name          string
		sessionStates map[netip.Addr]sessionState
		want          bool
	}{
		{"up for an hour", at(true, now.Add(-time.Hour)), false},
		{"just up", at(true, now), false},
		{"up an hour from now", at(true, now.Add(time.Hour)), true},
		{"down an hour from now", at(false, now.Add(time.Hour)), false},
	} {
		b := library{sessionStates: tt.sessionStates}
		if got := b.clockSetBack(now); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestANotificationInWords(t *testing.T) {
	for in, want := range map[string]string{
		"notification-sent code 3(update) subcode 10(invalid network field)":     "update: invalid network field",
		"notification-received code 6(cease) subcode 2(administrative shutdown)": "cease: administrative shutdown",
		"notification-sent code 4(hold timer expired)":                           "hold timer expired",
		"something else": "something else",
	} {
		if got := notificationText(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}
