// Package relay fans out what a datastore holds: one watch of the store, any number of readers (decision 069).
//
// In: a [datastore.Store], which a [Server] follows by a syncer for each prefix. Out: a snapshot and a chain of changes, each encoded and
// compressed once, that clients walk at their own pace by gRPC. A [Client] is a store again: its lists and watches come from there.
// A client that is too slow is told to list again, and costs nobody else anything. Nothing is judged on the way: a value is what the store has.
package relay
