package relay

import (
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/datastore"
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
		{config.Relay{Address: "unix:///run/a.sock, 127.0.0.1:5473"}, "relay"},
		{config.Relay{Address: "127.0.0.1:5473,192.0.2.1:5473"}, "set typhaCAFile, typhaCertFile and typhaKeyFile, or relayPlaintext"},
		{config.Relay{Address: "127.0.0.1:5473,"}, "want addresses with commas between them"},
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

// TestEachOfSeveralRelaysShowsACertificateForItsOwnAddress, and one that ends leaves its clients to another.
func TestEachOfSeveralRelaysShowsACertificateForItsOwnAddress(t *testing.T) {
	a := newAuthority(t)
	agent := a.files("agent", x509.ExtKeyUsageClientAuth, time.Hour)
	relays := a.files("relay", x509.ExtKeyUsageServerAuth, time.Hour) // for 127.0.0.1
	dead := must(net.Listen("tcp", "127.0.0.1:0"))
	addressOfNobody := dead.Addr().String()
	_ = dead.Close()
	for _, tt := range []struct {
		listen string
		served bool
	}{{"127.0.0.1:0", true}, {"127.0.0.2:0", false}} {
		at, store := serving(t, "tcp", tt.listen, relays.ServerCreds())
		s := config.Relay{Address: addressOfNobody + "," + at, CAFile: agent.CAFile, CertFile: agent.CertFile, KeyFile: agent.KeyFile}
		read, done, err := Reading(store, s, nil, Who{}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		snap, err := read.List(t.Context(), "/x/")
		if done(); tt.served && (err != nil || len(snap.Items) != 1) || !tt.served && (!errors.Is(err, datastore.ErrUnavailable) || !strings.Contains(err.Error(), "127.0.0.2")) {
			t.Errorf("%s: %v, %v", tt.listen, snap, err)
		}
	}
}
