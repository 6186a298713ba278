package lab

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twillnet/twill/internal/lab/script"
)

const (
	answerIn = time.Second            // how long one try of reach waits
	silence  = 500 * time.Millisecond // how long ! reach waits for an answer that must not come: all is on this machine
)

// ends returns source and destination of a flow.
func (c *scenario) ends(f script.Flow) (src, dst end, err error) {
	if src, err = c.Spec.find(f.Src); err == nil {
		dst, err = c.Spec.find(f.Dst)
	}
	return src, dst, err
}

// reach awaits that all that was written is in force: what was true before is no
// answer. Then it awaits an answer on each family, or wants none on any.
func (c *scenario) reach(ctx context.Context, a script.Reach) error {
	src, dst, err := c.ends(a.Flow)
	if err != nil {
		return err
	}
	if err := c.settle(ctx); err != nil {
		return err
	}
	var wg sync.WaitGroup
	var errs [2]error
	for i, asked := range []bool{a.V4, a.V6} {
		if !asked {
			continue
		}
		v6 := i == 1
		wg.Go(func() {
			if a.Not {
				errs[i] = closeAll(src, dst, a.Flow, v6)
				return
			}
			errs[i] = until(ctx, func(context.Context) error {
				ok, err := try(src, dst, a.Flow, v6, answerIn)
				if err == nil && !ok {
					err = fmt.Errorf("no answer from %s", dst.addr(v6))
				}
				return err
			})
		})
	}
	wg.Wait()
	return errors.Join(errs[:]...)
}

func closeAll(src, dst end, f script.Flow, v6 bool) error {
	ok, err := try(src, dst, f, v6, silence)
	if err == nil && ok {
		err = fmt.Errorf("%s answers", dst.addr(v6))
	}
	return err
}

// watched is a stream, and how far it had come when it was checked last.
type watched struct {
	*numbered
	sentThen, receivedThen uint64
}

func (c *scenario) stream(ctx context.Context, a script.Stream) error {
	src, dst, err := c.ends(a.Flow)
	if err != nil {
		return err
	}
	var s *numbered
	if a.Proto == "udp" {
		s, err = sendUDP(between, src, dst, a.Port, a.V6)
	} else {
		ctx, cancel := context.WithTimeout(ctx, scenarioPatience)
		defer cancel()
		s, err = sendTCP(ctx, between, src, dst, a.Port, a.V6)
	}
	if err != nil {
		return err
	}
	c.streams[a.Name] = &watched{numbered: s}
	return nil
}

func (c *scenario) checkStream(ctx context.Context, a script.StreamCheck) error {
	s := c.streams[a.Name]
	check := map[string]func(context.Context) error{"lossless": s.lossless, "silent": s.silent, "alive": s.alive, "stopped": s.stopped}[a.Want]
	if a.Want == "stopped" {
		if err := c.settle(ctx); err != nil {
			return err
		}
	}
	if err := check(ctx); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	s.sentThen, s.receivedThen = s.sent.Load(), s.received.Load()
	return nil
}

// more awaits that so many words beyond a number have been sent.
func (s *watched) more(ctx context.Context, than uint64) error {
	return until(ctx, func(context.Context) error {
		if n := s.sent.Load(); n < than+enough {
			return s.and(fmt.Errorf("only %d words were sent", n-than))
		}
		return nil
	})
}

// and adds what the stream itself saw first.
func (s *watched) and(err error) error {
	if why := s.wrong.Load(); why != nil {
		err = fmt.Errorf("%w; %s", err, *why)
	}
	return errors.Join(err, s.lacks.err())
}

// lossless: since the start or the last check each word has come, once.
func (s *watched) lossless(ctx context.Context) error {
	if err := s.more(ctx, s.sentThen); err != nil {
		return err
	}
	sent := s.sent.Load()
	return until(ctx, func(context.Context) error {
		if why := s.wrong.Load(); why != nil {
			return errors.New(*why)
		}
		if due := s.due.Load(); due < sent {
			return fmt.Errorf("%d of %d words have not come", sent-due, sent)
		}
		return s.lacks.err()
	})
}

// silent: since the start or the last check not one word has come.
func (s *watched) silent(ctx context.Context) error {
	if err := s.more(ctx, s.sentThen); err != nil {
		return err
	}
	if n := s.received.Load() - s.receivedThen; n > 0 {
		return fmt.Errorf("%d words came, and none should", n)
	}
	return nil
}

// alive: words that are sent from now on come; what was lost before is forgiven.
func (s *watched) alive(ctx context.Context) error {
	now := s.sent.Load()
	err := until(ctx, func(context.Context) error {
		if s.due.Load() <= now {
			return s.and(errors.New("nothing comes"))
		}
		return nil
	})
	s.wrong.Store(nil)
	s.lacks.forget()
	return err
}

// stopped: the time comes from which of those that are sent none comes. What was forwarded before may still be on its way when kernels are right.
func (s *watched) stopped(ctx context.Context) error {
	return until(ctx, func(ctx context.Context) error {
		now := s.sent.Load()
		if err := s.more(ctx, now); err != nil {
			return err
		}
		if s.due.Load() > now {
			return errors.New("words still come")
		}
		return nil
	})
}
