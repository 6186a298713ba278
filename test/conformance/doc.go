// Package conformance asks judges of others what Kubernetes' policies mean, and compares: cyclonus generates the policies and
// says what each pod may reach; translate and verdict/world say it, and two hosts in namespaces do it, with connections that
// sockets open. Of cluster-wide policies the judge is kube-network-policies, and what it is compared with is verdict/world alone.
//
// Two tests have all of it in a real API server, and agents in both hosts: cyclonus' cases, and the conformance tests of cluster-wide
// policies, which drive themselves. `make kube-conformance` runs them.
//
// It is a module of its own, so that nothing of theirs is among Twill's dependencies; `make conformance` runs it. Cells that
// are left out are counted by reason, see leftLoopback and leftNoServer. Of SCTP a packet is sent and seen to arrive, since
// not every kernel has sockets for it.
package conformance
