// Package agreetest asks whether kernel, verdict and verdict/world agree.
//
// In: random worlds of resources. Out: pass or fail, the seed, and a table of
// what decided the packets. The kernel answers through real packets between
// network namespaces; nothing of it is simulated. Some worlds are programmed at
// once; others change step by step under one driver, while connections go on.
package agreetest
