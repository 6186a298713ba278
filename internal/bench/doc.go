// Package bench measures whole agents by the packets that their hosts forward, next to what a host does without them.
//
// In: a [Config]: which binary, how many policies, endpoints and pairs. Out: [Results], and of these tables and plots for docs/benchmarks.md.
//
// Each host is three namespaces without names (a client's, the host's, a workload's), in which `twill agent` runs on an etcd of its own, or
// a script that means the same. What is compared is measured in turn, in a random order within each round, and judged by ratios within a
// round: what else the machine does hits all of them. [Clear] says when pairs are enough.
package bench
