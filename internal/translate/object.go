package translate

import (
	"fmt"
	"maps"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/twillnet/twill/api"
)

// object is one that is being translated, with all that is wrong in it.
type object struct {
	kind string
	meta metav1.Object
	errs api.FieldErrors
	lost bool // what was decoded may mean something else in any part

	elements, bytes int // of the rules made so far, see fits
}

func (o *object) fail(path, format string, args ...any) {
	o.errs = append(o.errs, &api.FieldError{Kind: o.kind, Name: nameOf(o.meta), Path: path, Reason: fmt.Sprintf(format, args...)})
}

// refuse fails with the first of the reasons that Kubernetes' own checks give.
func (o *object) refuse(path, value string, reasons []string) bool {
	if len(reasons) > 0 {
		o.fail(path, "is %q: %s", value, reasons[0])
	}
	return len(reasons) > 0
}

func nameOf(m metav1.Object) string {
	return strings.TrimPrefix(m.GetNamespace()+"/"+m.GetName(), "/")
}

// head is what every resource has of the object from which it comes.
func (o *object) head(kind, namespace, name string) api.Object {
	out := api.Object{
		TypeMeta: api.TypeMeta{Kind: kind, APIVersion: api.GroupVersion},
		Metadata: api.ObjectMeta{Namespace: namespace, Name: name, UID: string(o.meta.GetUID())},
	}
	if at := o.meta.GetCreationTimestamp(); !at.IsZero() {
		out.Metadata.CreationTimestamp = at.UTC().Format("2006-01-02T15:04:05Z")
	}
	return out
}

// with returns labels and one more; others may hold the map that is given.
func with(labels map[string]string, key, value string) map[string]string {
	out := maps.Clone(labels)
	if out == nil {
		out = map[string]string{}
	}
	out[key] = value
	return out
}

func ptr[T any](v T) *T { return &v }
