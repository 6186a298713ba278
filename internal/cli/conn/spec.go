package conn

import (
	"cmp"
	"fmt"
	"os"
	"strings"

	"github.com/twillnet/twill/internal/datastore"
)

// etcdSpec is what one source says of etcd: flags, the environment, calicoctl's file, or the settings of this host. Of two ways
// to say one thing, such as a key and its file, a source has one at most; the nearest source that has either decides.
type etcdSpec struct {
	Endpoints string `json:"etcdEndpoints"` // separated by commas
	Discovery string `json:"etcdDiscoverySrv"`
	Username  string `json:"etcdUsername"`
	Password  string `json:"etcdPassword"`
	KeyFile   string `json:"etcdKeyFile"`
	CertFile  string `json:"etcdCertFile"`
	CAFile    string `json:"etcdCACertFile"`
	Key       string `json:"etcdKey"` // PEM, as the next two
	Cert      string `json:"etcdCert"`
	CA        string `json:"etcdCACert"`
}

// ofEnvironment is what variables say, by the names that calicoctl and calico/node give them.
func ofEnvironment() (e etcdSpec) {
	for name, field := range map[string]*string{
		"ETCD_ENDPOINTS": &e.Endpoints, "ETCD_DISCOVERY_SRV": &e.Discovery, "ETCD_USERNAME": &e.Username, "ETCD_PASSWORD": &e.Password,
		"ETCD_KEY_FILE": &e.KeyFile, "ETCD_CERT_FILE": &e.CertFile, "ETCD_CA_CERT_FILE": &e.CAFile,
		"ETCD_KEY": &e.Key, "ETCD_CERT": &e.Cert, "ETCD_CA_CERT": &e.CA,
	} {
		*field = os.Getenv(name)
	}
	return e
}

// named reports whether a source says where etcd is.
func (e etcdSpec) named() bool { return e.Endpoints != "" || e.Discovery != "" }

// contradiction names two values of one source that say one thing; nil: there are none.
func (e etcdSpec) contradiction() error {
	for _, p := range []struct{ a, b, names string }{
		{e.Endpoints, e.Discovery, "etcdEndpoints (ETCD_ENDPOINTS) and etcdDiscoverySrv (ETCD_DISCOVERY_SRV)"},
		{e.Key, e.KeyFile, "etcdKey (ETCD_KEY) and etcdKeyFile (ETCD_KEY_FILE)"},
		{e.Cert, e.CertFile, "etcdCert (ETCD_CERT) and etcdCertFile (ETCD_CERT_FILE)"},
		{e.CA, e.CAFile, "etcdCACert (ETCD_CA_CERT) and etcdCACertFile (ETCD_CA_CERT_FILE)"},
	} {
		if p.a != "" && p.b != "" {
			return fmt.Errorf("%s: both are given; leave one of them out", p.names)
		}
	}
	return nil
}

// etcdOf is how to reach etcd, by sources of which the nearest is first.
func etcdOf(sources ...etcdSpec) datastore.Config {
	var out datastore.Config
	var endpoints, key, cert, ca string
	for _, s := range sources {
		out.Username, out.Password = cmp.Or(out.Username, s.Username), cmp.Or(out.Password, s.Password)
		either(&endpoints, &out.DiscoverySRV, s.Endpoints, s.Discovery)
		either(&out.KeyFile, &key, s.KeyFile, s.Key)
		either(&out.CertFile, &cert, s.CertFile, s.Cert)
		either(&out.CAFile, &ca, s.CAFile, s.CA)
	}
	for text, pem := range map[*string]*[]byte{&key: &out.KeyPEM, &cert: &out.CertPEM, &ca: &out.CAPEM} {
		if *text != "" {
			*pem = []byte(*text)
		}
	}
	if out.DiscoverySRV == "" {
		out.Endpoints = listOf(endpoints)
		if len(out.Endpoints) == 0 {
			out.Endpoints = []string{DefaultEndpoint}
		}
	}
	return out
}

// listOf are the elements of a text with commas, without blanks around them; an empty one is none.
func listOf(text string) (out []string) {
	for _, e := range strings.Split(text, ",") {
		if e = strings.TrimSpace(e); e != "" {
			out = append(out, e)
		}
	}
	return out
}

// either sets two ways to say one thing, if neither is set yet.
func either(a, b *string, valueA, valueB string) {
	if *a == "" && *b == "" {
		*a, *b = valueA, valueB
	}
}

// Place is what a datastore is called in messages.
func Place(cfg datastore.Config) string {
	switch {
	case cfg.Type == typeKubernetes:
		return "the Kubernetes API"
	case cfg.DiscoverySRV != "":
		return "the datastore that DNS has for " + cfg.DiscoverySRV
	}
	return "the datastore at " + strings.Join(cfg.Endpoints, ",")
}

// checkEnvironment refuses variables that contradict each other.
func checkEnvironment() error {
	if os.Getenv("KUBECONFIG") != "" && os.Getenv("KUBECONFIG_INLINE") != "" {
		return fmt.Errorf("KUBECONFIG and KUBECONFIG_INLINE: both are given; leave one of them out")
	}
	if _, err := ReadProxy(os.Getenv(ProxyVariable)); err != nil {
		return err
	}
	return ofEnvironment().contradiction()
}
