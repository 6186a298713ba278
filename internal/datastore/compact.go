package datastore

import (
	"context"
	"log/slog"
	"time"

	"github.com/twillnet/twill/api"
)

// CompactEvery makes a store forget its history from time to time until ctx ends: all that is older than a period, and nothing younger,
// so that a reader which was away for less than that need not list again. It returns at once if the period is zero, or the store is no [Compacter], as
// Kubernetes' API server, which does it by itself. That the store is away is made up for after the next period.
// Ended is called with how each attempt ended; nil: nobody asks.
func CompactEvery(ctx context.Context, s Store, period time.Duration, ended func(error), log *slog.Logger) error {
	c, ok := s.(Compacter)
	order := OrderOf(s)
	if period <= 0 || !ok || order == nil {
		return nil
	}
	tick := time.NewTicker(period)
	defer tick.Stop()
	var last Position // of the period's begin
	for {
		bounded, cancel := context.WithTimeout(ctx, period)
		snap, err := s.List(bounded, api.KeyPrefix(api.KindClusterInformation, ""))
		if err == nil {
			if !last.IsZero() && !order.Behind(snap.Position, last) { // else it was put back from a backup: what it has now is young
				err = c.Compact(bounded, last)
			}
			last = snap.Position
		}
		cancel()
		if ended != nil {
			ended(err)
		}
		if err != nil && ctx.Err() == nil {
			log.Warn("the datastore's history is not forgotten; tried again", "after", period, "err", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
