package kubemirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/controller"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/resources"
	"github.com/twillnet/twill/internal/translate"
)

// endpoint is one of To.
type endpoint struct {
	namespace string
	profiles  []string
	pod       string     // the key of its pod in Kubernetes; empty: it is no pod's
	stored    api.Update // of a pod's
}

// in is what counts the endpoints of a namespace among the users; no profile can be called so.
func in(namespace string) string { return "in/" + namespace }

// observeEndpoint takes over a change of an endpoint. One that cannot be read keeps what was known of it.
func (m *Mirror) observeEndpoint(u api.Update, ref api.Ref) []string {
	was, had := m.endpoints[u.Key]
	var out []string
	if u.Value != nil {
		is := endpoint{namespace: ref.Namespace, profiles: was.profiles}
		if profiles, err := profilesOf(u); err == nil {
			is.profiles = profiles
		}
		if is.pod = podOf(ref); is.pod != "" {
			is.stored, out = u, append(out, u.Key)
		}
		m.use(u.Key, is)
	}
	if !had {
		return out
	}
	m.unuse(u.Key, was, u.Value == nil)
	if was.namespace != "" {
		out = append(out, m.awake(was.namespace)...)
	}
	for _, name := range was.profiles { // of a host's, they are of any namespace
		if namespace, _ := profileOf(name); namespace != "" {
			out = append(out, m.awake(namespace)...)
		}
	}
	return out
}

// use counts an endpoint among those that need its profiles and its namespace.
func (m *Mirror) use(key string, e endpoint) {
	m.endpoints[key] = e
	for _, name := range e.needs() {
		m.users[name]++
	}
	if e.pod != "" {
		if m.ofPod[e.pod] == nil {
			m.ofPod[e.pod] = keys{}
		}
		m.ofPod[e.pod][key] = true
	}
}

// unuse takes back what use did with what an endpoint was.
func (m *Mirror) unuse(key string, was endpoint, gone bool) {
	for _, name := range was.needs() {
		if m.users[name]--; m.users[name] == 0 {
			delete(m.users, name)
		}
	}
	if !gone {
		return
	}
	delete(m.endpoints, key)
	delete(m.wrote, key)
	delete(m.ofPod[was.pod], key)
	if len(m.ofPod[was.pod]) == 0 {
		delete(m.ofPod, was.pod)
	}
}

func (e endpoint) needs() []string { return append([]string{in(e.namespace)}, e.profiles...) }

func profilesOf(u api.Update) ([]string, error) {
	st, err := api.DecodeStored(u)
	if err != nil {
		return nil, err
	}
	switch r := st.Resource.(type) {
	case *api.WorkloadEndpoint:
		return r.Spec.Profiles, nil
	case *api.HostEndpoint:
		return r.Spec.Profiles, nil
	}
	return nil, fmt.Errorf("%s: is no endpoint", u.Key)
}

// podOf is the key that a pod's endpoint has in Kubernetes, whichever of the pod's interfaces it is; empty: it is no pod's.
func podOf(ref api.Ref) string {
	parts, ok := api.ParseWorkloadEndpointName(ref.Name)
	if !ok || ref.Kind != api.KindWorkloadEndpoint || parts.Orchestrator != translate.Orchestrator {
		return ""
	}
	name, err := api.WorkloadEndpointName(api.WorkloadEndpointSpec{
		Orchestrator: translate.Orchestrator, Node: parts.Node, Pod: parts.Workload, Endpoint: translate.PodInterface,
	})
	if err != nil {
		return ""
	}
	return api.KeyPrefix(api.KindWorkloadEndpoint, "") + ref.Namespace + "/" + name
}

// observePod takes over what Kubernetes says of a pod, and returns its endpoints. Those of a pod that is gone are the plugin's to delete.
func (m *Mirror) observePod(key string, value []byte) []string {
	if value == nil {
		delete(m.want, key)
		return nil
	}
	m.want[key] = value
	return slices.Collect(maps.Keys(m.ofPod[key]))
}

// label writes to an endpoint what its pod says.
func (m *Mirror) label(ctx context.Context, key string) (again time.Time, err error) {
	e, there := m.endpoints[key]
	want := m.want[e.pod]
	if !m.on[Endpoints] || !there || want == nil {
		return again, nil
	}
	value, err := labelled(e.stored, want)
	if value == nil || err != nil {
		return again, controller.Terminal(err)
	}
	if time.Now().Before(m.down) {
		return m.down, nil
	}
	// A pod may have taken the place of one with the same name, of which the watch has yet to tell. What is asked for now is not older
	// than the endpoint that was seen.
	u, err := m.get(ctx, e.pod)
	if errors.Is(err, datastore.ErrNotFound) {
		return again, nil
	}
	if err != nil {
		return again, err
	}
	if value, err = labelled(e.stored, u.Value); value == nil || err != nil {
		return again, controller.Terminal(err)
	}
	return m.put(ctx, api.Update{Key: key, Value: value, Revision: e.stored.Revision})
}

// labelled is a pod's endpoint with what its pod says: labels, service account, profiles and ports. All else is the plugin's. Nil: it
// says that already, or the pod's container is another one.
func labelled(stored api.Update, pod []byte) ([]byte, error) {
	is, err := read(stored.Value)
	if err != nil {
		return nil, fmt.Errorf("the endpoint: %w", err)
	}
	want, err := read(pod)
	if err != nil {
		return nil, fmt.Errorf("the pod: %w", err)
	}
	if id := want.spec["containerID"]; id != nil && id != is.spec["containerID"] {
		return nil, nil
	}
	changed := false
	set := func(is, want map[string]any, name string) {
		switch value, there := want[name]; {
		case reflect.DeepEqual(is[name], value):
			return
		case there:
			is[name] = value
		default:
			delete(is, name)
		}
		changed = true
	}
	set(is.metadata, want.metadata, "labels")
	for _, name := range []string{"serviceAccountName", "profiles", "ports"} {
		set(is.spec, want.spec, name)
	}
	notes, _ := is.metadata["annotations"].(map[string]any)
	if _, awaits := notes[translate.AnnotationAwaitsLabels]; awaits {
		delete(notes, translate.AnnotationAwaitsLabels)
		changed = true
	}
	if !changed {
		return nil, nil
	}
	return resources.InOrderOf(stored.Value, is.all), nil
}

// document is a stored endpoint. What nobody here knows of it stays.
type document struct{ all, metadata, spec map[string]any }

func read(raw []byte) (document, error) {
	v, err := resources.Tree(raw)
	if err != nil {
		return document{}, err
	}
	all, _ := v.(map[string]any)
	metadata, _ := all["metadata"].(map[string]any)
	spec, _ := all["spec"].(map[string]any)
	if metadata == nil || spec == nil {
		return document{}, errors.New("has no metadata, or no spec")
	}
	return document{all, metadata, spec}, nil
}
