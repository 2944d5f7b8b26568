"""HTTP as graphcrate uses it: `patienthttp`, whose failures are errors of ours here, with the settings to type."""

import contextlib
from collections.abc import Iterator
from typing import Self

import patienthttp.client
from graphcrate.host.disk.os_errors import MachineError
from graphcrate.model.command import setting
from graphcrate.model.errors import IntegrityError, NetworkError
from patienthttp import errors
from patienthttp.errors import BundleError, DifferentFileError, NoAnswer

#: of which another source is no help
_OF_THIS_MACHINE = frozenset({NoAnswer.NAME_SERVER, NoAnswer.CERTIFICATE, NoAnswer.PROXY})


class HttpError(NetworkError, errors.HttpError):
    """No usable answer."""

    __reduce__ = errors.HttpError.__reduce__

    @classmethod
    def of(cls, reason: NoAnswer, url: str, detail: str = "") -> Self:
        """The error for this address, whose next step names mirrors where they help."""
        error = super().of(reason, url, detail)
        error.next_step = _with_mirrors(error)
        return error


def _with_mirrors(error: errors.HttpError) -> str:
    if error.reason in _OF_THIS_MACHINE:
        return error.next_step
    mirror = setting(mirror="sjtu" if error.reason is NoAnswer.FOREIGN else "…")
    comma = ";" if error.reason is NoAnswer.NAME else ","
    return f"{error.next_step}{comma} or name a mirror: {mirror}"


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except HttpError:
        raise
    except errors.HttpError as error:
        ours = HttpError(error.what, cause=error.cause, next_step=_with_mirrors(error))
        vars(ours).update({name: value for name, value in vars(error).items() if name not in vars(ours)})
        raise ours from error.__cause__
    except DifferentFileError as error:
        raise IntegrityError(
            error.what,
            cause=error.cause,
            next_step=f"{error.next_step}: {setting(mirror='sjtu')}, aliyun or nju for PyTorch's channel, "
            f"or another channel: {setting(channel='pypi')}",
        ) from error
    except BundleError as error:
        raise MachineError(error.what, next_step=error.next_step) from error


class Client(patienthttp.client.Client):
    """Keeps connections open; may be used from many threads."""

    agent = "graphcrate"
    send = _translated()(patienthttp.client.Client.send)
    download = _translated()(patienthttp.client.Client.download)
    state = _translated()(patienthttp.client.Client.state)
