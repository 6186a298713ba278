package conn

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/twillnet/twill/internal/datastore"
)

// TestByAProxyEtcdIsReachedWithItsSocketAlone: no user or certificate of a client's goes with it, unless a flag names the user; and what a flag names comes first.
// Who looks after members reaches these.
func TestByAProxyEtcdIsReachedWithItsSocketAlone(t *testing.T) {
	t.Setenv("TWILL_SOCKET", filepath.Join(t.TempDir(), "agent.sock"))
	const far = "https://192.0.2.9:2379"
	socket := "unix://" + ProxySocket()
	for _, tt := range []struct {
		name, variable, endpoints, flag, user string
		runs                                  bool
		want, as                              string
	}{
		{name: "no proxy", endpoints: far, runs: true, want: far, as: "agent"},
		{name: "no proxy, in words", variable: "false", endpoints: far, runs: true, want: far, as: "agent"},
		{name: "a proxy", variable: "true", endpoints: far, runs: true, want: socket},
		{name: "a proxy that was left out, since a member is here", variable: "true", endpoints: far, want: far, as: "agent"},
		{name: "a proxy that begins, and nothing else", variable: "true", want: socket},
		{name: "what twill node gives its children, while the proxy begins", variable: "1", endpoints: far, flag: socket, want: socket},
		{name: "a proxy, and a flag that names a user", variable: "true", endpoints: far, user: "root", runs: true, want: socket, as: "root"},
		{name: "a proxy, and a flag that names another", variable: "true", endpoints: far, flag: "http://192.0.2.1:1", runs: true, want: "http://192.0.2.1:1", as: "agent"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(ProxyVariable, tt.variable)
			t.Setenv("ETCD_ENDPOINTS", tt.endpoints)
			t.Setenv("ETCD_USERNAME", "agent")
			t.Setenv("ETCD_PASSWORD", "word")
			t.Setenv("ETCD_CERT_FILE", "/c")
			if tt.runs {
				l, err := net.Listen("unix", ProxySocket())
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
			}
			c, l := Connection{Endpoints: tt.flag, User: tt.user}, Local{}
			if err := l.Read(); err != nil {
				t.Fatal(err)
			}
			cfg, err := c.Config()
			if err != nil {
				t.Fatal(err)
			}
			for _, got := range []datastore.Config{cfg, l.Store(&c)} {
				if got.Endpoints[0] != tt.want || got.Username != tt.as || (got.Password == "") != (tt.as == "") || (got.CertFile == "") != (tt.want == socket) {
					t.Errorf("got %+v, want %s as %q", got, tt.want, tt.as)
				}
			}
			if got := c.direct(); got.CertFile != "/c" {
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
