"""Files of signing keys, read with a user's password and made; and what is wrong with one (`dssesign`), in words."""

from collections.abc import Callable, Mapping
from pathlib import Path

from dssesign import keys
from dssesign.errors import KeyFault, UnusableKeyError
from dssesign.keys import PrivateKey, PublicKey
from graphcrate.host.disk import atomic
from graphcrate.model.command import AGAIN, command
from graphcrate.model.errors import UsageError
from projectfiles.files import unreadable

PASSWORD = "COSIGN_PASSWORD"  #: the variable that cosign takes the password from, too
_PRIVATE, _PUBLIC = "cosign.key", "cosign.pub"
_MOST = 1 << 16  #: bytes of a key file; keys have a few hundred


def read_private(path: Path, environment: Mapping[str, str], ask: Callable[[str], str | None]) -> PrivateKey:
    """Read the key that signs. `ask` gets a password of the user, None without a user to ask. Raises UsageError."""
    pem = _read(path, _PRIVATE)
    password: str | None = ""
    if keys.is_locked(pem):
        password = environment.get(PASSWORD)
        if password is None:
            password = ask(f"password of {path}: ")
    if password is None:
        raise UsageError(
            f"{path} is locked and there is no terminal to ask for its password",
            cause="This is not a terminal.",
            next_step=f"{PASSWORD}=… {AGAIN}    (in CI from its secrets)",
        )
    try:
        return keys.parse_private(pem, password.encode())
    except UnusableKeyError as error:
        raise _unusable(path, _PRIVATE, error) from error


def check_readable(path: Path) -> None:
    """Raise UsageError for a private key that cannot be read, before its password is asked for."""
    _read(path, _PRIVATE)


def read_public(path: Path) -> PublicKey:
    """Read the key that checks. Raises UsageError."""
    try:
        return keys.parse_public(_read(path, _PUBLIC))
    except UnusableKeyError as error:
        raise _unusable(path, _PUBLIC, error) from error


def make_pair(folder: Path, password: str) -> tuple[Path, Path]:
    """Make cosign.key (locked with the password, for its owner alone) and cosign.pub; neither may be there.

    Raises UsageError, HostError, DiskFullError; then neither of the two is left.
    """
    private, public = folder / _PRIVATE, folder / _PUBLIC
    made = keys.new_pair(password.encode())
    _create(private, made.private, 0o600)
    try:
        _create(public, made.public, 0o644)
    except BaseException:
        private.unlink()
        raise
    return private, public


def _create(path: Path, content: bytes, mode: int) -> None:
    if not atomic.create(path, content, mode):
        raise UsageError(
            f"{path} is there already",
            cause="What was signed with a key can only be checked with its public part: keys are never replaced.",
            next_step="choose another folder for the new pair",
        )


def _read(path: Path, usual: str) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(_MOST)
    except OSError as error:
        raise UsageError(
            unreadable(path, error)[0],
            next_step=f"name the file with the key, such as {usual}; {command('keys')} makes a pair",
        ) from error


def _unusable(path: Path, file: str, error: UnusableKeyError) -> UsageError:
    if error.fault is KeyFault.PASSWORD:
        return UsageError(
            f"{path} does not open with this password",
            cause=f"It was locked with another one, or {PASSWORD} holds that of another key.",
            next_step=f"{PASSWORD}=… {AGAIN}",
        )
    return UsageError(
        f"{path} is no {file} that can be used: damaged, of another kind, or locked as no cosign does it",
        cause="A key is in PEM form, ECDSA on the curve P-256: what every version of cosign takes by itself.",
        next_step=f"give the file that cosign calls {file}, or make a new pair: {command('keys')}",
    )
