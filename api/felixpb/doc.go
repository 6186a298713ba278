// Package felixpb is the protocol by which upstream's agent speaks to a dataplane driver that it starts, as far as this project uses it, generated
// from felix.proto by `make pb`.
//
// In: what a node should be, message by message. Out: the state of endpoints. See docs/felixbackend.md.
package felixpb
