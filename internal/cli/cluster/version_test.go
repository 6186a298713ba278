package cluster_test

import (
	"testing"

	"github.com/twillnet/twill/internal/cli/clitest"
)

func TestAClusterSaysWhatItIs(t *testing.T) {
	c := newCLI(t)
	clitest.Contains(t, c.Want(0, "", "version"), "nothing is known of it")
	c.Raw("clusterinformations/default", `{"kind":"ClusterInformation","apiVersion":"projectcalico.org/v3","metadata":{"name":"default"},"spec":{"clusterGUID":"0123","clusterType":"k8s,bgp","calicoVersion":"v3.30.1","variant":"Calico","datastoreReady":false}}`)
	clitest.Contains(t, c.Want(0, "", "version"), "cluster GUID: 0123\ncluster type: k8s,bgp\ncluster version: v3.30.1\ndatastore: locked; twill datastore unlock opens it\n")
	c.Want(0, "", "datastore", "unlock")
	clitest.Contains(t, c.Stored("clusterinformations/default"), `"calicoVersion":"v3.30.1"`, `"variant":"Calico"`, `"datastoreReady":true`)
	clitest.Contains(t, c.Want(0, "", "get", "clusterinformation", "default", "-o", "yaml"), "variant: Calico\n")
}
