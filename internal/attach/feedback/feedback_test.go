package feedback

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/internal/attach/wire"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore/apiserver"
)

// bench is a reporter in virtual time, and an API server that notes what is written, with the second in which it was.
type bench struct {
	*testing.T
	r     *Reporter
	start time.Time
	log   bytes.Buffer

	mu      sync.Mutex
	written []string
	err     error
	hangs   chan struct{} // nil: it answers at once
}

func (b *bench) Failed(_ context.Context, namespace, name string, f apiserver.Failure) error {
	return b.note("%s/%s %q %d times, again %v", namespace, name, f.Message, f.Count, f.Again)
}

func (b *bench) Attached(_ context.Context, namespace, name string) error {
	return b.note("%s/%s attached", namespace, name)
}

func (b *bench) note(format string, args ...any) error {
	b.mu.Lock()
	b.written = append(b.written, fmt.Sprintf("%gs ", time.Since(b.start).Seconds())+fmt.Sprintf(format, args...))
	err, hangs := b.err, b.hangs
	b.mu.Unlock()
	if hangs != nil {
		<-hangs
	}
	return err
}

func (b *bench) fails(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

func run(t *testing.T, test func(*bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, start: time.Now()}
		b.r = New(b, slog.New(slog.NewTextHandler(&b.log, nil)))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = b.r.Run(ctx) }()
		defer func() { cancel(); <-done }()
		test(b)
	})
}

func (b *bench) after(d time.Duration) { <-time.After(d); synctest.Wait() } // virtual

// want compares what was written since the last call.
func (b *bench) want(want ...string) {
	b.Helper()
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	if got := b.written; strings.Join(got, "\n") != strings.Join(want, "\n") {
		b.Errorf("written:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	b.written = nil
}

var (
	web     = wire.Pod{Namespace: "prod", Name: "web"}
	errFull = errors.New("no address")
)

func TestAFailureIsReportedAtOnceAndThenLessAndLessOften(t *testing.T) {
	run(t, func(b *bench) {
		b.r.Ended(web, false, errFull)
		b.want(`0s prod/web "no address" 1 times, again false`)
		for range 60 { // an hour, every 10 s
			for range 6 {
				b.after(10 * time.Second)
				b.r.Ended(web, true, errors.New("no pool"))
			}
		}
		b.mu.Lock()
		all := strings.Join(b.written, "\n")
		n := len(b.written)
		b.mu.Unlock()
		if n > 15 || n < 10 || !strings.HasPrefix(all, `10s prod/web "no pool" 2 times, again true`+"\n"+`30s prod/web "no pool" 3 times`) {
			b.Errorf("%d times in an hour:\n%s", n, all)
		}
		b.written = nil
		b.r.Ended(web, true, nil)
		b.want("3600s prod/web attached") // that is not delayed
		b.r.Ended(web, false, nil)
		b.after(2 * time.Hour)
		b.want()
		if len(b.r.known) != 0 || len(b.r.keys) != 0 {
			b.Errorf("%d pods are remembered", len(b.r.known))
		}
	})
}

func TestAPodThatWasNotReportedIsNotWrittenTo(t *testing.T) {
	run(t, func(b *bench) {
		b.r.Ended(web, false, nil)
		b.after(time.Hour)
		b.want()
		b.r.Ended(wire.Pod{Namespace: "prod", Name: "db"}, true, nil) // by a process before
		b.want("3600s prod/db attached")
	})
}

// TestWhatIsRefusedForNowIsReportedIfItLasts: all pods of a node that starts are refused once or twice.
func TestWhatIsRefusedForNowIsReportedIfItLasts(t *testing.T) {
	run(t, func(b *bench) {
		later := &wire.Refusal{Reason: "not ready", Later: true}
		b.r.Ended(web, false, later)
		b.after(20 * time.Second)
		b.r.Ended(web, false, nil)
		b.after(time.Hour)
		b.want()
		b.r.Ended(web, false, later)
		b.after(20 * time.Second)
		b.r.Ended(web, false, later)
		b.after(20 * time.Second)
		b.want(`3650s prod/web "not ready" 2 times, again false`)
		db := wire.Pod{Namespace: "prod", Name: "db"}
		b.r.Ended(db, false, later)
		b.r.Ended(db, false, errFull) // which is not for now
		b.want(`3660s prod/db "no address" 2 times, again false`)
	})
}

func TestWhatTheServerDoesNotTakeIsWrittenLater(t *testing.T) {
	run(t, func(b *bench) {
		b.fails(errors.New("away"))
		b.r.Ended(web, false, errFull)
		b.after(90 * time.Second)
		b.mu.Lock()
		tries := len(b.written)
		b.written = nil
		b.mu.Unlock()
		b.fails(nil)
		if tries < 3 || tries > 10 || strings.Count(b.log.String(), "away") != 1 {
			b.Errorf("%d tries; the log is %s", tries, b.log.String())
		}
		b.after(2 * time.Minute)
		b.want(`127s prod/web "no address" 1 times, again false`)
		// A pod that is gone is forgotten.
		b.fails(datastore.ErrNotFound)
		b.r.Ended(web, true, errFull)
		b.want(`210s prod/web "no address" 2 times, again true`)
		if len(b.r.known) != 0 {
			b.Errorf("%d are remembered", len(b.r.known))
		}
	})
}

// TestAServerThatHangsDelaysNobody: who attaches goes on, and of what came meanwhile the last is reported.
func TestAServerThatHangsDelaysNobody(t *testing.T) {
	run(t, func(b *bench) {
		b.hangs = make(chan struct{})
		b.r.Ended(web, false, errFull)
		b.want(`0s prod/web "no address" 1 times, again false`)
		for range 3 {
			b.r.Ended(web, false, errors.New("no pool"))
		}
		b.r.Ended(web, false, nil)
		close(b.hangs)
		b.after(time.Second)
		b.want("0.2s prod/web attached")
	})
}

func TestManyPodsDoNotFloodTheServer(t *testing.T) {
	run(t, func(b *bench) {
		for i := range 5000 {
			b.r.Ended(wire.Pod{Namespace: "prod", Name: fmt.Sprint("web-", i)}, false, errFull)
		}
		b.after(10 * time.Second)
		b.mu.Lock()
		defer b.mu.Unlock()
		if n := len(b.written); n < 50 || n > 51 || len(b.r.known) != mostPods || strings.Count(b.log.String(), "too many pods") != 1 {
			b.Errorf("%d were written in 10 s, %d are remembered; the log is %s", n, len(b.r.known), b.log.String())
		}
	})
}

// TestAPodMayBeForgottenWhileItIsReportedOn: the server has written that a pod is attached, and not yet answered; the pod fails once more,
// and is then attached, as it says already.
func TestAPodMayBeForgottenWhileItIsReportedOn(t *testing.T) {
	run(t, func(b *bench) {
		b.hangs = make(chan struct{})
		b.r.Ended(web, true, nil) // one before reported a failure
		b.want("0s prod/web attached")
		b.r.Ended(web, false, errFull)
		b.r.Ended(web, false, nil)
		b.r.Ended(web, false, errFull) // another failure, which is to be reported
		close(b.hangs)
		b.after(betweenAll)
		b.want(`0.2s prod/web "no address" 1 times, again false`)
	})
}

// TestAPodMayStayForgotten: the same without another failure.
func TestAPodMayStayForgotten(t *testing.T) {
	run(t, func(b *bench) {
		b.hangs = make(chan struct{})
		b.r.Ended(web, true, nil)
		b.want("0s prod/web attached")
		b.r.Ended(web, false, errFull)
		b.r.Ended(web, false, nil)
		close(b.hangs)
		b.after(time.Minute)
		b.want()
	})
}
