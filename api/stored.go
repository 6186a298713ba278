package api

// Ref names a resource.
type Ref struct {
	Kind, Namespace, Name string
}

// Stored is a resource as read from a datastore, with what was wrong in it.
// What was not understood has been closed already (SEMANTICS 3): a Void rule
// matches nothing, a Deny rule has lost the conditions that could not be read,
// labels that only a namespace or service account may give are stripped from
// workload endpoints.
type Stored struct {
	Key      string
	Ref      Ref // by the name that the user gave, which may differ from the key's
	Resource Resource
	Problems []Problem
	// Closed is not empty if the resource as a whole must be closed, and says
	// why. A namespaced policy: it denies everything, both ways, before all
	// tiers, to all endpoints of its namespace. A global policy: it applies to
	// nothing, and the node is not ready. An endpoint: it carries no traffic.
	Closed string
}

// Problem is one thing that is wrong in a stored resource.
type Problem struct {
	Key    string // of the datastore
	Field  string // path, such as spec.ingress[0].source.selector; empty: the whole
	Reason string
}
