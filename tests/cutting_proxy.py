"""A TCP proxy in front of a Redis server that loses the reply to a command, as a broken network does."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock, Thread

_CHUNK = 1 << 16


class CuttingProxy:
    """Forward everything, but cut the connection in place of the reply to any command that contains ``marker``.

    The server has run the command by then: its reply is read and thrown away. ``times_seen`` counts such commands.
    """

    def __init__(self, socket_path: str, port: int = 0) -> None:
        self.marker = b""
        self.times_seen = 0
        self._socket_path = socket_path
        self._lock = Lock()
        self._is_closed = False
        self._open: set[socket.socket] = set()
        self._threads: list[Thread] = []
        self._listener = socket.create_server(("127.0.0.1", port))
        self._acceptor = Thread(target=self._accept, name="cutting-proxy")
        self._acceptor.start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._acceptor.join()
        self._listener.close()
        with self._lock:
            self._is_closed = True  # for a connection that was accepted, and is not among the open ones yet
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        with suppress(OSError):  # the listener was shut down
            while True:
                client, _ = self._listener.accept()
                thread = Thread(target=self._serve, args=(client,), name="cutting-proxy-connection")
                self._threads.append(thread)
                thread.start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server, suppress(OSError):
            server.connect(self._socket_path)
            with self._lock:
                self._open |= {client, server}
                if self._is_closed:
                    return
            back = Thread(target=self._pump, args=(server, client), name="cutting-proxy-replies")
            back.start()
            try:
                self._forward(client, server)
            finally:
                for end in (client, server):
                    with suppress(OSError):
                        end.shutdown(socket.SHUT_RDWR)
                back.join()
                with self._lock:
                    self._open -= {client, server}

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        while data := client.recv(_CHUNK):
            if not self.marker or self.marker not in data:
                server.sendall(data)
                continue
            with self._lock:
                self.times_seen += data.count(self.marker)
            self._run_and_lose_reply(data)
            return

    def _run_and_lose_reply(self, data: bytes) -> None:
        with socket.socket(socket.AF_UNIX) as server:
            server.connect(self._socket_path)
            server.sendall(data)
            server.recv(_CHUNK)

    def _pump(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(_CHUNK):
                client.sendall(data)


@contextmanager
def cutting_proxy(socket_path: str, port: int = 0) -> Iterator[CuttingProxy]:
    """Run a proxy in front of the server at a Unix socket; it loses nothing until ``marker`` is set."""
    proxy = CuttingProxy(socket_path, port)
    try:
        yield proxy
    finally:
        proxy.close()
