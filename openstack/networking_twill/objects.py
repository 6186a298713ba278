"""Neutron's objects as its database has them, with what the plugin needs to know besides."""

from neutron_lib import context as neutron_context
from neutron_lib import exceptions
from neutron_lib.plugins import constants
from neutron_lib.plugins import directory

PORTS, GROUPS, SUBNETS = "ports", "security-groups", "subnets"


def admin():
    """A context of the administrator's, with a session of its own."""
    return neutron_context.get_admin_context()


def revision(found):
    """Neutron's number of an object's state; None: there is no such object."""
    return found and found.get("revision_number", 0)


class Reader:
    """Reads objects. What many have is read once; make one for each use."""

    def __init__(self):
        self.context = admin()
        self.plugin = directory.get_plugin()
        self.gateways, self.networks, self.groups = {}, {}, {}

    def one(self, kind, id):
        """The object of an ID; None: there is none."""
        try:
            if kind == PORTS:
                return self.port(self.plugin.get_port(self.context, id))
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
        ports = [self.port(p, floating) for p in self.plugin.get_ports(self.context)]
        return {"ports": ports, "security_groups": groups, "subnets": subnets}

    def port(self, port, floating=None):
        """A port with its gateways, the names of its groups and network, and its floating addresses."""
        for ip in port["fixed_ips"]:
            ip["gateway_ip"] = self._of(self.gateways, self.plugin.get_subnet, ip["subnet_id"], "gateway_ip") or ""
        port["security_group_names"] = {
            id: self._of(self.groups, self.plugin.get_security_group, id, "name") for id in port["security_groups"]}
        port["network_name"] = self._of(self.networks, self.plugin.get_network, port["network_id"], "name")
        port["floating_ips"] = self._floating(port["id"]) if floating is None else floating.get(port["id"], [])
        return port

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
