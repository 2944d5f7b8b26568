"""Signing keys and their files: ECDSA on P-256 with SHA-256, in the PEM forms of cosign, PKCS#8 and SEC 1.

cosign's private key is JSON in PEM: scrypt (RFC 7914) makes a key of the password, libsodium's secret box
(XSalsa20-Poly1305) holds the PKCS#8 key. Shape: github.com/secure-systems-lab/go-securesystemslib, `encrypted`.
"""

import base64
import hashlib
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed

from graphcrate.host.disk import atomic
from graphcrate.model import codec
from graphcrate.model.command import AGAIN, command
from graphcrate.model.errors import UNREADABLE, UsageError

PASSWORD = "COSIGN_PASSWORD"  #: the variable that cosign takes the password from, too
SIGNATURE = (
    ".sig"  #: of a file, in the name of the one beside it that has its signature, as `cosign sign-blob` writes it
)
PrivateKey = ec.EllipticCurvePrivateKey
PublicKey = ec.EllipticCurvePublicKey
_SEALED = ("ENCRYPTED SIGSTORE PRIVATE KEY", "ENCRYPTED COSIGN PRIVATE KEY")  #: written today; by cosign before 2.0
_PEM = re.compile(rb"-----BEGIN (?:%b)-----(.*?)-----END " % "|".join(_SEALED).encode(), re.DOTALL)
_LINE = 64
_MOST = 1 << 16  #: bytes of a key file; keys have a few hundred


class _Cost(msgspec.Struct, frozen=True, kw_only=True, rename={"n": "N"}):
    """Of scrypt: what a cosign has used; today's are 64 MiB and a quarter of a second."""

    n: Literal[32_768, 65_536, 131_072] = 65_536
    r: Literal[8] = 8
    p: Literal[1] = 1


class _Derivation(msgspec.Struct, frozen=True, kw_only=True):
    name: Literal["scrypt"] = "scrypt"
    params: _Cost = _Cost()
    salt: bytes


class _Cipher(msgspec.Struct, frozen=True, kw_only=True):
    name: Literal["nacl/secretbox"] = "nacl/secretbox"
    nonce: Annotated[bytes, msgspec.Meta(min_length=24, max_length=24)]


class _Sealed(msgspec.Struct, frozen=True, kw_only=True):
    kdf: _Derivation
    cipher: _Cipher
    ciphertext: bytes


def sign(key: PrivateKey, data: bytes) -> bytes:
    """ASN.1 DER of the signature. The same data gets the same one (RFC 6979): publishing again sends nothing."""
    return key.sign(data, ec.ECDSA(hashes.SHA256(), deterministic_signing=True))


def fits(key: PublicKey, signature: bytes, data: bytes) -> bool:
    """Return whether this key made the signature over just these bytes."""
    try:
        key.verify(signature, data, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


def sign_file(key: PrivateKey, sha256: str) -> bytes:
    """Sign the file of this hash. Return what is beside it then: `cosign verify-blob --signature` takes that."""
    signed = ec.ECDSA(Prehashed(hashes.SHA256()), deterministic_signing=True)
    return base64.b64encode(key.sign(bytes.fromhex(sha256), signed)) + b"\n"


def fits_file(key: PublicKey, beside: bytes, sha256: str) -> bool:
    """Return whether this key made the signature that is beside the file of this hash."""
    try:
        signature = base64.b64decode(beside.strip(), validate=True)
        key.verify(signature, bytes.fromhex(sha256), ec.ECDSA(Prehashed(hashes.SHA256())))
    except (InvalidSignature, ValueError):
        return False
    return True


def read_private(path: Path, environment: Mapping[str, str], ask: Callable[[str], str | None]) -> PrivateKey:
    """The key that signs. `ask` gets a password of the user, None without a user to ask. Raises UsageError."""
    pem = _read(path, "cosign.key")
    password: str | None = ""
    if _wants_password(pem):
        password = environment.get(PASSWORD)
        if password is None:
            password = ask(f"password of {path}: ")
    if password is None:
        raise UsageError(
            f"{path} is locked and there is no terminal to ask for its password",
            cause="This is not a terminal.",
            next_step=f"{PASSWORD}=… {AGAIN}    (in CI from its secrets)",
        )
    return parse_private(pem, password.encode(), str(path))


def check_readable(path: Path) -> None:
    """Raise UsageError for a file that cannot be read, before its password is asked for."""
    _read(path, "cosign.key")


def parse_private(pem: bytes, password: bytes, name: str) -> PrivateKey:
    """A private key in any of the forms; `name` is how the user knows it. Raises UsageError."""
    sealed, locked = _PEM.search(pem), _wants_password(pem)
    try:
        if sealed:
            key = serialization.load_der_private_key(_unseal(sealed[1], password, name), None)
        else:
            key = serialization.load_pem_private_key(pem, password if locked else None)
    except (ValueError, TypeError, UnsupportedAlgorithm, *UNREADABLE) as error:
        if locked and not sealed and isinstance(error, ValueError):
            raise _wrong_password(name) from error
        raise _no_key(name, "cosign.key") from error
    if not isinstance(key, PrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise _no_key(name, "cosign.key")
    return key


def read_public(path: Path) -> PublicKey:
    """The key that checks. Raises UsageError."""
    return parse_public(_read(path, "cosign.pub"), str(path))


def parse_public(pem: bytes, name: str) -> PublicKey:
    """A public key (PEM, SubjectPublicKeyInfo). Raises UsageError."""
    try:
        key = serialization.load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise _no_key(name, "cosign.pub") from error
    if not isinstance(key, PublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise _no_key(name, "cosign.pub")
    return key


def make_pair(folder: Path, password: str) -> tuple[Path, Path]:
    """New cosign.key (locked with the password, for its owner alone) and cosign.pub; neither may be there.

    Raises UsageError, HostError, DiskFullError; then neither of the two is left.
    """
    private, public = folder / "cosign.key", folder / "cosign.pub"
    key = ec.generate_private_key(ec.SECP256R1())
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    _create(private, seal(key, password.encode(), os.urandom(32), os.urandom(24)), 0o600)
    try:
        _create(public, key.public_key().public_bytes(serialization.Encoding.PEM, form), 0o644)
    except BaseException:
        private.unlink()
        raise
    return private, public


def seal(key: PrivateKey, password: bytes, salt: bytes, nonce: bytes) -> bytes:
    """cosign.key: the key as cosign writes and reads it. `salt` and `nonce` are 32 and 24 random bytes."""
    from nacl.secret import SecretBox

    derivation = _Derivation(salt=salt)
    secret = _stretch(password, derivation)
    pkcs8 = key.private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    ciphertext = SecretBox(secret).encrypt(pkcs8, nonce).ciphertext
    sealed = _Sealed(kdf=derivation, cipher=_Cipher(nonce=nonce), ciphertext=ciphertext)
    text = base64.b64encode(msgspec.json.encode(sealed)).decode()
    lines = [text[start : start + _LINE] for start in range(0, len(text), _LINE)]
    return "\n".join([f"-----BEGIN {_SEALED[0]}-----", *lines, f"-----END {_SEALED[0]}-----", ""]).encode()


def _unseal(text: bytes, password: bytes, name: str) -> bytes:
    """The PKCS#8 key. Raises UsageError for another password, ValueError or what `UNREADABLE` has for damage."""
    from nacl.exceptions import CryptoError
    from nacl.secret import SecretBox

    sealed = codec.decode(base64.b64decode(b"".join(text.split()), validate=True), _Sealed)
    try:
        return SecretBox(_stretch(password, sealed.kdf)).decrypt(sealed.ciphertext, sealed.cipher.nonce)
    except (CryptoError, ValueError) as error:
        raise _wrong_password(name) from error


def _stretch(password: bytes, kdf: _Derivation) -> bytes:
    cost = kdf.params
    return hashlib.scrypt(password, salt=kdf.salt, n=cost.n, r=cost.r, p=cost.p, maxmem=1 << 28, dklen=32)


def _wants_password(pem: bytes) -> bool:
    return any(f"BEGIN {name}".encode() in pem for name in (*_SEALED, "ENCRYPTED PRIVATE KEY"))


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
            f"{path} cannot be read: {error.strerror}",
            next_step=f"name the file with the key, such as {usual}; {command('keys')} makes a pair",
        ) from error


def _wrong_password(name: str) -> UsageError:
    return UsageError(
        f"{name} does not open with this password",
        cause=f"It was locked with another one, or {PASSWORD} holds that of another key.",
        next_step=f"{PASSWORD}=… {AGAIN}",
    )


def _no_key(name: str, file: str) -> UsageError:
    return UsageError(
        f"{name} is no {file} that can be used: damaged, of another kind, or locked as no cosign does it",
        cause="A key is in PEM form, ECDSA on the curve P-256: what every version of cosign takes by itself.",
        next_step=f"give the file that cosign calls {file}, or make a new pair: {command('keys')}",
    )
