"""Key files: read with the password from the environment or a person, and new pairs as cosign makes them."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from graphcrate.host import atomic
from graphcrate.model.errors import UsageError
from graphcrate.publish.attest import keys

KEY, PUBLIC = "cosign.key", "cosign.pub"
_MOST = 1 << 16  #: bytes; keys have a few hundred


def read_private(path: Path, environment: Mapping[str, str], ask: Callable[[str], str | None]) -> keys.PrivateKey:
    """The key that signs. `ask` gets a password of a person, None where there is nobody. Raises UsageError."""
    pem = _read(path)
    password: str | None = ""
    if keys.wants_password(pem):
        password = environment.get(keys.PASSWORD)
        if password is None:
            password = ask(f"password of {path}: ")
    if password is None:
        raise UsageError(
            f"{path} is locked and there is no terminal to ask for its password",
            cause="This is not a terminal.",
            next_step=f"{keys.PASSWORD}=… and the same command again    (in CI from its secrets)",
        )
    return keys.read_private(pem, password.encode(), str(path))


def read_public(path: Path) -> keys.PublicKey:
    """The key that checks. Raises UsageError."""
    return keys.read_public(_read(path), str(path))


def make_pair(folder: Path, password: str) -> tuple[Path, Path]:
    """New cosign.key (locked with the password, for its owner alone) and cosign.pub; neither may be there.

    Raises UsageError, HostError, DiskFullError; then neither of the two is left.
    """
    private, public = folder / KEY, folder / PUBLIC
    key = keys.generate()
    salt, nonce = os.urandom(keys.SALT_BYTES), os.urandom(keys.NONCE_BYTES)
    sealed = keys.seal(key, password.encode(), salt, nonce)
    _create(private, sealed, 0o600)
    try:
        _create(public, key.public.pem, 0o644)
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


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(_MOST)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}", next_step="name the file with the key, such as cosign.key"
        ) from error
