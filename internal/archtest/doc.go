// Package archtest holds the rules of the design as tests: who may import
// whom, sizes, docs, no sleeps in tests, no init side effects.
//
// In: the module's source, through go list and go/parser. Out: pass or fail.
package archtest
