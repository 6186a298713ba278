package conn

import (
	"testing"

	"github.com/twillnet/twill/internal/datastore"
)

// TestByAProxyEtcdIsReachedWithItsSocketAlone: no user or certificate of a client's goes with it, and what a flag names comes first. Who looks after
// members reaches these.
func TestByAProxyEtcdIsReachedWithItsSocketAlone(t *testing.T) {
	const socket, far = "unix:///run/twill/etcd-proxy.sock", "https://192.0.2.9:2379"
	for _, tt := range []struct {
		name, variable, flag string
		want                 string
		user                 string
	}{
		{"no proxy", "", "", far, "agent"},
		{"no proxy, in words", "false", "", far, "agent"},
		{"a proxy", "true", "", socket, ""},
		{"a proxy, and a flag that names it", "1", socket, socket, ""},
		{"a proxy, and a flag that names another", "true", "http://192.0.2.1:1", "http://192.0.2.1:1", "agent"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(ProxyVariable, tt.variable)
			t.Setenv("ETCD_ENDPOINTS", far)
			t.Setenv("ETCD_USERNAME", "agent")
			t.Setenv("ETCD_PASSWORD", "word")
			t.Setenv("ETCD_CERT_FILE", "/c")
			c, l := Connection{Endpoints: tt.flag}, Local{}
			if err := l.Read(); err != nil {
				t.Fatal(err)
			}
			cfg, err := c.Config()
			if err != nil {
				t.Fatal(err)
			}
			for _, got := range []datastore.Config{cfg, l.Store(&c)} {
				if got.Endpoints[0] != tt.want || got.Username != tt.user || (got.CertFile == "") != (tt.user == "") {
					t.Errorf("got %+v, want %s as %q", got, tt.want, tt.user)
				}
			}
			if got := c.direct(); got.Username != "agent" {
				t.Errorf("members are reached as %+v", got)
			}
		})
	}
	t.Setenv(ProxyVariable, "maybe")
	if err := new(Local).Read(); err == nil {
		t.Error("a value that is none was taken")
	}
}
