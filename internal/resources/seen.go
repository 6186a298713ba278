package resources

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// Stored is the key and the value of a resource that is new: with a uid and the time of its creation.
func Stored(r api.Resource) (kv api.Update, err error) {
	if kv.Key, err = api.Key(r); err != nil {
		return kv, err
	}
	api.Prepare(r, uuid.NewString(), time.Now().UTC().Format(time.RFC3339))
	kv.Value, err = api.EncodeStored(r)
	return kv, err
}

// Over makes a resource say what r says, if it is still as it was seen; if none was seen, without a value, it is created. What another
// version wrote stays. It is for who follows the datastore, and reads nothing: [datastore.ErrConflict], [datastore.ErrExists] and
// [datastore.ErrNotFound] mean that somebody else was faster, of whom will be heard.
func Over(ctx context.Context, s datastore.Store, seen api.Update, r api.Resource) (Written, error) {
	if seen.Value == nil {
		return CreateNew(ctx, s, r)
	}
	return mergeInto(ctx, s, seen, r, "configured")
}

// DeleteSeen deletes what is still as it was seen; else it is [datastore.ErrConflict]. That it is gone is no error.
func DeleteSeen(ctx context.Context, s datastore.Store, seen api.Update) error {
	err := s.Delete(ctx, seen.Key, seen.Revision)
	if errors.Is(err, datastore.ErrNotFound) {
		return nil
	}
	return err
}

// CreateMissing returns what is stored of a resource, and creates it if nothing is. Any number may do so at once.
func CreateMissing(ctx context.Context, s datastore.Store, r api.Resource) (api.Update, error) {
	key, err := api.Key(r)
	if err != nil {
		return api.Update{}, err
	}
	u, err := s.Get(ctx, key)
	if !errors.Is(err, datastore.ErrNotFound) {
		return u, err
	}
	w, err := CreateNew(ctx, s, r)
	if errors.Is(err, datastore.ErrExists) {
		return s.Get(ctx, key)
	}
	return w.Now, err
}

// Overwrite writes a value whatever is stored under its key. Of what it replaces, seen is told first, and may refuse.
func Overwrite(ctx context.Context, s datastore.Store, kv api.Update, seen func(was api.Update) error) (api.Update, error) {
	var now api.Update
	err := whileOthersWrite(func() (err error) {
		kv.Revision = api.Revision{}
		if now, err = s.Create(ctx, kv); !errors.Is(err, datastore.ErrExists) {
			return err
		}
		was, err := s.Get(ctx, kv.Key)
		if err == nil {
			err = seen(was)
		}
		if err == nil {
			kv.Revision = was.Revision
			now, err = s.Update(ctx, kv)
		}
		return err
	})
	return now, err
}

// DeleteIf deletes a key if condition agrees to what is stored, and returns what it saw last: without a value, there was nothing.
func DeleteIf(ctx context.Context, s datastore.Store, key string, condition func(api.Update) (bool, error)) (was api.Update, deleted bool, err error) {
	err = whileOthersWrite(func() (err error) {
		was, deleted = api.Update{Key: key}, false
		u, err := s.Get(ctx, key)
		if errors.Is(err, datastore.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		was = u
		if deleted, err = condition(u); err != nil || !deleted {
			return err
		}
		if err = s.Delete(ctx, key, u.Revision); errors.Is(err, datastore.ErrNotFound) {
			err = nil
		}
		return err
	})
	return was, deleted && err == nil, err
}

// whileOthersWrite tries again when somebody else was faster, some times.
func whileOthersWrite(do func() error) (err error) {
	for range conflictTries {
		if err = do(); !errors.Is(err, datastore.ErrConflict) && !errors.Is(err, datastore.ErrExists) && !errors.Is(err, datastore.ErrNotFound) {
			return err
		}
	}
	return fmt.Errorf("%w, %d times in a row; who else writes it?", err, conflictTries)
}
