package apiserver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"
)

// event is a warning about an object, as `kubectl describe` shows it. There is one for an object and a reason, however often it is sent,
// which the server forgets an hour after it was sent last.
type event struct {
	about           *object
	reason, message string
	from, host      string // who sends it; host may be empty
	count           int
	first, last     time.Time
	apart           string // events with the same reason about an object are several if this differs
}

// mostMessage is how many bytes a message has at most, and mostName of an object's name are in that of an event.
const mostMessage, mostName = 1024, 230

// name is that of the event, in the namespace of its object. Whoever sends it, and whenever, it is the same.
func (e event) name() string {
	name := e.about.Name
	if len(name) > mostName {
		name = strings.TrimRight(name[:mostName], ".-")
	}
	sum := sha256.Sum256([]byte(e.about.Metadata.UID + "\n" + e.reason + "\n" + e.apart))
	return name + "." + hex.EncodeToString(sum[:8])
}

// namespace is that of the object, or where Kubernetes has events of what is in none.
func (e event) namespace() string {
	if e.about.Namespace == "" {
		return "default"
	}
	return e.about.Namespace
}

// changing is what changes when it is sent again.
func (e event) changing() map[string]any {
	message := e.message
	if len(message) > mostMessage {
		message = strings.ToValidUTF8(message[:mostMessage-len("…")], "") + "…"
	}
	return map[string]any{"message": message, "count": e.count, "lastTimestamp": e.last.UTC().Format(time.RFC3339)}
}

// create sends it for the first time: datastore.ErrExists if it is there.
func (c *Client) create(ctx context.Context, e event) error {
	about := map[string]any{
		"apiVersion": e.about.APIVersion, "kind": e.about.Kind, "name": e.about.Name, "uid": e.about.Metadata.UID, "resourceVersion": e.about.Metadata.ResourceVersion,
	}
	if e.about.Namespace != "" {
		about["namespace"] = e.about.Namespace
	}
	source := map[string]any{"component": e.from}
	if e.host != "" {
		source["host"] = e.host
	}
	object := with(e.changing(), "apiVersion", "v1", "kind", "Event", "type", "Warning", "reason", e.reason,
		"metadata", map[string]any{"name": e.name(), "namespace": e.namespace()}, "involvedObject", about,
		"source", source, "reportingComponent", e.from, "reportingInstance", e.host, "firstTimestamp", e.first.UTC().Format(time.RFC3339))
	return c.event(ctx, "POST", "", mediaJSON, e, object)
}

// update sends it once more: datastore.ErrNotFound if the server has forgotten it.
func (c *Client) update(ctx context.Context, e event) error {
	return c.event(ctx, "PATCH", e.name(), mediaMerge, e, e.changing())
}

func (c *Client) event(ctx context.Context, verb, name, media string, e event, object map[string]any) error {
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	path := []string{"/api/v1/namespaces", e.namespace(), "events"}
	if name != "" {
		path = append(path, name)
	}
	_, err = ask(ctx, c.client.Verb(verb).AbsPath(path...).SetHeader("Accept", mediaJSON).SetHeader("Content-Type", media).Body(body))
	return fault("send the event "+e.reason+" about "+e.about.Path, err)
}
