package etcdadmin

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/twillnet/twill/internal/datastore"
)

// TestAChangeThatIsNeverAnsweredIsTriedAgain: one that is lost together with a leader has no answer, and a member waits for it as long as who asked.
func TestAChangeThatIsNeverAnsweredIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		lost := func(ctx context.Context) error {
			tries++
			<-ctx.Done()
			return ctx.Err()
		}
		err := (&Admin{}).whileUnsettled(t.Context(), func(ctx context.Context) error {
			if tries == 1 {
				return nil
			}
			return lost(ctx)
		})
		if err != nil || tries != 1 {
			t.Errorf("the first is lost: got %v after %d tries", err, tries)
		}
		if err := (&Admin{}).whileUnsettled(t.Context(), lost); !errors.Is(err, datastore.ErrUnavailable) {
			t.Errorf("each is lost: got %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := (&Admin{}).whileUnsettled(ctx, lost); !errors.Is(err, context.Canceled) {
			t.Errorf("nobody waits any more: got %v", err)
		}
	})
}
