package conn_test

import (
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/cli/clitest"
)

const connectFile = "apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nmetadata:\nspec:\n  datastoreType: etcdv3\n  etcdEndpoints: https://192.0.2.1:2379\n  etcdUsername: u\n  etcdCACertFile: /ca\n"

func TestCalicoctlsConfigurationFileIsReadByEveryCommand(t *testing.T) {
	const text = connectFile
	c := newCLI(t)
	c.Want(0, "", "get", "tiers", "-c", clitest.File(t, "cfg", text), "--allow-version-mismatch")
	clitest.Contains(t, c.Want(1, "", "get", "tiers", "-c", "/nope"), "configuration: ", "no such file")
	clitest.Contains(t, c.Want(1, "", "get", "tiers", "-c", clitest.File(t, "cfg", "kind: Tier\n")), `kind is "Tier": want CalicoAPIConfig`)
	clitest.Contains(t, c.Want(1, "", "get", "tiers", "-c", clitest.File(t, "cfg", strings.Replace(text, "etcdv3", "consul", 1))), `want etcdv3 or kubernetes`)
	for field, why := range map[string]string{"etcdEndpoint": "no such field"} {
		clitest.Contains(t, c.Want(1, "", "get", "tiers", "-c", clitest.File(t, "cfg", text+"  "+field+": x\n")), "spec."+field+": ", why)
		c.Want(0, "", "get", "tiers", "-c", clitest.File(t, "cfg", text+"  "+field+": \"\"\n  k8sAPIEndpoint: http://192.0.2.9\n"))
	}
	c.Want(0, "", "get", "tiers", "-c", clitest.File(t, "cfg", text+"  etcdKey:\n  etcdpassword: p\n  K8SAPIEndpoint: http://192.0.2.9\n"))
	t.Setenv("ETCD_ENDPOINTS", "http://192.0.2.1:2379")
	t.Setenv("ETCD_DISCOVERY_SRV", "example.org")
	clitest.Contains(t, c.Want(1, "", "get", "tiers", "-c", clitest.File(t, "cfg", text)), "ETCD_DISCOVERY_SRV): both are given")
}
