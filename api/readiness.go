package api

// Readiness says whether what a datastore holds may be acted upon, by what was seen of its ClusterInformation default so far. The zero
// value is of somebody who has seen nothing yet.
type Readiness int

const (
	Blank  Readiness = iota // there was nothing so far but Nodes, which hosts write by themselves
	Unseen                  // there was no ClusterInformation so far: nothing says that it is not ready
	Ready                   // it says so, or did not say anything from the start
	Locked                  // it says that it is not: somebody moves or repairs the datastore
	Gone                    // there was one. Whatever took it may have taken all else, too, which then is lost and not deleted
	Unsaid                  // it was locked or gone, and there is one that says nothing
)

// After returns the readiness once a ClusterInformation default is there; nil: it is not. Only one that says that the datastore is ready ends a lock.
func (r Readiness) After(info *ClusterInformation) Readiness {
	switch {
	case info == nil && r <= Unseen:
		return r
	case info == nil:
		return Gone
	case info.Spec.Locked():
		return Locked
	case info.Spec.DatastoreReady == nil && r.Frozen():
		return Unsaid
	}
	return Ready
}

// AfterUpdate returns the readiness once an update of ClusterInformation default was seen, or that the store has none; a value that cannot be read says nothing.
func (r Readiness) AfterUpdate(u Update) Readiness {
	if u.Value == nil {
		return r.After(nil)
	}
	s, err := Admit(u)
	info, ok := s.Resource.(*ClusterInformation)
	if err != nil || !ok {
		return r
	}
	return r.After(info)
}

// Saw returns the readiness once something of a kind was there.
func (r Readiness) Saw(kind string) Readiness {
	if r == Blank && kind != KindNode {
		return Unseen
	}
	return r
}

// Frozen reports whether everybody leaves things as they are.
func (r Readiness) Frozen() bool { return r > Ready }

// Why returns why everybody leaves things as they are, and what ends that; empty: nobody has to.
func (r Readiness) Why() string {
	switch r {
	case Locked:
		return "the datastore says that it is not ready (datastoreReady of ClusterInformation default is false): twill datastore unlock, once nobody works on it"
	case Gone:
		return "the datastore has no ClusterInformation default any more, so it may be lost or empty: put its content back, then twill datastore unlock"
	case Unsaid:
		return "the datastore does not say that it is ready (ClusterInformation default has no datastoreReady): twill datastore unlock, once its content is there"
	}
	return ""
}
