package dataplane

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/twillnet/twill/internal/intent"
)

// jointOutcomes joins the outcomes of several drivers for one intent, such as an endpoint whose policy and whose interface belong to different
// drivers: it is in force only if it is in force in all.
type jointOutcomes struct {
	bad     map[intent.Key]map[*drive]intent.Outcome // outcomes that are not success, or say more than that
	changed map[intent.Key]bool                      // keys whose joint outcome is to be reported
}

func newJointOutcomes() jointOutcomes {
	return jointOutcomes{bad: map[intent.Key]map[*drive]intent.Outcome{}, changed: map[intent.Key]bool{}}
}

func (f *jointOutcomes) add(d *drive, outcomes []intent.Outcome) {
	for _, o := range outcomes {
		f.changed[o.Key] = true
		switch {
		case o.Err == nil && o.Reason == "" && o.Chains == "" && o.Note == "":
			delete(f.bad[o.Key], d)
			if len(f.bad[o.Key]) == 0 {
				delete(f.bad, o.Key)
			}
		case f.bad[o.Key] == nil:
			f.bad[o.Key] = map[*drive]intent.Outcome{d: o}
		default:
			f.bad[o.Key][d] = o
		}
	}
}

func (f *jointOutcomes) forget(keys []intent.Key) {
	for _, k := range keys {
		delete(f.bad, k)
		delete(f.changed, k)
	}
}

// take returns the joint outcome of each changed intent: an error before a reason, a reason before success. An intent for which untried returns
// a reason why it is not in force yet is reported again.
func (f *jointOutcomes) take(untried func(intent.Key) string) []intent.Outcome {
	var out []intent.Outcome
	again := map[intent.Key]bool{}
	for k := range f.changed {
		joint, chains, note := intent.Outcome{Key: k}, "", ""
		for _, o := range f.bad[k] {
			chains, note = cmp.Or(o.Chains, chains), cmp.Or(o.Note, note)
			if joint.Err == nil && (o.Err != nil || joint.Reason == "") {
				joint = o
			}
		}
		joint.Chains, joint.Note = chains, note
		if joint.Err == nil && joint.Reason == "" {
			if joint.Reason = untried(k); joint.Reason != "" {
				again[k] = true
			}
		}
		out = append(out, joint)
	}
	f.changed = again
	return out
}

// track records which endpoints and routes a batch changes for the driver.
func (d *drive) track(b intent.Batch) {
	for _, e := range b.Endpoints {
		d.untried[e.ID] = true
	}
	for _, r := range b.Routes {
		d.untried[r.ID()] = true
	}
	for _, k := range b.Removed {
		delete(d.untried, k)
		delete(d.bad, k)
	}
}

// untried returns the driver that has not had a turn since an intent changed: it failed as a whole a moment ago, or cannot be read back.
func (l *Loop) untried(k intent.Key) string {
	for _, d := range l.drivers {
		if d.untried[k] {
			return "waits for " + d.name + ", which could not do what came before"
		}
	}
	return ""
}

func firstError(outcomes []intent.Outcome) error {
	for _, o := range outcomes {
		if o.Err != nil && !o.Final {
			return o.Err
		}
	}
	return nil
}

// nameOf returns the package of a driver, such as "nft".
func nameOf(d Driver) string {
	name := strings.TrimPrefix(fmt.Sprintf("%T", d), "*")
	pkg, _, _ := strings.Cut(name, ".")
	return pkg
}
