package process

import (
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/relay"
)

// TestWhatARelayRefusesToServe: the datastore to whoever reaches an address, unless that is asked for by name.
func TestWhatARelayRefusesToServe(t *testing.T) {
	for _, tt := range []struct {
		cfg  Config
		want string // of the error; empty: none
	}{
		{Config{Listen: ":5473"}, "say --plaintext"},
		{Config{Listen: "192.0.2.1:5473"}, "say --plaintext"},
		{Config{Listen: "192.0.2.1:5473", Plaintext: true}, ""},
		{Config{Listen: "127.0.0.1:5473"}, ""},
		{Config{Listen: "unix:///run/twill/relay.sock"}, ""},
		{Config{Listen: ":5473", TLS: relay.TLS{CertFile: "c", KeyFile: "k"}}, "without a file of: CA"},
		{Config{Listen: "127.0.0.1:5473", TLS: relay.TLS{CN: "agent"}}, "without a file of: certificate, key, CA"},
		{Config{Listen: ":5473", Plaintext: true, TLS: relay.TLS{CAFile: "a"}}, "leave one of them out"},
	} {
		switch err := tt.cfg.Check(); {
		case tt.want == "" && err != nil, tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%+v: %v, want %q", tt.cfg, err, tt.want)
		}
	}
}
