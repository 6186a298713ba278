// Package flags is the value of a flag of calicoctl's.
//
// In: what a user wrote, once or more often. Out: the text, or an error if there are two that contradict each other.
package flags

import "fmt"

// Value is part of pflag.Value. One that is given twice must say the same, unless it may be given many times: calicoctl takes no second
// one, and of two reports the last alone would release what the first does not name.
type Value struct {
	Text string   // what was given last, or the default
	Many bool     // it may be given more than once
	Each []string // all that was given
}

// Set is part of pflag.Value.
func (v *Value) Set(text string) error {
	if !v.Many && len(v.Each) > 0 && v.Text != text {
		return fmt.Errorf("%q and %q", v.Text, text)
	}
	v.Text, v.Each = text, append(v.Each, text)
	return nil
}

// String is part of pflag.Value.
func (v *Value) String() string { return v.Text }

// Type is part of pflag.Value.
func (v *Value) Type() string { return "string" }
