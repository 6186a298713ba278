#!/usr/bin/python3
"""An example of a dataplane driver in another language, made of api/dataplanepb/dataplane.proto and docs/remote-dataplane.md alone.

It programs nothing: what is committed it holds in memory, and prints. Numbers in comments are the points of that page. It needs protoc, and Debian's
python3-grpcio and python3-protobuf. Usage: driver.py PATH-OF-THE-PROTO PATH-OF-THE-SOCKET
"""

import concurrent.futures
import importlib
import ipaddress
import os
import subprocess
import sys
import tempfile
import threading

import grpc


def messages(proto):
    """The module of messages that protoc makes of a .proto."""
    out = tempfile.mkdtemp(prefix="twill-driver-")
    subprocess.run(["protoc", "-I", os.path.dirname(proto) or ".", "--python_out", out, os.path.basename(proto)], check=True)
    sys.path.insert(0, out)
    return importlib.import_module(os.path.basename(proto).removesuffix(".proto") + "_pb2")


pb = messages(sys.argv[1])

# The order of a commit (5), by the name of the item.
ORDER = ["ip_set", "members", "policy", "endpoint", "route", "tunnel_peer", "host", "removed"]


class Wrong(Exception):
    """Why an item is not brought into force."""


def check(ok, why):
    if not ok:
        raise Wrong(why)


def prefix(text):
    try:
        return ipaddress.ip_network(text)
    except ValueError as err:
        raise Wrong(str(err)) from err


def address(text):
    try:
        return ipaddress.ip_address(text)
    except ValueError as err:
        raise Wrong(str(err)) from err


def known_enums(message):
    """Denies a number that an enum does not have, anywhere in a message: deny where in doubt."""
    for field, value in message.ListFields():
        values = value if field.label == field.LABEL_REPEATED else [value]
        for v in values:
            if field.enum_type is not None:
                check(v in field.enum_type.values_by_number, f"{field.name} {v} is not known")
            elif field.message_type is not None:
                known_enums(v)


def check_member(kind, m):
    p = prefix(m.prefix)
    if kind == pb.IPSet.PORTS:
        check(p.num_addresses == 1 and 0 < m.protocol < 256 and m.port < 65536, f"member {m.prefix} {m.protocol} {m.port}")


def check_peer(peer):
    for text in [*peer.nets, *peer.not_nets]:
        prefix(text)
    for ports in [*peer.ports, *peer.not_ports]:
        check(ports.min < 65536 and ports.max < 65536, f"ports {ports.min} to {ports.max}")


def check_rule(rule):
    check(rule.family in (0, 4, 6), f"family {rule.family}")
    check(rule.protocol < 256 and rule.not_protocol < 256, f"protocol {rule.protocol}, {rule.not_protocol}")
    for icmp in (rule.icmp, rule.not_icmp):
        check(icmp.type < 256 and icmp.code < 256, f"ICMP {icmp.type}/{icmp.code}")
    check_peer(rule.source)
    check_peer(rule.destination)


def policy_key(i):
    return i.kind, i.namespace, i.name


def endpoint_key(i):
    return i.host, i.namespace, i.name


def stages_of(endpoint):
    for stages in (endpoint.stages, endpoint.staged):
        for tiers in (stages.untracked, stages.pre_dnat, stages.normal, stages.forward):
            yield from tiers


def policies_of(endpoint):
    """Keys of the policies that an endpoint names."""
    for tier in stages_of(endpoint):
        for i in [*tier.ingress, *tier.egress]:
            yield policy_key(i)
    for i in endpoint.profiles:
        yield policy_key(i)


def sets_of(policy):
    """Identifiers of the sets that a policy names, with their kinds."""
    for rule in [*policy.ingress, *policy.egress]:
        for peer in (rule.source, rule.destination):
            for i in [*peer.ip_sets, *peer.not_ip_sets]:
                yield i, pb.IPSet.ADDRESSES
            for i in [*peer.port_sets, *peer.not_port_sets]:
                yield i, pb.IPSet.PORTS


class State:
    """What is in force, or what is to be."""

    def __init__(self, other=None):
        self.sets = {i: (kind, set(members)) for i, (kind, members) in other.sets.items()} if other else {}
        self.policies = dict(other.policies) if other else {}
        self.endpoints = dict(other.endpoints) if other else {}
        self.routes = dict(other.routes) if other else {}
        self.peers = dict(other.peers) if other else {}
        self.host = other.host if other else None

    def ip_set(self, item):
        check(item.id, "a set without a name")
        for m in item.members:
            check_member(item.kind, m)
        self.sets[item.id] = (item.kind, {m.SerializeToString() for m in item.members})

    def members(self, item):
        check(item.ip_set in self.sets, f"set {item.ip_set} is not there")
        kind, has = self.sets[item.ip_set]
        for m in [*item.added, *item.removed]:
            check_member(kind, m)
        has.difference_update(m.SerializeToString() for m in item.removed)
        has.update(m.SerializeToString() for m in item.added)

    def policy(self, item):
        check(item.id.kind and item.id.name, "a policy without a name")
        for rule in [*item.ingress, *item.egress]:
            check_rule(rule)
        for i, kind in sets_of(item):
            check(i in self.sets and self.sets[i][0] == kind, f"set {i} is not there, or of another kind")
        self.policies[policy_key(item.id)] = item

    def endpoint(self, item):
        check(item.id.name, "an endpoint without a name")
        for text in item.addresses:
            address(text)
        for text in item.spoofable:
            prefix(text)
        for tier in stages_of(item):
            check(tier.default in (pb.DENY, pb.PASS), f"tier {tier.name} ends in {tier.default}")
        for key in policies_of(item):
            check(key in self.policies, f"policy {'/'.join(key)} is not there")
        self.endpoints[endpoint_key(item.id)] = item

    def route(self, item):
        prefix(item.destination)
        self.routes[item.destination] = item

    def tunnel_peer(self, item):
        check(item.node, "a tunnel peer without a node")
        for text in (item.host, item.address):
            if text:
                address(text)
        self.peers[item.node, item.kind] = item

    def host_settings(self, item):
        self.host = item

    def removed(self, item):
        which = item.WhichOneof("key")
        check(which, "a removal of nothing")
        key = getattr(item, which)
        if which == "ip_set":
            check(not any(key == i for p in self.policies.values() for i, _ in sets_of(p)), f"set {key} is in use")
            self.sets.pop(key, None)
        elif which == "policy":
            check(not any(policy_key(key) in policies_of(e) for e in self.endpoints.values()), f"policy {key.name} is in use")
            self.policies.pop(policy_key(key), None)
        elif which == "endpoint":
            self.endpoints.pop(endpoint_key(key), None)
        elif which == "route":
            self.routes.pop(key, None)
        elif which == "tunnel_peer":
            self.peers.pop((key.node, key.kind), None)
        else:
            self.host = None

    def close(self, which, item, why):
        """Leaves nothing in force of what an item was before: an endpoint carries no traffic, and a policy denies everything."""
        if which == "endpoint":
            self.endpoints.pop(endpoint_key(item.id), None)
        elif which == "policy":
            self.policies[policy_key(item.id)] = pb.Policy(id=item.id, closed=why)

    def take(self, which, item):
        known_enums(item)
        (self.host_settings if which == "host" else getattr(self, which))(item)


def key_of(which, item):
    """The key of an item, for its outcome."""
    if which == "removed":
        return item
    if which == "members":
        return pb.Key(ip_set=item.ip_set)
    if which == "ip_set":
        return pb.Key(ip_set=item.id)
    if which == "policy":
        return pb.Key(policy=item.id)
    if which == "endpoint":
        return pb.Key(endpoint=item.id)
    if which == "route":
        return pb.Key(route=item.destination)
    if which == "tunnel_peer":
        return pb.Key(tunnel_peer=pb.PeerID(node=item.node, kind=item.kind))
    return pb.Key(host=True)


class Driver:
    """Serves one agent. What is in force outlives its streams (10)."""

    def __init__(self):
        self.lock = threading.Lock()
        self.state = State()
        self.stream = None  # the context of the one that counts

    def program(self, requests, context):
        """One stream of Dataplane.Program."""
        sequence, welcomed, first, pending = 0, False, True, []
        for message in requests:
            sequence += 1
            which = message.WhichOneof("item")
            if message.sequence != sequence:  # 3, 11
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"sequence {message.sequence}, want {sequence}")
            if which is None or welcomed == (which == "hello"):
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"a message that means nothing here: {which}")
            if which == "hello":  # 2
                if message.hello.version != 1:
                    context.abort(grpc.StatusCode.FAILED_PRECONDITION, "only version 1 is spoken")
                with self.lock:  # 1
                    former, self.stream = self.stream, context
                if former is not None:
                    former.cancel()
                welcomed = True
                yield pb.FromDriver(welcome=pb.Welcome(version=1, name="example in Python", release="1"))
            elif which != "commit":
                pending.append((which, getattr(message, which)))
            else:
                with self.lock:
                    if self.stream is not context:
                        context.abort(grpc.StatusCode.ABORTED, "another stream has taken the place of this one")
                    answer = self.commit(State() if first else State(self.state), pending)
                first, pending = False, []
                yield pb.FromDriver(committed=pb.Committed(sequence=sequence, outcomes=answer))

    def commit(self, state, items):
        """Brings items into force, in one step (4, 5), and returns the outcomes of those that are not (6)."""
        outcomes = []
        for which, item in sorted(items, key=lambda x: ORDER.index(x[0])):
            try:
                state.take(which, item)
            except Wrong as why:
                state.close(which, item, str(why))
                outcomes.append(pb.Outcome(key=key_of(which, item), error=str(why)))
        self.state = state
        print(f"in force: {len(state.sets)} sets, {len(state.policies)} policies, {len(state.endpoints)} endpoints, {len(state.routes)} routes; "
              f"{len(outcomes)} items are not", flush=True)
        return outcomes


def main():
    path = sys.argv[2]
    if os.path.exists(path):
        os.unlink(path)
    os.umask(0o077)  # 1
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(max_workers=8))
    program = grpc.stream_stream_rpc_method_handler(Driver().program, pb.ToDriver.FromString, pb.FromDriver.SerializeToString)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("twill.dataplane.v1.Dataplane", {"Program": program})])
    server.add_insecure_port("unix:" + path)
    server.start()
    print("serving", flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    main()
