// Package translate turns Kubernetes objects into the resources that they mean.
//
// In: NetworkPolicy, Namespace, ServiceAccount, Pod, EndpointSlice and Service,
// as values of k8s.io/api, or as JSON ([Decode]); the cluster-wide policies
// ClusterNetworkPolicy, AdminNetworkPolicy and BaselineAdminNetworkPolicy as JSON.
// Out: projectcalico.org/v3 resources with the names that Calico gives them.
//
// Each object is translated by itself ([Resources]); what only shows when all
// are seen together is in [Implied]. What cannot be translated comes back as an
// [api.FieldErrors] beside the resource, and the resource is closed there: a
// peer or port that means nothing allows nothing, and a policy that does not
// say whom it is for denies everything in its namespace. What is closed in
// cluster-wide policies, which also deny and pass on, is said in docs/kubernetes-policies.md.
package translate
