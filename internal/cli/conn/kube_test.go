package conn

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/datastore"
)

func TestUpstreamsVariablesAndFileSayWhereTheAPIServerIs(t *testing.T) {
	variables := []string{
		"KUBECONFIG", "KUBECONFIG_INLINE", "K8S_CURRENT_CONTEXT", "K8S_API_ENDPOINT", "K8S_KEY_FILE", "K8S_CERT_FILE", "K8S_CA_FILE", "K8S_API_TOKEN",
		"K8S_INSECURE_SKIP_TLS_VERIFY", "K8S_CLIENT_QPS", "CALICO_API_GROUP", "DATASTORE_TYPE", "FELIX_INTERFACEPREFIX", "TWILL_INTERFACE_PREFIX",
	}
	for _, v := range variables {
		t.Setenv(v, "")
		os.Unsetenv(v)
	}
	path := t.TempDir() + "/cfg"
	const text = "apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nmetadata:\nspec:\n  datastoreType: kubernetes\n  kubeconfig: /fk\n  k8sAPIEndpoint: https://f\n" +
		"  k8sKeyFile: /fkey\n  k8sCertFile: /fcert\n  k8sCAFile: /fca\n  k8sAPIToken: ft\n  k8sInsecureSkipTLSVerify: true\n  k8sCurrentContext: fc\n  calicoAPIGroup: crd.projectcalico.org/v1\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := Connection{path: path}
	if err := c.readFile(); err != nil {
		t.Fatal(err)
	}
	want := func(what string, want datastore.Config) {
		t.Helper()
		want.Type = "kubernetes"
		if got, err := c.Config(); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, error %v, want %+v", what, got, err, want)
		}
	}
	file := datastore.Config{
		Kubeconfig: "/fk", Context: "fc", Server: "https://f", KeyFile: "/fkey", CertFile: "/fcert", CAFile: "/fca", Token: "ft", Insecure: true, Group: "crd.projectcalico.org/v1",
	}
	want("the file", file)
	t.Setenv("KUBECONFIG_INLINE", "ei")
	inline := file
	inline.Kubeconfig, inline.Inline = "", "ei"
	want("KUBECONFIG_INLINE", inline)
	c.file.Kubeconfig, c.file.Inline = "", "fi"
	want("KUBECONFIG_INLINE, before that of the file", inline)
	t.Setenv("KUBECONFIG", "/a:/b")
	if err := c.readFile(); err == nil || !strings.Contains(err.Error(), "KUBECONFIG_INLINE: both are given") {
		t.Errorf("both in the environment: got error %v", err)
	}
	os.Unsetenv("KUBECONFIG_INLINE")
	env := file
	env.Kubeconfig = "" // the client reads both
	want("KUBECONFIG", env)
	for v, value := range map[string]string{
		"K8S_CURRENT_CONTEXT": "ec", "K8S_API_ENDPOINT": "https://e", "K8S_KEY_FILE": "/ekey", "K8S_CERT_FILE": "/ecert", "K8S_CA_FILE": "/eca", "K8S_API_TOKEN": "et",
		"K8S_INSECURE_SKIP_TLS_VERIFY": "False", "K8S_CLIENT_QPS": "7.5", "CALICO_API_GROUP": "projectcalico.org/v3",
	} {
		t.Setenv(v, value)
	}
	env = datastore.Config{Context: "ec", Server: "https://e", KeyFile: "/ekey", CertFile: "/ecert", CAFile: "/eca", Token: "et", QPS: 7.5, Group: "projectcalico.org/v3"}
	want("the environment is the more specific", env)
	c.kube.kubeconfig, c.kube.context = "/flag", "flag"
	env.Kubeconfig, env.Context = "/flag", "flag"
	want("flags are the most specific", env)
	for prefixes, links := range map[string]string{"eni": "eni", "eni,veth": "eni", "eni,cali": "", "cali,eni": "", "a name": "", "": ""} {
		t.Setenv("FELIX_INTERFACEPREFIX", prefixes)
		env.PodLinks = links
		want("interfaces of workloads begin with "+prefixes, env)
	}
}

func TestAPluginOfKubectlSpeaksToTheClusterUnlessSettingsSayOtherwise(t *testing.T) {
	for _, tt := range []struct {
		name string
		c    Connection
		env  map[string]string
		want string
	}{
		{"no plugin", Connection{}, nil, ""},
		{"a plugin", Connection{Plugin: true}, nil, "kubernetes"},
		{"a plugin that a flag sends to etcd", Connection{Plugin: true, Endpoints: "http://127.0.0.1:2379"}, nil, ""},
		{"a plugin that the environment sends to etcd", Connection{Plugin: true}, map[string]string{"ETCD_ENDPOINTS": "http://127.0.0.1:2379"}, ""},
		{"a plugin with a type", Connection{Plugin: true}, map[string]string{"DATASTORE_TYPE": "etcdv3"}, ""},
		{"no plugin, with a type", Connection{}, map[string]string{"DATASTORE_TYPE": "kubernetes"}, "kubernetes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, v := range []string{"DATASTORE_TYPE", "ETCD_ENDPOINTS"} {
				t.Setenv(v, tt.env[v])
			}
			cfg, err := tt.c.Config()
			if err != nil || cfg.Type != tt.want {
				t.Errorf("the datastore is %q, error %v, want %q", cfg.Type, err, tt.want)
			}
		})
	}
}
