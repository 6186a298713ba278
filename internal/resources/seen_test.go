package resources_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/datastore/storetest"
	"github.com/twillnet/twill/internal/resources"
)

func TestOnlyWhatIsStillAsItWasSeenIsWrittenAndDeleted(t *testing.T) {
	s, tier := storetest.New(t), named(api.KindTier, "t").(*api.Tier)
	one, seven := 1.0, 7.0
	tier.Spec.Order = &one
	first, err := resources.Over(t.Context(), s, api.Update{}, tier)
	if err != nil || first.What != "created" {
		t.Fatalf("%v, %v", first, err)
	}
	if _, err := resources.Over(t.Context(), s, api.Update{}, tier); !errors.Is(err, datastore.ErrExists) {
		t.Errorf("what was not seen: %v", err)
	}
	theirs := strings.Replace(string(first.Now.Value), `"spec":{`, `"spec":{"newer":7,`, 1)
	now, err := s.Update(t.Context(), api.Update{Key: first.Now.Key, Value: []byte(theirs)})
	if err != nil {
		t.Fatal(err)
	}
	tier.Spec.Order = &seven
	if _, err := resources.Over(t.Context(), s, first.Now, tier); !errors.Is(err, datastore.ErrConflict) {
		t.Errorf("what somebody has changed since: %v", err)
	}
	done, err := resources.Over(t.Context(), s, now, tier)
	if err != nil || !strings.Contains(string(done.Now.Value), `"newer":7`) || !strings.Contains(string(done.Now.Value), `"order":7`) {
		t.Errorf("%s, %v", done.Now.Value, err)
	}
	if again, err := resources.Over(t.Context(), s, done.Now, tier); err != nil || again.What != "unchanged" || again.Now.Revision != done.Now.Revision {
		t.Errorf("the same again: %v, %v", again, err)
	}
	if err := resources.DeleteSeen(t.Context(), s, now); !errors.Is(err, datastore.ErrConflict) {
		t.Errorf("delete what somebody has changed since: %v", err)
	}
	for range 2 {
		if err := resources.DeleteSeen(t.Context(), s, done.Now); err != nil {
			t.Error(err)
		}
	}
}

// between has another writer act at the first call of a verb.
func between(s storetest.InMemory, verb string, act func()) {
	s.Fail(func(op memstore.Op) error {
		if op.Verb == verb && act != nil {
			do := act
			act = nil
			do()
		}
		return nil
	})
}

func TestWhoIsOutrunLooksAgain(t *testing.T) {
	key := api.KeyPrefix(api.KindTier, "") + "t"
	put := func(t *testing.T, s datastore.Store, value string) {
		if err := datastore.Put(t.Context(), s, api.Update{Key: key, Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("created by another meanwhile", func(t *testing.T) {
		s := storetest.New(t)
		between(s, "create", func() { put(t, s, `{"spec":{"order":1}}`) })
		if u, err := resources.CreateMissing(t.Context(), s, named(api.KindTier, "t")); err != nil || !strings.Contains(string(u.Value), `"order":1`) {
			t.Errorf("%s, %v", u.Value, err)
		}
	})
	t.Run("overwritten whatever it is", func(t *testing.T) {
		s, seen := storetest.New(t), ""
		put(t, s, "1")
		between(s, "update", func() { put(t, s, "2") })
		now, err := resources.Overwrite(t.Context(), s, api.Update{Key: key, Value: []byte("mine")}, func(was api.Update) error { seen += string(was.Value); return nil })
		if err != nil || string(now.Value) != "mine" || seen != "12" {
			t.Errorf("%s, %v; seen %s", now.Value, err, seen)
		}
	})
	t.Run("not deleted once the condition is not met", func(t *testing.T) {
		s := storetest.New(t)
		put(t, s, "old")
		between(s, "delete", func() { put(t, s, "new") })
		was, deleted, err := resources.DeleteIf(t.Context(), s, key, func(u api.Update) (bool, error) { return string(u.Value) == "old", nil })
		if err != nil || deleted || string(was.Value) != "new" {
			t.Errorf("%s, deleted %v, %v", was.Value, deleted, err)
		}
		was, deleted, err = resources.DeleteIf(t.Context(), s, key, func(api.Update) (bool, error) { return true, nil })
		if err != nil || !deleted || string(was.Value) != "new" {
			t.Errorf("%s, deleted %v, %v", was.Value, deleted, err)
		}
		if was, deleted, err = resources.DeleteIf(t.Context(), s, key, nil); err != nil || deleted || was.Value != nil {
			t.Errorf("what is gone: %s, deleted %v, %v", was.Value, deleted, err)
		}
	})
	t.Run("given up when it never ends", func(t *testing.T) {
		s := storetest.New(t)
		put(t, s, "1")
		s.Fail(func(op memstore.Op) error {
			if op.Verb == "delete" {
				return datastore.ErrConflict
			}
			return nil
		})
		if _, deleted, err := resources.DeleteIf(t.Context(), s, key, func(api.Update) (bool, error) { return true, nil }); deleted || !errors.Is(err, datastore.ErrConflict) || !strings.Contains(err.Error(), "who else writes it?") {
			t.Errorf("deleted %v, %v", deleted, err)
		}
	})
}
