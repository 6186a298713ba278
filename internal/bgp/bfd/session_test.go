package bfd

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/seedtest"
)

// pair is two sessions with a wire between them, in virtual time.
type pair struct {
	now    time.Time
	ends   [2]*session
	lost   [2]bool // what an end sends does not arrive
	flight []letter
	sent   [2][]stamped
	log    []string // states that the ends went through
}

type letter struct {
	at time.Time
	to int
	p  Packet
}

type stamped struct {
	at time.Time
	p  Packet
}

var zero = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newPair(a, b Timing) *pair {
	random := rand.New(rand.NewPCG(1, 2))
	w := &pair{now: zero}
	w.ends[0] = newSession(1, a, zero, random.Float64)
	w.ends[1] = newSession(2, b, zero, random.Float64)
	return w
}

func (w *pair) send(from int, p Packet) {
	w.sent[from] = append(w.sent[from], stamped{w.now, p})
	if b := p.Append(nil); !w.lost[from] {
		p, err := Parse(b)
		if err != nil {
			panic(err)
		}
		w.flight = append(w.flight, letter{w.now.Add(ms), 1 - from, p})
	}
}

// run lets time pass.
func (w *pair) run(d time.Duration) {
	end := w.now.Add(d)
	for {
		next, do := end, func() {}
		for i, s := range w.ends {
			if s == nil {
				continue
			}
			if at := s.next(); !at.IsZero() && at.Before(next) {
				next, do = at, func() {
					if p, sends := s.tick(w.now); sends {
						w.send(i, p)
					}
				}
			}
		}
		slices.SortStableFunc(w.flight, func(a, b letter) int { return a.at.Compare(b.at) })
		if len(w.flight) > 0 && w.flight[0].at.Before(next) {
			l := w.flight[0]
			next, do = l.at, func() {
				w.flight = w.flight[1:]
				if s := w.ends[l.to]; s != nil && (l.p.YourDiscriminator == 0 || l.p.YourDiscriminator == s.local) {
					if reply, needed := s.receive(l.p, w.now); needed {
						w.send(l.to, reply)
					}
				}
			}
		}
		if !next.Before(end) {
			w.now = end
			return
		}
		if next.After(w.now) {
			w.now = next
		}
		before := w.states()
		if do(); w.states() != before {
			w.log = append(w.log, w.states())
		}
	}
}

func (w *pair) states() string {
	var out []string
	for _, s := range w.ends {
		if s != nil {
			out = append(out, s.state.String())
		}
	}
	return strings.Join(out, "/")
}

// up wants both ends up.
func (w *pair) up(t *testing.T) {
	t.Helper()
	w.run(3 * time.Second)
	if w.states() != "Up/Up" {
		t.Fatalf("%s after %v", w.states(), w.log)
	}
}

var usual = Timing{300 * ms, 3}

func TestTwoEndsComeUpAndStayUp(t *testing.T) {
	w := newPair(usual, usual)
	w.run(5 * time.Second)
	if n := len(w.log); n < 3 || n > 4 || w.log[n-1] != "Up/Up" {
		t.Errorf("states %v", w.log)
	}
	w.log = nil
	w.run(time.Hour)
	if len(w.log) > 0 {
		t.Errorf("in an hour: %v", w.log)
	}
	for i, s := range w.ends {
		if s.detection() != 900*ms || s.interval() != 300*ms || s.poll || s.why != "" {
			t.Errorf("end %d: %s, %s, poll %t, %q", i, s.detection(), s.interval(), s.poll, s.why)
		}
	}
}

func TestASessionThatIsNotUpIsSlowAndOneThatIsUpIsJittered(t *testing.T) {
	w := newPair(usual, usual)
	w.ends[1] = nil
	w.run(time.Minute)
	if n := len(w.sent[0]); n < 60 || n > 81 {
		t.Errorf("%d packets in a minute to nobody", n)
	}
	w = newPair(usual, usual)
	w.up(t)
	from := len(w.sent[0])
	w.run(10 * time.Minute)
	var gaps []time.Duration
	for i, s := range w.sent[0][from+1:] {
		gaps = append(gaps, s.at.Sub(w.sent[0][from+i].at))
	}
	if least, most := slices.Min(gaps), slices.Max(gaps); least < 225*ms || most > 300*ms || most-least < 60*ms {
		t.Errorf("between packets %s to %s", least, most)
	}
	w = newPair(Timing{300 * ms, 1}, usual)
	w.up(t)
	from = len(w.sent[0])
	w.run(10 * time.Minute)
	for i, s := range w.sent[0][from+1:] {
		if gap := s.at.Sub(w.sent[0][from+i].at); gap < 225*ms || gap > 270*ms {
			t.Fatalf("with multiplier 1 there were %s between packets", gap)
		}
	}
}

// TestWhatAnEndMakesOfWhatHappens has the far end, or the wire, do something to sessions that are up.
func TestWhatAnEndMakesOfWhatHappens(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(*pair)
		wait time.Duration
		want string // state, diagnostic, lost, losses, why
	}{
		{"nothing", func(*pair) {}, time.Minute, "Up 0 false 0 "},
		{"the wire is cut: just before the detection time", func(w *pair) { w.lost = [2]bool{true, true} }, 599 * ms, "Up 0 false 0 "},
		{"the wire is cut", func(w *pair) { w.lost = [2]bool{true, true} }, 901 * ms, "Down 1 true 1 no packet for 900ms"},
		{"two packets are lost", func(w *pair) {
			w.lost[1] = true
			w.run(599 * ms)
			w.lost[1] = false
		}, 400 * ms, "Up 0 false 0 "},
		{"the wire is cut one way, away from here", func(w *pair) { w.lost[0] = true }, 902 * ms, "Down 3 true 1 the neighbour does not hear us (diagnostic 1)"},
		{"the wire is cut, and healed", func(w *pair) {
			w.lost = [2]bool{true, true}
			w.run(2 * time.Second)
			w.lost = [2]bool{}
		}, 2 * time.Second, "Up 0 false 1 "},
		{"the far end stops on purpose", func(w *pair) { w.ends[1].close(w.now) }, 10 * ms, "Down 3 false 0 administratively down at the neighbour"},
		{"the far end stops on purpose, and two of its packets are lost", func(w *pair) {
			w.ends[1].close(w.now)
			w.lost[1] = true
			w.run(adminDownInterval + 10*ms)
			w.lost[1] = false
		}, 10 * time.Second, "Down 3 false 0 administratively down at the neighbour"},
		{"the far end begins anew", func(w *pair) { w.ends[1] = newSession(3, usual, w.now, rand.Float64) }, 10 * ms, "Up 0 false 0 "},
		{"the far end begins anew after a while", func(w *pair) {
			w.ends[1] = nil
			w.run(400 * ms)
			w.ends[1] = newSession(3, usual, w.now, rand.Float64)
		}, 2 * time.Second, "Up 0 false 0 "},
		{"the far end begins anew after too long", func(w *pair) {
			w.ends[1] = nil
			w.run(1400 * ms)
			w.ends[1] = newSession(3, usual, w.now, rand.Float64)
		}, 2 * time.Second, "Up 0 false 1 "},
		{"the far end dies, long ago", func(w *pair) { w.ends[1] = nil }, time.Hour, "Down 1 true 1 no packet for 900ms"},
		{"the far end turns it off after the wire was cut", func(w *pair) {
			w.lost = [2]bool{true, true}
			w.run(2 * time.Second)
			w.lost = [2]bool{}
			w.ends[1].close(w.now)
		}, time.Second, "Down 1 false 1 administratively down at the neighbour"},
		{"the far end wants to receive nothing", func(w *pair) {
			w.send(1, Packet{State: Up, Multiplier: 3, MyDiscriminator: 2, YourDiscriminator: 1, DesiredMinTx: 300 * ms})
		}, 100 * ms, "Up 0 false 0 "},
		{"this end stops", func(w *pair) { w.ends[0].close(w.now) }, time.Minute, "AdminDown 7 false 0 "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newPair(usual, usual)
			w.up(t)
			tt.do(w)
			w.run(tt.wait)
			s := w.ends[0]
			if got := fmt.Sprint(s.state, " ", s.diag, " ", s.lost, " ", s.losses, " ", s.why); got != tt.want {
				t.Errorf("%q, want %q; states %v", got, tt.want, w.log)
			}
		})
	}
}

func TestNobodyIsSentToWhoWantsNothing(t *testing.T) {
	w := newPair(usual, usual)
	w.up(t)
	w.ends[1].requiredMinRx, w.ends[1].activeRx = 0, 0 // RFC 5880, 6.8.1: it wants no packets
	w.run(310 * ms)
	from := len(w.sent[0])
	w.run(500 * ms)
	if n := len(w.sent[0]) - from; n > 0 {
		t.Errorf("%d packets to who wants none", n)
	}
}

// TestTimesChangeWhileSessionsStayUp: neither end goes down, and both end with what was agreed.
func TestTimesChangeWhileSessionsStayUp(t *testing.T) {
	for _, tt := range []struct {
		name        string
		a, b        Timing
		steps       []Timing // of a, 100 ms apart
		detectA     time.Duration
		detectB     time.Duration
		intervalOfA time.Duration
	}{
		{"slower", usual, usual, []Timing{{time.Second, 3}}, 3 * time.Second, 3 * time.Second, time.Second},
		{"faster", usual, usual, []Timing{{100 * ms, 3}}, 900 * ms, 900 * ms, 300 * ms},
		{"faster than the other", Timing{time.Second, 3}, Timing{100 * ms, 5}, []Timing{{200 * ms, 3}}, 1000 * ms, 600 * ms, 200 * ms},
		{"more may be missing", usual, usual, []Timing{{300 * ms, 5}}, 900 * ms, 1500 * ms, 300 * ms},
		{"to and fro", usual, usual, []Timing{{2 * time.Second, 2}, {100 * ms, 2}, {500 * ms, 4}}, 1500 * ms, 2000 * ms, 500 * ms},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newPair(tt.a, tt.b)
			w.up(t)
			w.log = nil
			for _, step := range tt.steps {
				w.ends[0].setTiming(step, w.now)
				w.run(100 * ms)
			}
			w.run(10 * time.Second)
			a, b := w.ends[0], w.ends[1]
			if len(w.log) > 0 || a.detection() != tt.detectA || b.detection() != tt.detectB || a.interval() != tt.intervalOfA || a.poll {
				t.Errorf("%v; detection %s and %s, interval %s, poll %t", w.log, a.detection(), b.detection(), a.interval(), a.poll)
			}
		})
	}
}

func TestAPollIsAnsweredAtOnce(t *testing.T) {
	w := newPair(usual, usual)
	w.up(t)
	p := w.ends[1].packet()
	p.Poll = true
	reply, needed := w.ends[0].receive(p, w.now)
	if !needed || !reply.Final || reply.Poll || reply.State != Up || !reply.ControlPlaneIndependent {
		t.Errorf("%+v, %t", reply, needed)
	}
}

// TestSlowerOnlyWhenTheOtherKnows: RFC 5880, 6.8.3.
func TestSlowerOnlyWhenTheOtherKnows(t *testing.T) {
	w := newPair(usual, usual)
	w.up(t)
	w.lost[0] = true // what is sent does not arrive, nor is it confirmed
	w.ends[0].setTiming(Timing{2 * time.Second, 3}, w.now)
	from := len(w.sent[0])
	w.run(850 * ms)
	if n := len(w.sent[0]) - from; n < 3 || !w.sent[0][from].p.Poll || w.sent[0][from].p.DesiredMinTx != 2*time.Second {
		t.Errorf("%d packets, the first %+v", n, w.sent[0][from].p)
	}
}

// TestManyLossesNeverPanicOrStick has a wire that loses at random: whatever it did, two ends come up when it is whole.
func TestManyLossesNeverPanicOrStick(t *testing.T) {
	random := seedtest.Rand(t)
	for round := range 200 {
		timing := func() Timing {
			return Timing{time.Duration(50+random.IntN(1000)) * ms, uint8(2 + random.IntN(4))}
		}
		w := newPair(timing(), timing())
		number := uint32(10)
		for range 50 {
			end := random.IntN(2)
			switch random.IntN(6) {
			case 0:
				w.ends[end].setTiming(timing(), w.now)
			case 1:
				number++
				w.ends[end] = newSession(number, timing(), w.now, random.Float64)
			default:
				w.lost[end] = !w.lost[end]
			}
			w.run(time.Duration(random.IntN(2000)) * ms)
		}
		w.lost = [2]bool{}
		w.run(15 * time.Second)
		a, b := w.ends[0], w.ends[1]
		want := max(a.timing.Interval, b.timing.Interval)
		if w.states() != "Up/Up" || a.interval() != want || b.interval() != want || a.detection() != time.Duration(b.timing.Multiplier)*want || cmp.Or(a.lost, b.lost) {
			t.Fatalf("round %d: %s, intervals %s and %s, want %s; detection %s", round, w.states(), a.interval(), b.interval(), want, a.detection())
		}
	}
}
