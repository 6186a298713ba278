package api

import (
	"strings"
	"testing"
)

func TestOnlyAStoredResourceThatSaysReadyEndsALock(t *testing.T) {
	stored := func(ready bool) *ClusterInformation {
		return &ClusterInformation{Spec: ClusterInformationSpec{DatastoreReady: &ready}}
	}
	infos := map[string]*ClusterInformation{"true": stored(true), "false": stored(false), "unset": {}, "gone": nil}
	kinds := map[string]string{"node": KindNode, "policy": KindNetworkPolicy} // something else that is there
	for _, tt := range []struct {
		history string
		want    Readiness
	}{
		{"", Blank},
		{"gone", Blank},
		{"node", Blank},
		{"node gone", Blank},
		{"policy", Unseen},
		{"policy gone node", Unseen},
		{"gone policy", Unseen},
		{"policy true gone", Gone},
		{"false policy", Locked},
		{"true policy", Ready},
		{"unset", Ready},
		{"true unset", Ready},
		{"false", Locked},
		{"false unset", Unsaid},
		{"false gone", Gone},
		{"true gone", Gone},
		{"unset gone", Gone},
		{"true gone gone", Gone},
		{"false gone unset", Unsaid},
		{"false unset unset", Unsaid},
		{"false unset gone", Gone},
		{"true gone false", Locked},
		{"true gone true", Ready},
		{"false gone unset true", Ready},
		{"false true", Ready},
	} {
		var r Readiness
		for _, is := range strings.Fields(tt.history) {
			if kind := kinds[is]; kind != "" {
				r = r.Saw(kind)
			} else {
				r = r.After(infos[is])
			}
		}
		if r != tt.want || r.Frozen() != (r.Why() != "") {
			t.Errorf("%s: %d, frozen %v because %q; want %d", tt.history, r, r.Frozen(), r.Why(), tt.want)
		}
	}
}

// TestAnUpdateThatCannotBeReadLeavesTheReadiness: garbage neither locks a datastore nor ends a lock.
func TestAnUpdateThatCannotBeReadLeavesTheReadiness(t *testing.T) {
	for _, tt := range []struct {
		value       string // empty: it was deleted
		blank, gone Readiness
	}{
		{`{"spec":{"datastoreReady":true}}`, Ready, Ready},
		{`{"spec":{"datastoreReady":false}}`, Locked, Locked},
		{`{"spec":{}}`, Ready, Unsaid},
		{`{"spec":{"datastoreReady":"no"}}`, Blank, Gone},
		{`{"spec":`, Blank, Gone},
		{"", Blank, Gone},
	} {
		u := Update{Key: KeyPrefix(KindClusterInformation, "") + "default"}
		if tt.value != "" {
			u.Value = []byte(tt.value)
		}
		if blank, gone := Blank.AfterUpdate(u), Gone.AfterUpdate(u); blank != tt.blank || gone != tt.gone {
			t.Errorf("%q: %d of a blank one and %d of one that was gone, want %d and %d", tt.value, blank, gone, tt.blank, tt.gone)
		}
	}
}
