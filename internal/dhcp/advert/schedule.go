package advert

import "time"

// RFC 4861, 6.2.1 and 10.
const (
	maxInterval     = 600 * time.Second // MaxRtrAdvInterval
	minInterval     = 200 * time.Second
	initialInterval = 16 * time.Second       // MAX_INITIAL_RTR_ADVERT_INTERVAL
	initial         = 3                      // MAX_INITIAL_RTR_ADVERTISEMENTS
	apart           = 3 * time.Second        // MIN_DELAY_BETWEEN_RAS
	delay           = 500 * time.Millisecond // MAX_RA_DELAY_TIME
)

// Schedule says when a machine's advertisements are sent: periodically, sooner if it asks, several times when they have changed, and never within
// three seconds. Chances are random numbers from 0 up to 1. The zero value is that of an interface that has just begun to advertise.
type Schedule struct {
	begun      bool
	soon       int // advertisements that are not to wait for the whole interval
	last, next time.Time
}

// Next is when the next one is due; the zero time: at once.
func (s *Schedule) Next() time.Time { return s.next }

// Sent is called after one was sent.
func (s *Schedule) Sent(now time.Time, chance float64) {
	if !s.begun {
		s.begun, s.soon = true, initial
	}
	wait := minInterval + time.Duration(chance*float64(maxInterval-minInterval))
	if s.soon--; s.soon > 0 {
		wait = min(wait, initialInterval)
	}
	s.soon = max(s.soon, 0)
	s.last, s.next = now, now.Add(wait)
}

// Changed is called when there is something else to advertise, or the machine's end of the link came up.
func (s *Schedule) Changed(now time.Time) {
	if s.begun {
		s.soon = initial
		s.sooner(now)
	}
}

// Solicited is called when the machine asks.
func (s *Schedule) Solicited(now time.Time, chance float64) {
	if s.begun {
		s.sooner(now.Add(time.Duration(chance * float64(delay))))
	}
}

func (s *Schedule) sooner(at time.Time) {
	if least := s.last.Add(apart); at.Before(least) {
		at = least
	}
	if at.Before(s.next) {
		s.next = at
	}
}
