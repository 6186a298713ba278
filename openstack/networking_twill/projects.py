"""Names of projects and of what they are in, asked of Keystone."""

import threading
import time

from keystoneauth1 import adapter
from keystoneauth1 import exceptions
from keystoneauth1 import loading
from oslo_config import cfg
from oslo_log import log

LOG = log.getLogger(__name__)

SECTION = "keystone_authtoken"  # of neutron.conf: as whom neutron-server itself asks
AGAIN = 300  # seconds after which a project is asked for again: it may have another name
PATIENCE = 60  # seconds for which Keystone is not asked after it did not answer
TIMEOUT = 5  # seconds for one answer: somebody waits for his port


class Projects:
    """What is known of projects in this process."""

    def __init__(self):
        self._lock = threading.Lock()
        self._known = {}  # by ID: until when, and name and parent
        self._keystone = None
        self._not_before = 0

    def of(self, id):
        """Name and ID of the parent of a project; empty ones if Keystone has no such project; None: that is not known now."""
        until, found = self._known.get(id, (0, None))
        now = time.monotonic()
        if not id or now < until or now < self._not_before:
            return found
        try:
            found = self._ask(id)
        except Exception as e:  # whatever it is, ports are handed over
            LOG.warning("project %s: Keystone does not say its name: %s; it is asked again in %d s", id, e, PATIENCE)
            self._not_before = now + PATIENCE
            return found
        if found is None:  # there is no Keystone
            self._not_before = float("inf")
            return None
        self._known[id] = (now + AGAIN, found)
        return found

    def _ask(self, id):
        with self._lock:
            if self._keystone is None:
                self._keystone = _connect()
            keystone = self._keystone
        if not keystone:
            return None
        try:
            project = keystone.get("/projects/" + id, timeout=TIMEOUT).json()["project"]
        except exceptions.NotFound:
            return "", ""
        return project.get("name") or "", project.get("parent_id") or ""


def _connect():
    """Keystone as neutron.conf says; False: it says nothing."""
    for register in (loading.register_auth_conf_options, loading.register_session_conf_options):
        try:
            register(cfg.CONF, SECTION)
        except cfg.DuplicateOptError:
            pass  # keystonemiddleware has them, too
    auth = loading.load_auth_from_conf_options(cfg.CONF, SECTION)
    if auth is None:
        return False
    session = loading.load_session_from_conf_options(cfg.CONF, SECTION, auth=auth)
    return adapter.Adapter(session, service_type="identity", interface="internal", min_version="3", max_version="3.latest")
