// Package openstack is Neutron's half in Twill (decision 078): what its ports, security groups and subnets become in the datastore, and what
// agents report of them on the way back.
//
// In: Neutron's own JSON, which the mechanism driver networking_twill hands over on a unix socket, one object or all of them at a time. Out:
// WorkloadEndpoints, NetworkPolicies, LiveMigrations and the keys of subnets, in the form of upstream's networking-calico; and, to whoever asks,
// the state of each port and which agents live.
//
// It keeps nothing: Neutron's database is the master, the datastore can be rebuilt from it at any time, and any number of Neutron's servers
// may write. What holds:
//   - What cannot be expressed is closed and named: a rule that is not understood allows nothing, a port that is administratively down
//     has no endpoint, so that its interface carries no packets.
//   - A machine that migrates has an endpoint on both hosts, and no target is there without its LiveMigration (decision 088).
//   - A port is written after its security groups, and goes before them.
//   - An object of an older revision than the stored one is passed over. What is deleted as superfluous was there before Neutron's
//     database was read, and has not changed since.
package openstack
