// Package endpointpb is the Endpoint API between an orchestrator's plugin and the agent of its host, generated from endpoint.proto by `make pb`.
//
// In: what a plugin knows of an interface. Out: questions about interfaces, and what became of them. See docs/endpoint-api.md.
package endpointpb
