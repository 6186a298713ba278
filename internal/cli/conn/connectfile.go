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
	etcdSpec
	DatastoreType string `json:"datastoreType"`
}

// readFile reads the configuration file. Flags and the environment win over
// it. Daemons do not read it: it says what a person on this host works with.
func (c *Connection) readFile() error {
	if err := checkType("DATASTORE_TYPE", os.Getenv("DATASTORE_TYPE")); err != nil {
		return err
	}
	if err := checkEnvironment(); err != nil {
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
		if !isField(field) && all.Spec[field] != nil && all.Spec[field] != "" {
			return fmt.Errorf("configuration %s: spec.%s: no such field", name, field)
		}
	}
	if file.Spec.Kubeconfig != "" && file.Spec.Inline != "" {
		return fmt.Errorf("configuration %s: spec: kubeconfig and kubeconfigInline: both are given; leave one of them out", name)
	}
	if err := file.Spec.contradiction(); err != nil {
		return fmt.Errorf("configuration %s: spec: %w", name, err)
	}
	c.file = file.Spec
	return nil
}

// isField reports whether calicoctl's configuration has a field. One that is passed over could mean another datastore than the one
// that is used, or another way to it. Fields about Kubernetes say nothing of etcd, nor the other way.
func isField(field string) bool {
	field = strings.ToLower(field) // as calicoctl reads it
	switch field {
	case "datastoretype", "etcdendpoints", "etcddiscoverysrv", "etcdusername", "etcdpassword":
		return true
	case "etcdkeyfile", "etcdcertfile", "etcdcacertfile", "etcdkey", "etcdcert", "etcdcacert":
		return true
	case "kubeconfig", "kubeconfiginline", "insecureskiptlsverify", "currentcontext", "calicoapigroup":
		return true
	}
	return strings.HasPrefix(field, "k8s")
}
