package conn

import (
	"net"
	"path/filepath"
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

// TestAHostThatHasAProxyAloneIsReachedByIt: by root's commands too, which name nothing.
func TestAHostThatHasAProxyAloneIsReachedByIt(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TWILL_SOCKET", filepath.Join(dir, "agent.sock"))
	t.Setenv("ETCD_ENDPOINTS", "")
	c := Connection{}
	if got := c.etcd().Endpoints[0]; got != DefaultEndpoint {
		t.Errorf("without a proxy: %s", got)
	}
	l, err := net.Listen("unix", ProxySocket())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if got := c.etcd().Endpoints[0]; got != "unix://"+filepath.Join(dir, "etcd-proxy.sock") {
		t.Errorf("with one: %s", got)
	}
	named := Connection{Endpoints: DefaultEndpoint}
	if got := named.etcd().Endpoints[0]; got != DefaultEndpoint {
		t.Errorf("with one, and a member that a flag names: %s", got)
	}
	t.Setenv("ETCD_ENDPOINTS", "http://192.0.2.9:2379")
	if got := c.etcd().Endpoints[0]; got != "http://192.0.2.9:2379" {
		t.Errorf("with one, and another way that is named: %s", got)
	}
}
