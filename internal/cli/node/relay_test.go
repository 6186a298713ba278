package node

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestFlagsOfARelayThatContradictAreRefused, and what limits mean.
func TestFlagsOfARelayThatContradictAreRefused(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"", ""},
		{"--relay-service kube-system/calico-typha", ""},
		{"--relay-service calico-typha", "want NAMESPACE/NAME"},
		{"--relay-service a/b/c", "want NAMESPACE/NAME"},
		{"--relay-service /b", "want NAMESPACE/NAME"},
		{"--relay-service a/b --relays 3", "leave one of them out"},
		{"--relays -1", "want 0 or more"},
		{"--max-clients 0", "want more than 0"},
		{"--max-clients 10", "no less than --min-clients, 400"},
		{"--max-clients 10 --min-clients 0", ""},
		{"--ping-interval 0s", "--ping-interval: want more than 0"},
		{"--drain -1s", "--drain: want more than 0"},
		{"--drain 0s", ""},
	} {
		var o relayOptions
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.addFlags(f)
		if err := f.Parse(strings.Fields(tt.args)); err != nil {
			t.Fatal(err)
		}
		cfg, err := o.config()
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.args, err, tt.want)
		}
		if least := cfg.Limits.Least; err == nil && (least == 0 || least != o.least && o.least != 0) {
			t.Errorf("%s: the lower limit is %d", tt.args, least)
		}
	}
}
