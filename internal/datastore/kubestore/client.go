package kubestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore/form"
)

const mediaJSON = "application/json"

// Defaults for what a client may ask for in a second. Kubernetes' own limits (priority and fairness) are the server's.
const (
	defaultQPS = 100
	burstOfQPS = 2
)

// restConfig says how to reach the API server: by kubeconfig, as kubectl does; in a pod by its service account; what the
// configuration itself says has precedence.
func restConfig(cfg datastore.Config) (*rest.Config, error) {
	over := &clientcmd.ConfigOverrides{
		CurrentContext: cfg.Context,
		ClusterInfo:    clientcmdapi.Cluster{Server: cfg.Server, InsecureSkipTLSVerify: cfg.Insecure, CertificateAuthority: cfg.CAFile, CertificateAuthorityData: cfg.CAPEM},
		AuthInfo:       clientcmdapi.AuthInfo{Token: cfg.Token, TokenFile: cfg.TokenFile, ClientCertificate: cfg.CertFile, ClientKey: cfg.KeyFile, ClientCertificateData: cfg.CertPEM, ClientKeyData: cfg.KeyPEM},
	}
	source, err := kubeconfig(cfg, over)
	if err != nil {
		return nil, err
	}
	c, err := source.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("no cluster is named: set KUBECONFIG, or K8S_API_ENDPOINT with K8S_API_TOKEN, or run in a pod with a service account")
	}
	if err != nil {
		return nil, err
	}
	c.QPS = cmp.Or(cfg.QPS, defaultQPS)
	c.Burst = int(c.QPS * burstOfQPS)
	c.UserAgent = "twill"
	c.WarningHandler = rest.NoWarnings{}
	c.NegotiatedSerializer = serializer.WithoutConversionCodecFactory{CodecFactory: codecs}
	c.GroupVersion = &schema.GroupVersion{Version: "v1"}
	c.Wrap(impatient)
	return c, nil
}

// kubeconfig is the text that the configuration has, or what kubectl would read.
func kubeconfig(cfg datastore.Config, over *clientcmd.ConfigOverrides) (clientcmd.ClientConfig, error) {
	if cfg.Inline == "" {
		rules := clientcmd.NewDefaultClientConfigLoadingRules()
		rules.ExplicitPath = cfg.Kubeconfig
		return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, over), nil
	}
	read, err := clientcmd.Load([]byte(cfg.Inline))
	if err != nil {
		return nil, fmt.Errorf("inline kubeconfig: %w", err)
	}
	return clientcmd.NewNonInteractiveClientConfig(*read, cfg.Context, over, nil), nil
}

// codecs read nothing but the server's answers to requests that fail; objects are read by package form.
var codecs = serializer.NewCodecFactory(statusScheme())

func statusScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	return s
}

func newClient(c *rest.Config) (rest.Interface, error) {
	return rest.UnversionedRESTClientFor(c)
}

// Client is a client of the API server that a configuration names, for what is no resource (package apiserver). It reads as a [Store] does:
// of a server that cannot answer it asks again within a second, whatever that asks for (Retry-After).
func Client(cfg datastore.Config) (rest.Interface, error) {
	c, err := restConfig(cfg)
	if err == nil {
		var made rest.Interface
		if made, err = newClient(c); err == nil {
			return client{made}, nil
		}
	}
	return nil, fmt.Errorf("kubernetes: %w", err)
}

// RESTConfig is how to reach the API server that a configuration names, for what goes on over a connection of its own: commands in pods.
func RESTConfig(cfg datastore.Config) (*rest.Config, error) {
	c, err := restConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	c.WrapTransport = nil // what asks again is for requests
	return c, nil
}

// timeout bounds a request that is no watch.
func (s *Store) timeout() time.Duration { return cmp.Or(s.cfg.RequestTimeout, 10*time.Second) }

// get reads a path.
func (s *Store) get(ctx context.Context, path, accept string, params map[string]string) ([]byte, error) {
	bounded, cancel := context.WithTimeout(ctx, s.timeout())
	defer cancel()
	r := withParams(s.client.Get().AbsPath(path), params).SetHeader("Accept", accept)
	return Answer(ctx, r.Do(bounded))
}

// Answer is what the server sent, or its reason for an error, which is one of a datastore. ctx is that of who asks: the end of a time that one request
// has is a server that is away.
func Answer(ctx context.Context, r rest.Result) ([]byte, error) {
	if err := r.Error(); err != nil {
		return nil, translate(ctx, err)
	}
	raw, err := r.Raw()
	return raw, translate(ctx, err)
}

func withParams(r *rest.Request, params map[string]string) *rest.Request {
	for _, name := range slices.Sorted(maps.Keys(params)) {
		r = r.Param(name, params[name])
	}
	return r
}

// send makes a change and returns the object that resulted, as JSON.
func (s *Store) send(ctx context.Context, k form.Kind, r form.Request) ([]byte, error) {
	return s.sendWith(ctx, k, r, nil)
}

// sendWith is send with parameters of the request.
func (s *Store) sendWith(ctx context.Context, k form.Kind, r form.Request, params map[string]string) ([]byte, error) {
	bounded, cancel := context.WithTimeout(ctx, s.timeout())
	defer cancel()
	req := withParams(s.client.Verb(r.Method).AbsPath(pathOf(k, r.Namespace, r.Name, r.Subresource)), params).SetHeader("Accept", mediaJSON)
	if len(r.Body) > 0 {
		req = req.SetHeader("Content-Type", r.ContentType).Body(r.Body)
	}
	return Answer(ctx, req.Do(bounded))
}

func protobuf(k form.Kind) bool { return strings.Contains(k.Accept(), "protobuf") }

// pathOf is where the objects of a kind are, or one of them.
func pathOf(k form.Kind, namespace, name, subresource string) string {
	path := k.Path
	if k.Namespaced && namespace != "" {
		path += "/namespaces/" + namespace
	}
	for _, part := range []string{k.Plural, name, subresource} {
		if part != "" {
			path += "/" + part
		}
	}
	return path
}

// isMissing: the server has no such resource, or no such object.
func isMissing(err error) bool { return errors.Is(err, datastore.ErrNotFound) }

// translate makes the API server's errors those of a datastore. What is wrong with the request itself stays as the server says it.
func translate(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	as := func(kind error) error { return fmt.Errorf("%w: %s", kind, strings.TrimSuffix(err.Error(), ".")) }
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return as(datastore.ErrUnavailable) // no answer
	}
	switch code := status.Status().Code; {
	case apierrors.IsNotFound(err):
		return as(datastore.ErrNotFound)
	case apierrors.IsAlreadyExists(err):
		return as(datastore.ErrExists)
	case apierrors.IsConflict(err):
		return as(datastore.ErrConflict)
	case apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge):
		return as(datastore.ErrCompacted)
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return as(datastore.ErrUnauthorized)
	case strings.Contains(err.Error(), "database space exceeded"):
		return as(datastore.ErrFull)
	case code == http.StatusBadRequest || code == http.StatusUnprocessableEntity || code == http.StatusRequestEntityTooLarge ||
		code == http.StatusMethodNotAllowed || code == http.StatusUnsupportedMediaType:
		return fmt.Errorf("refused by Kubernetes: %w", err)
	}
	return as(datastore.ErrUnavailable)
}
