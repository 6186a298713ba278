package syncer_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/syncer"
)

// partial is a store whose watch of resources never hears of anything, and in which others hear, at first, that they must list again once relist is closed.
type partial struct {
	*memstore.Store
	relist <-chan struct{} // nil: they hear of everything
}

func (d partial) Watch(ctx context.Context, prefix string, after datastore.Position) (datastore.Watcher, error) {
	if prefix == api.ResourcesPrefix {
		prefix = "/nothing/"
	}
	w, err := d.Store.Watch(ctx, prefix, after)
	select {
	case <-d.relist:
		return w, err
	default:
		if d.relist == nil || prefix == "/nothing/" {
			return w, err
		}
		return compacted{w, d.relist}, err
	}
}

// Get is refused, as by a role that may list and watch alone.
func (d partial) Get(context.Context, string) (api.Update, error) {
	return api.Update{}, datastore.ErrUnauthorized
}

type compacted struct {
	datastore.Watcher
	once <-chan struct{}
}

func (c compacted) Next(ctx context.Context) (datastore.Changes, error) {
	select {
	case <-c.once:
		return datastore.Changes{}, datastore.ErrCompacted
	case <-ctx.Done():
		return datastore.Changes{}, ctx.Err()
	}
}

// TestWhoeverEmptiesAPrefixMayHaveEmptiedAll: the feeds of two prefixes hear of it at different times, and what says that the datastore is ready goes
// with the first of them.
func TestWhoeverEmptiesAPrefixMayHaveEmptiedAll(t *testing.T) {
	const (
		ready = api.ResourcesPrefix + "clusterinformations/default"
		block = api.BlockPrefix + "10-65-0-0-26"
		more  = api.BlockPrefix + "10-65-0-64-26"
	)
	for _, tt := range []struct {
		name    string
		deleted []string
		relist  bool
		want    string // what the reader has then
	}{
		{"all is lost", []string{ready, block, more}, false, ""},
		{"all is lost, and listed again", []string{ready, block, more}, true, ""},
		{"all blocks are deleted", []string{block, more}, false, ready},
		{"all blocks are deleted, and listed again", []string{block, more}, true, ready},
		{"a block is deleted, and another heard of later", []string{ready, block}, false, more + " " + ready},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memstore.New()
				write(t, s, ready+"=1", block+"=1", more+"=1")
				d, relist := partial{Store: s}, make(chan struct{})
				if tt.relist {
					d.relist = relist
				}
				r := follow(t, d, syncer.Config{Prefixes: []string{api.ResourcesPrefix, api.BlockPrefix}})
				defer r.stop()
				r.drain()
				for _, key := range tt.deleted {
					write(t, s, "-"+key)
				}
				close(relist)
				<-time.After(time.Minute)
				r.drain()
				if got := strings.Join(keysOf(r.sent), " "); got != tt.want {
					t.Errorf("the reader has %q, want %q", got, tt.want)
				}
			})
		})
	}
}

func keysOf(m map[string]string) (out []string) {
	for key := range m {
		out = append(out, key)
	}
	slices.Sort(out)
	return out
}
