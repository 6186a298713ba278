package kubecontrollers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/controller"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore/apiserver"
	"github.com/twillnet/twill/internal/datastore/kubestore/form"
	"github.com/twillnet/twill/internal/resources"
	"github.com/twillnet/twill/internal/status"
)

// realisedConfig is what the controller of the condition Realised needs.
type realisedConfig struct {
	Store   datastore.Store // of policies and nodes, in which agents report
	Objects statuses
	Users   realisedUsers
	Turn    func(key string, err error)
	Log     *slog.Logger
}

// statuses says where the statuses of policies are, as package kubestore does.
type statuses interface {
	StatusOf(ctx context.Context, key string) (form.Origin, bool, error)
}

// realisedUsers are who wrote the policies, as package apiserver reaches them.
type realisedUsers interface {
	PolicyRealised(ctx context.Context, of form.Origin, uid string, generation int64, is bool, reason, message string) error
}

// realised says in the status of policies on how many nodes they are in force (decision 042).
type realised struct {
	cfg      realisedConfig
	loop     *controller.Controller
	tally    *status.Tally
	policies map[string]*realisedPolicy // by key; those with a status alone
	none     map[string]bool            // keys of which there is no status
	budget   budget
	held     time.Time // since when most agents are silent, or were, and not all have reported since; zero: otherwise
}

// realisedPolicy is one version of a policy.
type realisedPolicy struct {
	uid        string
	generation int64
	says       saying
	since      time.Time // when that was written, or seen first
}

// saying is what a condition says; the zero saying: there is none, or it is not known.
type saying struct {
	Generation int64
	Is         bool
	Message    string
}

// Texts of the condition.
const (
	reasonRealised    = "AllNodes"
	reasonNotRealised = "NotAllNodes"
	nobodySays        = "no agent has said which policies are in force"
)

const (
	gatherReports   = 250 * time.Millisecond // for how long what agents say is gathered
	lookAtSilence   = 5 * time.Second        // until it is looked whether an agent has gone silent
	progressEvery   = 10 * time.Second       // between two messages of a policy that is not in force everywhere yet
	refreshEvery    = 10 * time.Minute       // and of one that is, when the number of nodes has changed
	deliveries      = 2000                   // of written policies to agents, in a second
	mostConditions  = 20.0                   // conditions written in a second, and at once
	leastConditions = 1.0                    // in a second
	retryConditions = 5 * time.Second        // after one could not be written
	holdSilence     = 2 * time.Minute        // for how long nothing is taken back after more than half of all agents went silent, unless all have reported before
)

const allPolicies = "policies"

func newRealised(cfg realisedConfig) *realised {
	r := &realised{cfg: cfg, tally: status.NewTally(), policies: map[string]*realisedPolicy{}, none: map[string]bool{}}
	r.loop = controller.New(controller.Config{
		Name: "where policies are in force", Store: cfg.Store, Log: cfg.Log, Observe: r.observe,
		Prefixes: append(resources.PolicyPrefixes(), api.KeyPrefix(api.KindNode, ""), api.Root+"felix/v2/"),
		Reconcile: func(ctx context.Context, key string) (time.Time, error) {
			if wait := r.budget.gathered(time.Now()); wait > 0 {
				return time.Now().Add(wait), nil
			}
			again, err := r.write(ctx)
			cfg.Turn(key, err)
			return again, err
		},
	})
	return r
}

func (r *realised) run(ctx context.Context) error { return r.loop.Run(ctx) }

// observe takes over a policy, a node, or what an agent says.
func (r *realised) observe(u api.Update) []string {
	ref, ok := api.ParseKey(u.Key)
	switch {
	case !ok:
		r.tally.Report(u, time.Now())
	case ref.Kind == api.KindNode:
		r.tally.Node(ref.Name, u.Value != nil)
	default:
		r.tally.Policy(status.VersionOf(u))
		r.policy(u)
	}
	return []string{allPolicies}
}

// policy takes over what a policy's condition says.
func (r *realised) policy(u api.Update) {
	var is struct {
		Metadata struct {
			UID        string
			Generation int64
		}
		Status struct{ Conditions []api.Condition }
	}
	if u.Value == nil || json.Unmarshal(u.Value, &is) != nil || is.Metadata.UID == "" || is.Metadata.Generation == 0 {
		delete(r.policies, u.Key)
		delete(r.none, u.Key)
		return
	}
	p := r.policies[u.Key]
	if p == nil || p.uid != is.Metadata.UID {
		p = &realisedPolicy{uid: is.Metadata.UID, since: time.Now()}
		r.policies[u.Key] = p
	}
	p.generation = is.Metadata.Generation
	if _, view := form.OriginOf(u.Key); view { // which does not show its status
		return
	}
	p.says = saying{}
	for _, c := range is.Status.Conditions {
		if c.Type == apiserver.ConditionRealised {
			p.says = saying{c.ObservedGeneration, c.Status == "True", c.Message}
		}
	}
}

// change is a condition that should say something else.
type change struct {
	key     string
	p       *realisedPolicy
	want    saying
	urgency int // the lower, the earlier
}

// write has conditions say what is so, as many as may be written now, and returns when to look again.
func (r *realised) write(ctx context.Context) (again time.Time, err error) {
	now := time.Now()
	counts := r.tally.Count(now)
	changes := r.changes(counts, now)
	r.budget.begin(now, counts.Nodes)
	for _, c := range changes {
		of, ok, err := r.cfg.Objects.StatusOf(ctx, c.key)
		switch {
		case err == nil && !ok:
			r.none[c.key] = true
			continue
		case err == nil && !r.budget.take():
			return now.Add(r.budget.wait()), nil
		case err == nil:
			err = r.writeOne(ctx, of, c)
		}
		if err != nil {
			return now.Add(retryConditions), err
		}
	}
	return now.Add(lookAtSilence), nil
}

// changes are the conditions that should be written, the most urgent first: of versions of which nothing is said, then what is wrong, then what says too little.
func (r *realised) changes(counts *status.Counts, now time.Time) (out []change) {
	most := 2*counts.Silent > counts.Nodes // the API server was away, or all agents are being replaced
	hold := !r.held.IsZero() && now.Before(r.held.Add(holdSilence))
	switch {
	case most && r.held.IsZero():
		r.held, hold = now, true
	case counts.Silent == 0 || !most && !hold: // until then the last of them may be about to report, as the others did
		r.held, hold = time.Time{}, false
	}
	for key, p := range r.policies {
		if r.none[key] || hold && p.says.Is && p.says.Generation == p.generation {
			continue
		}
		want := saying{p.generation, counts.Nodes > 0 && counts.On(key) == counts.Nodes, nobodySays}
		c := change{key: key, p: p}
		every := progressEvery
		if want.Is {
			every = refreshEvery
		}
		switch {
		case p.says.Generation != want.Generation:
		case p.says.Is != want.Is:
			c.urgency = 1
		case now.Before(p.since.Add(every)):
			continue
		default:
			c.urgency = 2
		}
		if counts.Nodes > 0 {
			want.Message = counts.Say(key)
		}
		if c.want = want; p.says != want {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b change) int {
		return cmp.Or(cmp.Compare(a.urgency, b.urgency), a.p.since.Compare(b.p.since), strings.Compare(a.key, b.key))
	})
	return out
}

// writeOne writes a condition. That the policy is another by now, or has gone, is no error: its next version is seen.
func (r *realised) writeOne(ctx context.Context, of form.Origin, c change) error {
	reason := reasonNotRealised
	if c.want.Is {
		reason = reasonRealised
	}
	err := r.cfg.Users.PolicyRealised(ctx, of, c.p.uid, c.p.generation, c.want.Is, reason, c.want.Message)
	switch {
	case errors.Is(err, datastore.ErrNotFound), errors.Is(err, datastore.ErrConflict):
		return nil
	case err != nil:
		return fmt.Errorf("say on how many nodes %s is in force: %w", c.key, err)
	}
	c.p.says, c.p.since = c.want, time.Now()
	return nil
}

// budget bounds what is written, and how often is counted: each written policy is sent to each agent.
type budget struct {
	tokens, rate float64 // the rate is in a second
	at           time.Time
}

// gathered is how long to wait until counts are made again.
func (b *budget) gathered(now time.Time) time.Duration { return b.at.Add(gatherReports).Sub(now) }

// begin takes the time, and the number of nodes to which all is sent.
func (b *budget) begin(now time.Time, nodes int) {
	b.rate = min(max(leastConditions, deliveries/float64(max(1, nodes))), mostConditions)
	if b.at.IsZero() {
		b.tokens = mostConditions
	} else {
		b.tokens = min(mostConditions, b.tokens+now.Sub(b.at).Seconds()*b.rate)
	}
	b.at = now
}

func (b *budget) take() bool {
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// wait is how long it takes until there is one more.
func (b *budget) wait() time.Duration {
	return time.Duration((1-b.tokens)/b.rate*float64(time.Second)) + time.Millisecond
}
