package ipam

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/storetest"
)

// fixture is an allocator on a store in memory, with a clock that only tests move.
type fixture struct {
	*testing.T
	store storetest.InMemory
	now   time.Time
	*Allocator
}

var start = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

// newFixture has pool p, 10.0.0.0/28 in blocks of four, and p6.
func newFixture(t *testing.T) *fixture {
	f := &fixture{T: t, store: storetest.New(t), now: start}
	f.Allocator = f.allocator(f.store, Config{})
	f.put("ippools/p", `"cidr":"10.0.0.0/28","blockSize":30`)
	f.put("ippools/p6", `"cidr":"fd65::/124","blockSize":126`)
	return f
}

func (f *fixture) allocator(s datastore.Store, cfg Config) *Allocator {
	cfg.Now = func() time.Time { return f.now }
	return New(s, cfg)
}

// put writes a resource by its key and spec.
func (f *fixture) put(key, spec string) {
	f.Helper()
	f.raw(api.ResourcesPrefix+key, "{\"metadata\":{},\"spec\":{"+spec+"}}")
}

func (f *fixture) raw(key, value string) {
	f.Helper()
	if err := datastore.Put(f.Context(), f.store, api.Update{Key: key, Value: []byte(value)}); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) configure(c api.IPAMConfig) {
	f.Helper()
	value, err := json.Marshal(c)
	if err != nil {
		f.Fatal(err)
	}
	f.raw(api.IPAMConfigKey, string(value))
}

func (f *fixture) get(key string) string {
	u, err := f.store.Get(f.Context(), key)
	if err != nil {
		return err.Error()
	}
	return string(u.Value)
}

// assign gives out n IPv4 addresses and returns them as text.
func (f *fixture) assign(node, handle string, n int) string {
	f.Helper()
	got, err := f.Assign(f.Context(), AutoArgs{Node: node, Handle: handle, Num4: n})
	if err != nil {
		f.Fatal(err)
	}
	return addrs(got)
}

func addrs(as []Address) string {
	var out []string
	for _, a := range as {
		out = append(out, a.Addr.String())
	}
	return strings.Join(out, " ")
}

// refused fails unless an assignment fails, and says all parts.
func (f *fixture) refused(args AutoArgs, parts ...string) {
	f.Helper()
	got, err := f.Assign(f.Context(), args)
	if err == nil {
		f.Fatalf("got %s, want an error", addrs(got))
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			f.Errorf("%q is not in: %v", p, err)
		}
	}
}

func (f *fixture) equal(what, got, want string) {
	f.Helper()
	if got != want {
		f.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// state is all of address management, one key a line.
func (f *fixture) state() string {
	f.Helper()
	snap, err := f.store.List(f.Context(), api.IPAMPrefix)
	if err != nil {
		f.Fatal(err)
	}
	var out []string
	for _, u := range snap.Sorted() {
		rest := strings.TrimPrefix(u.Key, api.IPAMPrefix)
		if b, err := api.DecodeBlock(u); err == nil {
			own, _ := b.Owner()
			out = append(out, fmt.Sprintf("block %s of %q: %d used", b.CIDR, own.Name, used(b)))
		} else if h, ok := api.ParseHandleKey(u.Key); ok {
			out = append(out, fmt.Sprintf("handle %s %s", h, u.Value))
		} else if rest != "config" {
			out = append(out, fmt.Sprintf("%s %s", rest, u.Value))
		}
	}
	return strings.Join(out, "\n")
}

// clean fails if a check finds anything.
func (f *fixture) clean() {
	f.Helper()
	for _, x := range f.check(0) {
		f.Errorf("found %s %s %s %s: %s (%s)", x.Kind, x.Address, x.Block, x.Handle, x.Problem, x.Proof)
	}
}

func (f *fixture) check(grace time.Duration) []Finding {
	f.Helper()
	v, err := f.ReadSurvey(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	// What is allocated without an endpoint is no fault of the allocator's.
	return slices.DeleteFunc(v.Check(CheckOptions{Now: f.now, Grace: grace}), func(x Finding) bool {
		return x.Kind == FoundLeak && strings.Contains(x.Kept, "nothing proves")
	})
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }
