"""Neutron's driver of quality of service: which rules have an effect, and which ports have them."""

from neutron_lib.api.definitions import portbindings
from neutron_lib import constants
from neutron_lib.db import constants as db_constants
from neutron_lib.services.qos import base
from neutron_lib.services.qos import constants as qos

NUMBER = {"type:range": [0, db_constants.DB_INTEGER_MAX_VALUE]}
DIRECTION = {"type:values": constants.VALID_DIRECTIONS}

RULES = {
    qos.RULE_TYPE_BANDWIDTH_LIMIT: {qos.MAX_KBPS: NUMBER, qos.MAX_BURST: NUMBER, qos.DIRECTION: DIRECTION},
    qos.RULE_TYPE_PACKET_RATE_LIMIT: {qos.MAX_KPPS: NUMBER, qos.MAX_BURST_KPPS: NUMBER, qos.DIRECTION: DIRECTION},
}


class Driver(base.DriverBase):
    """Neutron refuses rules of other kinds for our ports. changed is called with the ID of each port whose rules have changed."""

    def __init__(self, changed):
        super().__init__("twill", [portbindings.VIF_TYPE_TAP], [portbindings.VNIC_NORMAL], RULES)
        self._changed = changed

    def update_policy(self, context, policy):
        for id in policy.get_bound_ports():
            self._changed(id)
        for network in policy.get_bound_networks():
            self._changed(None, network)
