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

// Validate returns what is wrong in a resource; call Default first.
func Validate(r Resource) FieldErrors { return nil }
