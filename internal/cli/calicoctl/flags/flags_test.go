package flags

import (
	"slices"
	"testing"
)

// TestOneFlagHasOneValue unless it may have many.
func TestOneFlagHasOneValue(t *testing.T) {
	for _, tt := range []struct {
		name  string
		many  bool
		given []string
		want  string // empty: an error
	}{
		{"not given", false, nil, "default"},
		{"once", false, []string{"a"}, "a"},
		{"twice the same", false, []string{"a", "a"}, "a"},
		{"twice, and not the same", false, []string{"a", "b"}, ""},
		{"the default, and another", false, []string{"default", "b"}, ""},
		{"many", true, []string{"a", "b", "a"}, "a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := Value{Text: "default", Many: tt.many}
			var err error
			for _, text := range tt.given {
				if e := v.Set(text); e != nil {
					err = e
				}
			}
			if (err != nil) != (tt.want == "") || err == nil && (v.String() != tt.want || !slices.Equal(v.Each, tt.given)) {
				t.Errorf("got %+v, %v", v, err)
			}
		})
	}
}
