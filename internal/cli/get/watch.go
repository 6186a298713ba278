package get

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/cli/show"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/resources"
	"github.com/twillnet/twill/internal/terminal"
)

// Bounds of how long a watch waits before it asks a datastore again that did not answer.
const (
	watchPause    = 200 * time.Millisecond
	watchPauseMax = 5 * time.Second
)

// watcher follows the resources of one kind and prints each change.
type watcher struct {
	c     *command
	o     show.Options
	kind  api.Kind
	names []string
	out   *rows

	known map[string]show.Found // what was printed last, by key
	after datastore.Position    // seen so far; zero: list first
	away  bool                  // the datastore does not answer, which was said
	ended bool                  // the last watch ran, and brought nothing until it ended
}

// watch prints what there is, then what becomes of it, until ctx ends.
func (c *command) watch(ctx context.Context, s datastore.Store, args []string, o show.Options) error {
	kind, err := show.LookupKind(args[0])
	if err != nil {
		return err
	}
	o.All = o.All || !kind.Namespaced
	table := terminal.NewTable(c.Stdio.Out)
	table.AtLeast(len("changed"))
	w := &watcher{c: c, o: o, kind: kind, names: args[1:], out: &rows{c: c, o: o, table: table}, known: map[string]show.Found{}}
	for pause := watchPause; ; {
		before := w.after
		ran, err := w.follow(ctx, s)
		if w.after != before {
			pause, w.ended = watchPause, false
		}
		switch {
		case ctx.Err() != nil:
			return nil // the user has seen enough
		case errors.Is(err, datastore.ErrCompacted):
			w.after = datastore.Position{}
		case errors.Is(err, datastore.ErrUnauthorized):
			return err
		case ran && !w.ended:
			w.ended = true // servers end watches as they like; if the next does no better, it is said
		case !w.away:
			w.away = true
			fmt.Fprintf(c.Stdio.Err, "twill: %v; trying again\n", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
			pause = min(2*pause, watchPauseMax)
		}
	}
}

// follow lists if it must, and takes changes until something fails; ran, if it was a watch that had begun.
func (w *watcher) follow(ctx context.Context, s datastore.Store) (ran bool, err error) {
	if w.after.IsZero() {
		if err := w.relist(ctx, s); err != nil {
			return false, err
		}
		w.back()
	}
	wt, err := s.Watch(ctx, w.prefix(), w.after)
	if err != nil {
		return false, err
	}
	defer wt.Close()
	for {
		got, err := wt.Next(ctx)
		if err != nil {
			return true, err
		}
		w.back()
		for _, u := range got.Updates {
			w.update(u)
		}
		w.out.flush()
		w.after = got.Position
	}
}

// back says that the datastore answers again.
func (w *watcher) back() {
	if w.away {
		w.away = false
		fmt.Fprintln(w.c.Stdio.Err, "twill: the datastore answers again")
	}
}

func (w *watcher) prefix() string {
	if w.o.All {
		return api.KeyPrefix(w.kind.Kind, "")
	}
	return api.KeyPrefix(w.kind.Kind, w.o.Namespace)
}

// relist compares everything with what was printed, so that nothing that
// happened unseen is lost, though of several changes to one resource only the last is known.
func (w *watcher) relist(ctx context.Context, s datastore.Store) error {
	snap, err := s.List(ctx, w.prefix())
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, u := range snap.Sorted() {
		there[u.Key] = true
		w.update(u)
	}
	for _, key := range slices.Sorted(maps.Keys(w.known)) {
		if !there[key] {
			w.update(api.Update{Key: key})
		}
	}
	w.out.flush()
	w.after = snap.Position
	return nil
}

// update prints what one key's new value means. What no longer matches the
// selectors is gone, as far as whoever watches is concerned.
func (w *watcher) update(u api.Update) {
	was, had := w.known[u.Key]
	if u.Value == nil {
		if had {
			delete(w.known, u.Key)
			w.out.add("DELETED", was)
		}
		return
	}
	f := show.ReadFound(w.kind, u)
	switch mine := w.mine(f); {
	case !mine && had:
		delete(w.known, u.Key)
		w.out.add("DELETED", f)
	case !mine:
	case !had:
		w.known[u.Key] = f
		w.out.add("ADDED", f)
	case !bytes.Equal(was.Value.Value, u.Value):
		w.known[u.Key] = f
		w.out.add("MODIFIED", f)
	}
}

func (w *watcher) mine(f show.Found) bool {
	return (len(w.names) == 0 || slices.Contains(w.names, f.Ref.Name)) && w.o.Narrow.Keeps(f)
}

// rows prints changes, a batch at a time.
type rows struct {
	c      *command
	o      show.Options
	titled bool
	table  *terminal.Table
}

var changeWords = map[string]string{"ADDED": "added", "MODIFIED": "changed", "DELETED": "deleted"}

func (r *rows) add(what string, f show.Found) {
	switch name := r.o.Format.Name; {
	case name == "json" || name == "yaml":
		r.document(what, f)
		return
	case !r.titled:
		r.titled = true
		r.table.Row(append([]string{"CHANGE"}, r.o.Header(f)...)...)
	}
	r.table.Row(append([]string{changeWords[what]}, r.o.Row(f)...)...)
}

func (r *rows) document(what string, f show.Found) {
	if f.Doc == nil {
		fmt.Fprintf(r.c.Stdio.Err, "%s: %s\n", resources.Short(f.Ref), f.Note)
		return
	}
	text, err := json.Marshal(struct {
		Type   string          `json:"type"`
		Object json.RawMessage `json:"object"`
	}{what, r.o.Document(f)})
	if err != nil {
		return // it was read as JSON, so it can be written
	}
	if r.o.Format.Name == "yaml" {
		if y, err := console.Render("yaml", text); err == nil {
			fmt.Fprintf(r.c.Stdio.Out, "---\n%s", y)
		}
		return
	}
	fmt.Fprintf(r.c.Stdio.Out, "%s\n", text)
}

// flush prints a batch.
func (r *rows) flush() { _ = r.table.More() } // as all that is printed here: who is gone sees no more
