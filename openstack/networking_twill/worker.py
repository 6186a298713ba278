"""The process of neutron-server that hands over all of the database, and has Neutron know what agents report."""

import contextlib
import datetime
import threading
import time

from neutron.plugins.ml2 import db as ml2_db
from neutron_lib.api.definitions import portbindings
from neutron_lib import constants
from neutron_lib import worker
from neutron_lib.plugins import directory
from oslo_config import cfg
from oslo_log import log

from networking_twill import client
from networking_twill import objects

LOG = log.getLogger(__name__)

# AGENT_TYPE is what upstream's driver calls the agent of a host: scripts and dashboards look for it.
AGENT_TYPE = "Calico per-host agent (felix)"

STATUS = {"up": constants.PORT_STATUS_ACTIVE, "down": constants.PORT_STATUS_DOWN, "error": constants.PORT_STATUS_ERROR}

NOT_BOUND = (portbindings.VIF_TYPE_UNBOUND, portbindings.VIF_TYPE_BINDING_FAILED)

ALL_TIMEOUT = 600  # seconds for all of the database


class Worker(worker.BaseWorker):
    """One for each neutron-server. One of them is elected, by the plugins: it resyncs, and has Neutron know what agents report.

    The others resync when they start and when they are asked to, and see to the status of the ports that they have handed over themselves.
    """

    def __init__(self):
        super().__init__(worker_process_count=1, desc="twill")
        self._ended = False  # before start: its launcher waits first
        self._term = 0  # of this server's leading; 0: it does not lead

    def start(self):
        super().start(desc="twill")
        for do in (self._lead, self._resync, self._feedback):
            threading.Thread(target=self._forever, args=(do,), daemon=True).start()

    def stop(self):
        self._ended = True  # its threads end with the process

    def wait(self):
        while not self._ended:  # no lock: it would stand in the way of green threads
            time.sleep(0.5)

    def reset(self):
        pass

    def _forever(self, do):
        while True:
            try:
                do()
            except client.Failed as e:
                LOG.warning("%s; trying again", e)
            except Exception:  # such as Neutron's database being away
                LOG.exception("trying again")
            time.sleep(cfg.CONF.twill.retry_secs)

    def _lead(self):
        """Asks who leads, all the time: the plugin knows by it that this process lives."""
        try:
            while True:
                self._term = client.call(cfg.CONF.twill.socket, "GET", "/v1/lead?term=%d" % self._term)["term"]
        finally:
            self._term = 0

    def _resync(self):
        while True:
            term = self._term
            token = client.call(cfg.CONF.twill.socket, "POST", "/v1/resync")["token"]
            report = client.call(cfg.CONF.twill.socket, "PUT", "/v1/resync/" + token, objects.Reader().all(), ALL_TIMEOUT)
            LOG.debug("handed over: %s", report)
            self._until_resync(term)

    def _until_resync(self, term):
        """Returns when the next resync is due: for who leads, at once if that is new, and every interval; for all, if it is asked for (`twill openstack-plugin resync`)."""
        interval = cfg.CONF.twill.resync_interval_secs
        due = time.monotonic() + interval if interval else float("inf")
        while True:
            within = min(30, max(1, due - time.monotonic())) if self._term else 30
            if client.call(cfg.CONF.twill.socket, "GET", "/v1/resync?within=%d&term=%d" % (within, self._term))["asked"]:
                return
            if self._term and (self._term != term or time.monotonic() >= due):
                return

    def _feedback(self):
        epoch, at, term = "", 0, 0
        while True:
            if term != self._term:  # what others were told is told once more
                epoch, at, term = "", 0, self._term
            news = client.call(cfg.CONF.twill.socket, "GET", "/v1/feedback?epoch=%s&at=%d&term=%d" % (epoch, at, term))
            plugin, context = directory.get_plugin(), objects.admin()
            for agent in news["agents"]:
                if agent["alive"]:  # one that is not is found by Neutron itself, by its silence
                    self._agent(plugin, context, agent)
            for port in news["ports"]:
                if self._port(plugin, context, port):
                    time.sleep(1 / cfg.CONF.twill.status_writes_per_sec)  # what changes meanwhile is told once, as it is in the end
            epoch, at = news["epoch"], news["at"]

    def _agent(self, plugin, context, agent):
        state = {"agent_type": AGENT_TYPE, "binary": "calico-felix", "host": agent["host"], "topic": "N/A",
                 "configurations": {"version": agent.get("version", "")}}
        if agent.get("started"):
            state["start_flag"] = True
        plugin.create_or_update_agent(context, state, datetime.datetime.utcnow())

    def _port(self, plugin, context, port):
        """A port's status is that of the host where it is bound: of another, which it has left, nothing counts. Returns whether something was written."""
        found = objects.Reader().one(objects.PORTS, port["id"])
        if found is None:
            return False
        targets = {b["host"] for b in found["bindings"] if b["vif_type"] not in NOT_BOUND}
        if found["binding:host_id"] != port["host"]:
            if port["status"] == "up" and port["host"] in targets:
                self._ready(plugin, context, port["id"])
            return False
        status = STATUS.get(port["status"], constants.PORT_STATUS_ERROR)
        if found["status"] == status:
            return False
        if port.get("reason"):
            LOG.warning("port %s on %s is %s: %s", port["id"], port["host"], status, port["reason"])
        with self._quiet(plugin) if targets else contextlib.nullcontext():
            plugin.update_port_status(context, port["id"], status, port["host"])
        return True

    def _quiet(self, plugin):
        """Nova is not called for a change of status: it may wait for the host to which the machine migrates, and would take it for that."""
        return plugin.nova_notifier.context_enabled(False) if hasattr(plugin, "nova_notifier") else contextlib.nullcontext()

    def _ready(self, plugin, context, id):
        """Has Nova know that a port is ready on the host to which its machine migrates, as Neutron's own agents do: Nova may wait for that."""
        if cfg.CONF.notify_nova_on_port_status_changes and hasattr(plugin, "nova_notifier"):
            port = ml2_db.get_port(context, id)
            if port:
                plugin.nova_notifier.notify_port_active_direct(port)
