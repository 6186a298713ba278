package status

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/seedtest"
)

func version(name string, revision int) api.Update {
	return api.Update{Key: "policies/" + name, Value: fmt.Appendf(nil, `{"spec":{"order":%d}}`, revision), Revision: api.RevisionOf(fmt.Sprint(revision))}
}

// stored is what a reader gets of them.
func stored(t *testing.T, v Versions) *Versions {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out Versions
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return &out
}

// TestAVersionIsInForceOnlyWhereItWasSet: against a map, whatever comes and goes, a reader takes nothing for in force that is not, and all that is where
// nothing is late.
func TestAVersionIsInForceOnlyWhereItWasSet(t *testing.T) {
	r := seedtest.Rand(t)
	var v Versions
	truth, newest := map[string]api.Update{}, map[string]api.Update{}
	for step := range 3000 {
		name := fmt.Sprint(r.IntN(700))
		u := version(name, step)
		if r.IntN(4) == 0 {
			u.Value = nil
			delete(newest, u.Key)
		} else {
			newest[u.Key] = u
		}
		if late := r.IntN(10) == 0; !late {
			v.Set(VersionOf(u))
			if delete(truth, u.Key); u.Value != nil {
				truth[u.Key] = u
			}
		}
		if step%100 != 0 {
			continue
		}
		var all, held []api.Update
		for _, u := range newest {
			all = append(all, u)
		}
		for _, u := range truth {
			held = append(held, u)
		}
		read := stored(t, v)
		have := read.Have(VersionsOf(all))
		for _, u := range all {
			if have[u.Key] && truth[u.Key].Revision != u.Revision {
				t.Fatalf("%s %s is not in force, and is taken for it", u.Key, u.Revision)
			}
		}
		if got := read.Have(VersionsOf(held)); len(got) != len(held) {
			t.Fatalf("of %d in force %d are known", len(held), len(got))
		}
	}
}

func TestALateVersionHidesNoneThatCameLast(t *testing.T) {
	var v Versions
	var all []api.Update
	for i := range 5000 { // several in each bucket
		u := version(fmt.Sprint(i), 1)
		v.Set(VersionOf(u))
		all = append(all, u)
	}
	for i := range 4000 { // which are late
		all[i] = version(fmt.Sprint(i), 2)
	}
	have := stored(t, v).Have(VersionsOf(all))
	for i := 5000 - digestLast; i < 5000; i++ {
		if !have[all[i].Key] {
			t.Fatalf("%s was among the last", all[i].Key)
		}
	}
}

func TestWhatFailedIsNotInForce(t *testing.T) {
	var v Versions
	a, b := version("a", 1), version("b", 1)
	v.Set(VersionOf(a))
	v.Set(VersionOf(b))
	without := v.Without(map[string]string{a.Key: "over its budget", "policies/other": "never seen"})
	if have := stored(t, without).Have(VersionsOf([]api.Update{a, b})); have[a.Key] || !have[b.Key] {
		t.Errorf("in force: %v", have)
	}
	if have := stored(t, v).Have(VersionsOf([]api.Update{a, b})); !have[a.Key] || !have[b.Key] {
		t.Errorf("in force: %v", have)
	}
}

// TestADigestOfAnotherFormIsOfNothing: who writes it may be of another version, or lie.
func TestADigestOfAnotherFormIsOfNothing(t *testing.T) {
	a := version("a", 1)
	for _, text := range []string{`{}`, `{"buckets":"AAAA"}`, `{"last":"AAA="}`, `{"buckets":null,"last":null}`, `{"buckets":"AAAAAAAA","more":1}`} {
		var v Versions
		if err := json.Unmarshal([]byte(text), &v); err != nil || v.Have(VersionsOf([]api.Update{a}))[a.Key] {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{`[]`, `{"buckets":7}`, `{"buckets":"%"}`} {
		if err := json.Unmarshal([]byte(text), &Versions{}); err == nil {
			t.Errorf("%s was taken", text)
		}
	}
}

func BenchmarkDigest(b *testing.B) {
	var v Versions
	for i := range 5000 {
		v.Set(VersionOf(version(fmt.Sprint(i), 1)))
	}
	size := 0
	for b.Loop() {
		v.Set(VersionOf(version(fmt.Sprint(rand.IntN(5000)), rand.IntN(1000))))
		text, _ := json.Marshal(v)
		size = len(text)
	}
	b.ReportMetric(float64(size), "bytes")
}

// TestWhatIsAnotherVersion: what a policy says, whichever it is and when it came to say so; not what is said of it.
func TestWhatIsAnotherVersion(t *testing.T) {
	const was = `{"kind":"NetworkPolicy","metadata":{"name":"a","uid":"u","generation":1},"spec":{"order":1}}`
	of := func(value string) Version {
		return VersionOf(api.Update{Key: "policies/a", Value: []byte(value), Revision: api.RevisionOf("7")})
	}
	for _, tt := range []struct {
		name, is string
		another  bool
	}{
		{"another status", `{"kind":"NetworkPolicy","metadata":{"name":"a","uid":"u","generation":1},"spec":{"order":1},"status":{"conditions":[{}]}}`, false},
		{"labels", `{"kind":"NetworkPolicy","metadata":{"name":"a","uid":"u","generation":1,"labels":{"a":"b"},"resourceVersion":"9"},"spec":{"order":1}}`, false},
		{"another spec", `{"kind":"NetworkPolicy","metadata":{"name":"a","uid":"u","generation":1},"spec":{"order":2}}`, true},
		{"what it was before the last", `{"kind":"NetworkPolicy","metadata":{"name":"a","uid":"u","generation":3},"spec":{"order":1}}`, true},
		{"one that was made again", `{"kind":"NetworkPolicy","metadata":{"name":"a","uid":"v","generation":1},"spec":{"order":1}}`, true},
		{"another kind", `{"kind":"Tier","metadata":{"name":"a","uid":"u","generation":1},"spec":{"order":1}}`, true},
		{"no object", `{`, true},
		{"nothing", ``, true},
	} {
		if another := of(tt.is) != of(was); another != tt.another {
			t.Errorf("%s: another version: %v", tt.name, another)
		}
	}
	if of(`{`) == of(`[`) {
		t.Error("what is no object does not stand for itself")
	}
}
