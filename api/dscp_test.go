package api

import (
	"encoding/json"
	"testing"
)

// TestCodePoints by name and number, in JSON of both kinds, and what is none.
func TestCodePoints(t *testing.T) {
	for _, tt := range []struct {
		text, again string
		value       uint8
		bad         bool
	}{
		{`46`, `46`, 46, false},
		{`"46"`, `46`, 46, false},
		{`0`, `0`, 0, false},
		{`63`, `63`, 63, false},
		{`"EF"`, `"EF"`, 46, false},
		{`"af11"`, `"af11"`, 10, false},
		{`"CS0"`, `"CS0"`, 0, false},
		{`"cs7"`, `"cs7"`, 56, false},
		{`" AF43 "`, `"AF43"`, 38, false},
		{`64`, `"64"`, 0, true},
		{`-1`, `"-1"`, 0, true},
		{`"AF44"`, `"AF44"`, 0, true},
		{`1.5`, `"1.5"`, 0, true},
		{`"EF EF"`, `"EF EF"`, 0, true},
	} {
		var d DSCP
		if err := json.Unmarshal([]byte(tt.text), &d); err != nil {
			t.Fatal(err)
		}
		value, set := d.Value()
		if out, err := json.Marshal(d); string(out) != tt.again || err != nil || value != tt.value || set == tt.bad || (d.Bad() != "") != tt.bad {
			t.Errorf("%s is %d, set %v, wrong %q; written %s, %v; want %d, wrong %v", tt.text, value, set, d.Bad(), out, err, tt.value, tt.bad)
		}
	}
	var d DSCP
	if err := json.Unmarshal([]byte(`{}`), &d); err == nil {
		t.Error("an object is no code point")
	}
	if _, set := d.Value(); set {
		t.Error("none is set")
	}
}
