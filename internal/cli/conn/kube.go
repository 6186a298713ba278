package conn

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/datastore"
)

// Types of datastores, as DATASTORE_TYPE has them.
const (
	typeEtcd       = "etcdv3"
	typeKubernetes = "kubernetes"
)

// kubeSpec is what calicoctl's configuration file says about Kubernetes. That file is read without regard to case.
type kubeSpec struct {
	Kubeconfig string `json:"kubeconfig"`
	Inline     string `json:"kubeconfigInline"`
	Server     string `json:"k8sAPIEndpoint"`
	KeyFile    string `json:"k8sKeyFile"`
	CertFile   string `json:"k8sCertFile"`
	CAFile     string `json:"k8sCAFile"`
	Token      string `json:"k8sAPIToken"`
	Insecure   bool   `json:"k8sInsecureSkipTLSVerify"`
	Context    string `json:"k8sCurrentContext"`
	Group      string `json:"calicoAPIGroup"`
}

// kubeFlags are those that only Kubernetes has a use for.
type kubeFlags struct{ kubeconfig, context string }

func (k *kubeFlags) addFlags(f *pflag.FlagSet) {
	f.StringVar(&k.kubeconfig, "kubeconfig", "", "with DATASTORE_TYPE=kubernetes: how to reach the cluster (KUBECONFIG; default as kubectl)")
	f.StringVar(&k.context, "context", "", "with DATASTORE_TYPE=kubernetes: which context of the kubeconfig (K8S_CURRENT_CONTEXT); etcd has none")
}

// KubernetesLines are what flags say of a cluster, as lines of an environment file; none if they say nothing.
func (c *Connection) KubernetesLines() []string {
	if c.kube == (kubeFlags{}) {
		return nil
	}
	lines := []string{"DATASTORE_TYPE=" + typeKubernetes}
	if c.kube.kubeconfig != "" {
		lines = append(lines, "KUBECONFIG="+c.kube.kubeconfig)
	}
	if c.kube.context != "" {
		lines = append(lines, "K8S_CURRENT_CONTEXT="+c.kube.context)
	}
	return lines
}

// checkType refuses a datastore that does not exist.
func checkType(where, t string) error {
	switch t {
	case "", typeEtcd, typeKubernetes:
		return nil
	}
	return fmt.Errorf("%s is %q: want %s or %s", where, t, typeEtcd, typeKubernetes)
}

// podLinks is what names of pods' interfaces begin with, if another plugin than Calico's or ours attaches pods. It is the first that names of workloads'
// interfaces begin with, as with upstream, which has it from the same variable; where cali is one of them, pods have that.
func podLinks(prefixes []string) string {
	if len(prefixes) == 0 || slices.Contains(prefixes, "cali") {
		return ""
	}
	return prefixes[0]
}

// kubernetes is how to reach the API server: flags, the variables that calicoctl reads, and its file.
func (k kubeFlags) kubernetes(file kubeSpec) (datastore.Config, error) {
	env := os.Getenv
	cfg := datastore.Config{
		Type:     typeKubernetes,
		Context:  cmp.Or(k.context, env("K8S_CURRENT_CONTEXT"), file.Context),
		Server:   cmp.Or(env("K8S_API_ENDPOINT"), file.Server),
		KeyFile:  cmp.Or(env("K8S_KEY_FILE"), file.KeyFile),
		CertFile: cmp.Or(env("K8S_CERT_FILE"), file.CertFile),
		CAFile:   cmp.Or(env("K8S_CA_FILE"), file.CAFile),
		Token:    cmp.Or(env("K8S_API_TOKEN"), file.Token),
		Insecure: file.Insecure,
		Group:    cmp.Or(env("CALICO_API_GROUP"), file.Group),
	}
	local, _ := config.FromEnv(os.Environ())
	cfg.PodLinks = podLinks(config.New("", local).Resolve().Settings.InterfacePrefixes)
	// Without a file named here, KUBECONFIG may name several; the client merges them, as kubectl does.
	if cfg.Kubeconfig = k.kubeconfig; cfg.Kubeconfig == "" && env("KUBECONFIG") == "" {
		either(&cfg.Kubeconfig, &cfg.Inline, "", env("KUBECONFIG_INLINE"))
		either(&cfg.Kubeconfig, &cfg.Inline, file.Kubeconfig, file.Inline)
	}
	if text := env("K8S_INSECURE_SKIP_TLS_VERIFY"); text != "" {
		var err error
		if cfg.Insecure, err = strconv.ParseBool(strings.ToLower(text)); err != nil {
			return cfg, fmt.Errorf("K8S_INSECURE_SKIP_TLS_VERIFY is %q: want true or false", text)
		}
	}
	if text := env("K8S_CLIENT_QPS"); text != "" {
		qps, err := strconv.ParseFloat(text, 32)
		if err != nil || qps <= 0 {
			return cfg, fmt.Errorf("K8S_CLIENT_QPS is %q: want how many requests may be made in a second", text)
		}
		cfg.QPS = float32(qps)
	}
	return cfg, nil
}
