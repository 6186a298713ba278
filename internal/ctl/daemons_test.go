package ctl

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// nodeStart is what `twill node` would do with its datastore: where its own member listens, and what its children are given.
func nodeStart(t *testing.T, c connection, listen ...string) (ownListen, args []string) {
	t.Helper()
	o := nodeOptions{listen: listen}
	if err := o.local.read(); err != nil {
		t.Fatal(err)
	}
	args = storeArgs(o.local.store(&c))
	if o.ownStore(c.endpoints) {
		ownListen = o.listen
	}
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
		{name: "an empty variable names nothing", env: []string{"ETCD_ENDPOINTS="}, own: []string{own}, args: "--etcd=" + own},
		{name: "etcd is what it is", env: []string{"DATASTORE_TYPE=etcdv3"}, own: []string{own}, args: "--etcd=" + own},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clearStoreEnv(t)
			t.Setenv("TWILL_CONFIG", file(t, "twill.conf", tt.file))
			for _, e := range tt.env {
				name, value, _ := strings.Cut(e, "=")
				t.Setenv(name, value)
			}
			own, args := nodeStart(t, connection{endpoints: tt.flag}, tt.listen...)
			if !slices.Equal(own, tt.own) || strings.Join(args, " ") != tt.args {
				t.Errorf("its own member listens on %q, want %q; children are given %q, want %q", own, tt.own, args, tt.args)
			}
		})
	}
}

// clearStoreEnv takes away what the environment of this test says of a datastore.
func clearStoreEnv(t *testing.T) {
	t.Helper()
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		if strings.HasPrefix(name, "ETCD_") || strings.HasPrefix(name, "FELIX_") || strings.HasPrefix(name, "TWILL_") || name == "DATASTORE_TYPE" {
			t.Setenv(name, "")
			os.Unsetenv(name)
		}
	}
}

func TestADatastoreThatIsNoEtcdIsRefusedByName(t *testing.T) {
	for _, tt := range []struct{ variable, value string }{
		{"DATASTORE_TYPE", "kubernetes"},
		{"FELIX_DATASTORETYPE", "kubernetes"},
		{"DATASTORE_TYPE", "etcd"},
	} {
		clearStoreEnv(t)
		t.Setenv("TWILL_CONFIG", file(t, "twill.conf", ""))
		t.Setenv(tt.variable, tt.value)
		c := newCLI(t)
		contains(t, c.want(1, "", "node", "--data-dir", filepath.Join(t.TempDir(), "d"), "--etcd-listen", "nonsense"), "datastoreType", tt.value, "etcd")
		if tt.variable == "DATASTORE_TYPE" { // FELIX_… is for agents
			contains(t, c.want(1, "", "get", "tiers"), "DATASTORE_TYPE", tt.value, "etcdv3")
		}
		os.Unsetenv(tt.variable)
	}
}
