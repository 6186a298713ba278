package cluster_test

import (
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/datastore/mirror"
)

func TestAMirrorIsRebuiltByHand(t *testing.T) {
	c := newCLI(t)
	clitest.Contains(t, c.Want(0, "", "datastore", "mirror", "status"), "no master has written")
	clitest.Contains(t, c.Want(1, "", "datastore", "mirror", "complete", "operator"), "operator has not begun", "twill datastore mirror begin operator")
	clitest.Contains(t, c.Want(2, "", "datastore", "mirror", "begin"), "wants the name of one master")
	clitest.Contains(t, c.Want(1, "", "datastore", "mirror", "begin", "A/b"), `master "A/b": want lower-case letters`)

	clitest.Contains(t, c.Want(0, "", "datastore", "mirror", "begin", "operator"), "the part of operator is being rebuilt (generation ")
	generation := strings.TrimSpace(c.Want(1, "", "datastore", "mirror", "status", "-o", "jsonpath={[0].generation}"))
	clitest.Contains(t, c.Want(1, "", "datastore", "mirror", "status"), "operator", "rebuilding", generation)
	c.Want(0, "", "datastore", "mirror", "complete", "operator", "--generation", generation)
	clitest.Contains(t, c.Want(0, "", "datastore", "mirror", "status"), "complete", generation)
	clitest.Contains(t, c.Stored("clusterinformations/default"), `"datastoreReady":true`) // without it agents that knew one would stay as they are

	c.Want(0, "", "datastore", "mirror", "begin", "operator")
	clitest.Contains(t, c.Want(1, "", "datastore", "mirror", "complete", "operator", "--generation", generation), "begin again")
	c.Want(1, "", "datastore", "mirror", "status")
	clitest.Contains(t, c.Want(0, "", "datastore", "mirror", "complete", "operator"), "the part of operator is complete")
}

// TestWhatADatastoreSaysOfItselfIsNotMoved: in another one it would be said of what is not there yet.
func TestWhatADatastoreSaysOfItselfIsNotMoved(t *testing.T) {
	from, to := newCLI(t), newCLI(t)
	for _, c := range []*clitest.CLI{from, to} {
		c.Want(0, "", "datastore", "mirror", "begin", "operator")
	}
	from.Want(0, "", "apply", "-f", clitest.Prod)
	from.Want(0, "", "datastore", "mirror", "complete", "operator")
	code, lines, stderr := from.Run("", "datastore", "export")
	if code != 0 {
		t.Fatal(stderr)
	}
	if strings.Contains(lines, mirror.Prefix) {
		t.Errorf("it is in the export:\n%s", lines)
	}
	to.Want(0, lines, "datastore", "import", "-f", "-")
	clitest.Contains(t, to.Want(1, "", "datastore", "mirror", "status"), "rebuilding")
}

func TestTheKubernetesAPIIsNoMirror(t *testing.T) {
	c := newCLI(t)
	t.Setenv("DATASTORE_TYPE", "kubernetes")
	for _, call := range []string{"status", "begin operator", "complete operator"} {
		clitest.Contains(t, c.Want(1, "", strings.Fields("datastore mirror "+call)...), "it is the master itself")
	}
}
