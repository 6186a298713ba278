package speaker_test

import (
	"testing"
	"time"
)

// TestAPeerThatCeasedMayBeginAgain: after the Cease notifications that a peer sends when it makes a session anew, as ours does when
// BFD has lost the path for a moment, it is let in at once; after the others the speaker hangs up on it for some seconds.
func TestAPeerThatCeasedMayBeginAgain(t *testing.T) {
	const maxLookups = 100 // calls that the speaker hangs up on until it knows; in some seconds there are thousands
	tests := []struct {
		name    string
		subcode byte // of Cease, RFC 4486, 3
		atOnce  bool
		why     string
	}{
		{"deconfigured", 3, true, "the peer closed it: cease: peer deconfigured"},
		{"reset", 4, true, "the peer closed it: cease: administrative reset"},
		{"configured", 6, true, "the peer closed it: cease: other configuration change"},
		{"too many prefixes", 1, false, "the peer closed it: cease: "},
		{"out of resources", 8, false, "the peer closed it: cease: "},
	}
	h := hostileNetwork(t, len(tests))
	for i, tt := range tests {
		r := h.call(t, i)
		if _, err := r.Write(message(msgNotification, []byte{6, tt.subcode})); err != nil {
			t.Fatal(err)
		}
		h.down(i, tt.why)
		calls := 0
		for again := false; !again && calls <= maxLookups; calls++ {
			r, err := callRaw(h.stranger.NS, hostileAddr(i), "192.0.2.1")
			if err != nil {
				t.Fatal(err)
			}
			_, _ = r.Write(openFrom(r.addr, 64512))
			kind, _, err := r.next(10 * time.Second)
			again = err == nil && kind == msgOpen
			_ = r.Close()
			h.session(hostileAddr(i)) // it does what is due
		}
		if got := calls <= maxLookups; got != tt.atOnce {
			t.Errorf("%s: let in after %d calls, want at once: %t", tt.name, calls, tt.atOnce)
		}
	}
	h.others(t)
}
