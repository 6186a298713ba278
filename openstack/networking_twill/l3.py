"""Neutron's service plugin of floating addresses, where each host is the router of its ports: none of Neutron's is wanted in between."""

from neutron.db import dns_db
from neutron.db import extraroute_db
from neutron_lib.api.definitions import extraroute
from neutron_lib.api.definitions import l3
from neutron_lib import constants
from neutron_lib.plugins import constants as plugins
from neutron_lib.services import base


class Plugin(base.ServicePluginBase, extraroute_db.ExtraRoute_dbonly_mixin, dns_db.DNSDbMixin):
    """Neutron's API of floating addresses and routers, on its database alone: no agent is told, and none is needed.

    A port may have a floating address of any external network. Routers can be made, since tools make them, and have no effect.
    """

    supported_extension_aliases = [l3.ALIAS, extraroute.ALIAS]

    @classmethod
    def get_plugin_type(cls):
        return plugins.L3

    def get_plugin_description(self):
        return "Floating addresses that the hosts of the ports answer to, without routers."

    def get_router_for_floatingip(self, context, internal_port, internal_subnet, external_network_id):
        """Neutron asks which router leads from an external network to a port; None: it needs none."""
        return None

    def _update_fip_assoc(self, context, fip, floatingip_obj, *more):
        """Neutron calls it in the transaction of each create and update. The address is ACTIVE with a port, and DOWN without: an agent would say so."""
        event = super()._update_fip_assoc(context, fip, floatingip_obj, *more)
        floatingip_obj.status = constants.FLOATINGIP_STATUS_ACTIVE if floatingip_obj.fixed_port_id else constants.FLOATINGIP_STATUS_DOWN
        return event

    def disassociate_floatingips(self, context, port_id, do_notify=True):
        """Neutron deletes the port."""
        ids = [f["id"] for f in self.get_floatingips(context, filters={"port_id": [port_id]})]
        routers = super().disassociate_floatingips(context, port_id, do_notify)
        for id in ids:
            self.update_floatingip_status(context, id, constants.FLOATINGIP_STATUS_DOWN)
        return routers
