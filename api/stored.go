package api

// Ref names a resource.
type Ref struct {
	Kind, Namespace, Name string
}

// Stored is a resource as read from a datastore, with what was wrong in it.
// What was not understood has been closed already (docs/wrong-input.md): a Void rule
// matches nothing, a Deny rule has lost the conditions that could not be read,
// labels that only the system may give are gone.
type Stored struct {
	Key      string
	Ref      Ref // by the name that the user gave, which may differ from the key's
	Resource Resource
	Problems []Problem
	// Closed is not empty if the resource as a whole must be closed, and says
	// why. A namespaced policy: it denies everything, both ways, before all
	// tiers, to all endpoints of its namespace. A global policy: it applies to
	// nothing, unless something is known of it, see [Admit], and else the node is not ready. An endpoint: it carries no traffic.
	Closed string
	// NoObject: the value, or its spec, is no JSON object, or it says that it is of another kind. Nothing of it means anything.
	NoObject bool
}

// Problem is one thing that is wrong in a stored resource.
type Problem struct {
	Key    string // of the datastore
	Field  string // path, such as spec.ingress[0].source.selector; empty: the whole
	Reason string
	// NoEffect: nothing is wrong or closed. It is a field on which Twill does not act, see [Unhonoured], and may be left as it is.
	NoEffect bool
}
