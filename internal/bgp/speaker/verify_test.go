package speaker

import (
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/bgp/bfd"
	"github.com/twillnet/twill/internal/bgp/plan"
)

// A BFD that is silent takes nothing down while the path answers; the first silence of both does.
func TestASilentBFDIsAskedAbout(t *testing.T) {
	peer := netip.MustParseAddr("192.0.2.2")
	up := bfd.Status{Peer: peer, State: bfd.Up.String(), Independent: true}
	lost := bfd.Status{Peer: peer, State: bfd.Down.String(), Lost: true, Losses: 1, Independent: true, Why: "no packet for 900ms"}
	for _, tt := range []struct {
		name    string
		lost    time.Duration   // for so long nothing is answered, first of all
		answers []time.Duration // for so long it answers, then is silent, and so on
		then    func(chan<- []bfd.Status)
		after   time.Duration
		dead    bool
		says    string
	}{
		{name: "the path is dead", answers: nil, after: 300 * time.Millisecond, dead: true, says: "no packet for 900ms"},
		{name: "the path answers", answers: []time.Duration{time.Hour}, after: 10 * time.Second, says: "yet the peer answers"},
		{name: "the first echo is lost", lost: firstEchoTimeout, answers: []time.Duration{time.Hour}, after: 10 * time.Second, says: "yet the peer answers"},
		{name: "the path answers and dies later", answers: []time.Duration{10 * time.Second}, after: 10*time.Second + echoInterval + echoTimeout, dead: true, says: "no packet for 900ms"},
		{name: "BFD is back before the path dies", answers: []time.Duration{5 * time.Second}, then: func(c chan<- []bfd.Status) { c <- []bfd.Status{up} }, after: 10 * time.Second},
		{name: "our own BFD goes before the path dies", answers: []time.Duration{5 * time.Second}, then: func(c chan<- []bfd.Status) { c <- nil }, after: 10 * time.Second, says: "no BFD daemon answers"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				alive, began := make(chan []bfd.Status), time.Now()
				s := New(Config{Log: slog.New(slog.DiscardHandler), BFD: alive, Echo: func(who netip.Addr, within time.Duration) error {
					if since := time.Since(began); who == peer && len(tt.answers) > 0 && since >= tt.lost && since < tt.answers[0] {
						return nil
					}
					<-time.After(within)
					return errors.New("no answer")
				}})
				go func() { _ = s.loop(t.Context(), nil, nil) }()
				alive <- []bfd.Status{up}
				alive <- []bfd.Status{lost}
				if tt.then != nil {
					<-time.After(time.Second)
					tt.then(alive)
				}
				<-time.After(tt.after)
				synctest.Wait()
				dead, says := false, ""
				_ = s.run(t.Context(), func() {
					dead = s.live.deadPeers[peer]
					says = s.live.status(plan.Session{Peer: peer, BFD: plan.BFD{BFD: api.DefaultBFD}}).Why
				})
				if dead != tt.dead || !strings.Contains(says, tt.says) {
					t.Errorf("dead %v, %q; want %v, %q", dead, says, tt.dead, tt.says)
				}
			})
		})
	}
}
