package datastore_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/datastore/storetest"
)

// history is a store to which a key is written each minute, half a minute after the full one, while its history is forgotten every ten minutes.
type history struct {
	*testing.T
	s     *memstore.Store
	then  []datastore.Position // after each minute
	start time.Time
}

func newHistory(t *testing.T, log io.Writer) *history {
	t.Helper()
	h := &history{T: t, s: memstore.New(), start: time.Now()}
	go func() {
		_ = datastore.CompactEvery(t.Context(), h.s, 10*time.Minute, nil, slog.New(slog.NewTextHandler(log, nil)))
	}()
	return h
}

// until lets time pass, in minutes since the start.
func (h *history) until(minute int) {
	h.Helper()
	for len(h.then) <= minute {
		<-time.After(30 * time.Second)
		if err := datastore.Put(h.Context(), h.s, api.Update{Key: "/k", Value: []byte("v")}); err != nil {
			h.Fatal(err)
		}
		h.then = append(h.then, h.s.Position())
		<-time.After(30 * time.Second)
		synctest.Wait()
	}
}

// oldest is the first minute from which a watch can begin.
func (h *history) oldest() int {
	h.Helper()
	for minute, p := range h.then {
		w, err := h.s.Watch(h.Context(), "/", p)
		if err == nil {
			w.Close()
			return minute
		}
		if !errors.Is(err, datastore.ErrCompacted) {
			h.Fatal(err)
		}
	}
	return len(h.then)
}

func TestHistoryIsForgottenWhenItIsOlderThanAPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHistory(t, io.Discard)
		for _, tt := range []struct{ now, oldest int }{{9, 0}, {18, 0}, {20, 9}, {28, 9}, {30, 19}} {
			h.until(tt.now)
			if got := h.oldest(); got != tt.oldest {
				t.Errorf("after minute %d, the history begins at minute %d, want %d", tt.now, got, tt.oldest)
			}
		}
	})
}

func TestAStoreThatIsAwayIsMadeToForgetLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		h := newHistory(t, &log)
		h.until(12)
		h.s.Fail(func(op memstore.Op) error {
			if op.Verb == "list" || op.Verb == "compact" {
				return datastore.ErrUnavailable
			}
			return nil
		})
		h.until(35)
		h.s.Fail(nil)
		if got := h.oldest(); got != 0 || !strings.Contains(log.String(), "unavailable") {
			t.Errorf("it begins at %d, log %s", got, log.String())
		}
		h.until(40)
		if got := h.oldest(); got != 9 {
			t.Errorf("once it is back, it begins at %d", got)
		}
		h.until(50)
		if got := h.oldest(); got != 39 {
			t.Errorf("a period later, it begins at %d", got)
		}
	})
}

func TestAStoreThatWasPutBackKeepsItsHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHistory(t, io.Discard)
		h.until(15)
		h.s.Rewind(memstore.New())
		back := h.s.Position()
		for range 3 {
			if err := datastore.Put(t.Context(), h.s, api.Update{Key: "/k"}); err != nil {
				t.Fatal(err)
			}
		}
		<-time.After(8 * time.Minute)
		if w, err := h.s.Watch(t.Context(), "/", back); err != nil {
			t.Error(err)
		} else {
			w.Close()
		}
	})
}

func TestWhatForgetsByItselfIsLeftAlone(t *testing.T) {
	for name, s := range map[string]datastore.Store{"a poor store": storetest.NewPoor(t), "no period": memstore.New()} {
		period := time.Minute
		if name == "no period" {
			period = 0
		}
		if err := datastore.CompactEvery(context.Background(), s, period, nil, slog.New(slog.DiscardHandler)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
