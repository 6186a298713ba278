"""Neutron's objects as its database has them, with what the plugin needs to know besides."""

from neutron.objects import ports as port_objects
from neutron_lib import constants as lib_constants
from neutron_lib import context as neutron_context
from neutron_lib.db import api as db_api
from neutron_lib import exceptions
from neutron_lib.plugins import constants
from neutron_lib.plugins import directory

from networking_twill import projects

PORTS, GROUPS, SUBNETS = "ports", "security-groups", "subnets"

PROJECTS = projects.Projects()


def admin():
    """A context of the administrator's, with a session of its own."""
    return neutron_context.get_admin_context()


def revision(found):
    """What differs between two states of an object; None: there is no such object."""
    return found and (found.get("revision_number", 0), found.get("bindings"), found.get("qos_rules"), found.get("network_name"))


class Reader:
    """Reads objects. What many have is read once; make one for each use."""

    def __init__(self):
        self.context = admin()
        self.plugin = directory.get_plugin()
        self.gateways, self.networks, self.groups, self.limits = {}, {}, {}, {}

    def one(self, kind, id):
        """The object of an ID; None: there is none."""
        try:
            if kind == PORTS:
                with db_api.CONTEXT_READER.using(self.context):
                    bindings = self._bindings(port_id=id)
                    port = self.plugin.get_port(self.context, id)
                return self.port(port, bindings)
            if kind == GROUPS:
                return self.plugin.get_security_group(self.context, id)
            return self.plugin.get_subnet(self.context, id)
        except exceptions.NotFound:
            return None

    def all(self):
        """All that there is."""
        groups = self.plugin.get_security_groups(self.context, default_sg=True)
        self.groups = {g["id"]: g["name"] for g in groups}
        subnets = self.plugin.get_subnets(self.context)
        self.gateways = {s["id"]: s["gateway_ip"] for s in subnets}
        self.networks = {n["id"]: n["name"] for n in self.plugin.get_networks(self.context)}
        floating = {}
        l3 = directory.get_plugin(constants.L3)
        if l3:
            for ip in l3.get_floatingips(self.context):
                floating.setdefault(ip["port_id"], []).append(ip)
        with db_api.CONTEXT_READER.using(self.context):  # of one moment: of a binding that moves, one place is always seen
            bindings, found = self._bindings(), self.plugin.get_ports(self.context)
        ports = [self.port(p, bindings, floating) for p in found]
        return {"ports": ports, "security_groups": groups, "subnets": subnets}

    def port(self, port, bindings, floating=None):
        """A port with its inactive bindings and gateways, the names of its groups, network and project, and its floating addresses."""
        port["bindings"] = bindings.get(port["id"], [])
        for ip in port["fixed_ips"]:
            ip["gateway_ip"] = self._of(self.gateways, self.plugin.get_subnet, ip["subnet_id"], "gateway_ip") or ""
        port["security_group_names"] = {
            id: self._of(self.groups, self.plugin.get_security_group, id, "name") for id in port["security_groups"]}
        port["network_name"] = self._of(self.networks, self.plugin.get_network, port["network_id"], "name")
        port["qos_rules"] = self._rules(port.get("qos_policy_id") or port.get("qos_network_policy_id"))
        found = PROJECTS.of(port.get("project_id") or port.get("tenant_id"))
        port["project_name"], port["project_parent_id"] = found or (None, None)  # None: the plugin keeps what it knows
        port["floating_ips"] = self._floating(port["id"]) if floating is None else floating.get(port["id"], [])
        return port

    def _rules(self, policy):
        """The rules of a policy of quality of service, which is a port's own, or its network's."""
        plugin = directory.get_plugin(constants.QOS)
        if not plugin or not policy:
            return []
        if policy not in self.limits:
            try:
                self.limits[policy] = plugin.get_policy(self.context, policy)["rules"]
            except exceptions.NotFound:
                self.limits[policy] = []
        return self.limits[policy]

    def _bindings(self, **filters):
        """The inactive bindings of ports, by port: of machines that migrate."""
        found = {}
        for b in port_objects.PortBinding.get_objects(self.context, status=lib_constants.INACTIVE, **filters):
            found.setdefault(b.port_id, []).append({"host": b.host, "vif_type": b.vif_type})
        return found

    def _of(self, known, get, id, field):
        """A field of something that a port names; None: that was deleted since the port was read, which does not delete the port."""
        if id not in known:
            try:
                known[id] = get(self.context, id)[field]
            except exceptions.NotFound:
                known[id] = None
        return known[id]

    def _floating(self, port):
        l3 = directory.get_plugin(constants.L3)
        return l3.get_floatingips(self.context, filters={"port_id": [port]}) if l3 else []
