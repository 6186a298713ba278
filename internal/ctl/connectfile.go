package ctl

import (
	"errors"
	"fmt"
	"io/fs"

	"sigs.k8s.io/yaml"
)

// calicoctlConfig is where calicoctl looks.
const calicoctlConfig = "/etc/calico/calicoctl.cfg"

// fileSpec is what calicoctl's configuration file says about etcd.
type fileSpec struct {
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
func (c *connection) readFile() error {
	name := c.path
	if name == "" {
		name = calicoctlConfig
	}
	text, err := readFile(name)
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
	if err := yaml.Unmarshal(text, &file); err != nil {
		return fmt.Errorf("configuration %s: %w", name, err)
	}
	if file.Kind != "CalicoAPIConfig" {
		return fmt.Errorf("configuration %s: kind is %q: want CalicoAPIConfig, with etcdEndpoints in its spec", name, file.Kind)
	}
	if t := file.Spec.DatastoreType; t != "" && t != "etcdv3" {
		return fmt.Errorf("configuration %s: spec.datastoreType %q: only etcdv3 is supported yet", name, t)
	}
	c.file = file.Spec
	return nil
}
