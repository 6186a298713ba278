package kubemirror

import (
	"context"
	"errors"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/resources"
	"github.com/twillnet/twill/internal/translate"
)

// theMark is the key of the loop that stands for [translate.KeyLabelsAreCopied].
const theMark = kubernetes + "mark"

// mark has To say whether labels of pods are copied there: who attaches a pod then waits for them. It stays when this process ends, since another takes over,
// and goes when the settings turn it off.
func (m *Mirror) mark(ctx context.Context) (again time.Time, err error) {
	again = time.Now().Add(m.cfg.Resync) // an etcd that was lost has it no more
	if !m.on[Endpoints] {
		if err = m.cfg.To.Delete(ctx, translate.KeyLabelsAreCopied, api.Revision{}); errors.Is(err, datastore.ErrNotFound) {
			err = nil
		}
		return again, err
	}
	if _, err = m.cfg.To.Get(ctx, translate.KeyLabelsAreCopied); !errors.Is(err, datastore.ErrNotFound) {
		return again, err
	}
	if _, err = m.cfg.To.Create(ctx, api.Update{Key: translate.KeyLabelsAreCopied, Value: []byte("{}")}); errors.Is(err, datastore.ErrExists) {
		err = nil
	}
	return again, err
}

// unmark is mark of a mirror that does nothing else: it goes on until To says nothing of it. While To is locked, it waits as the loop does (decision 111).
func (m *Mirror) unmark(ctx context.Context) {
	for ready := api.Blank; ; {
		var err error
		if ready, err = resources.Readiness(ctx, m.cfg.To, ready); err == nil && !ready.Frozen() {
			_, err = m.mark(ctx)
		}
		m.cfg.Turn(theMark, err)
		wait := m.cfg.Resync
		if err != nil || ready.Frozen() {
			wait = pause
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
}
