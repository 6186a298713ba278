// Package resources makes a store hold what users want: create, apply, replace, change
// and delete, with all that must be checked first and all that hangs on it.
//
// In: resources that are defaulted and valid, and any datastore.Store. Out: what became
// of each, and typed errors: it exists, it is missing, another writer was first. A
// change is made on the stored document, so that what another version wrote stays.
package resources
