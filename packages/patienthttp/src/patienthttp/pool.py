"""Connections of urllib3: through a proxy or straight, with the certificates to trust, and with an ear while sending.

A registry that refuses a chunk (429, 503, 401, 413) says so at the headers, and then often reads on politely. The rest
of the chunk would be sent for nothing, and so would what the kernel has taken but not sent: it is told to take little
and to drop that.
"""

import socket
import ssl
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from patienthttp import patience
from patienthttp.connections import BUNDLES, without_credentials
from patienthttp.errors import BundleError

CONNECTIONS = 16  #: kept open per host
UNSENT = 1 << 17  #: bytes that the kernel takes ahead of what it can send; those on their way do not count
_RESET = struct.pack("ii", 1, 0)  #: SO_LINGER: drop what is unsent


class _Listening(HTTPConnection):
    """Ends a body that is sent in pieces as soon as the server has answered; urllib3 then reads the answer.

    Such a connection is not used again.
    """

    _used = _abandoned = False

    response_class = patience.LimitedResponse

    @property
    def is_connected(self) -> bool:
        return not self._abandoned and super().is_connected

    def connect(self) -> None:
        self._used = self._abandoned = False
        super().connect()

    def send(self, data: Any) -> None:  # noqa: ANN401
        """As of the standard library, for bytes under the limits of `patience`; urllib3 sends nothing else."""
        if not isinstance(data, (bytes, bytearray, memoryview)):
            super().send(data)
            return
        if self.sock is None:
            self.connect()
        patience.send(self.sock, data)

    def request(self, method: str, url: str, body: Any = None, *arguments: Any, **options: Any) -> None:  # noqa: ANN401
        pieces = body if body is None or isinstance(body, bytes) else self._until_answered(body)
        super().request(method, url, pieces, *arguments, **options)
        self._used = True

    def _until_answered(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        # The first bytes of a TLS 1.3 server are session tickets; they are read along with the first answer.
        deaf = isinstance(self.sock, ssl.SSLSocket) and not self._used
        for piece in pieces:
            if not deaf and not self.is_connected:
                self._abandoned = True
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                raise BrokenPipeError("answered before the body was sent")
            yield piece


class _ListeningTls(_Listening, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Listening


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _ListeningTls


def make_pool(proxy: str, secure: bool, environment: Mapping[str, str]) -> urllib3.PoolManager:
    """Connections through this proxy, or straight when it is empty. `secure`: with TLS on the way."""
    options: dict[str, Any] = {
        "maxsize": CONNECTIONS,
        "timeout": urllib3.Timeout(connect=patience.CONNECT_SECONDS, read=patience.SILENT_SECONDS),
        # Reading the system's certificates takes 30 ms.
        "ssl_context": _certificates(environment) if secure else None,
        "socket_options": [
            *HTTPConnection.default_socket_options,
            (socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT),
        ],
    }
    if proxy:
        address, credentials = without_credentials(proxy)
        headers = urllib3.make_headers(proxy_basic_auth=credentials) if credentials else None
        made: urllib3.PoolManager = urllib3.ProxyManager(address, proxy_headers=headers, **options)
    else:
        made = urllib3.PoolManager(**options)
    made.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}
    return made


def _certificates(environment: Mapping[str, str]) -> ssl.SSLContext:
    name = next((name for name in BUNDLES if environment.get(name)), "SSL_CERT_DIR")
    chosen = environment.get(name)
    if not chosen:
        return ssl.create_default_context()
    try:
        folder = Path(chosen).is_dir()
        return ssl.create_default_context(cafile=None if folder else chosen, capath=chosen if folder else None)
    except OSError as error:
        raise BundleError(
            f"{name}={chosen} is not a usable certificate bundle: {error.strerror or error}",
            next_step=f"let {name} name a PEM file with the certificates to trust, or unset it",
        ) from error
