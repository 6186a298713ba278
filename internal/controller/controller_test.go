package controller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/api"
)

const prefix = "/things/"

// bench is a controller whose calls of Reconcile are noted, in virtual time.
type bench struct {
	*testing.T
	c     *Controller
	start time.Time
	log   bytes.Buffer
	calls []string // "seconds key seen", where seen is the value of the key that was observed last
	seen  map[string]string
	busy  int
	cfg   reconciler
	count map[string]int
}

// reconciler is how a key is reconciled.
type reconciler struct {
	takes time.Duration
	fails func(key string, call int) error // calls are counted from 1
	again func(key string, call int) time.Duration
}

func (b *bench) observe(u api.Update) []string {
	name := strings.TrimPrefix(u.Key, prefix)
	b.seen[name] = string(u.Value)
	return []string{name}
}

func (b *bench) reconcile(ctx context.Context, key string) (again time.Time, err error) {
	b.count[key]++
	b.calls = append(b.calls, strings.TrimSpace(fmt.Sprintf("%v %s %s", time.Since(b.start), key, b.seen[key])))
	if b.busy++; b.busy > 1 {
		b.Errorf("%s is reconciled while another call runs", key)
	}
	defer func() { b.busy-- }()
	if b.cfg.takes > 0 {
		select {
		case <-time.After(b.cfg.takes):
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
	if b.cfg.again != nil {
		if d := b.cfg.again(key, b.count[key]); d > 0 {
			again = time.Now().Add(d)
		}
	}
	if b.cfg.fails != nil {
		err = b.cfg.fails(key, b.count[key])
	}
	return again, err
}

// do is one word of a case: sync, freeze, thaw, garbled (readiness that cannot be read), key=value (an update), +key (to enqueue),
// +key~wait (later), or a duration from the start until which to wait.
func (b *bench) do(word string) {
	if d, err := time.ParseDuration(word); err == nil {
		<-time.After(time.Until(b.start.Add(d)))
		synctest.Wait()
		return
	}
	ready := func(doc string) { b.c.Update([]api.Update{{Key: readiness, Value: []byte(doc)}}, false) }
	switch key, value, isUpdate := strings.Cut(word, "="); {
	case word == "sync":
		b.c.Update(nil, true)
	case word == "freeze":
		ready(`{"spec":{"datastoreReady":false}}`)
	case word == "thaw":
		ready(`{"spec":{"datastoreReady":true}}`)
	case word == "gone":
		b.c.Update([]api.Update{{Key: readiness}}, false)
	case word == "garbled":
		ready(`{`)
	case isUpdate:
		if !strings.HasPrefix(key, "/") {
			key = prefix + key
		}
		b.c.Update([]api.Update{{Key: key, Value: []byte(value)}}, false)
	case strings.HasPrefix(word, "+"):
		key, wait, _ := strings.Cut(word[1:], "~")
		after, _ := time.ParseDuration(wait)
		b.c.Enqueue(key, after)
	default:
		b.Fatalf("a word that is none: %s", word)
	}
}

var errAway = errors.New("away")

func untilCall(n int, err error) func(string, int) error {
	return func(_ string, call int) error {
		if call < n {
			return err
		}
		return nil
	}
}

func TestUpdatesAreReconciled(t *testing.T) {
	for _, tt := range []struct {
		name  string
		how   reconciler
		words string
		want  string // calls
		logs  int    // warnings
	}{
		{name: "each key once, in the order in which it was heard", words: "sync b=1 a=1", want: "0s b 1, 0s a 1"},
		{name: "not before all is known", words: "a=1 1s b=1 2s sync 3s", want: "2s a 1, 2s b 1"},
		{name: "what was not observed yet is observed once, as it is now", words: "a=1 a=2 b=1 a=3 sync", want: "0s a 3, 0s b 1"},
		{name: "what is no concern is not observed", words: "sync /other=1 a=1", want: "0s a 1"},
		{
			name: "what changes while it is reconciled is reconciled after, once", how: reconciler{takes: 10 * time.Second},
			words: "sync a=1 1s a=2 2s a=3 3s b=1 60s", want: "0s a 1, 10s a 3, 20s b 1",
		},
		{
			name: "a key that changes all the time does not keep the others waiting", how: reconciler{takes: time.Second},
			words: "sync a=1 b=1 100ms a=2 1100ms a=3 2100ms a=4 60s", want: "0s a 1, 1s b 1, 2s a 3, 3s a 4",
		},
		{name: "what is enqueued", words: "+x sync 1s +x 2s", want: "0s x, 1s x"},
		{name: "later", words: "sync +x~5s +y~3s 10s", want: "3s y, 5s x"},
		{name: "the earliest of two times, once", words: "sync +x~5s +x~9s +x~3s 20s", want: "3s x"},
		{name: "an update does not wait for a later time, and takes its place", words: "sync +a~5s 1s a=1 20s", want: "1s a 1"},
		{
			name: "again, when it asked for that", how: reconciler{again: func(string, int) time.Duration { return 10 * time.Second }},
			words: "sync a=1 25s a=2 40s", want: "0s a 1, 10s a 1, 20s a 1, 25s a 2, 35s a 2",
		},
		{
			name: "back-off grows to its cap", how: reconciler{fails: untilCall(9, errAway)}, logs: 1,
			words: "sync a=1 200s", want: "0s a 1, 1s a 1, 3s a 1, 7s a 1, 15s a 1, 31s a 1, 1m1s a 1, 1m31s a 1, 2m1s a 1",
		},
		{
			name: "an update does not wait for the back-off, which goes on growing", how: reconciler{fails: untilCall(5, errAway)}, logs: 1,
			words: "sync a=1 3500ms a=2 60s", want: "0s a 1, 1s a 1, 3s a 1, 3.5s a 2, 11.5s a 2",
		},
		{
			name: "back-off begins anew after a success", logs: 2, words: "sync a=1 10s a=2 30s",
			how:  reconciler{fails: func(_ string, call int) error { return map[bool]error{true: errAway}[call != 3 && call < 6] }},
			want: "0s a 1, 1s a 1, 3s a 1, 10s a 2, 11s a 2, 13s a 2",
		},
		{
			name: "each key has a back-off of its own", logs: 1, words: "sync a=1 3500ms b=1 10s",
			how: reconciler{fails: func(key string, call int) error {
				return map[bool]error{true: errAway}[key == "a" && call < 4]
			}},
			want: "0s a 1, 1s a 1, 3s a 1, 3.5s b 1, 7s a 1",
		},
		{
			name: "an error with a time is tried again then", logs: 1, words: "sync a=1 25s",
			how:  reconciler{fails: untilCall(9, errAway), again: func(string, int) time.Duration { return 10 * time.Second }},
			want: "0s a 1, 10s a 1, 20s a 1",
		},
		{
			name: "an error that no try mends waits for an update", logs: 1, words: "sync a=1 60s a=2 120s",
			how: reconciler{fails: untilCall(9, fmt.Errorf("round: %w", Terminal(errAway)))}, want: "0s a 1, 1m0s a 2",
		},
		{
			name: "an error is logged again when it changed", logs: 2, words: "sync a=1 10s",
			how: reconciler{fails: func(_ string, call int) error {
				return map[bool]error{true: fmt.Errorf("error %d", call/2)}[call < 4]
			}},
			want: "0s a 1, 1s a 1, 3s a 1, 7s a 1",
		},
		{name: "frozen: what is due waits", words: "sync freeze a=1 +x~5s 60s a=2 70s thaw 80s", want: "1m10s a 2, 1m10s x"},
		{name: "frozen before all is known", words: "a=1 freeze sync 10s thaw", want: "10s a 1"},
		{name: "frozen, and what says so cannot be read", words: "sync freeze a=1 10s garbled 20s thaw", want: "20s a 1"},
		{name: "not frozen, and what would say so cannot be read", words: "sync garbled a=1", want: "0s a 1"},
		{name: "frozen, and what says so is gone: the datastore may be lost", words: "sync freeze a=1 10s gone 20s thaw", want: "20s a 1"},
		{name: "what says that the datastore is ready goes with all else", words: "sync thaw 1s gone a=1 10s a=2 20s thaw", want: "20s a 2"},
		{name: "nothing ever said whether it is ready", words: "sync gone a=1 10s", want: "0s a 1"},
		{
			name: "frozen while it works: nothing after", how: reconciler{takes: 10 * time.Second, again: func(key string, call int) time.Duration {
				return map[bool]time.Duration{true: time.Second}[key == "a" && call == 1]
			}},
			words: "sync a=1 b=1 5s freeze 60s thaw 80s", want: "0s a 1, 1m0s b 1, 1m10s a 1",
		},
		{
			name: "frozen during a back-off", how: reconciler{fails: untilCall(3, errAway)}, logs: 1,
			words: "sync a=1 2s freeze 60s thaw 80s", want: "0s a 1, 1s a 1, 1m0s a 1",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &bench{T: t, start: time.Now(), cfg: tt.how, seen: map[string]string{}, count: map[string]int{}}
				b.c = New(Config{Name: "things", Prefixes: []string{prefix}, Observe: b.observe, Reconcile: b.reconcile, Log: slog.New(slog.NewTextHandler(&b.log, nil))})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error)
				go func() { done <- b.c.Run(ctx) }()
				for word := range strings.FieldsSeq(tt.words) {
					b.do(word)
				}
				synctest.Wait()
				if got := strings.Join(b.calls, ", "); got != tt.want {
					t.Errorf("%s:\n got %s\nwant %s", tt.words, got, tt.want)
				}
				if n := strings.Count(b.log.String(), "level=WARN"); n != tt.logs {
					t.Errorf("%d warnings, want %d:\n%s", n, tt.logs, &b.log)
				}
				cancel()
				if err := <-done; !errors.Is(err, context.Canceled) {
					t.Errorf("Run = %v", err)
				}
			})
		})
	}
}

func TestRunEndsWhenTheCallThatRunsHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		calls, returned := 0, false
		c := New(Config{Name: "things", Log: slog.New(slog.NewTextHandler(&log, nil)), Reconcile: func(ctx context.Context, _ string) (time.Time, error) {
			calls++
			<-ctx.Done()
			<-time.After(time.Second) // it tidies up
			returned = true
			return time.Time{}, ctx.Err()
		}})
		c.Update(nil, true)
		c.Enqueue("a", 0)
		c.Enqueue("b", 0)
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) || !returned || calls != 1 || log.Len() > 0 {
			t.Errorf("Run = %v; %d calls, returned: %v; log %q", err, calls, returned, &log)
		}
	})
}
