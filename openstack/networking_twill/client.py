"""Calls of `twill openstack-plugin`, which answers on a unix socket."""

import http.client
import json
import socket


class Failed(Exception):
    """The plugin is away, or the datastore is: it is worth to try again."""


class Refused(Exception):
    """The plugin does not take it, and never will."""


class _Connection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("twill", timeout=timeout)
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def call(path, method, url, body=None, timeout=40):
    """Makes one call, and returns what it answers.

    path is that of the socket, body an object of Neutron's, timeout in seconds.
    """
    conn = _Connection(path, timeout)
    try:
        conn.request(method, url, body=None if body is None else json.dumps(body, default=str),
                     headers={"Content-Type": "application/json"})
        answer = conn.getresponse()
        text = answer.read()
        result = json.loads(text)
    except (OSError, ValueError, http.client.HTTPException) as e:
        raise Failed("twill openstack-plugin does not answer at %s: %s" % (path, e)) from e
    finally:
        conn.close()
    if answer.status == 200:
        return result
    error = result.get("error", text)
    if answer.status in (409, 503):
        raise Failed(error)
    raise Refused(error)
