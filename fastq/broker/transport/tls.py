"""TLS for the connections of all of redis-py's clients, some of which lack settings for TLS.

None of them can set a name of the server that is not the host of the URL.
"""

import ssl
from pathlib import Path
from typing import Any, ClassVar, Final

from redis.asyncio.connection import Connection as AsyncConnection
from redis.asyncio.connection import SSLConnection as AsyncSSLConnection
from redis.asyncio.sentinel import SentinelManagedConnection as AsyncSentinelManagedConnection
from redis.asyncio.sentinel import SentinelManagedSSLConnection as AsyncSentinelManagedSSLConnection
from redis.connection import Connection, SSLConnection
from redis.sentinel import SentinelManagedConnection, SentinelManagedSSLConnection

from fastq.broker.transport.uri import TLSFiles
from fastq.errors import BrokerConnectionError

_SECURE: Final[dict[type, type]] = {
    Connection: SSLConnection,
    SentinelManagedConnection: SentinelManagedSSLConnection,
    AsyncConnection: AsyncSSLConnection,
    AsyncSentinelManagedConnection: AsyncSentinelManagedSSLConnection,
}
_FILES: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")


class _Secure:
    """redis-py's connections over TLS, with additions. redis-py reads the files anew for each connection."""

    tls: ClassVar[TLSFiles]
    host: str
    ssl_context: Any

    def __init__(self, **settings: Any) -> None:
        tls = self.tls
        version = ssl.TLSVersion[tls.ssl_min_version.replace(".", "_")] if tls.ssl_min_version else None
        files = {name: getattr(tls, name) for name in _FILES}
        more = {"ssl_cert_reqs": tls.ssl_cert_reqs, "ssl_password": tls.ssl_password, "ssl_min_version": version}
        super().__init__(**settings, **files, **more)

    def _wrap_socket_with_ssl(self, sock: Any) -> Any:
        # For blocking connections: redis-py expects the host's name in the server's certificate.
        host, self.host = self.host, self.tls.ssl_server_name or self.host
        try:
            return super()._wrap_socket_with_ssl(sock)  # type: ignore[misc]  # that of redis-py's class
        finally:
            self.host = host

    def _connection_arguments(self) -> dict[str, Any]:
        # For asyncio connections, which would otherwise keep the files as they were first read.
        self.ssl_context.context = None
        arguments: dict[str, Any] = super()._connection_arguments()  # type: ignore[misc]  # that of redis-py's class
        name = self.tls.ssl_server_name
        return {**arguments, "server_hostname": name} if name else arguments


def tls_class(tls: TLSFiles, plain: type = Connection) -> type:
    """Return the TLS class for a class of plain connections, which is redis-py's or derived from one of them."""
    if plain in _SECURE:
        return type("SecureConnection", (_Secure, _SECURE[plain]), {"tls": tls})
    (base,) = plain.__bases__
    return type("SecureConnection", (_Secure, plain, _SECURE[base]), {"tls": tls})


def use_tls(tls: TLSFiles | None, *pools: Any) -> None:
    """Let pools, or cluster nodes, make their connections over TLS if ``tls`` is given; none may be open yet."""
    if tls is not None:
        for pool in pools:
            pool.connection_class = tls_class(tls, pool.connection_class)


def check_files(tls: TLSFiles) -> None:
    """Raise ``BrokerConnectionError`` if a file cannot be used; it names the parameter and the file."""
    for name in _FILES:
        if path := getattr(tls, name):
            try:
                Path(path).read_bytes()
            except OSError as error:
                raise _flaw(f"{name}: cannot read {path}: {error.strerror}") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if tls.ssl_ca_certs:
        try:
            context.load_verify_locations(tls.ssl_ca_certs)
        except ssl.SSLError as error:
            raise _flaw(f"ssl_ca_certs: {tls.ssl_ca_certs} holds no certificate: {error}") from None
    if tls.ssl_certfile:
        try:
            context.load_cert_chain(tls.ssl_certfile, tls.ssl_keyfile, tls.ssl_password)
        except ssl.SSLError as error:
            text = f"cannot use {tls.ssl_certfile} with {tls.ssl_keyfile or 'the key in it'}"
            raise _flaw(f"ssl_certfile: {text}: {error}; ssl_password is the password of an encrypted key") from None


def _flaw(text: str) -> BrokerConnectionError:
    error = BrokerConnectionError(text, operation="connect")
    error.transient = False
    return error
