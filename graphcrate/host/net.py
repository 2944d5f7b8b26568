"""HTTP as graphcrate uses it: `patienthttp`, whose failures are errors of ours here, with the settings to type."""

import contextlib
import os
import shlex
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import patienthttp.client
from graphcrate.host.disk.os_errors import MachineError
from graphcrate.model.command import ETC, command
from graphcrate.model.errors import HostError, IntegrityError, NetworkError
from patienthttp import errors
from patienthttp.errors import BundleError, DifferentFileError, FetchFailure, NoAnswer

#: of which another source is no help
_OF_THIS_MACHINE = frozenset({NoAnswer.NAME_SERVER, NoAnswer.CERTIFICATE}) | errors.OF_THE_PROXY


class HttpError(NetworkError, errors.HttpError):
    """No usable answer."""

    __reduce__ = errors.HttpError.__reduce__
    brief = errors.HttpError.brief

    @classmethod
    def because(cls, failure: FetchFailure) -> Self:
        """The error for this failure, whose next step names mirrors where they help."""
        error = super().because(failure)
        if failure.kind not in _OF_THIS_MACHINE:
            mirror = command("image", ETC, mirror="sjtu" if failure.kind is NoAnswer.FOREIGN else ETC)
            comma = ";" if failure.kind is NoAnswer.NAME else ","
            error.next_step += f"{comma} or name a mirror: {mirror}"
        return error

    @classmethod
    def of_theirs(cls, error: errors.HttpError) -> Self:
        """The same error as one of ours."""
        if isinstance(error, cls):
            return error
        ours = cls.because(error.failure)
        ours.retry_after, ours.is_final = error.retry_after, error.is_final
        return ours

    @property
    def why(self) -> str:
        """In a few words, beside the name of the server."""
        return self.failure.why


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except HttpError:
        raise
    except errors.HttpError as error:
        raise HttpError.of_theirs(error) from error.__cause__
    except DifferentFileError as error:
        raise IntegrityError(
            error.what,
            cause=error.cause,
            next_step=f"{error.next_step}: {command('image', ETC, mirror='sjtu')} (aliyun, nju) for PyTorch's channel, "
            f"or another channel: {command('image', ETC, channel='pypi')}",
        ) from error
    except BundleError as error:
        raise MachineError(error.what, next_step=error.next_step) from error


class Client(patienthttp.client.Client):
    """Keeps connections open; may be used from many threads."""

    agent = "graphcrate"
    send = _translated()(patienthttp.client.Client.send)
    download = _translated()(patienthttp.client.Client.download)
    state = _translated()(patienthttp.client.Client.state)


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address; port 0: any that is free. Raises HostError."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, OverflowError) as error:
        raise HostError(
            f"{host}:{port} is not an address to listen at: {getattr(error, 'strerror', '') or error}",
            next_step=f"--listen {host}:0    (any port that is free)",
        ) from error


def listening_file(path: Path) -> socket.socket:
    """Return a socket that is a file, for its owner and group; the folder's group, where the folder is setgid.

    One that a server left is replaced. Raises HostError.
    """
    listener = socket.socket(socket.AF_UNIX)
    try:
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISSOCK(path.lstat().st_mode) and not _answers(path):
                path.unlink()
        listener.bind(os.fspath(path))
        path.chmod(0o660)  # nobody can connect before it listens
        listener.listen(socket.SOMAXCONN)
    except OSError as error:
        listener.close()
        raise HostError(
            f"{path} is not a socket to listen at: {error.strerror or error}",
            next_step=f"ls -ld {shlex.quote(os.fspath(path.parent))}    (it has to be yours; no server may use it)",
        ) from error
    return listener


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as caller:
        return caller.connect_ex(os.fspath(path)) == 0
