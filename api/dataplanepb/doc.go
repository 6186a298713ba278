// Package dataplanepb is the protocol between an agent and a dataplane in another process, generated from dataplane.proto by `make pb`.
//
// In: what a node should be, item by item. Out: what is in force, and what is not, and why. See docs/remote-dataplane.md.
package dataplanepb
