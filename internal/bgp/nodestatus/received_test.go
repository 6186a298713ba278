package nodestatus

import (
	"testing"

	"github.com/twillnet/twill/api"
)

// What the datastore says of our own writes comes late, and may be of one that another of ours has replaced.
func TestOurOwnWritesAreNotTakenForNews(t *testing.T) {
	at := func(revision string) api.Update { return api.Update{Key: "k", Revision: api.RevisionOf(revision)} }
	for _, tt := range []struct {
		name     string
		received []string // after a, which was there, and b and c, which we wrote
		want     string   // what the next write replaces
	}{
		{"nothing yet", nil, "c"},
		{"the first", []string{"b"}, "c"},
		{"both", []string{"b", "c"}, "c"},
		{"the second alone", []string{"c"}, "c"},
		{"the first, then somebody else's", []string{"b", "x"}, "x"},
		{"somebody else's", []string{"x"}, "x"},
		{"both, then somebody else's", []string{"b", "c", "x"}, "x"},
	} {
		is := request{stored: at("c"), unobserved: []api.Revision{api.RevisionOf("b"), api.RevisionOf("c")}}
		for _, r := range tt.received {
			is.observe(at(r))
		}
		if got := is.stored.Revision.String(); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}
