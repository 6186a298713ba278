package conn

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/twillnet/twill/internal/cli/console"
)

// calicoctlConfig is where calicoctl looks.
const calicoctlConfig = "/etc/calico/calicoctl.cfg"

// fileSpec is what calicoctl's configuration file says.
type fileSpec struct {
	kubeSpec
	DatastoreType string `json:"datastoreType"`
	Endpoints     string `json:"etcdEndpoints"`
	Username      string `json:"etcdUsername"`
	Password      string `json:"etcdPassword"`
	KeyFile       string `json:"etcdKeyFile"`
	CertFile      string `json:"etcdCertFile"`
	CAFile        string `json:"etcdCACertFile"`
}

// readFile reads the configuration file. Flags and the environment win over
// it. Daemons do not read it: it says what a person on this host works with.
func (c *Connection) readFile() error {
	if err := checkType("DATASTORE_TYPE", os.Getenv("DATASTORE_TYPE")); err != nil {
		return err
	}
	if err := environmentNotRead(); err != nil {
		return err
	}
	name := c.path
	if name == "" {
		name = calicoctlConfig
	}
	text, err := console.ReadFile(name)
	if c.path == "" && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	var file struct {
		Kind string   `json:"kind"`
		Spec fileSpec `json:"spec"`
	}
	var all struct {
		Spec map[string]any `json:"spec"`
	}
	if err := errors.Join(yaml.Unmarshal(text, &file), yaml.Unmarshal(text, &all)); err != nil {
		return fmt.Errorf("configuration %s: %w", name, err)
	}
	if file.Kind != "CalicoAPIConfig" {
		return fmt.Errorf("configuration %s: kind is %q: want CalicoAPIConfig, with etcdEndpoints in its spec", name, file.Kind)
	}
	if err := checkType(fmt.Sprintf("configuration %s: spec.datastoreType", name), file.Spec.DatastoreType); err != nil {
		return err
	}
	for _, field := range slices.Sorted(maps.Keys(all.Spec)) {
		if why := withoutEffect(field); why != "" && all.Spec[field] != nil && all.Spec[field] != "" {
			return fmt.Errorf("configuration %s: spec.%s: %s", name, field, why)
		}
	}
	c.file = file.Spec
	return nil
}

// environmentNotRead names a variable of upstream's that says where the datastore is, or how to reach it, and is not read: if it were
// passed over, another datastore might be taken for the one that is meant.
func environmentNotRead() error {
	if os.Getenv("ETCD_DISCOVERY_SRV") != "" {
		return errors.New("ETCD_DISCOVERY_SRV: etcd is not looked up by DNS: name its members in ETCD_ENDPOINTS")
	}
	for _, name := range []string{"ETCD_KEY", "ETCD_CERT", "ETCD_CA_CERT"} {
		if os.Getenv(name) != "" {
			return fmt.Errorf("%s: is not read from here: write it to a file, and name that in %s_FILE", name, name)
		}
	}
	return nil
}

// withoutEffect says why a field of calicoctl's configuration cannot be passed over: another datastore than the one that is meant
// would be used, or another way to it. Fields about Kubernetes say nothing of etcd, nor the other way.
func withoutEffect(field string) string {
	switch strings.ToLower(field) { // as calicoctl reads it
	case "datastoretype", "etcdendpoints", "etcdusername", "etcdpassword", "etcdkeyfile", "etcdcertfile", "etcdcacertfile":
		return ""
	case "kubeconfig", "kubeconfiginline", "insecureskiptlsverify", "currentcontext", "calicoapigroup":
		return ""
	case "etcddiscoverysrv":
		return "etcd is not looked up by DNS: name its members in etcdEndpoints"
	case "etcdkey", "etcdcert", "etcdcacert":
		return "is not read from here: write it to a file, and name that in " + field + "File"
	}
	if strings.HasPrefix(strings.ToLower(field), "k8s") {
		return ""
	}
	return "no such field"
}
