package form

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/twillnet/twill/api"
)

// record is the codec of what no resource of Kubernetes or Calico has a place for: reports of agents, above all. It keeps any key,
// and any bytes.
type record struct{}

type recordSpec struct {
	Key   string `json:"key"`
	Value []byte `json:"value"` // base64
}

func (record) Accept() string { return mediaJSON }

func (r record) List(body []byte) (Page, error) { return pageOf(body, r.Object) }

func (record) Object(raw []byte) (Entry, error) {
	o, err := decodeObject(raw)
	if err != nil {
		return Entry{}, err
	}
	var s recordSpec
	if json.Unmarshal(o.Spec, &s) != nil || recordName(s.Key) != o.Metadata.Name {
		return Entry{Version: o.Metadata.ResourceVersion}, nil // nobody here wrote it
	}
	if s.Value == nil {
		s.Value = []byte{}
	}
	return Entry{Key: s.Key, Value: s.Value, Version: o.Metadata.ResourceVersion}, nil
}

// recordName is that of the object of a key: any key has one that Kubernetes allows.
func recordName(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

func (record) Name(key string) (namespace, name string, ok bool) { return "", recordName(key), true }

func (r record) request(kv api.Update, method, version string) (Request, error) {
	spec, err := json.Marshal(recordSpec{kv.Key, kv.Value})
	if err != nil {
		return Request{}, err
	}
	o := object{APIVersion: string(Own), Kind: "Record", Spec: spec}
	o.Metadata.Name, o.Metadata.ResourceVersion = recordName(kv.Key), version
	body, err := json.Marshal(o)
	out := Request{Method: method, ContentType: mediaJSON, Body: body}
	if method == "PUT" {
		out.Name = o.Metadata.Name
	}
	return out, err
}

func (r record) Create(kv api.Update) (Request, error) { return r.request(kv, "POST", "") }

func (r record) Replace(kv api.Update, was []byte) (Request, error) {
	version, err := versionOf(kv, was)
	if err != nil {
		return Request{}, err
	}
	return r.request(kv, "PUT", version)
}

func (record) Remove(key string, revision api.Revision) (Request, error) {
	return deletion("", recordName(key), revision), nil
}
