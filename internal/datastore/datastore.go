// Package datastore defines the interface of a store of resources.
//
// A store maps keys (Calico's etcd paths) to stored JSON, each with a revision,
// which changes with each write. It does not interpret the JSON.
// A [Store] is what every datastore can do, Kubernetes' API server included.
// What only some can do is an optional interface, found by a type assertion, and callers
// must work without it: [Dated], [Ordered], [Paged], [Transactional], [Expiring], [Deriving], [Judging], [Annotated],
// [Hosting], [Compacter], [Clustered].
// storetest holds the contract as tests; memstore is the reference, and
// storetest.Poor has nothing but a Store.
package datastore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twillnet/twill/api"
)

// Errors for errors.Is.
var (
	ErrNotFound     = errors.New("not found")
	ErrExists       = errors.New("exists already")
	ErrConflict     = errors.New("changed since it was read")
	ErrCompacted    = errors.New("revision is compacted; list again")
	ErrUnauthorized = errors.New("not authorized")
	ErrUnavailable  = errors.New("datastore is unavailable")
	ErrFull         = errors.New("datastore is full, and can only be read")
)

// Store is a key-value store with revisions and watches.
type Store interface {
	// Get returns the present value of a key, or ErrNotFound.
	Get(ctx context.Context, key string) (api.Update, error)
	// List returns all keys that begin with prefix, in any order, and the
	// position from which a watch brings what they lack. It has all that was
	// written before it was called. Keys of one kind are of one moment; of
	// several kinds, only where the store is Ordered.
	List(ctx context.Context, prefix string) (Snapshot, error)
	// Watch delivers every change under prefix after a position of the same
	// prefix, those of each key in order. A position that is forgotten, or that the
	// store, put back from a backup, has yet to reach is ErrCompacted. See Watcher.
	Watch(ctx context.Context, prefix string, after Position) (Watcher, error)
	// Create writes a new key, or returns ErrExists.
	Create(ctx context.Context, kv api.Update) (api.Update, error)
	// Update replaces an existing key: ErrNotFound if it is gone; ErrConflict
	// if kv.Revision is not zero and the key has another one.
	Update(ctx context.Context, kv api.Update) (api.Update, error)
	// Delete removes a key; revision as in Update, zero for any.
	Delete(ctx context.Context, key string, revision api.Revision) error
}

// Client is a store that was opened, and must be closed.
type Client interface {
	Store
	// Close ends all that the store does.
	Close() error
}

// Paged is a store that lists in pieces, so that a reader can work on the first while it waits for the others.
type Paged interface {
	Store
	// Pages is List, of which it passes each piece to page, sorted where the store is Ordered. The last piece has the list's position; where
	// the store is Ordered, each has. First: the list begins, perhaps once more, and then what earlier calls passed is void. An error of
	// page ends the list, and is returned.
	Pages(ctx context.Context, prefix string, page func(piece Snapshot, first bool) error) error
}

// Expiring is a store in which a value can be made to go by itself: what its
// writer must confirm, or readers take it for dead. In another, the value says
// until when it holds, and who reads it judges (package status).
type Expiring interface {
	Store
	// PutFor writes a key, whether it exists or not. Unless it is written
	// again, it is deleted when ttl is over, at the latest some seconds after.
	PutFor(ctx context.Context, kv api.Update, ttl time.Duration) error
}

// Deriving is a store in which some values are made of something else: of what is written of one it keeps a part, and the rest comes from there.
type Deriving interface {
	Store
	// Derives reports whether the value of a key is made of something else. What Create and Update return is the whole.
	Derives(key string) bool
}

// Judging is a store that keeps values among objects of others, so that it has no place for some, and can refuse any. It says so before anything is written.
type Judging interface {
	Store
	// PlaceOf says how the store holds the value of a key.
	PlaceOf(ctx context.Context, key string) (Place, error)
	// Try is what Get would return if a value were written now, whether the key exists or not; or the error of writing it. Nothing is written. The revision
	// means nothing.
	Try(ctx context.Context, kv api.Update) (api.Update, error)
}

// Place is how a store holds the value of a key.
type Place int

// The places. A store that is not [Judging] has the first for every key.
const (
	PlaceOwn  Place = iota // as it is written
	PlacePart              // a part of an object that others make and delete: once that is there, Update writes what the store keeps of the value
	PlaceView              // it is made of an object of others
	PlaceNone              // nowhere
)

// JudgeOf is OrderOf for a store that judges values.
func JudgeOf(s Store) Judging { return whichIs[Judging](s) }

// Annotated is a store whose endpoints are made of pods, on which their users, and those of their namespaces, ask more of a CNI plugin.
type Annotated interface {
	Store
	// Annotations are those of a pod and of its namespace as they are now, or ErrNotFound.
	Annotations(ctx context.Context, namespace, pod string) (Annotations, error)
}

// Annotations are a pod's and its namespace's, and whose the pod is.
type Annotations struct {
	Pod, Namespace map[string]string
	Instance       *Instance // nil: it runs no virtual machine
}

// Instance is the VirtualMachineInstance of KubeVirt's that a pod runs, as the pod says: whoever may make a pod can write that.
type Instance struct {
	Name, UID string
	Migration string // of which the pod is the target; empty: none
}

// Hosting is a store whose pods may run virtual machines.
type Hosting interface {
	Store
	// Instance is what there is of a name, or ErrNotFound.
	Instance(ctx context.Context, namespace, name string) (Running, error)
}

// Running is a VirtualMachineInstance of KubeVirt's, as KubeVirt says.
type Running struct {
	UID     string
	Machine string // the UID of the VirtualMachine that owns it; empty: none does
	Node    string // on which it runs; during a live migration, that from which it comes; empty: none yet
}

// Compacter is a store that can be told to forget.
type Compacter interface {
	Store
	// Compact forgets the history up to a position, which a list of any prefix gave, or up to now if that is none, as a store
	// does by itself sooner or later: a watch from before is ErrCompacted. What is forgotten already is no error.
	Compact(ctx context.Context, upTo Position) error
}

// Clustered is a store of several servers that can be asked one by one.
type Clustered interface {
	Store
	// Members asks each endpoint how it is.
	Members(ctx context.Context) ([]Member, error)
}

// Member is one endpoint of a store.
type Member struct {
	Endpoint string
	Version  string
	Err      error // it does not answer, or says that something is wrong
	// Full: its quota is used up. The cluster can only be read until somebody disarms the alarm; see docs/etcd.md.
	Full bool
}

// Transactional is a store that can change several keys at once, or none.
type Transactional interface {
	Store
	// Transact makes all changes of t at one revision, which it returns, if all
	// its conditions hold; else it makes none, and returns ErrConflict. After
	// ErrUnavailable it is not known whether they were made.
	Transact(ctx context.Context, t Txn) (api.Revision, error)
}

// Txn is one transaction. Each key is written or deleted once at most.
type Txn struct {
	If     map[string]api.Revision // by key, the revision it must have; zero: it must not exist
	Put    []api.Update            // whether they exist or not; their revisions mean nothing
	Delete []string                // whether they exist or not
}

// MostChanges is how many conditions or changes a transaction can have.
const MostChanges = 128

// Check says what is wrong with a transaction, whatever the store holds.
func (t Txn) Check() error {
	if max(len(t.If), len(t.Put)+len(t.Delete)) > MostChanges {
		return fmt.Errorf("%d conditions and %d changes: at most %d are possible in one transaction", len(t.If), len(t.Put)+len(t.Delete), MostChanges)
	}
	seen := map[string]bool{}
	for _, key := range t.Keys() {
		if seen[key] {
			return fmt.Errorf("%s is changed twice in one transaction", key)
		}
		seen[key] = true
	}
	return nil
}

// Keys are those that the transaction changes.
func (t Txn) Keys() []string {
	keys := slices.Clone(t.Delete)
	for _, kv := range t.Put {
		keys = append(keys, kv.Key)
	}
	return keys
}

// Put writes a key, whether it exists or not.
func Put(ctx context.Context, s Store, kv api.Update) error {
	kv.Revision = api.Revision{}
	_, err := s.Update(ctx, kv)
	if errors.Is(err, ErrNotFound) {
		_, err = s.Create(ctx, kv)
	}
	return err
}

// Snapshot is what a list found.
type Snapshot struct {
	Items    []api.Update
	Position Position
}

// Sorted are the items by key, for who shows them or must choose among them.
func (s Snapshot) Sorted() []api.Update {
	byKey := func(a, b api.Update) int { return strings.Compare(a.Key, b.Key) }
	if slices.IsSortedFunc(s.Items, byKey) {
		return s.Items
	}
	return slices.SortedFunc(slices.Values(s.Items), byKey)
}

// Position is how far a list or a watch of one prefix has come. Like a revision
// it is a text that only its store can read. The zero Position is none.
type Position struct{ text string }

// PositionOf is the position that a store writes as text.
func PositionOf(text string) Position { return Position{text} }

// String is what PositionOf takes.
func (p Position) String() string { return p.text }

// IsZero reports whether it is none.
func (p Position) IsZero() bool { return p.text == "" }

// Dated is a store that says which of two positions of one prefix came first.
type Dated interface {
	Store
	// Behind says whether a position comes before b, be it of one kind of keys only.
	Behind(a, b Position) bool
}

// Follower is a store that follows another, and may lag behind it for however long.
type Follower interface {
	Store
	// PutBack says whether it may be behind a position that it once gave, of a prefix, since the store that it follows was put back from a backup:
	// nil. Else the error is why not, or why that is not known, and the lists that are behind must not count.
	PutBack(ctx context.Context, prefix string, seen Position) error
}

// Ordered is a store that numbers all its changes in one order, whatever kinds
// of keys they are of. Its lists are sorted, and of one moment; its watches
// bring changes of all keys in that order.
type Ordered interface {
	Dated
	// Older says whether revision a, of whichever key, was given before b.
	Older(a, b api.Revision) bool
}

// OrderOf returns the order of a store, or of the one that it hands its calls
// on to, which it then returns from a method Unwrap. Nil: there is none.
func OrderOf(s Store) Ordered { return whichIs[Ordered](s) }

// DatesOf is OrderOf for a store that has at least dates.
func DatesOf(s Store) Dated { return whichIs[Dated](s) }

// whichIs is a store, or the one that it hands its calls on to, if that can do more; else nil.
func whichIs[T Store](s Store) (none T) {
	for {
		if t, ok := s.(T); ok {
			return t
		}
		w, ok := s.(interface{ Unwrap() Store })
		if !ok {
			return none
		}
		s = w.Unwrap()
	}
}

// Watcher is a running watch.
type Watcher interface {
	// Next waits for changes and returns those at hand, in order, and the
	// position up to which the watch has seen everything. A batch may be empty
	// when only the position has progressed. An error ends the watch:
	// ErrCompacted means that only a new List helps; on others, watch again
	// from the last position.
	Next(ctx context.Context) (Changes, error)
	// Close ends the watch and frees what it holds.
	Close()
}

// Changes is one delivery of a watch.
type Changes struct {
	Updates  []api.Update
	Position Position
}
