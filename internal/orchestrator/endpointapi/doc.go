// Package endpointapi is the agent's half of the Endpoint API (decision 070): interfaces that orchestrators' plugins give endpoints.
//
// In: interfaces of the host, what the datastore has of this node's endpoints, and what plugins say ([endpointpb]). Out: questions to
// plugins, WorkloadEndpoints written and taken back, and to the plugin, once policy and routes are in the kernel, that it is provisioned;
// or why it is not. An interface of which no plugin says that it is its own has no endpoint, and so carries no packets.
//
// It is the agent's half of the Network API, too (decision 071): groups of endpoints that plugins announce become NetworkPolicies, and plugins hear
// when these are in force.
//
// [Core] decides, and has neither clock nor goroutine; [Writer] writes and waits; [Server] has the socket.
package endpointapi
