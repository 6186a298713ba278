package datastore

import (
	"log/slog"
	"time"
)

// Config selects a datastore, and how to reach it. What a program may
// configure is the same for all of them; package stores has the list.
type Config struct {
	Type string // "etcdv3" or "kubernetes"; empty means the first

	Endpoints []string // of etcd: http://HOST:PORT, https://HOST:PORT, HOST:PORT or unix://PATH
	// DiscoverySRV is a domain whose SRV records name the members of etcd, in the place of Endpoints: those of
	// _etcd-client-ssl._tcp, which speak TLS, or else of _etcd-client._tcp. They are asked for when the store is first used.
	DiscoverySRV string

	Username string
	Password string

	// Client certificate, its key and the authority to trust, as files or as
	// PEM. The certificate's files are read again at each connection, so that
	// a renewed one is used without a restart. With an https endpoint and no
	// authority, the system's are trusted.
	CertFile, KeyFile, CAFile string
	CertPEM, KeyPEM, CAPEM    []byte

	// Of Kubernetes: as kubectl finds its API server, with what is named here before that.
	Kubeconfig string  // a file; empty: KUBECONFIG, ~/.kube/config, or in a pod its service account
	Inline     string  // a kubeconfig's text, in the place of any file
	Context    string  // of the kubeconfig; empty: its current one
	Server     string  // URL
	Token      string  // of a service account or user
	TokenFile  string  // likewise, read again when it changes
	Insecure   bool    // the server's certificate is not verified
	Group      string  // of the custom resources: projectcalico.org/v3 or crd.projectcalico.org/v1; empty: which the cluster has
	QPS        float32 // requests in a second, on average; zero means 100
	PodLinks   string  // what names of pods' interfaces begin with, where another plugin than Calico's or ours attaches them; empty: cali
	// Views: nothing but what Kubernetes has itself, such as pods and NetworkPolicies, so that the cluster needs no definitions of
	// resources. It is for who keeps another datastore up with it: a pod is there once it has a node, with an address or without.
	Views bool

	// Masters are those of whom etcd is a mirror, by name: the store answers only while each of them says that its part is complete (package mirror). Empty:
	// what is in the datastore is true by itself.
	Masters []string

	DialTimeout    time.Duration // bounds the log-in, and the look-up of SRV records, when it is opened; zero means 5s
	RequestTimeout time.Duration // bounds each request; zero means 10s
	PageSize       int64         // keys in one request of a list; zero means 2000, of Kubernetes 500

	// Progress is how often an idle watch requests the store's position. A watch
	// without an answer for three times as long fails. Zero means 5s.
	Progress time.Duration

	Logger *slog.Logger // nil: silent
}
