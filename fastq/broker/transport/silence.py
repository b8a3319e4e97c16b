"""A node of a Redis Cluster that did not answer a blocking client in time, and whether it reacts again.

No call waits for the node. A PING is sent on a connection of its own, and each call with commands for the node looks
whether there is a reaction. A refused connection and an error are reactions, too. A call waits only for the look-up of
a host name, once in three seconds.
"""

import errno
import socket
import threading
import time
from typing import Final

from fastq.broker.transport.probing import LOOK_EVERY_S

_RENEW_S: Final = 3.0
"""The longest time without a reaction on one connection.

After it, a new one is made: the old one may lead to a machine that is gone.
"""
_UNDER_WAY: Final = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EINPROGRESS, errno.ENOTCONN)


class Silence:
    """The silence of a node; ``name`` is the node's address, ``fault`` the error that showed the silence."""

    def __init__(self, name: str, fault: Exception) -> None:
        self.fault = fault
        self._host, _, self._port = name.rpartition(":")
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._is_asked = False
        self._renew_at_s = 0.0
        self._look_at_s = 0.0

    def __del__(self) -> None:
        self._close()

    def is_over(self) -> bool:
        """Return whether the node has reacted; False while another thread looks."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            return self._has_reacted()
        finally:
            self._lock.release()

    def is_time_to_look(self) -> bool:
        """Return whether to look for the node's successor now; True once in ``LOOK_EVERY_S``."""
        if (now_s := time.monotonic()) < self._look_at_s:
            return False
        self._look_at_s = now_s + LOOK_EVERY_S
        return True

    def _has_reacted(self) -> bool:
        try:
            sock = self._socket or self._connect()
            if not self._is_asked:
                sock.send(b"PING\r\n")
                self._is_asked = True
            sock.recv(1)
        except OSError as error:
            if error.errno in _UNDER_WAY:
                if time.monotonic() >= self._renew_at_s:
                    self._close()
                return False
        self._close()
        return True

    def _connect(self) -> socket.socket:
        family, kind, protocol, _, address = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)[0]
        sock = self._socket = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        self._is_asked, self._renew_at_s = False, time.monotonic() + _RENEW_S
        if code := sock.connect_ex(address):
            raise OSError(code, "connecting")
        return sock

    def _close(self) -> None:
        sock, self._socket = self._socket, None
        if sock is not None:
            sock.close()
