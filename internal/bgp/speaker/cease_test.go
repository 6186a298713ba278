package speaker_test

import (
	"testing"
	"time"
)

// hangsUp is how long the library does not speak to a peer whose session broke.
const hangsUp = 5 * time.Second

// TestAPeerThatCeasedMayBeginAgain: after the Cease notifications that a peer sends when it makes a session anew, as ours does when
// BFD has lost the path for a moment, it is let in at once; after the others the speaker hangs up on it for some seconds. So of two that
// cease together, and call again in turn until one is let in, it is not the one that ceased and calls first.
func TestAPeerThatCeasedMayBeginAgain(t *testing.T) {
	tests := []struct {
		name        string
		later, once byte // subcodes of Cease, RFC 4486, 3
		why         string
	}{
		{"deconfigured, and too many prefixes", 1, 3, "the peer closed it: cease: peer deconfigured"},
		{"reset, and out of resources", 8, 4, "the peer closed it: cease: administrative reset"},
		{"configured, and out of resources", 8, 6, "the peer closed it: cease: other configuration change"},
	}
	h := hostileNetwork(t, 2*len(tests))
	for n, tt := range tests {
		later, once := 2*n, 2*n+1
		in, took := map[int]bool{later: true}, time.Duration(0)
		// Who calls when these seconds are over is let in as well: of a machine that is busy for so long nothing follows.
		for until := time.Now().Add(patience); in[later] && (took == 0 || took > hangsUp) && time.Now().Before(until); {
			h.active(hostileAddr(later), hostileAddr(once))
			sessions := map[int]*raw{later: h.call(t, later), once: h.call(t, once)}
			began := time.Now()
			for _, i := range []int{later, once} {
				subcode := map[int]byte{later: tt.later, once: tt.once}[i]
				if _, err := sessions[i].Write(message(msgNotification, []byte{6, subcode})); err != nil {
					t.Fatal(err)
				}
			}
			h.down(once, tt.why)
			h.down(later, "the peer closed it: cease: ")
			for in = map[int]bool{}; !in[later] && !in[once]; {
				in[later] = h.letIn(t, later)
				took = time.Since(began)
				in[once] = h.letIn(t, once)
			}
		}
		if in[later] || !in[once] {
			t.Errorf("%s: let in are %v after %s; want %d, and not %d", tt.name, in, took, once, later)
		}
	}
	h.others(t)
}

// letIn has a peer call, and says whether the speaker answers.
func (h *hostile) letIn(t *testing.T, i int) bool {
	t.Helper()
	r, err := callRaw(h.stranger.NS, hostileAddr(i), "192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, _ = r.Write(openFrom(r.addr, 64512))
	kind, _, err := r.next(patience)
	h.session(hostileAddr(i)) // the speaker does what is due
	return err == nil && kind == msgOpen
}
