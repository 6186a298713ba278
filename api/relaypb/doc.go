// Package relaypb is the protocol of `twill relay`, generated from relay.proto by `make pb`.
//
// In: a prefix of keys, and a position or none. Out: frames of a snapshot and of changes. See docs/decisions/069-relay.md.
package relaypb
