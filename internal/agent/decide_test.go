package agent

import (
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/attach"
)

// However late calc comes round to what this agent wrote, what others write after that counts.
func TestWhatIsWrittenLateDoesNotHideWhatComesAfter(t *testing.T) {
	at := func(revision int64) api.Update { return api.Update{Key: "k", Value: []byte("v"), Revision: revision} }
	for _, tt := range []struct {
		name   string
		before func(*decider) // before calc takes over what is Pending
		takes  bool
		then   int64 // what the datastore says next
		passes bool
	}{
		{"not written yet", func(*decider) {}, true, 5, false},
		{"written", func(d *decider) { d.Written(at(5)) }, true, 6, true},
		{"written, and an older word", func(d *decider) { d.Written(at(5)) }, true, 4, false},
		{"written and heard of", func(d *decider) { d.Written(at(5)); d.overlay.Filter([]api.Update{at(5)}) }, false, 6, true},
	} {
		d := &decider{local: make(chan local)}
		d.Announce("k")
		tt.before(d)
		took := make(chan int, 1)
		go func() {
			l := <-d.local
			took <- len(d.overlay.Current(l.updates))
			close(l.told)
		}()
		if err := d.Overlay(t.Context(), []api.Update{at(attach.Pending)}); err != nil {
			t.Fatal(err)
		}
		if got := <-took == 1; got != tt.takes {
			t.Errorf("%s: calc takes it over: %v, want %v", tt.name, got, tt.takes)
		}
		if got := len(d.overlay.Filter([]api.Update{at(tt.then)})) == 1; got != tt.passes {
			t.Errorf("%s: revision %d passes: %v, want %v", tt.name, tt.then, got, tt.passes)
		}
	}
}
