package dataplane

import (
	"fmt"
	"strings"

	"github.com/twillnet/twill/internal/intent"
)

// fates joins what the drivers say of one intent, such as an endpoint that is secured by one and reached by another:
// it is in force only if all say so.
type fates struct {
	bad  map[intent.Key]map[*drive]intent.Outcome // what is not in order
	told map[intent.Key]bool                      // keys with news
}

func newFates() fates {
	return fates{bad: map[intent.Key]map[*drive]intent.Outcome{}, told: map[intent.Key]bool{}}
}

func (f *fates) add(d *drive, outcomes []intent.Outcome) {
	for _, o := range outcomes {
		f.told[o.Key] = true
		switch {
		case o.Err == nil && o.Reason == "":
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

func (f *fates) forget(keys []intent.Key) {
	for _, k := range keys {
		delete(f.bad, k)
		delete(f.told, k)
	}
}

// take returns the joint outcome of each intent with news: an error before a reason, a reason before success.
func (f *fates) take() []intent.Outcome {
	var out []intent.Outcome
	for k := range f.told {
		joint := intent.Outcome{Key: k}
		for _, o := range f.bad[k] {
			if joint.Err == nil && (o.Err != nil || joint.Reason == "") {
				joint = o
			}
		}
		out = append(out, joint)
	}
	clear(f.told)
	return out
}

func firstError(outcomes []intent.Outcome) error {
	for _, o := range outcomes {
		if o.Err != nil && !o.Final {
			return o.Err
		}
	}
	return nil
}

// nameOf is the package of a driver, such as "nft".
func nameOf(d Driver) string {
	name := strings.TrimPrefix(fmt.Sprintf("%T", d), "*")
	pkg, _, _ := strings.Cut(name, ".")
	return pkg
}
