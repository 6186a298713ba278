package storetest

import (
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
)

// InMemory is a store with what tests need beside: memstore, or a poor one.
type InMemory interface {
	datastore.Store
	// Fail makes each call ask f first, and fail with the error that it returns.
	Fail(f func(memstore.Op) error)
	// DropWatches ends every watch that runs with err; nil stands for ErrUnavailable.
	DropWatches(err error)
	// Revision counts the changes, from 1.
	Revision() int64
}

// poor says which store New makes. The tests of a package run one after the other.
var poor bool

// New is an empty store for a test that OnPoor may run a second time.
func New(t testing.TB) InMemory {
	if poor {
		return NewPoor(t)
	}
	return memstore.New()
}

// IsPoor reports whether New makes stores that have nothing but what every
// datastore has.
func IsPoor() bool { return poor }

// OnPoor runs tests of a package again, on poor stores.
func OnPoor(t *testing.T, tests ...func(*testing.T)) {
	poor = true
	defer func() { poor = false }()
	for _, test := range tests {
		name := runtime.FuncForPC(reflect.ValueOf(test).Pointer()).Name()
		t.Run(name[strings.LastIndex(name, ".")+1:], test)
	}
}
