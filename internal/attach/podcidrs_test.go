package attach

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/attach/wire"
	"github.com/twillnet/twill/internal/datastore"
)

func TestTheNodesPrefixesForPodsAreThoseOfItsResource(t *testing.T) {
	b := newBed(t)
	b.known.Store(api.ResourcesPrefix+"nodes/h1", true) // who writes it is another
	for _, tt := range []struct{ has, want string }{
		{`[]`, "later"},
		{`["10.44.7.0/24"]`, "{10.44.7.0/24 invalid Prefix}"},
		{`["fd44:7::/64","10.44.7.1/24"]`, "{10.44.7.0/24 fd44:7::/64}"},
		{`["10.44.7.0/24","10.44.8.0/24"]`, "refused"},
		{`["all"]`, "refused"},
	} {
		value := fmt.Sprintf(`{"kind":"Node","apiVersion":"projectcalico.org/v3","metadata":{"name":"h1"},"spec":{},"status":{"podCIDRs":%s}}`, tt.has)
		b.must(datastore.Put(t.Context(), b.store.InMemory, api.Update{Key: api.ResourcesPrefix + "nodes/h1", Value: []byte(value)}))
		out, err := b.PodCIDRs(t.Context(), wire.Ref{})
		var refusal *wire.Refusal
		switch got := fmt.Sprint(out); {
		case errors.As(err, &refusal) && (refusal.Later && tt.want == "later" || !refusal.Later && tt.want == "refused"):
		case err != nil || got != tt.want:
			t.Errorf("%s: got %s, %v, want %s", tt.has, got, err, tt.want)
		default:
			text, err := json.Marshal(out)
			var again wire.PodCIDRs
			if err != nil || json.Unmarshal(text, &again) != nil || again != out {
				t.Errorf("%s becomes %v, %v", text, again, err)
			}
		}
	}
}
