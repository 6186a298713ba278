package conn

import "testing"

// TestUpstreamsBackendSaysWhatSpeaksBGP: CALICO_NETWORKING_BACKEND, as a ConfigMap's calico_backend becomes it; TWILL_BGP is nearer.
func TestUpstreamsBackendSaysWhatSpeaksBGP(t *testing.T) {
	for _, tt := range []struct{ own, upstream, want string }{
		{"", "", "on"},
		{"", "bird", "on"},
		{"", "vxlan", "off"},
		{"", "none", "off"},
		{"bird", "none", "bird"},
		{"", "gossip", "gossip"}, // refused by who uses it, by name
	} {
		t.Setenv("TWILL_BGP", tt.own)
		t.Setenv("CALICO_NETWORKING_BACKEND", tt.upstream)
		if got := Speaker(); got != tt.want {
			t.Errorf("TWILL_BGP=%s CALICO_NETWORKING_BACKEND=%s: got %q, want %q", tt.own, tt.upstream, got, tt.want)
		}
	}
}
