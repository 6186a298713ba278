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
