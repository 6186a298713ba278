package iptables

import "testing"

// TestRulesAreAlikeByWhatIsPrintedAsItWasWritten: the other matches have a form of their own in each version of iptables.
func TestRulesAreAlikeByWhatIsPrintedAsItWasWritten(t *testing.T) {
	for _, tt := range []struct {
		name, rule, line string
		alike            bool
	}{
		{"the same", "-i cali1 -j tw-a", "-A tw-x -i cali1 -j tw-a", true},
		{"another form of other matches", "-p tcp -m tcp --dport 80 -j tw-a", "-A tw-x -m multiport --dports 80 -p 6 -j tw-a", true},
		{"interfaces in another order", "-i cali1 -o eth0 -j tw-a", "-A tw-x -o eth0 -i cali1 -j tw-a", true},
		{"another target", "-i cali1 -j RETURN", "-A tw-x -i cali1 -j tw-a", false},
		{"a call where it was the end", "-j tw-a", "-A tw-x -g tw-a", false},
		{"another interface", "-i cali2 -j tw-a", "-A tw-x -i cali1 -j tw-a", false},
		{"no interface", "-j tw-a", "-A tw-x -i cali1 -j tw-a", false},
		{"all but an interface", "! -i cali1 -j tw-a", "-A tw-x -i cali1 -j tw-a", false},
		{"another set", "-m set --match-set tw4-b src -j tw-a", "-A tw-x -m set --match-set tw4-a src -j tw-a", false},
		{"the other side", "-m set --match-set tw4-a dst -j tw-a", "-A tw-x -m set --match-set tw4-a src -j tw-a", false},
		{"a comment without quotes", "-m comment --comment -j -j tw-a", `-A tw-x -m comment --comment "-j" -j tw-a`, true},
		{"a comment like a rule", `-m comment --comment "a \" -j RETURN" -j tw-a`, `-A tw-x -m comment --comment "b" -j tw-a`, true},
		{"a prefix like a rule", `-j NFLOG --nflog-prefix "-j x"`, `-A tw-x -j NFLOG --nflog-prefix y`, true},
		{"an interface in quotes", `-i a"b -j tw-a`, `-A tw-x -i "a\"b" -m comment --comment "b" -j tw-a`, true},
		{"an interface that begins with a quote", `-i "b -m comment --comment "x y" -j tw-a`, `-A tw-x -i "\"b" -j tw-a`, true},
		{"no words after an option", "-j", "-A tw-x -j", true},
	} {
		if got := alike([]string{tt.rule}, tt.line); got != tt.alike {
			t.Errorf("%s: alike is %v", tt.name, got)
		}
	}
	if alike(nil, "-A tw-x -j tw-a") || alike([]string{"-j tw-a"}, "") || !alike(nil, "") {
		t.Error("rules that are not there are alike")
	}
}
