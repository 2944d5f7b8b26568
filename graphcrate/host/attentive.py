"""Connections that listen while they send: a server that answers early gets no more of the body.

A registry that refuses a chunk (429, 503, 401, 413) says so at the headers, and then often reads on politely. Whoever
sends the rest of the chunk first has sent it for nothing; so would the kernel what it has taken but not sent, and it
is told to take little and to drop that. A connection whose body was left in the middle is not used again.
"""

import socket
import ssl
import struct

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.response import HTTPResponse
from urllib3.util.wait import wait_for_read

UNSENT = 1 << 17  #: bytes that the kernel takes ahead of what it can send; those on their way do not count
_RESET = struct.pack("ii", 1, 0)  #: SO_LINGER: drop what is unsent


class _Attentive(HTTPConnection):
    """Raises BrokenPipeError in mid-body once the server has said something; urllib3 then reads the answer."""

    _in_body = False
    _cut = False
    _answers = 0

    @property
    def is_connected(self) -> bool:
        return not self._cut and super().is_connected

    def putrequest(self, method: str, url: str, skip_host: bool = False, skip_accept_encoding: bool = False) -> None:
        self._in_body = False
        super().putrequest(method, url, skip_host, skip_accept_encoding)

    def endheaders(self, message_body: bytes | None = None, *, encode_chunked: bool = False) -> None:  # type: ignore[override]
        super().endheaders(message_body, encode_chunked=encode_chunked)
        self._in_body = True

    def connect(self) -> None:
        self._answers, self._cut = 0, False
        super().connect()
        if self.sock is not None:
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT)

    def getresponse(self) -> HTTPResponse:  # type: ignore[override]
        response = super().getresponse()
        self._answers += 1
        return response

    def send(self, data: bytes) -> None:  # type: ignore[override]
        if self._in_body and self._is_answered():
            self._cut = True
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            raise BrokenPipeError("answered before the body was sent")
        super().send(data)

    def _is_answered(self) -> bool:
        # The first bytes of a TLS 1.3 server are session tickets; they are read along with the first answer.
        if self.sock is None or (isinstance(self.sock, ssl.SSLSocket) and not self._answers):
            return False
        return wait_for_read(self.sock, timeout=0)


class _AttentiveTls(_Attentive, HTTPSConnection):
    pass


class AttentivePool(HTTPConnectionPool):
    """For `PoolManager.pool_classes_by_scheme`, at `http`."""

    ConnectionCls = _Attentive


class AttentiveTlsPool(HTTPSConnectionPool):
    """The same at `https`."""

    ConnectionCls = _AttentiveTls
