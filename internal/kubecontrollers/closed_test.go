package kubecontrollers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore/form"
	"github.com/twillnet/twill/internal/datastore/storetest"
)

// users note what is reported to them.
type users struct {
	mu      sync.Mutex
	written []string
	err     error
}

func (u *users) note(err error, format string, args ...any) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.err != nil {
		return u.err
	}
	u.written = append(u.written, fmt.Sprintf(format, args...))
	return err
}

func (u *users) PolicyClosed(_ context.Context, of form.Origin, uid, reasons string) error {
	return u.note(nil, "event %s %s %s: %s", of.Path, of.Kind, uid, reasons)
}

func (u *users) PolicyStatus(_ context.Context, of form.Origin, _, reasons string) error {
	return u.note(nil, "status %s: %s", of.Path, reasons)
}

func (u *users) fails(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.err = err
}

// closedBench runs the controller in virtual time.
type closedBench struct {
	*testing.T
	store storetest.InMemory
	users
}

func runClosed(t *testing.T, test func(*closedBench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &closedBench{T: t, store: storetest.New(t)}
		c := newClosed(closedConfig{Views: b.store, Users: &b.users, Turn: func(string, error) {}, Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = c.run(ctx) }()
		defer func() { cancel(); <-done }()
		test(b)
	})
}

// put stores a policy; with reasons, one that is closed.
func (b *closedBench) put(key, uid, reasons string) {
	b.Helper()
	value := `{"metadata":{"uid":"` + uid + `"}}`
	if reasons != "" {
		value = `{"metadata":{"uid":"` + uid + `","annotations":{"twill.net/not-translated":"` + reasons + `"}}}`
	}
	if err := datastore.Put(b.Context(), b.store, api.Update{Key: api.ResourcesPrefix + key, Value: []byte(value)}); err != nil {
		b.Fatal(err)
	}
}

// want compares what was reported since the last call, within five minutes.
func (b *closedBench) want(want ...string) {
	b.Helper()
	<-time.After(5 * time.Minute)
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	if got := strings.Join(b.written, "\n"); got != strings.Join(want, "\n") {
		b.Errorf("reported:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
	}
	b.written = nil
}

const (
	npPath  = "/apis/networking.k8s.io/v1/namespaces/prod/networkpolicies/web"
	cnpPath = "/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies/all"
)

func TestAPolicyThatIsClosedInPartIsReportedOnce(t *testing.T) {
	const key = "networkpolicies/prod/knp.default.web"
	runClosed(t, func(b *closedBench) {
		b.put(key, "u1", "")
		b.want()
		b.put(key, "u1", "a: is wrong")
		b.want("event " + npPath + " NetworkPolicy u1: a: is wrong")
		b.put(key, "u1", "a: is wrong") // another version, in which the same is wrong
		b.want()
		b.put(key, "u1", "b: is wrong")
		b.want("event " + npPath + " NetworkPolicy u1: b: is wrong")
		b.put(key, "u2", "b: is wrong") // another object of that name
		b.want("event " + npPath + " NetworkPolicy u2: b: is wrong")
		b.put(key, "u2", "")
		b.want()
		b.put("networkpolicies/prod/web", "u3", "not of Kubernetes")
		b.want()
	})
}

func TestTheStatusOfAPolicyFollowsWhatIsClosed(t *testing.T) {
	const key = "globalnetworkpolicies/kcnp.all"
	runClosed(t, func(b *closedBench) {
		b.put(key, "u1", "a: is wrong")
		b.want("event "+cnpPath+" ClusterNetworkPolicy u1: a: is wrong", "status "+cnpPath+": a: is wrong")
		b.put(key, "u1", "") // a status that says otherwise must go
		b.want("status " + cnpPath + ": ")
		b.fails(errors.New("away"))
		b.put(key, "u1", "b: is wrong")
		b.want()
		b.fails(nil)
		b.want("event "+cnpPath+" ClusterNetworkPolicy u1: b: is wrong", "status "+cnpPath+": b: is wrong")
		if err := b.store.Delete(b.Context(), api.ResourcesPrefix+key, api.Revision{}); err != nil {
			b.Fatal(err)
		}
		b.want()
	})
}
