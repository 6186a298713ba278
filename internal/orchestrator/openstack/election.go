package openstack

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/leader"
)

// election chooses one of Neutron's servers for what one does for all: the resyncs that come by themselves, and what agents report (decision
// 098). A server is a candidate while the process of its driver that does this asks its plugin who leads: a plugin whose neutron-server has
// died gives the lease up.
type election struct {
	lock leader.Lock
	log  *slog.Logger

	mu      sync.Mutex
	asking  int         // calls that wait
	gone    *time.Timer // since the last one has ended; nil: one waits
	present bool
	terms   uint64
	term    uint64        // of this server; 0: it does not lead
	wake    chan struct{} // closed when present or term changes
}

// absence is after how long without a call the driver counts as dead. Between two calls is next to no time.
const absence = 5 * time.Second

func newElection(store datastore.Store, r region, log *slog.Logger) *election {
	e := &election{log: log, wake: make(chan struct{})}
	e.lock = &lease{store: store, key: r.election(), refused: e.alone}
	return e
}

// election is the key of the lease, which is where upstream's drivers have theirs.
func (r region) election() string {
	name := "no-region"
	if r != "" {
		name = "region-" + string(r)
	}
	return api.Root + "openstack/v2/" + name + "/neutron_election"
}

// run is a candidate whenever the driver is there, until the context ends.
func (e *election) run(ctx context.Context) {
	host, _ := os.Hostname() // it is for people
	for ctx.Err() == nil {
		e.wait(ctx, func() bool { return e.present })
		candidate, end := context.WithCancel(ctx)
		go func() {
			defer end()
			e.wait(candidate, func() bool { return !e.present })
		}()
		_ = leader.New(leader.Config{Lock: e.lock, ID: host + "/" + rand.Text(), Log: e.log}).Run(candidate, e.lead) // it ends with the context
		end()
		e.change(func() { e.term = 0 })
	}
}

// lead is called while this server has the lease.
func (e *election) lead(ctx context.Context) error {
	e.change(e.begin)
	<-ctx.Done()
	e.change(func() { e.term = 0 })
	return nil
}

// begin begins a term. The lock is held.
func (e *election) begin() {
	e.terms++
	e.term = e.terms
}

// alone has this server lead without a lease: the plugin's user may not write it, and what leaders do does no harm if several do it.
func (e *election) alone(err error) {
	e.mu.Lock()
	is := e.term == 0
	e.mu.Unlock()
	if is {
		e.log.Warn("each of Neutron's servers does what one could do for all: the lease cannot be written; see the roles in docs/etcd.md", "err", err)
		e.change(e.begin)
	}
}

// change changes something of which others wait to hear.
func (e *election) change(do func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	do()
	close(e.wake)
	e.wake = make(chan struct{})
}

// wait waits until something is so, or the context ends, and returns the term then. The condition is called with the lock held.
func (e *election) wait(ctx context.Context, is func() bool) uint64 {
	for {
		e.mu.Lock()
		term, so, wake := e.term, is(), e.wake
		e.mu.Unlock()
		if so || ctx.Err() != nil {
			return term
		}
		select {
		case <-wake:
		case <-ctx.Done():
		}
	}
}

// during returns a context that ends when the term that a caller knows ends, or another begins; a caller that names none does not care.
func (e *election) during(ctx context.Context, r *http.Request) (until context.Context, end context.CancelFunc) {
	until, end = context.WithCancel(ctx)
	if known, err := strconv.ParseUint(r.URL.Query().Get("term"), 10, 64); err == nil {
		go func() {
			defer end()
			e.wait(until, func() bool { return e.term != known })
		}()
	}
	return until, end
}

// come notes that the driver waits for an answer, and leave that it does no more.
func (e *election) come() {
	e.change(func() {
		e.asking++
		e.present = true
		if e.gone != nil {
			e.gone.Stop()
			e.gone = nil
		}
	})
}

func (e *election) leave() {
	e.change(func() {
		if e.asking--; e.asking > 0 {
			return
		}
		var t *time.Timer
		t = time.AfterFunc(absence, func() {
			e.change(func() {
				if e.gone == t {
					e.present = false
				}
			})
		})
		e.gone = t
	})
}

// ask is the call by which the driver says that it is there, and hears whether it leads: the number of its term, 0 if not. It is answered when
// that is another than the driver knows.
func (e *election) ask(w http.ResponseWriter, r *http.Request) {
	e.come()
	defer e.leave()
	ctx, cancel := context.WithTimeout(r.Context(), pollTimeout)
	defer cancel()
	until, end := e.during(ctx, r)
	defer end()
	<-until.Done()
	reply(w, http.StatusOK, map[string]uint64{"term": e.wait(until, func() bool { return true })})
}

// lease is a [leader.Lock] under a key of the datastore.
type lease struct {
	store   datastore.Store
	key     string
	refused func(error) // is called with the error if the user has no right to read or write the key
}

// stored is the value of the key.
type stored struct {
	Holder      string    `json:"holder"`
	Seconds     float64   `json:"leaseDurationSeconds"`
	Acquired    time.Time `json:"acquireTime"`
	Renewed     time.Time `json:"renewTime"`
	Transitions int       `json:"leaseTransitions"`
}

// Get implements [leader.Lock]. Of a value that is none of ours, such as that of upstream's driver, the time that it holds is ours.
func (l *lease) Get(ctx context.Context) (r leader.Record, version string, err error) {
	u, err := l.store.Get(ctx, l.key)
	if errors.Is(err, datastore.ErrNotFound) {
		return r, "", nil
	}
	if err != nil {
		return r, "", l.of(err)
	}
	s := stored{Holder: "another program", Seconds: 15}
	if json.Unmarshal(u.Value, &s) != nil {
		s = stored{Holder: "another program", Seconds: 15}
	}
	return leader.Record{Holder: s.Holder, Duration: time.Duration(min(s.Seconds, 3600) * float64(time.Second)), Acquired: s.Acquired, Renewed: s.Renewed, Transitions: s.Transitions}, u.Revision.String(), nil
}

// Put implements [leader.Lock].
func (l *lease) Put(ctx context.Context, r leader.Record, version string) (string, error) {
	value, err := json.Marshal(stored{r.Holder, r.Duration.Seconds(), r.Acquired.UTC(), r.Renewed.UTC(), r.Transitions})
	if err != nil {
		return "", err
	}
	write, kv := l.store.Update, api.Update{Key: l.key, Value: value, Revision: api.RevisionOf(version)}
	if version == "" {
		write = l.store.Create
	}
	now, err := write(ctx, kv)
	for _, other := range []error{datastore.ErrExists, datastore.ErrConflict, datastore.ErrNotFound} {
		if errors.Is(err, other) {
			return "", leader.ErrChanged
		}
	}
	return now.Revision.String(), l.of(err)
}

func (l *lease) of(err error) error {
	if errors.Is(err, datastore.ErrUnauthorized) {
		l.refused(err)
	}
	return err
}
