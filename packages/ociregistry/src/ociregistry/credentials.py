"""Logins that `docker login` and `podman login` left on this machine.

Files, first that knows the registry: `$REGISTRY_AUTH_FILE`, `$XDG_RUNTIME_DIR/containers/auth.json` (without the
variable `/run/containers/<uid>/auth.json`), `$XDG_CONFIG_HOME/containers/auth.json`, `$DOCKER_CONFIG/config.json`
(containers-auth.json(5), Docker's config.json).
"""

import base64
import binascii
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from ociregistry.errors import UNREADABLE
from ociregistry.reference import DOCKER_HUB, Reference

_DOCKER_HUB_KEYS = ("index.docker.io", "docker.io", "registry-1.docker.io")
_RUN = Path("/run/containers")  #: has a folder for each user, where podman logs in who has no XDG_RUNTIME_DIR
_IDENTITY = "<token>"  #: the user name with which a helper says that the secret is an identity token


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """A login: a user with a password, or an identity token (OAuth 2 refresh token). `given`: by which settings."""

    user: str = ""
    password: str = ""
    identity_token: str = ""
    given: str = ""

    @property
    def basic(self) -> str:
        """Value of an `Authorization` header."""
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()

    @property
    def secrets(self) -> set[str]:
        """Return the words that may appear in no text."""
        return {self.password, self.identity_token, self.basic.removeprefix("Basic ")} - {""}

    def __repr__(self) -> str:
        return f"Credential(user={self.user!r}, …)"


class _Entry(msgspec.Struct, rename={"identity_token": "identitytoken"}):
    auth: str = ""
    username: str = ""
    password: str = ""
    identity_token: str = ""


class _Config(msgspec.Struct, rename="camel"):
    auths: dict[str, _Entry] = {}
    cred_helpers: dict[str, str] = {}
    creds_store: str = ""


#: Made once: msgspec crashes where several threads are the first to resolve the annotations of a type.
_CONFIG = msgspec.json.Decoder(_Config)
#: gives what Docker's credential helper of this name ("pass") answers about a registry; None where it gives nothing
Ask = Callable[[str, str], str | None]
HELPER_SECONDS = 30.0


def ask(helper: str, registry: str) -> str | None:
    """Run a credential helper, where it is installed."""
    program = shutil.which(f"docker-credential-{helper}")
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, "get"], input=registry.encode(), capture_output=True, timeout=HELPER_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "replace")


def find(reference: Reference, environment: Mapping[str, str], ask: Ask = ask) -> Credential | None:
    """The login for this image, or None. Files that cannot be read or parsed are passed over."""
    for path in _files(environment):
        try:
            config = _CONFIG.decode(path.read_bytes())
        except (OSError, *UNREADABLE):
            continue
        credential = _in_file(config, reference) or _from_helper(config, reference.host, ask)
        if credential is not None:
            return credential
    return None


def _files(environment: Mapping[str, str]) -> Iterator[Path]:
    home = environment.get("HOME", "")
    if chosen := environment.get("REGISTRY_AUTH_FILE"):
        yield Path(chosen)
    runtime = environment.get("XDG_RUNTIME_DIR")
    yield (Path(runtime) / "containers" if runtime else _RUN / str(os.getuid())) / "auth.json"
    if config := environment.get("XDG_CONFIG_HOME") or (home and f"{home}/.config"):
        yield Path(config) / "containers" / "auth.json"
    if docker := environment.get("DOCKER_CONFIG") or (home and f"{home}/.docker"):
        yield Path(docker) / "config.json"


def _in_file(config: _Config, reference: Reference) -> Credential | None:
    """The entry for the longest part of `host/repository`."""
    known = {_key(key): entry for key, entry in config.auths.items()}
    parts = reference.name.split("/")
    names = ["/".join(parts[:end]) for end in range(len(parts), 0, -1)]
    if reference.host == DOCKER_HUB:
        names += _DOCKER_HUB_KEYS
    for name in names:
        if (entry := known.get(name)) is not None and (credential := _credential(entry)) is not None:
            return credential
    return None


def _key(key: str) -> str:
    """`https://index.docker.io/v1/` → `index.docker.io`; `quay.io/team` stays."""
    bare = key.removeprefix("https://").removeprefix("http://").rstrip("/")
    return bare.removesuffix("/v1").removesuffix("/v2")


def _credential(entry: _Entry) -> Credential | None:
    if entry.identity_token:
        return Credential(identity_token=entry.identity_token)
    if entry.username:
        return Credential(user=entry.username, password=entry.password)
    try:
        user, colon, password = base64.b64decode(entry.auth, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return Credential(user=user, password=password.rstrip("\0")) if colon else None


def _from_helper(config: _Config, host: str, ask: Ask) -> Credential | None:
    """Ask Docker's credential helper, where one is set up and installed."""
    keys = ("https://index.docker.io/v1/", *_DOCKER_HUB_KEYS) if host == DOCKER_HUB else (host, f"https://{host}")
    helper = next((config.cred_helpers[key] for key in keys if key in config.cred_helpers), config.creds_store)
    for key in keys if helper else ():
        try:
            answer = json.loads(ask(helper, key) or "")
            user, secret = str(answer["Username"]), str(answer["Secret"])
        except (ValueError, KeyError, TypeError):
            continue
        return Credential(identity_token=secret) if user == _IDENTITY else Credential(user=user, password=secret)
    return None
