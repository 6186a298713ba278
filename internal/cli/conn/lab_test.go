package conn_test

import (
	"testing"

	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/lab"
)

// TestNoDaemonFollowsALab: the guide of the lab has its readers set ETCD_ENDPOINTS to it.
func TestNoDaemonFollowsALab(t *testing.T) {
	clitest.ClearStoreEnv(t)
	clitest.NothingSet(t)
	for _, daemon := range []string{"node", "agent", "bgp", "confd"} {
		t.Run(daemon, func(t *testing.T) {
			t.Setenv("ETCD_ENDPOINTS", (&lab.Lab{Dir: lab.DefaultDir}).Socket())
			clitest.Contains(t, newCLI(t).Want(2, "", daemon, "--node", "h1", "--data-dir", t.TempDir()), daemon+": unix:///run/twill-lab/", "the datastore of the lab")
		})
	}
}
