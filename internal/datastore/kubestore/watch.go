package kubestore

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore/form"
)

const (
	// reopenTries is how often in a row a stream is begun again before the watch fails, so that its reader learns that the server is away.
	// The server ends each stream after a while.
	reopenTries = 2
	reopenWait  = 100 * time.Millisecond
	// lookAgain is how often a watch asks for kinds that the server lacked.
	lookAgain = 30 * time.Second
	// largestEvent bounds what is read of one event: an object has 1.5 MiB at most, in etcd's default.
	largestEvent = 16 << 20
)

// watcher is a watch of one prefix: a stream of the API server for each kind of objects that may hold its keys.
type watcher struct {
	s      *Store
	prefix string
	ctx    context.Context
	cancel context.CancelFunc
	forget func() bool // the store's end ends it no more
	events chan event
	failed chan error // the first failure of a stream

	versions map[string]string // up to which all was delivered
	wait     sync.WaitGroup
}

// event is a change, or only progress.
type event struct {
	id, version string
	update      api.Update // no key: nothing under the prefix
}

// Watch delivers every change under prefix after a position. It returns when all streams have begun.
func (s *Store) Watch(ctx context.Context, prefix string, after datastore.Position) (datastore.Watcher, error) {
	w, err := s.watch(ctx, prefix, after)
	if err != nil {
		return nil, wrap("watch", prefix, err)
	}
	return w, nil
}

func (s *Store) watch(ctx context.Context, prefix string, after datastore.Position) (*watcher, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	kinds, err := s.known(ctx)
	if err != nil {
		return nil, err
	}
	versions := versionsOf(after)
	kinds = under(kinds, prefix)
	for _, k := range kinds {
		if v := versions[k.ID()]; v == "" || v == absent && s.has(k) {
			return nil, fmt.Errorf("%w: the position says nothing of %s", datastore.ErrCompacted, k.ID())
		}
	}
	if err := s.reached(ctx, versions); err != nil {
		return nil, err
	}
	w := &watcher{s: s, prefix: prefix, versions: versions, events: make(chan event, 64), failed: make(chan error, 1)}
	w.ctx, w.cancel = context.WithCancel(ctx)
	w.forget = context.AfterFunc(s.life, w.cancel)
	if err := w.begin(kinds); err != nil {
		w.Close()
		select {
		case err = <-w.failed: // of a stream that had begun, whose end ended those that had not
		default:
		}
		return nil, err
	}
	return w, nil
}

// begin opens a stream for each kind, all at the same time.
func (w *watcher) begin(kinds []form.Kind) error {
	results := make(chan error, len(kinds))
	open := 0
	var lacks []string // IDs
	for _, k := range kinds {
		version := w.versions[k.ID()]
		if version == absent {
			lacks = append(lacks, k.ID())
			continue
		}
		open++
		w.wait.Go(func() {
			body, err := w.open(k, version)
			results <- err
			if err == nil {
				w.follow(k, version, body)
			}
		})
	}
	var first error
	for range open {
		if err := <-results; err != nil && first == nil {
			first = err
			w.cancel()
		}
	}
	if len(lacks) > 0 && first == nil {
		w.wait.Go(func() { w.lookFor(lacks) })
	}
	return first
}

// open begins a stream.
func (w *watcher) open(k form.Kind, version string) (io.ReadCloser, error) {
	return w.s.stream(w.ctx, k, namespaceOf(k, w.prefix), map[string]string{
		"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": version,
	})
}

// follow reads a stream, and begins it again when it ends, as each does after a while. A server that gave no answer for as long as a
// request may take is away: another try would only take as long again.
func (w *watcher) follow(k form.Kind, version string, body io.ReadCloser) {
	for failures := 0; ; {
		got, err := w.read(k, version, body)
		_ = body.Close() // it was only read
		if got != version {
			version, failures = got, 0
		}
		ended := time.Now()
		for {
			if failures++; errors.Is(err, datastore.ErrCompacted) || errors.Is(err, datastore.ErrUnauthorized) || failures > reopenTries || w.ctx.Err() != nil ||
				time.Since(ended) >= w.s.timeout() {
				w.fail(err)
				return
			}
			if w.pause(failures) != nil {
				return
			}
			if err = w.s.reached(w.ctx, map[string]string{k.ID(): version}); err != nil {
				continue
			}
			if body, err = w.open(k, version); err == nil {
				break
			}
		}
	}
}

func (w *watcher) pause(failures int) error {
	d := reopenWait << failures
	timer := time.NewTimer(d/2 + rand.N(d/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
}

// fail ends the watch.
func (w *watcher) fail(err error) {
	if w.ctx.Err() == nil { // else it has ended, and that is why the stream did
		select {
		case w.failed <- err:
		default:
		}
	}
	w.cancel()
}

// lookFor asks from time to time for kinds that the server lacked; once it has one, the reader must list.
func (w *watcher) lookFor(lacks []string) {
	timer := time.NewTicker(lookAgain)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-w.ctx.Done():
			return
		}
		kinds, err := w.s.discover(w.ctx)
		if err != nil {
			continue // the streams will say so
		}
		for _, k := range kinds {
			if w.s.has(k) && slices.Contains(lacks, k.ID()) {
				w.fail(fmt.Errorf("%w: the server has %s now", datastore.ErrCompacted, k.ID()))
				return
			}
		}
	}
}

// read passes on the events of a stream until it ends, and says how far it came.
func (w *watcher) read(k form.Kind, version string, body io.Reader) (string, error) {
	next := jsonEvents(body)
	if protobuf(k) {
		next = protobufEvents(body)
	}
	for {
		kind, raw, err := next()
		if err != nil {
			return version, translate(w.ctx, fmt.Errorf("the watch of %s ended: %w", k.ID(), err))
		}
		if kind == "ERROR" {
			return version, translate(w.ctx, statusError(raw))
		}
		e, err := k.Object(raw)
		if kind == "BOOKMARK" {
			e, err = bookmark(raw)
		}
		if err != nil || e.Version == "" {
			return version, fmt.Errorf("%w: the watch of %s brought what cannot be read: %w", datastore.ErrCompacted, k.ID(), err)
		}
		version = e.Version
		ev := event{id: k.ID(), version: version}
		if kind != "BOOKMARK" && e.Key != "" && strings.HasPrefix(e.Key, w.prefix) {
			ev.update = updateOf(e)
			if kind == "DELETED" {
				ev.update.Value = nil
			}
		}
		select {
		case w.events <- ev:
		case <-w.ctx.Done():
			return version, w.ctx.Err()
		}
	}
}

// bookmark is an object that has nothing but a version.
func bookmark(raw []byte) (form.Entry, error) {
	var o metav1.PartialObjectMetadata
	err := form.Unmarshal(raw, &o)
	return form.Entry{Version: o.ResourceVersion}, err
}

// statusError is the error that a watch brings as its last event.
func statusError(raw []byte) error {
	var s metav1.Status
	if err := form.Unmarshal(raw, &s); err != nil {
		return err
	}
	return apierrors.FromObject(&s)
}

// jsonEvents reads events that come as JSON, one after the other.
func jsonEvents(body io.Reader) func() (string, []byte, error) {
	dec := json.NewDecoder(body)
	return func() (string, []byte, error) {
		var e struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		err := dec.Decode(&e)
		return e.Type, e.Object, err
	}
}

// protobufEvents reads events that come as protobuf, each after its length in four bytes.
func protobufEvents(body io.Reader) func() (string, []byte, error) {
	r := bufio.NewReader(body)
	return func() (string, []byte, error) {
		var head [4]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return "", nil, err
		}
		n := binary.BigEndian.Uint32(head[:])
		if n > largestEvent {
			return "", nil, fmt.Errorf("an event has %d bytes", n)
		}
		raw := make([]byte, n)
		if _, err := io.ReadFull(r, raw); err != nil {
			return "", nil, err
		}
		var e metav1.WatchEvent
		if err := e.Unmarshal(raw); err != nil {
			return "", nil, err
		}
		return e.Type, e.Object.Raw, nil
	}
}

// Next waits for changes and returns those at hand.
func (w *watcher) Next(ctx context.Context) (datastore.Changes, error) {
	var out datastore.Changes
	take := func(e event) {
		w.versions[e.id] = e.version
		if e.update.Key != "" {
			out.Updates = append(out.Updates, e.update)
		}
	}
	select {
	case e := <-w.events:
		take(e)
	case <-ctx.Done():
		return out, ctx.Err()
	case <-w.ctx.Done():
		return out, w.ended()
	}
	for len(out.Updates) < cap(w.events) {
		select {
		case e := <-w.events:
			take(e)
			continue
		default:
		}
		break
	}
	out.Position = positionOf(w.versions)
	return out, nil
}

// ended is why the watch did.
func (w *watcher) ended() error {
	select {
	case err := <-w.failed:
		return wrap("watch", w.prefix, err)
	default:
		return wrap("watch", w.prefix, fmt.Errorf("%w: the watch was closed", datastore.ErrUnavailable))
	}
}

// Close ends the watch and waits until its streams have.
func (w *watcher) Close() {
	w.forget()
	w.cancel()
	w.wait.Wait()
}
