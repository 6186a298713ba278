package relay

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/datastore/memstore"
)

// TestByWhichRelayTheStoreIsRead: a relay that is reached without TLS over a network, or with half of it, is refused by name.
func TestByWhichRelayTheStoreIsRead(t *testing.T) {
	for _, tt := range []struct {
		s    config.Relay
		want string // of the error; "store" and "relay": it is that
	}{
		{config.Relay{}, "store"},
		{config.Relay{Address: "unix:///run/twill/relay.sock"}, "relay"},
		{config.Relay{Address: "127.0.0.1:5473"}, "relay"},
		{config.Relay{Address: "192.0.2.1:5473"}, "set typhaCAFile, typhaCertFile and typhaKeyFile, or relayPlaintext"},
		{config.Relay{Address: "192.0.2.1:5473", Plaintext: true}, "relay"},
		{config.Relay{Address: "192.0.2.1:5473", Plaintext: true, CAFile: "ca"}, "leave one of them out"},
		{config.Relay{Address: "192.0.2.1:5473", CAFile: "ca"}, "without a file of: certificate, key"},
		{config.Relay{Address: "192.0.2.1:5473", CN: "relay"}, "without a file of: certificate, key, CA"},
		{config.Relay{Address: "192.0.2.1:5473", CAFile: "/nowhere", CertFile: "/nowhere", KeyFile: "/nowhere"}, "no such file"},
	} {
		read, done, err := Reading(memstore.New(), tt.s, nil, Who{}, slog.New(slog.DiscardHandler))
		got := "store"
		if _, by := read.(*Client); by {
			got = "relay"
		}
		if err != nil {
			got = err.Error()
		} else {
			done()
		}
		if !strings.Contains(got, tt.want) {
			t.Errorf("%+v: %s, want %s", tt.s, got, tt.want)
		}
	}
}
