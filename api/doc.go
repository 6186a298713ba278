// Package api holds the projectcalico.org/v3 resources: what users say.
//
// In: YAML or JSON, from users (strict: [Decode] names each field it does not
// honour) or from a datastore (lenient: [DecodeStored] keeps what is understood
// and closes what is not, see docs/wrong-input.md).
// Out: typed resources, their datastore keys, and their stored form, which is
// byte-equal with what Calico's own tools write.
package api

// Update is one change of the datastore, or one element of a snapshot: a key
// with its present value. It is the only thing that travels between the
// datastore and calc; whoever receives it decodes it.
type Update struct {
	Key      string   // Calico's etcd path
	Value    []byte   // stored JSON; nil: the key is gone
	Revision Revision // the store's of this value, or of the deletion if it is known
}
