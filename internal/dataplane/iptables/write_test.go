package iptables

import (
	"errors"
	"strings"
	"testing"
)

// TestWhatOthersDoBetweenWritingAndReadingIsUndone: as many rules as were written are not those that were written.
func TestWhatOthersDoBetweenWritingAndReadingIsUndone(t *testing.T) {
	eachBackend(t, func(t *testing.T, k tools) {
		d := newDriven(t, k)
		d.apply(filled())
		want := d.everything()
		const flush = "$I -F; $I -t raw -F"
		for _, tt := range []struct{ name, before, do string }{
			{"a rule is another", flush, "$I -R tw-forward 1 -j RETURN"},
			{"a rule of table raw is another", flush, "$I -t raw -R tw-prerouting 1 -j ACCEPT"},
			{"a rule is gone, and another there", flush, "$I -D tw-forward 1; $I -A tw-forward -j ACCEPT"},
			{"a rule has another interface", flush, "$I -R tw-open-dst 1 -o other0 -g tw-found"},
			{"a rule of a chain that is not written has a match more", "$I -F tw-forward", "$I -R tw-open-dst 1 -o cali1 -p 6 -g tw-found"},
		} {
			k.Run("sh", "-c", strings.ReplaceAll(tt.before, "$I", "iptables-"+k.backend)) // so that there is something to write
			d.after = func() {
				d.after = nil
				k.Run("sh", "-c", strings.ReplaceAll(tt.do, "$I", "iptables-"+k.backend))
			}
			if err := d.Resync(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := d.Apply(t.Context()); !errors.Is(err, errChanged) {
				t.Errorf("%s: the error is %v", tt.name, err)
			}
			d.apply()
			if got := d.everything(); got != want {
				t.Errorf("%s: there is\n%s\nand not\n%s", tt.name, got, want)
			}
		}
	})
}

// TestAChainThatAnEarlierAgentFilledIsEmptied: what it should be is nothing, and nothing is known of how it became what it is.
func TestAChainThatAnEarlierAgentFilledIsEmptied(t *testing.T) {
	eachBackend(t, func(t *testing.T, k tools) {
		d := newDriven(t, k)
		d.apply(filled())
		b := filled()
		for i := range b.Policies {
			b.Policies[i].Ingress, b.Policies[i].Egress = nil, nil
		}
		next := d.again()
		next.apply(b)
		want := next.everything()
		fresh := newDriven(t, k)
		if err := fresh.Clear(t.Context()); err != nil {
			t.Fatal(err)
		}
		fresh.apply(b)
		if got := fresh.everything(); got != want {
			t.Errorf("over what an earlier agent left there is\n%s\nand from nothing\n%s", want, got)
		}
	})
}
