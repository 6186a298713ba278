package config

import "testing"

// TestWhatIsLocalIsNotTakenFromTheDatastore: whatever a FelixConfiguration came to hold, the node finds its datastore where the
// host says, or it would not find the way back.
func TestWhatIsLocalIsNotTakenFromTheDatastore(t *testing.T) {
	const other = "http://203.0.113.9:2379"
	r, found := New("h1"), 0
	values := map[string]string{}
	for _, p := range Params() {
		if p.Local {
			values[p.Name] = other
		}
	}
	r.stored["default"] = stored{values: values}
	for _, v := range r.Resolve().Values {
		if !v.Param.Local {
			continue
		}
		if found++; v.From != "default" || v.Text == other {
			t.Errorf("%s is %q, from %s", v.Param.Name, v.Text, v.From)
		}
		if v.Param.Fixed == "" {
			t.Errorf("%s is local, but nothing says why it is not live", v.Param.Name)
		}
	}
	if found < 8 {
		t.Errorf("%d settings are local: the name of the node, the kind of datastore, and six about etcd are, at least", found)
	}
}
