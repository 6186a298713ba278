package lab

import (
	"net/netip"
	"testing"
	"time"
)

// stream is a flow of numbered words that a test judges when it stops it.
type stream struct {
	*numbered
	allowed bool
}

// addr and end, as streams and tests want them.
func (w *Workload) addr(v6 bool) netip.Addr { return pick(v6, w.V4, w.V6) }

func (w *Workload) end(l *Lab) end { return end{l.Spec.workloadNS(*w), w.V4, w.V6} }

var nextPort uint16 = 20000

// startUDP sends numbered datagrams from a socket of a to one of b.
func startUDP(t *testing.T, l *Lab, a, b *Workload, v6, allowed bool) *stream {
	t.Helper()
	return startUDPAt(t, l, between, a, b, v6, allowed)
}

// startUDPAt does so at a pace.
func startUDPAt(t *testing.T, l *Lab, pace time.Duration, a, b *Workload, v6, allowed bool) *stream {
	t.Helper()
	nextPort++
	s, err := sendUDP(pace, a.end(l), b.end(l), nextPort, v6)
	must(t, err)
	return &stream{s, allowed}
}

// startTCP opens one connection from a to b and keeps numbered words flowing through it.
func startTCP(t *testing.T, l *Lab, a, b *Workload, v6 bool) *stream {
	t.Helper()
	return startTCPAt(t, l, between, a, b, v6)
}

// startTCPAt does so at a pace.
func startTCPAt(t *testing.T, l *Lab, pace time.Duration, a, b *Workload, v6 bool) *stream {
	t.Helper()
	nextPort++
	s, err := sendTCP(t.Context(), pace, a.end(l), b.end(l), nextPort, v6)
	must(t, err)
	return &stream{s, true}
}

// stop ends the stream and judges it.
func (s *stream) stop(t *testing.T) {
	t.Helper()
	s.stopSending()
	sent := s.sent.Load()
	if s.allowed {
		await(t, s.name+" has all that was sent, or lost some", func() bool { return s.received.Load() == sent || s.wrong.Load() != nil })
	}
	s.close()
	received := s.received.Load()
	if why := s.wrong.Load(); why != nil && s.allowed {
		t.Errorf("%s: %s", s.name, *why)
	}
	switch {
	case sent < enough:
		t.Errorf("%s: only %d were sent; the test saw too little", s.name, sent)
	case s.allowed && received != sent:
		t.Errorf("%s: %d of %d lost", s.name, sent-received, sent)
	case !s.allowed && received != 0:
		t.Errorf("%s: %d of %d passed, want none", s.name, received, sent)
	}
	t.Logf("%s: sent %d, received %d", s.name, sent, received)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
