package agent

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestLeftoversAreLookedForAtStartAndRarelyAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var left []string
		var fails error
		looks := 0
		tr := &leftovers{find: func() ([]string, error) { looks++; return left, fails }, log: slog.New(slog.NewTextHandler(&log, nil))}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		want := func(n int, lines ...string) {
			t.Helper()
			synctest.Wait()
			if got := tr.lines(); !slices.Equal(got, lines) || looks != n {
				t.Errorf("after %d looks %q are left, want %d and %q", looks, got, n, lines)
			}
		}
		left = []string{"24 chains in ip filter"}
		go func() { done <- tr.run(ctx) }()
		want(1, "24 chains in ip filter")
		<-time.After(time.Minute)
		want(2, "24 chains in ip filter") // who asks gets what is so
		want(2, "24 chains in ip filter") // but not again at once
		<-time.After(time.Minute)
		fails = errors.New("boom")
		want(3, "24 chains in ip filter") // not known: what was known stays
		left, fails = nil, nil
		<-time.After(time.Minute)
		want(4)
		<-time.After(5 * time.Minute)
		want(4) // nothing is left: there is no need to look
		left = []string{"table ip calico"}
		<-time.After(2 * time.Minute) // ten since the first look
		want(5, "table ip calico")
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("run = %v", err)
		}
		if got := log.String(); strings.Count(got, "an upstream agent left something") != 2 || strings.Count(got, "boom") != 1 || strings.Count(got, "nothing of an upstream agent is left") != 1 {
			t.Errorf("the log is\n%s", got)
		}
	})
}
