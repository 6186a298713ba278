package api

import "errors"

var errTODO = errors.New("not written yet")

// Document is one resource of a user's file.
type Document struct {
	Index    int // in its file, from 0
	Line     int // where it begins, from 1
	Resource Resource
	JSON     []byte // the document as JSON
}

// Decode reads YAML or JSON: one or more documents, each a resource or a List
// of resources. It is strict: what is not known, or known but not honoured yet,
// is an error. It returns what could be read together with a FieldErrors for
// the rest. It neither defaults nor validates: see Default and Validate.
func Decode(data []byte) ([]Document, error) { return nil, errTODO }

// Default fills in what upstream writes when a user leaves it out. Call it
// before Validate.
func Default(r Resource) {}

// Validate returns what is wrong in a resource; call Default first.
func Validate(r Resource) FieldErrors { return nil }

// DecodeStored reads a value of the datastore. It closes what it does not
// understand, see Stored. An error means that the value is not JSON, or the key
// is not that of a resource, or the update has no value: then there is nothing
// to build on, and the caller keeps what it had.
func DecodeStored(u Update) (Stored, error) { return Stored{}, errTODO }

// Prepare makes a new resource ready to be stored: uid and creation time (RFC
// 3339, UTC), and what upstream writes on policies and endpoints (annotation
// with the name, label with the tier, labels of namespace and orchestrator).
func Prepare(r Resource, uid, now string) {}

// EncodeStored returns the stored form, byte-equal with upstream's. Policies
// get their annotation and tier label here too. It does not change r.
func EncodeStored(r Resource) ([]byte, error) { return nil, errTODO }

// MergeRaw returns r's stored form with the fields of old that this version does
// not know; uid and creation time are the old ones.
func MergeRaw(old []byte, r Resource) ([]byte, error) { return nil, errTODO }

// ForUser returns a copy as users see it: under the name that they gave, and
// without the annotation that held it.
func ForUser(s Stored) Resource { return s.Resource }

// WorkloadEndpointName returns the name that a workload endpoint must have.
func WorkloadEndpointName(s WorkloadEndpointSpec) (string, error) { return "", errTODO }
