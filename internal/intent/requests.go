package intent

// SetProxied is the set of the addresses of this node's workloads whose proxies have their share of policy and enforce it (docs/policy-sync.md,
// decision 094). A rule that asks of requests has it among its sets, so that it matches nothing where nobody looks into requests. There is one while a
// rule uses it.
const SetProxied SetID = "proxied"

// Requests is what a rule says of requests, and of who sends them, which no packet shows: for the proxy of a workload, which has it as the user wrote it.
// Drivers pass over it. Where it restricts the rule further than its other fields do, these have [SetProxied].
type Requests struct {
	HTTP     *HTTP // nil: any traffic
	Src, Dst Identity
}

// HTTP is met by a request with one of the methods, if there are any, and one of the paths, if there are any.
type HTTP struct {
	Methods []string // "*" is any
	Paths   []Path
}

// Path is a path of HTTP, or the beginning of one; the other is empty.
type Path struct{ Exact, Prefix string }

// Identity is what a rule says of one end by labels, each empty if it says nothing.
type Identity struct {
	Selector, NotSelector, NamespaceSelector string
	Accounts                                 *Accounts // nil: any
}

// Accounts are service accounts: with one of the names, if there are any, and selected by Selector, if it is not empty.
type Accounts struct {
	Names    []string
	Selector string
}
