package etcdadmin

import (
	"errors"
	"strings"
	"testing"
)

// TestWhatMustBeDoneBeforeAnAlarmIsDisarmed: how much of a database is in use etcd says as of its last write but one, so that a real one does not say
// the same each time.
func TestWhatMustBeDoneBeforeAnAlarmIsDisarmed(t *testing.T) {
	for _, tt := range []struct {
		name  string
		m     Member
		alarm string
		want  string // empty: it may be disarmed
	}{
		{"there is space", Member{Size: 94, InUse: 94, Quota: 100}, "NOSPACE", ""},
		{"all is in use", Member{Size: 96, InUse: 95, Quota: 100}, "NOSPACE", "has used up 96% of its quota; and all of it is in use: compact and defragment first, `twill etcd defrag --compact`"},
		{"some holds no data", Member{Size: 96, InUse: 94, Quota: 100}, "NOSPACE", "has used up 96% of its quota; defragment first: `twill etcd defrag`"},
		{"it does not answer", Member{Err: "no route to host"}, "NOSPACE", "no route to host; so nobody knows whether it has space"},
		{"other data than others", Member{Size: 1, InUse: 1, Quota: 100}, "CORRUPT", "has other data than the members it should equal"},
		{"one of a later etcd", Member{Size: 1, InUse: 1, Quota: 100}, "TIRED", "has the alarm TIRED, which this version does not know"},
	} {
		tt.m.Name = "h1"
		switch err := mayDisarm(tt.m, tt.alarm); {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v", tt.name, err)
		case tt.want != "" && (!errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "h1")):
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
}
