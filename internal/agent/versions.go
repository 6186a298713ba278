package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/resources"
	"github.com/twillnet/twill/internal/status"
)

// policyPrefixes are those of the resources of which each node says which version is in force.
var policyPrefixes = resources.PolicyPrefixes()

// versions follows versions of policies until they are in force: in calc, on the way to the dataplane, and there, like changes. Of a policy only the
// last version counts. It has no clock.
type versions struct {
	calc   byKey   // since calc last decided
	sent   []byKey // by batch that the dataplane has not merged
	merged byKey   // not in force
	under  bool    // something that was merged is not in force, of a policy or not
}

// byKey are versions of resources.
type byKey map[string]status.Version

// note takes over what calc works on.
func (v *versions) note(us []api.Update) {
	for _, u := range us {
		for _, prefix := range policyPrefixes {
			if strings.HasPrefix(u.Key, prefix) {
				v.calc = v.calc.with(byKey{u.Key: status.VersionOf(u)})
			}
		}
	}
}

// with adds newer updates.
func (b byKey) with(newer byKey) byKey {
	if len(b) == 0 {
		return newer
	}
	maps.Copy(b, newer)
	return b
}

// decide notes that calc has sent a batch.
func (v *versions) decide() { v.sent, v.calc = append(v.sent, v.calc), nil }

// irrelevant notes that calc had nothing to send: what it worked on is in force as soon as all is that was sent before. It returns what is in force now.
func (v *versions) irrelevant() []status.Version {
	us := v.calc
	v.calc = nil
	switch n := len(v.sent); {
	case n > 0:
		v.sent[n-1] = v.sent[n-1].with(us)
	case v.under:
		v.merged = v.merged.with(us)
	default:
		return slices.Collect(maps.Values(us))
	}
	return nil
}

// merge notes that the dataplane has merged the next batch.
func (v *versions) merge() {
	if len(v.sent) == 0 {
		return
	}
	v.merged, v.sent, v.under = v.merged.with(v.sent[0]), v.sent[1:], true
}

// round returns what came into force, if no driver has work pending.
func (v *versions) round(pending []string) []status.Version {
	if len(pending) > 0 {
		return nil
	}
	now := slices.Collect(maps.Values(v.merged))
	v.merged, v.under = nil, false
	return now
}

// progress has those who wait look again. It is called with the mutex.
func (r *reporter) progress() {
	close(r.progressed)
	r.progressed = make(chan struct{})
}

// policies notes versions of policies that are in force now. It is called with the mutex.
func (r *reporter) policies(now []status.Version) {
	r.status.InForce(now)
	if len(now) > 0 {
		r.progress()
	}
}

// PolicyInForce waits until a version of a policy, or that it is gone, is in the kernel, or concerns nothing here.
func (r *reporter) PolicyInForce(ctx context.Context, u api.Update) error {
	want := status.VersionOf(u)
	for {
		r.mu.Lock()
		moved, refused := r.progressed, r.tracker.refused[u.Key]
		r.mu.Unlock()
		if r.status.IsInForce(want) {
			if refused != "" && !want.Gone {
				return errors.New(refused)
			}
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("it is written, and not in the kernel yet: %w", ctx.Err())
		}
	}
}
