package packaging

import "testing"

func TestHelpInPagesOfTheManual(t *testing.T) {
	for _, tt := range []struct{ help, want string }{
		{"Say NAME.", "Say NAME."},
		{"TWILL_BGP, eth.* and <name>", `TWILL\_BGP, eth.\* and \<name>`},
		{"A table:\n\n  a*   b\n  c    d_e\n\nEnd.", "A table:\n\n      a*   b\n      c    d_e\n\nEnd."},
		{"In one:\n  a   b", "    In one:\n      a   b"},
	} {
		if got := inMarkdown(tt.help); got != tt.want {
			t.Errorf("%q is %q, want %q", tt.help, got, tt.want)
		}
	}
}
