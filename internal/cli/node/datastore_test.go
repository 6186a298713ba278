package node_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/twillnet/twill/internal/cli/clitest"
)

func TestADatastoreThatIsNoEtcdIsRefusedByName(t *testing.T) {
	for _, tt := range []struct{ variable, value string }{
		{"DATASTORE_TYPE", "kubernetes"},
		{"FELIX_DATASTORETYPE", "kubernetes"},
		{"DATASTORE_TYPE", "etcd"},
	} {
		clitest.ClearStoreEnv(t)
		t.Setenv("TWILL_CONFIG", clitest.File(t, "twill.conf", ""))
		t.Setenv(tt.variable, tt.value)
		c := newCLI(t)
		clitest.Contains(t, c.Want(1, "", "node", "--data-dir", filepath.Join(t.TempDir(), "d"), "--etcd-listen", "nonsense"), "datastoreType", tt.value, "etcd")
		if tt.variable == "DATASTORE_TYPE" { // FELIX_… is for agents
			clitest.Contains(t, c.Want(1, "", "get", "tiers"), "DATASTORE_TYPE", tt.value, "etcdv3")
		}
		os.Unsetenv(tt.variable)
	}
}

// What says where the datastore is, or how to reach it, and is not read, is never passed over: neither by a daemon nor by a command.
func TestAWayToTheDatastoreThatIsNotReadIsRefusedByName(t *testing.T) {
	for variable, why := range map[string]string{
		"ETCD_DISCOVERY_SRV": "name its members in ETCD_ENDPOINTS",
		"ETCD_KEY":           "name that in ETCD_KEY_FILE",
		"ETCD_CERT":          "name that in ETCD_CERT_FILE",
		"ETCD_CA_CERT":       "name that in ETCD_CA_CERT_FILE",
	} {
		t.Run(variable, func(t *testing.T) {
			clitest.ClearStoreEnv(t)
			t.Setenv("TWILL_CONFIG", clitest.File(t, "twill.conf", ""))
			c := newCLI(t)
			c.Want(0, "", "get", "tiers")
			t.Setenv(variable, "x")
			for _, args := range [][]string{{"get", "tiers"}, {"node", "--etcd-listen", "nonsense"}, {"agent"}, {"bgp"}, {"confd"}} {
				if args[0] != "get" {
					args = append(args, "--data-dir", filepath.Join(t.TempDir(), "d"))
				}
				clitest.Contains(t, c.Want(1, "", args...), variable+": ", why)
			}
		})
	}
}
