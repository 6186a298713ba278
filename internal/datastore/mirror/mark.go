package mirror

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// Prefix is that of the marks, one key for each master. No kind has this name, so that no tool takes them for resources; and
// whoever may read the resources may read them.
const Prefix = api.ResourcesPrefix + "datastoremasters/"

// Mark is what a master says of its part of the datastore.
type Mark struct {
	Master     string    `json:"master"`
	Complete   bool      `json:"complete"`   // all of it is there
	Generation string    `json:"generation"` // random, of one rebuild
	At         time.Time `json:"at"`         // when that was said, by the clock of who said it
}

// masterName is a part of a key, and of a list in a variable.
var masterName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)

// Masters reads a list of names, separated by commas. An error says what they may be.
func Masters(list string) (out []string, err error) {
	if strings.TrimSpace(list) == "" {
		return nil, nil
	}
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		if err := check(name); err != nil {
			return nil, err
		}
		out = append(out, name)
	}
	return out, nil
}

func check(master string) error {
	if masterName.MatchString(master) {
		return nil
	}
	return fmt.Errorf("master %q: want lower-case letters, digits, - and ., at most 253", master)
}

// Marks are all that there are, by master. One that cannot be read is not complete.
func Marks(ctx context.Context, s datastore.Store) (map[string]Mark, error) {
	snap, err := s.List(ctx, Prefix)
	if err != nil {
		return nil, err
	}
	return marksOf(snap.Items), nil
}

// marksOf takes the marks out of what a datastore holds.
func marksOf(all []api.Update) map[string]Mark {
	out := map[string]Mark{}
	for _, u := range all {
		if name, ok := strings.CutPrefix(u.Key, Prefix); ok && u.Value != nil {
			out[name] = read(name, u.Value)
		}
	}
	return out
}

func read(name string, value []byte) Mark {
	var m Mark
	if json.Unmarshal(value, &m) != nil || m.Generation == "" {
		m = Mark{} // it says nothing
	}
	m.Master = name
	return m
}

// Begin says that a master's part is about to be rebuilt, so that it may lack anything until [Complete]. If a rebuild is under way, by whomever, this
// joins it. again: a new one begins even if the part is complete.
func Begin(ctx context.Context, s datastore.Store, master string, again bool) (Mark, error) {
	if err := check(master); err != nil {
		return Mark{}, err
	}
	for {
		have, err := s.Get(ctx, Prefix+master)
		if err != nil && !errors.Is(err, datastore.ErrNotFound) {
			return Mark{}, err
		}
		if m := read(master, have.Value); err == nil && m.Generation != "" && !(m.Complete && again) {
			return m, nil
		}
		m := Mark{Master: master, Generation: rand.Text()}
		switch err := write(ctx, s, have, &m); {
		case raced(err): // then look at what the other says
		case err != nil:
			return Mark{}, err
		default:
			return m, nil
		}
	}
}

// ErrSuperseded is that of [Complete]: what was rebuilt is not what is there.
var ErrSuperseded = errors.New("the datastore was emptied, or its rebuild begun anew, meanwhile")

// Complete says that a master's part is all there, as of a generation that [Begin] gave. It is [ErrSuperseded] if the mark is of another one, or gone:
// then what was written since Begin may be gone, too.
func Complete(ctx context.Context, s datastore.Store, master, generation string) error {
	if err := check(master); err != nil {
		return err
	}
	for {
		have, err := s.Get(ctx, Prefix+master)
		if err != nil && !errors.Is(err, datastore.ErrNotFound) {
			return err
		}
		m := read(master, have.Value)
		if err != nil || m.Generation != generation {
			return fmt.Errorf("%s is not complete: %w", master, ErrSuperseded)
		}
		if m.Complete {
			return nil
		}
		m.Complete = true
		if err := write(ctx, s, have, &m); !raced(err) {
			return err
		}
	}
}

// write puts a mark in the place of what was read.
func write(ctx context.Context, s datastore.Store, have api.Update, m *Mark) error {
	m.At = time.Now().UTC().Truncate(time.Second)
	value, err := json.Marshal(m)
	if err != nil {
		return err
	}
	kv := api.Update{Key: Prefix + m.Master, Value: value, Revision: have.Revision}
	if have.Value == nil {
		_, err = s.Create(ctx, kv)
	} else {
		_, err = s.Update(ctx, kv)
	}
	return err
}

func raced(err error) bool {
	return errors.Is(err, datastore.ErrExists) || errors.Is(err, datastore.ErrConflict) || errors.Is(err, datastore.ErrNotFound)
}
