"""The mechanism driver. It reads each object that has changed from Neutron's database, and hands it over."""

import queue
import re
import threading
import time

from neutron.plugins.ml2 import models
from neutron_lib.api.definitions import portbindings
from neutron_lib.callbacks import events
from neutron_lib.callbacks import registry
from neutron_lib.callbacks import resources
from neutron_lib import constants
from neutron_lib.db import api as db_api
from neutron_lib.plugins import directory
from neutron_lib.plugins.ml2 import api
from oslo_config import cfg
from oslo_log import log
from sqlalchemy.orm import session as orm

from networking_twill import client
from networking_twill import objects
from networking_twill import qos
from networking_twill import worker

LOG = log.getLogger(__name__)

PORTS_CHANGED = "twill_ports"  # of a session of the database

cfg.CONF.register_opts([
    cfg.StrOpt("socket", default="/run/twill-openstack/plugin.sock",
               help="Where `twill openstack-plugin` answers."),
    cfg.IntOpt("resync_interval_secs", default=60, min=0,
               help="How often the server that leads hands over all of Neutron's database; 0: each at its start alone."),
    cfg.IntOpt("retry_secs", default=2, min=1,
               help="After how long an object is handed over again that the plugin did not take."),
    cfg.IntOpt("status_writes_per_sec", default=50, min=1,
               help="How many ports get a new status in a second, of each server's: that many writes of the database, and calls of Nova."),
], "twill")


def tap_mac(port):
    """The MAC address of the tap of a port with this one, which Nova hands on to libvirt.

    Libvirt before 9.5 made it of the port's by fe in its beginning; later ones take any. If it is another on each host, what a machine has
    of its gateway in its ARP table is wrong once it has migrated. It must not be the port's own.
    """
    if port and re.fullmatch("[0-9a-f]{2}(:[0-9a-f]{2}){5}", port.lower()) and not port.lower().startswith("fe:"):
        return "fe:" + port.lower()[3:]
    return "00:61:fe:ed:ca:fe"


class TwillMechanismDriver(api.MechanismDriver):
    """Binds ports to taps on hosts whose agent lives, and hands over what changes.

    Nothing that fails here fails a user's request: Neutron's database is the master. An object that could not be handed
    over is tried again until it is, and a port does not become ACTIVE before.
    """

    def initialize(self):
        self._later = queue.Queue()  # (when, kind, id), each object once
        self._waiting = set()  # what is in it
        self._retrying = None
        for event in (events.AFTER_CREATE, events.AFTER_UPDATE, events.AFTER_DELETE):
            registry.subscribe(self._group_changed, resources.SECURITY_GROUP, event)
            registry.subscribe(self._rule_changed, resources.SECURITY_GROUP_RULE, event)
            registry.subscribe(self._floating_changed, resources.FLOATING_IP, event)

        self._qos = qos.Driver(self._limits_changed)  # it waits for the service plugin, if there is one
        db_api.sqla_listen(orm.Session, "after_flush", self._flushed)
        db_api.sqla_listen(orm.Session, "after_commit", self._committed)
        db_api.sqla_listen(orm.Session, "after_rollback", self._rolled_back)

    def get_workers(self):
        return [worker.Worker()]

    def bind_port(self, context):
        if context.current[portbindings.VNIC_TYPE] != portbindings.VNIC_NORMAL:
            return
        if not any(a["alive"] for a in context.host_agents(worker.AGENT_TYPE)):
            LOG.warning("port %s: no agent of Twill lives on host %s", context.current["id"], context.host)
            return
        for segment in context.segments_to_bind:
            if segment[api.NETWORK_TYPE] in ("local", "flat"):
                details = {portbindings.CAP_PORT_FILTER: True, "mac_address": tap_mac(context.current.get("mac_address"))}
                context.set_binding(segment[api.ID], portbindings.VIF_TYPE_TAP, details)
                return

    def create_port_postcommit(self, context):
        self._hand_over(objects.PORTS, context.current["id"])

    update_port_postcommit = delete_port_postcommit = create_port_postcommit

    def _flushed(self, session, flush):
        """Notes the ports of which an inactive binding comes, changes or goes: of those, which migrate machines, Neutron calls no driver."""
        for found in session.new | session.dirty | session.deleted:
            if isinstance(found, models.PortBinding) and found.status == constants.INACTIVE:
                session.info.setdefault(PORTS_CHANGED, set()).add(found.port_id)

    def _committed(self, session):
        for id in session.info.pop(PORTS_CHANGED, ()):
            self._hand_over(objects.PORTS, id)

    def _rolled_back(self, session):
        session.info.pop(PORTS_CHANGED, None)

    def create_subnet_postcommit(self, context):
        self._hand_over(objects.SUBNETS, context.current["id"])

    update_subnet_postcommit = delete_subnet_postcommit = create_subnet_postcommit

    def update_network_postcommit(self, context):
        now, was = context.current, context.original
        if any(now.get(field) != was.get(field) for field in ("name", "qos_policy_id")):
            self._network_changed(now["id"])

    def _limits_changed(self, port, network=None):
        if port:
            self._retry(objects.PORTS, port)
        else:
            self._network_changed(network)

    def _network_changed(self, id):
        """Has all ports of a network handed over, soon: there may be many, and somebody waits."""
        for port in directory.get_plugin().get_ports(objects.admin(), filters={"network_id": [id]}, fields=["id"]):
            self._retry(objects.PORTS, port["id"])

    def _group_changed(self, resource, event, trigger, payload=None):
        self._hand_over(objects.GROUPS, payload.resource_id)

    def _rule_changed(self, resource, event, trigger, payload=None):
        group = payload.metadata.get("security_group_id")
        if not group and payload.states and payload.states[0]:
            group = payload.states[0]["security_group_id"]
        if group:
            self._hand_over(objects.GROUPS, group)

    def _floating_changed(self, resource, event, trigger, payload=None):
        for state in payload.states or ():
            if state and state.get("port_id"):
                self._hand_over(objects.PORTS, state["port_id"])

    def _hand_over(self, kind, id):
        """Has the plugin know of an object as the database has it now."""
        try:
            self._now(kind, id)
        except Exception as e:  # whatever it is, the user's request is done
            LOG.warning("%s %s is handed over later: %s", kind, id, e)
            self._retry(kind, id)

    def _now(self, kind, id):
        """Hands it over until the database has it as it was handed over.

        Another thread, or another server, may have handed over a later state meanwhile, of which nothing is stored that could show
        that this one is older: that the port was deleted, say.
        """
        while True:
            found = objects.Reader().one(kind, id)
            self._call(kind, id, found)
            if objects.revision(found) == objects.revision(objects.Reader().one(kind, id)):
                return

    def _call(self, kind, id, found):
        url = "/v1/%s/%s" % (kind, id)
        try:
            if found is None:
                answer = client.call(cfg.CONF.twill.socket, "DELETE", url)
            else:
                answer = client.call(cfg.CONF.twill.socket, "PUT", url, found)
        except client.Refused as e:
            LOG.error("%s %s: %s", kind, id, e)  # it would be refused again
            return
        for problem in answer.get("problems", ()):
            LOG.warning("%s %s: %s", kind, id, problem)

    def _retry(self, kind, id):
        if (kind, id) in self._waiting:
            return
        self._waiting.add((kind, id))
        self._later.put((time.monotonic() + cfg.CONF.twill.retry_secs, kind, id))
        if self._retrying is None:  # Neutron forks: a thread begun before would not be in the child
            self._retrying = threading.Thread(target=self._retry_all, daemon=True)
            self._retrying.start()

    def _retry_all(self):
        while True:
            when, kind, id = self._later.get()
            time.sleep(max(0, when - time.monotonic()))
            self._waiting.discard((kind, id))  # before it is read: a change from now on is handed over by itself, or waits again
            self._hand_over(kind, id)
