package ctl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// Bounds of how long a watch waits before it asks a datastore again that did not answer.
const (
	watchPause    = 200 * time.Millisecond
	watchPauseMax = 5 * time.Second
)

// watcher follows the resources of one kind and prints each change.
type watcher struct {
	c     *command
	o     getOptions
	kind  api.Kind
	names []string
	out   *rows

	known map[string]found // what was printed last, by key
	after int64            // seen so far; 0: list first
	away  bool             // the datastore does not answer, which was said
}

// watch prints what there is, then what becomes of it, until ctx ends.
func (c *command) watch(ctx context.Context, s datastore.Store, args []string, o getOptions) error {
	kind, err := lookupKind(args[0])
	if err != nil {
		return err
	}
	o.all = o.all || !kind.Namespaced
	w := &watcher{c: c, o: o, kind: kind, names: args[1:], out: &rows{c: c, o: o, widths: []int{len("changed")}}, known: map[string]found{}}
	for pause := watchPause; ; {
		before := w.after
		err := w.follow(ctx, s)
		switch {
		case ctx.Err() != nil:
			return nil // the user has seen enough
		case errors.Is(err, datastore.ErrCompacted):
			w.after = 0
		case errors.Is(err, datastore.ErrUnauthorized):
			return err
		case !w.away:
			w.away = true
			fmt.Fprintf(c.stdio.Err, "twill: %v; trying again\n", err)
		}
		if w.after != before {
			pause = watchPause
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
			pause = min(2*pause, watchPauseMax)
		}
	}
}

// follow lists if it must, and takes changes until something fails.
func (w *watcher) follow(ctx context.Context, s datastore.Store) error {
	if w.after == 0 {
		if err := w.relist(ctx, s); err != nil {
			return err
		}
		w.back()
	}
	wt, err := s.Watch(ctx, w.prefix(), w.after)
	if err != nil {
		return err
	}
	defer wt.Close()
	for {
		got, err := wt.Next(ctx)
		if err != nil {
			return err
		}
		w.back()
		for _, u := range got.Updates {
			w.update(u)
		}
		w.out.flush()
		w.after = got.Revision
	}
}

// back says that the datastore answers again.
func (w *watcher) back() {
	if w.away {
		w.away = false
		fmt.Fprintln(w.c.stdio.Err, "twill: the datastore answers again")
	}
}

func (w *watcher) prefix() string {
	if w.o.all {
		return api.KeyPrefix(w.kind.Kind, "")
	}
	return api.KeyPrefix(w.kind.Kind, w.o.namespace)
}

// relist compares everything with what was printed, so that nothing that
// happened unseen is lost, though of several changes to one resource only the last is known.
func (w *watcher) relist(ctx context.Context, s datastore.Store) error {
	snap, err := s.List(ctx, w.prefix())
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, u := range snap.Items {
		there[u.Key] = true
		w.update(u)
	}
	for _, key := range slices.Sorted(maps.Keys(w.known)) {
		if !there[key] {
			w.update(api.Update{Key: key})
		}
	}
	w.out.flush()
	w.after = snap.Revision
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
	f := readFound(w.kind, u)
	switch mine := w.mine(f); {
	case !mine && had:
		delete(w.known, u.Key)
		w.out.add("DELETED", f)
	case !mine:
	case !had:
		w.known[u.Key] = f
		w.out.add("ADDED", f)
	case !bytes.Equal(was.value.Value, u.Value):
		w.known[u.Key] = f
		w.out.add("MODIFIED", f)
	}
}

func (w *watcher) mine(f found) bool {
	return (len(w.names) == 0 || slices.Contains(w.names, f.ref.Name)) && w.o.narrow.keeps(f)
}

// rows prints changes, a batch at a time.
type rows struct {
	c      *command
	o      getOptions
	titled bool
	widths []int
	lines  [][]string
}

var changeWords = map[string]string{"ADDED": "added", "MODIFIED": "changed", "DELETED": "deleted"}

func (r *rows) add(what string, f found) {
	switch name := r.o.format.name; {
	case name == "json" || name == "yaml":
		r.document(what, f)
		return
	case !r.titled:
		r.titled = true
		r.lines = append(r.lines, append([]string{"CHANGE"}, r.o.header(f)...))
	}
	r.lines = append(r.lines, append([]string{changeWords[what]}, r.o.row(f)...))
}

func (r *rows) document(what string, f found) {
	if f.doc == nil {
		fmt.Fprintf(r.c.stdio.Err, "%s: %s\n", short(f.ref), f.note)
		return
	}
	text, err := json.Marshal(struct {
		Type   string          `json:"type"`
		Object json.RawMessage `json:"object"`
	}{what, r.o.document(f)})
	if err != nil {
		return // it was read as JSON, so it can be written
	}
	if r.o.format.name == "yaml" {
		if y, err := render("yaml", text); err == nil {
			fmt.Fprintf(r.c.stdio.Out, "---\n%s", y)
		}
		return
	}
	fmt.Fprintf(r.c.stdio.Out, "%s\n", text)
}

// flush prints a batch. Columns never become narrower, so that rows that come
// one at a time stand below each other.
func (r *rows) flush() {
	if len(r.lines) == 0 {
		return
	}
	for _, l := range r.lines {
		for i, cell := range l {
			if i == len(r.widths) {
				r.widths = append(r.widths, 0)
			}
			r.widths[i] = max(r.widths[i], len([]rune(cell)))
		}
	}
	for _, l := range r.lines {
		var b strings.Builder
		for i, cell := range l {
			b.WriteString(cell + strings.Repeat(" ", r.widths[i]-len([]rune(cell))+2))
		}
		fmt.Fprintln(r.c.stdio.Out, strings.TrimRight(b.String(), " "))
	}
	r.lines = nil
}
