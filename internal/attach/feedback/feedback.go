// Package feedback reports to Kubernetes' users, on their pods, why these could not be attached.
//
// In: how each attachment of a pod ended, as package attach finds it. Out: calls of [Pods], which writes events and conditions. Nobody waits
// for them. A pod is reported on at once, and, however often it is tried again, after that no more than every ten seconds, then twenty, and so on to ten
// minutes, with the last reason and how often it failed; of all pods together five times a second. A thousand pods are remembered, for an hour after
// they were tried last; of more, nothing is reported. That a pod is attached is reported only if a failure of it was, by this process or one before. What
// is refused for now alone, as by an agent that has just started, is reported if it lasts for 30 seconds: else all pods of a cluster that begins would be.
package feedback

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/twillnet/twill/internal/attach/wire"
	"github.com/twillnet/twill/internal/controller"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore/apiserver"
)

// Pods writes on pods. Each call fails with datastore.ErrNotFound if there is no such pod on this node any more.
type Pods interface {
	Failed(ctx context.Context, namespace, name string, f apiserver.Failure) error
	Attached(ctx context.Context, namespace, name string) error
}

const (
	mostPods    = 1000
	betweenAll  = 200 * time.Millisecond // between two reports
	firstWait   = 10 * time.Second       // between two reports of failures of a pod, doubled at each
	longestWait = 10 * time.Minute
	patience    = 30 * time.Second // with what is refused for now
	remembered  = time.Hour
)

// Reporter reports. It is safe for concurrent use.
type Reporter struct {
	pods Pods
	log  *slog.Logger
	loop *controller.Controller

	mu    sync.Mutex
	known map[wire.Pod]*pod
	keys  map[string]wire.Pod
	full  bool      // it was logged that there are too many
	next  time.Time // not before it
}

// pod is what is known of one that failed.
type pod struct {
	failed      bool // its last attachment
	reason      string
	failures    int
	first, last time.Time

	seen, done int  // attachments, and those of them that were reported on
	tried      bool // a report of a failure was begun
	again      bool // and one was written
	wait       time.Duration
	next       time.Time // no failure is reported before it
	patient    time.Time // nor before this
}

// New returns a Reporter, which writes nothing until Run.
func New(pods Pods, log *slog.Logger) *Reporter {
	r := &Reporter{pods: pods, log: log, known: map[wire.Pod]*pod{}, keys: map[string]wire.Pod{}}
	r.loop = controller.New(controller.Config{Name: "report on pods", Reconcile: r.reconcile, MaxBackoff: longestWait, Log: log})
	r.loop.Update(nil, true) // it watches nothing
	return r
}

// Run reports until the context ends.
func (r *Reporter) Run(ctx context.Context) error { return r.loop.Run(ctx) }

// Ended takes how an attachment of a pod ended: with an error, or in force. Reported: a failure was, as the pod itself says. It does not wait.
func (r *Reporter) Ended(of wire.Pod, reported bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, now := r.known[of], time.Now()
	if err == nil && (p == nil && !reported || p != nil && !p.failed) {
		return
	}
	if p == nil {
		if p = r.add(of, now); p == nil {
			return
		}
	}
	if err == nil && !p.tried && !reported {
		r.forget(of)
		return
	}
	p.last, p.failed, p.patient = now, err != nil, time.Time{}
	p.seen++
	if err != nil {
		p.failures++
		p.reason = err.Error()
		if refused := (*wire.Refusal)(nil); errors.As(err, &refused) && refused.Later {
			p.patient = p.first.Add(patience)
		}
	}
	r.loop.Enqueue(keyOf(of), 0)
}

// add remembers a pod; nil: there are too many.
func (r *Reporter) add(of wire.Pod, now time.Time) *pod {
	if len(r.known) >= mostPods {
		if !r.full {
			r.log.Warn("too many pods could not be attached: of more, nothing is reported on the pods themselves", "pods", len(r.known))
		}
		r.full = true
		return nil
	}
	r.full = false
	p := &pod{first: now}
	r.known[of], r.keys[keyOf(of)] = p, of
	return p
}

func keyOf(p wire.Pod) string { return p.Namespace + "/" + p.Name }

func (r *Reporter) forget(of wire.Pod) {
	delete(r.known, of)
	delete(r.keys, keyOf(of))
}

// reconcile reports on a pod, if that is due.
func (r *Reporter) reconcile(ctx context.Context, key string) (again time.Time, err error) {
	of, is, p, again := r.due(key)
	if p == nil {
		return again, nil
	}
	if p.failed {
		err = r.pods.Failed(ctx, of.Namespace, of.Name, apiserver.Failure{Message: p.reason, Count: p.failures, First: p.first, Last: p.last, Again: p.again})
	} else {
		err = r.pods.Attached(ctx, of.Namespace, of.Name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.known[of]
	switch gone := errors.Is(err, datastore.ErrNotFound); {
	case now != is: // it was forgotten meanwhile, and what has come since is in the queue
		return time.Time{}, nil
	case gone && now.seen == p.seen:
		r.forget(of)
		return time.Time{}, nil
	case err != nil && !gone:
		return time.Time{}, err
	}
	now.done = p.seen
	if p.failed {
		now.again = true
		now.wait = min(max(2*now.wait, firstWait), longestWait)
		now.next = time.Now().Add(now.wait)
	}
	return now.last.Add(remembered), nil // what came meanwhile is in the queue
}

// due is a pod that is to be reported on now, and a copy of what is known of it; nil: none, but when.
func (r *Reporter) due(key string) (of wire.Pod, p, as *pod, when time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of, found := r.keys[key]
	if !found {
		return of, nil, nil, time.Time{}
	}
	p, now := r.known[of], time.Now()
	switch end := p.last.Add(remembered); {
	case p.seen == p.done && now.Before(end):
		return of, nil, nil, end
	case p.seen == p.done:
		r.forget(of)
		return of, nil, nil, time.Time{}
	case p.failed && now.Before(p.next):
		return of, nil, nil, p.next
	case p.failed && now.Before(p.patient):
		return of, nil, nil, p.patient
	case now.Before(r.next):
		return of, nil, nil, r.next
	}
	r.next = now.Add(betweenAll)
	p.tried = p.tried || p.failed
	known := *p
	return of, p, &known, time.Time{}
}
