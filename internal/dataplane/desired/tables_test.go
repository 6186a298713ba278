package desired

import (
	"testing"

	"github.com/twillnet/twill/internal/dataplane/classify"
	"github.com/twillnet/twill/internal/intent"
)

// TestTwoGroupsHaveTwoNames: names are short, and a name is free again only when nothing rests of the group that had it.
func TestTwoGroupsHaveTwoNames(t *testing.T) {
	s := New(Config{})
	s.tables = newTables(classify.Limits{}, nil)
	a, b := intent.GroupID{1, 2, 3, 4, 5}, intent.GroupID{1, 2, 3, 4, 6}
	name := func(id intent.GroupID, want string) {
		t.Helper()
		if got := s.tables.name(id); got != want {
			t.Errorf("%s has the name %s, want %s", id, got, want)
		}
	}
	short := "01020304"
	name(a, short)
	name(b, b.String())
	s.disband(&asked{id: a})
	name(b, b.String())
	name(a, short) // it comes back, to what is left of it
	s.tables.groups[a] = &asked{id: a}
	s.Rested()
	name(b, b.String())
	s.disband(s.tables.groups[a])
	s.Rested()
	name(b, short)
	name(a, a.String())
}
