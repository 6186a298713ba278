package storetest

import (
	"flag"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

// Main runs the tests of a package twice: on memstore, and on poor stores. It is for TestMain of a package that must do with any
// datastore; its tests make their stores with New. Benchmarks, fuzzing and what writes golden files (-update) run once.
func Main(m *testing.M) int {
	code := m.Run()
	for _, once := range []string{"test.bench", "test.fuzz", "test.list", "update"} {
		if f := flag.Lookup(once); f != nil && f.Value.String() != "" && f.Value.String() != "false" {
			return code
		}
	}
	poor = true
	defer func() { poor = false }()
	if again := m.Run(); again != 0 {
		fmt.Println("the last of these runs was on stores that have only what Kubernetes offers: storetest.Poor")
		code = again
	}
	return code
}

// other makes the stores of tests that On runs.
var other func(testing.TB) InMemory

// On runs the tests of a package on stores that somebody else makes, and that have no more than poor ones.
func On(m *testing.M, make func(testing.TB) InMemory) int {
	poor, other = true, make
	defer func() { poor, other = false, nil }()
	return m.Run()
}

// New is an empty store for a test that Main or OnPoor may run a second time, or On.
func New(t testing.TB) InMemory {
	if other != nil {
		return other(t)
	}
	if poor {
		return NewPoor(t)
	}
	return memstore.New()
}

// IsPoor reports whether New makes stores that have nothing but what every
// datastore has.
func IsPoor() bool { return poor }

// Steady makes a poor store end no watches at random, for tests of when something happens.
func Steady(s datastore.Store) {
	if p, ok := s.(*Poor); ok {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.steady = true
	}
}

// Delivered waits, in a bubble of synctest, until watchers have received what was written. On a poor store that takes a while
// when their watch ends just then.
func Delivered() {
	if poor {
		<-time.After(10 * time.Second) // virtual
	}
	synctest.Wait()
}

// OnPoor runs tests of a package again, on poor stores.
func OnPoor(t *testing.T, tests ...func(*testing.T)) {
	poor = true
	defer func() { poor = false }()
	for _, test := range tests {
		name := runtime.FuncForPC(reflect.ValueOf(test).Pointer()).Name()
		t.Run(name[strings.LastIndex(name, ".")+1:], test)
	}
}
