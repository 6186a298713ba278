package api

// Revision is the version of one stored value, as its store names it: another
// write of the same key has another one. Two of them are equal or not, and
// nothing else can be told from them. The zero Revision is that of no value.
type Revision struct{ text string }

// RevisionOf is the revision that a store, or a resource's resourceVersion,
// writes as text; the empty text is the zero Revision.
func RevisionOf(text string) Revision { return Revision{text} }

// String is what RevisionOf takes.
func (r Revision) String() string { return r.text }

// IsZero reports whether it is that of no value.
func (r Revision) IsZero() bool { return r.text == "" }
