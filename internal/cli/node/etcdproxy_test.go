package node

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/datastore"
)

// TestWhichHostsHaveAnEtcdProxy: those that ask for one and have no member; there, all that `twill node` runs is given its socket and nothing else.
func TestWhichHostsHaveAnEtcdProxy(t *testing.T) {
	const socket = "unix:///run/twill/etcd-proxy.sock"
	remote := datastore.Config{Endpoints: []string{"https://192.0.2.9:2379"}, Username: "agent", CertFile: "/c", KeyFile: "/k", CAFile: "/ca"}
	const direct = "--etcd=https://192.0.2.9:2379 --etcd-user=agent --etcd-cert=/c --etcd-key=/k --etcd-ca=/ca"
	for _, tt := range []struct {
		name, text string
		store      datastore.Config
		own        bool
		file       string
		want, env  string // env: what children are told of it
		refused    bool
	}{
		{name: "nobody asked", store: remote, want: "agent " + direct},
		{name: "asked", text: "true", store: remote, want: "etcd proxy " + direct + " | agent --etcd=" + socket, env: "true"},
		{name: "asked, and a file names the members", text: "true", store: datastore.Config{Endpoints: []string{conn.DefaultEndpoint}}, file: "/f", want: "etcd proxy --etcd=" + conn.DefaultEndpoint + " | agent --etcd=" + socket, env: "true"},
		{name: "a file that nobody would read", store: remote, file: "/f", refused: true},
		{name: "told not to", text: "false", store: remote, want: "agent " + direct, env: "false"},
		{name: "a member of its own", text: "true", store: datastore.Config{Endpoints: []string{conn.DefaultEndpoint}}, own: true, want: "etcd --data-dir /d/etcd --listen " + conn.DefaultEndpoint + " | agent --etcd=" + conn.DefaultEndpoint, env: "false"},
		{name: "a member on this host", text: "true", store: datastore.Config{Endpoints: []string{"http://192.0.2.9:2379", "http://127.0.0.1:2379"}}, want: "agent --etcd=http://192.0.2.9:2379,http://127.0.0.1:2379", env: "false"},
		{name: "Kubernetes", text: "true", store: datastore.Config{Type: "kubernetes"}, refused: true},
		{name: "neither true nor false", text: "maybe", store: remote, refused: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(conn.EndpointsFileVariable, tt.file)
			o := nodeOptions{bgp: "off", proxy: etcdProxy{text: tt.text}}
			o.local.Dir, o.local.Node = "/d", "h1"
			if tt.own {
				o.listen = []string{conn.DefaultEndpoint}
			}
			cfg, err := o.proxy.begin(t.Context(), tt.store, o.listen, slog.New(slog.DiscardHandler))
			if (err != nil) != tt.refused {
				t.Fatalf("error %v", err)
			}
			if tt.refused {
				return
			}
			var got []string
			for _, c := range o.children(tt.own, storeArgs(cfg)) {
				got = append(got, strings.Join(c.Args, " "))
				if has := slices.Contains(c.Env, conn.ProxyVariable+"="+tt.env); c.Name != "etcd" && has != (tt.env != "") {
					t.Errorf("%s has %q", c.Name, c.Env)
				}
			}
			clitest.Equal(t, strings.Join(got, " | "), tt.want)
		})
	}
}
