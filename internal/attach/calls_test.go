package attach

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
)

// Each call is a way to the datastore and back, and a transaction waits for its disk: an ADD that follows another looks at what the
// container has and at its network's profile, and writes addresses and endpoint at once.
func TestAnAttachmentIsTwoReadsAndATransaction(t *testing.T) {
	synctest.Test(t, twoReadsAndATransaction) // in real time the second one could come after a second, and read all again
}

func twoReadsAndATransaction(t *testing.T) {
	b := newBed(t)
	if _, ok := b.store.all().(datastore.Transactional); !ok {
		return // this store has none
	}
	_, err := b.Attach(t.Context(), request("c1"))
	b.must(err)
	var mu sync.Mutex
	var calls []string
	b.store.InMemory.Fail(func(op memstore.Op) error {
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, op.Verb)
		return nil
	})
	_, err = b.Attach(t.Context(), request("c2"))
	b.must(err)
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(calls)
	if got := strings.Join(calls, " "); got != "get list transact" {
		t.Errorf("an ADD asks the datastore: %s; want get list transact", got)
	}
}
