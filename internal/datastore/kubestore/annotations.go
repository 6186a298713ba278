package kubestore

import (
	"cmp"
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore/form"
)

// Annotations implements [datastore.Annotated].
func (s *Store) Annotations(ctx context.Context, namespace, pod string) (out datastore.Annotations, err error) {
	for _, name := range []string{namespace, pod} { // they become a path
		if reasons := content.IsDNS1123Subdomain(name); len(reasons) > 0 {
			return out, fmt.Errorf("pod %s/%s: %q: %s", namespace, pod, name, reasons[0])
		}
	}
	of := "/api/v1/namespaces/" + namespace
	done := make(chan error, 1)
	go func() {
		var err error
		out.Namespace, err = s.annotations(ctx, of)
		done <- wrap("get namespace", namespace, err)
	}()
	ofPod, err := s.annotations(ctx, of+"/pods/"+pod)
	other := <-done
	out.Pod = ofPod
	return out, cmp.Or(wrap("get pod", namespace+"/"+pod, err), other)
}

// annotations are those of one object.
func (s *Store) annotations(ctx context.Context, path string) (map[string]string, error) {
	raw, err := s.get(ctx, path, form.MetadataOnly, nil)
	if err != nil {
		return nil, err
	}
	meta, err := form.Metadata(raw)
	return meta.Annotations, err
}
