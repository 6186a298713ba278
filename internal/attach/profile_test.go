package attach

import (
	"errors"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// TestTheProfileOfANetworkIsItsUsersWhereTheySaySo: of two requests alike but for that.
func TestTheProfileOfANetworkIsItsUsersWhereTheySaySo(t *testing.T) {
	for _, users := range []bool{false, true} {
		b := newBed(t)
		r := request("c1")
		r.NoProfile = users
		_, err := b.Attach(t.Context(), r)
		b.must(err)
		key, err := api.Key(&api.Profile{Object: api.Object{TypeMeta: api.TypeMeta{Kind: api.KindProfile}, Metadata: api.ObjectMeta{Name: "net"}}})
		b.must(err)
		if _, err := b.store.Get(t.Context(), key); errors.Is(err, datastore.ErrNotFound) != users {
			t.Errorf("the profile is the user's: %v; it is stored: %v", users, err == nil)
		}
	}
}
