package node_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/cli/clitest"
)

func TestADatastoreThatDoesNotExistIsRefusedByName(t *testing.T) {
	for _, variable := range []string{"DATASTORE_TYPE", "FELIX_DATASTORETYPE"} {
		clitest.ClearStoreEnv(t)
		t.Setenv("TWILL_CONFIG", clitest.File(t, "twill.conf", ""))
		t.Setenv(variable, "etcd")
		c := newCLI(t)
		clitest.Contains(t, c.Want(1, "", "node", "--data-dir", filepath.Join(t.TempDir(), "d"), "--etcd-listen", "nonsense"), "datastoreType", `"etcd"`, "etcdv3")
		if variable == "DATASTORE_TYPE" { // FELIX_… is for agents
			clitest.Contains(t, c.Want(1, "", "get", "tiers"), "DATASTORE_TYPE", `"etcd"`, "etcdv3", "kubernetes")
		}
		os.Unsetenv(variable)
	}
}

func TestWithKubernetesNoEtcdHasAPart(t *testing.T) {
	clitest.ClearStoreEnv(t)
	t.Setenv("TWILL_CONFIG", clitest.File(t, "twill.conf", ""))
	t.Setenv("DATASTORE_TYPE", "kubernetes")
	c := newCLI(t)
	for _, flag := range []string{"--etcd", "--etcd-listen"} {
		clitest.Contains(t, c.Want(2, "", "node", "--data-dir", filepath.Join(t.TempDir(), "d"), flag, "http://192.0.2.1:2379"), "its API server is the datastore", flag)
	}
	for variable, value := range map[string]string{"K8S_CLIENT_QPS": "many", "K8S_INSECURE_SKIP_TLS_VERIFY": "perhaps"} {
		t.Setenv(variable, value)
		clitest.Contains(t, c.Want(1, "", "agent", "--data-dir", filepath.Join(t.TempDir(), "d")), variable[:4])
		os.Unsetenv(variable)
	}
}

func TestAnInstallationRemembersTheCluster(t *testing.T) {
	clitest.ClearStoreEnv(t)
	root := t.TempDir()
	c := newCLI(t)
	c.Want(0, "", "node", "install", "--root", root, "--kubeconfig", "/etc/kube.conf", "--context", "c", "--node", "n1")
	text, err := os.ReadFile(filepath.Join(root, "etc/twill/node.env"))
	if err != nil {
		t.Fatal(err)
	}
	clitest.Contains(t, string(text), "\nNODENAME=n1\n", "\nDATASTORE_TYPE=kubernetes\n", "\nKUBECONFIG=/etc/kube.conf\n", "\nK8S_CURRENT_CONTEXT=c\n")
}

// TestAWayToTheDatastoreThatIsGivenTwiceIsRefusedByName: neither a daemon nor a command chooses one of two.
func TestAWayToTheDatastoreThatIsGivenTwiceIsRefusedByName(t *testing.T) {
	for variable, other := range map[string]string{
		"ETCD_DISCOVERY_SRV": "ETCD_ENDPOINTS", "ETCD_KEY": "ETCD_KEY_FILE", "ETCD_CERT": "ETCD_CERT_FILE", "ETCD_CA_CERT": "ETCD_CA_CERT_FILE", "KUBECONFIG_INLINE": "KUBECONFIG",
	} {
		t.Run(variable, func(t *testing.T) {
			clitest.ClearStoreEnv(t)
			t.Setenv("TWILL_CONFIG", clitest.File(t, "twill.conf", ""))
			c := newCLI(t)
			t.Setenv(variable, "x")
			c.Want(0, "", "get", "tiers")
			t.Setenv(other, "x")
			for _, args := range [][]string{{"get", "tiers"}, {"node", "--etcd-listen", "nonsense"}, {"agent"}, {"bgp"}, {"confd"}} {
				if args[0] != "get" {
					args = append(args, "--data-dir", filepath.Join(t.TempDir(), "d"))
				}
				clitest.Contains(t, c.Want(1, "", args...), variable, other, "both are given")
			}
		})
	}
}

// TestVariablesThatFlagsNameAreWritten into the environment of the units, each once, and nothing else is.
func TestVariablesThatFlagsNameAreWritten(t *testing.T) {
	clitest.ClearStoreEnv(t)
	c, root := newCLI(t), t.TempDir()
	file := filepath.Join(root, "etc/twill/node.env")
	for _, value := range []string{"192.0.2.1", "192.0.2.2"} {
		c.Want(0, "", "node", "install", "--root", root, "--env", "IP="+value, "--env", "NO_DEFAULT_POOLS=true")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{"IP=" + value, "NO_DEFAULT_POOLS=true"} {
			if n := strings.Count("\n"+string(text), "\n"+line+"\n"); n != 1 {
				t.Errorf("%s is there %d times:\n%s", line, n, text)
			}
		}
	}
	for _, line := range []string{"IP", "=x", "A=b\nC=d"} {
		clitest.Contains(t, c.Want(2, "", "node", "install", "--root", root, "--env", line), "want NAME=value, in one line")
	}
}
