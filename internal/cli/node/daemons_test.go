package node

import (
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/cli/conn"
)

// nodeStart is what `twill node` would do with its datastore: where its own member listens, and what its children are given.
func nodeStart(t *testing.T, c conn.Connection, listen ...string) (ownListen, args []string) {
	t.Helper()
	o := nodeOptions{listen: listen}
	if err := o.local.Read(); err != nil {
		t.Fatal(err)
	}
	cfg := o.local.Store(&c)
	switch own, err := o.ownStore(cfg, c.Endpoints); {
	case err != nil:
		t.Fatal(err)
	case own:
		ownListen = o.listen
	}
	args = storeArgs(cfg)
	return ownListen, args
}

func TestWhereANodesDatastoreIs(t *testing.T) {
	const own = "unix:///run/twill/etcd/client.sock"
	for _, tt := range []struct {
		name   string
		flag   string
		env    []string
		file   string
		listen []string
		own    []string
		args   string
	}{
		{name: "nothing is named: its own, on a socket", own: []string{own}, args: "--etcd=" + own},
		{
			name: "its own for others, too: the node itself uses the socket", listen: []string{"http://192.0.2.1:2379"},
			own: []string{own, "http://192.0.2.1:2379"}, args: "--etcd=" + own,
		},
		{name: "a flag", flag: "http://192.0.2.9:2379", env: []string{"ETCD_ENDPOINTS=http://192.0.2.8:2379"}, args: "--etcd=http://192.0.2.9:2379"},
		{
			name: "upstream's environment", env: []string{"ETCD_ENDPOINTS=http://192.0.2.8:2379", "ETCD_USERNAME=u", "ETCD_CA_CERT_FILE=/ca"},
			args: "--etcd=http://192.0.2.8:2379 --etcd-user=u --etcd-ca=/ca",
		},
		{
			name: "that of upstream's agent is nearer", env: []string{"ETCD_ENDPOINTS=http://192.0.2.8:2379", "FELIX_ETCDENDPOINTS=http://192.0.2.7:2379", "ETCD_KEY_FILE=/a", "FELIX_ETCDKEYFILE=/k", "FELIX_ETCDCERTFILE=/c"},
			args: "--etcd=http://192.0.2.7:2379 --etcd-cert=/c --etcd-key=/k",
		},
		{name: "the file of settings", file: "etcdEndpoints = http://192.0.2.6:2379\n", args: "--etcd=http://192.0.2.6:2379"},
		{
			name: "one that is named, and a member for others", env: []string{"ETCD_ENDPOINTS=http://192.0.2.8:2379"}, listen: []string{"http://192.0.2.1:2379"},
			own: []string{"http://192.0.2.1:2379"}, args: "--etcd=http://192.0.2.8:2379",
		},
		{name: "a domain of DNS, which children look up themselves", env: []string{"ETCD_DISCOVERY_SRV=example.org", "ETCD_CA_CERT_FILE=/ca"}, file: "etcdEndpoints = http://192.0.2.6:2379\n", args: "--etcd-ca=/ca"},
		{name: "a flag is nearer than a domain", flag: "http://192.0.2.9:2379", env: []string{"ETCD_DISCOVERY_SRV=example.org"}, args: "--etcd=http://192.0.2.9:2379"},
		{name: "texts of keys go by the environment", env: []string{"ETCD_ENDPOINTS=https://192.0.2.8:2379", "ETCD_CA_CERT=pem"}, args: "--etcd=https://192.0.2.8:2379"},
		{name: "an empty variable names nothing", env: []string{"ETCD_ENDPOINTS="}, own: []string{own}, args: "--etcd=" + own},
		{name: "Kubernetes has no etcd", env: []string{"DATASTORE_TYPE=kubernetes", "ETCD_ENDPOINTS=http://192.0.2.8:2379", "K8S_CURRENT_CONTEXT=c"}, args: "--context=c"},
		{name: "etcd is what it is", env: []string{"DATASTORE_TYPE=etcdv3"}, own: []string{own}, args: "--etcd=" + own},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clitest.ClearStoreEnv(t)
			t.Setenv("TWILL_CONFIG", clitest.File(t, "twill.conf", tt.file))
			for _, e := range tt.env {
				name, value, _ := strings.Cut(e, "=")
				t.Setenv(name, value)
			}
			own, args := nodeStart(t, conn.Connection{Endpoints: tt.flag}, tt.listen...)
			if !slices.Equal(own, tt.own) || strings.Join(args, " ") != tt.args {
				t.Errorf("its own member listens on %q, want %q; children are given %q, want %q", own, tt.own, args, tt.args)
			}
		})
	}
}
