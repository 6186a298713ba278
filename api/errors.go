package api

import (
	"fmt"
	"strings"
)

// FieldError is one thing that is wrong in a document of a user's.
type FieldError struct {
	Doc        int    // index of the document in its file, from 0
	Line       int    // where the document begins in its file, from 1; 0: not known
	Kind       string // may be empty
	Name       string // namespace/name or name; may be empty
	Path       string // spec.ingress[0].source.selector; empty: the document as a whole
	Reason     string // what is wrong, and what would be right
	Suggestion string // a field or value that may have been meant; may be empty
}

// Error is "NetworkPolicy prod/web: spec.ingress[0].action: …; did you mean …?".
func (e *FieldError) Error() string {
	var b strings.Builder
	if e.Kind != "" || e.Name != "" {
		b.WriteString(strings.TrimSpace(e.Kind + " " + e.Name))
	} else {
		fmt.Fprintf(&b, "document %d", e.Doc+1)
	}
	if e.Line > 0 {
		fmt.Fprintf(&b, " (line %d)", e.Line)
	}
	if e.Path != "" {
		b.WriteString(": " + e.Path)
	}
	b.WriteString(": " + e.Reason)
	if e.Suggestion != "" {
		fmt.Fprintf(&b, "; did you mean %s?", e.Suggestion)
	}
	return b.String()
}

// FieldErrors are all that is wrong in what was read. It is an error as soon as it is not empty.
type FieldErrors []*FieldError

// Error has one line for each.
func (e FieldErrors) Error() string {
	lines := make([]string, len(e))
	for i, x := range e {
		lines[i] = x.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As find single ones.
func (e FieldErrors) Unwrap() []error {
	out := make([]error, len(e))
	for i, x := range e {
		out[i] = x
	}
	return out
}

// Err is e as an error: nil if nothing is wrong. (A FieldErrors that is put into
// an error as it is would never be nil.)
func (e FieldErrors) Err() error {
	if len(e) == 0 {
		return nil
	}
	return e
}
