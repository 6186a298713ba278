// Package chaostest breaks a network of three hosts in random ways, for as long as it is asked to, and wants three
// things at every moment: no packet that policy denies is delivered, no established flow that it allows is broken, and
// after each fault all is as the datastore asks for within seconds. `make chaos` runs it on etcd, `make kube-chaos` on a real API server; docs/chaos.md says how.
//
// In: a seed and a length. Out: a table of how long each kind of fault took to be repaired, or the seed, a log of faults,
// and a bundle of what the hosts had when something was wrong. Everything is in tests.
package chaostest
