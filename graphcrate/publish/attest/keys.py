"""Signing keys: ECDSA on P-256 with SHA-256, in the PEM forms of cosign, PKCS#8 and SEC 1.

cosign's private key is JSON in PEM: scrypt (RFC 7914) makes a key of the password, libsodium's secret box
(XSalsa20-Poly1305) holds the PKCS#8 key. Shape: github.com/secure-systems-lab/go-securesystemslib, `encrypted`.
"""

import base64
import binascii
import hashlib
import re

import msgspec
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from graphcrate.model.errors import UNREADABLE, UsageError

PASSWORD = "COSIGN_PASSWORD"  #: the variable that cosign takes the password from, too
SALT_BYTES, NONCE_BYTES = 32, 24
_SEALED = ("ENCRYPTED SIGSTORE PRIVATE KEY", "ENCRYPTED COSIGN PRIVATE KEY")  #: written today; by cosign before 2.0
_N, _R, _P = 1 << 16, 8, 1  #: cosign's cost parameters: 64 MiB, a quarter of a second
_MOST_MEMORY = 1 << 28  #: bytes that a key file may make scrypt take
_MOST_ROUNDS = 4
_LINE = 64
_PEM = re.compile(rb"-----BEGIN (?:%b)-----(.*?)-----END " % "|".join(_SEALED).encode(), re.DOTALL)


class PublicKey:
    """What signatures are checked with."""

    def __init__(self, key: ec.EllipticCurvePublicKey) -> None:
        self._key = key

    @property
    def pem(self) -> bytes:
        """As in cosign.pub."""
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        return self._key.public_bytes(serialization.Encoding.PEM, form)

    def fits(self, signature: bytes, data: bytes) -> bool:
        """Whether this key made the signature over just these bytes."""
        try:
            self._key.verify(signature, data, ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            return False
        return True


class PrivateKey:
    """What signs. The same data gets the same signature (RFC 6979), so that publishing again sends nothing."""

    def __init__(self, key: ec.EllipticCurvePrivateKey) -> None:
        self._key = key

    @property
    def public(self) -> PublicKey:
        return PublicKey(self._key.public_key())

    def sign(self, data: bytes) -> bytes:
        """ASN.1 DER of the signature over `data`."""
        return self._key.sign(data, ec.ECDSA(hashes.SHA256(), deterministic_signing=True))

    @property
    def pkcs8(self) -> bytes:
        """DER, not encrypted."""
        return self._key.private_bytes(
            serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )


class _Parameters(msgspec.Struct, frozen=True, kw_only=True, rename={"n": "N"}):
    n: int
    r: int
    p: int


class _Derivation(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    params: _Parameters
    salt: bytes


class _Cipher(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    nonce: bytes


class _Sealed(msgspec.Struct, frozen=True, kw_only=True):
    kdf: _Derivation
    cipher: _Cipher
    ciphertext: bytes


def generate() -> PrivateKey:
    """A new key."""
    return PrivateKey(ec.generate_private_key(ec.SECP256R1()))


def wants_password(pem: bytes) -> bool:
    """Whether a private key is read with a password."""
    return any(f"BEGIN {name}".encode() in pem for name in (*_SEALED, "ENCRYPTED PRIVATE KEY"))


def read_private(pem: bytes, password: bytes, name: str) -> PrivateKey:
    """A private key in any of the forms; `name` is how a person knows it. Raises UsageError."""
    sealed, locked = _PEM.search(pem), wants_password(pem)
    try:
        if sealed:
            key = serialization.load_der_private_key(_open(_unwrap(sealed[1], name), password, name), None)
        else:
            key = serialization.load_pem_private_key(pem, password if locked else None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        if locked and not sealed and isinstance(error, ValueError):
            raise _wrong_password(name) from error
        raise UsageError(
            f"{name} is not a private key in PEM form", next_step="give the file that cosign calls cosign.key"
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise _wrong_kind(name)
    return PrivateKey(key)


def read_public(pem: bytes, name: str) -> PublicKey:
    """A public key (PEM, SubjectPublicKeyInfo). Raises UsageError."""
    try:
        key = serialization.load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UsageError(
            f"{name} is not a public key in PEM form", next_step="give the file that cosign calls cosign.pub"
        ) from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise _wrong_kind(name)
    return PublicKey(key)


def seal(key: PrivateKey, password: bytes, salt: bytes, nonce: bytes) -> bytes:
    """cosign.key: the key as cosign writes and reads it. Salt and nonce are random, of SALT_BYTES and NONCE_BYTES."""
    from nacl.secret import SecretBox

    secret = _stretch(password, salt, _Parameters(n=_N, r=_R, p=_P))
    sealed = _Sealed(
        kdf=_Derivation(name="scrypt", params=_Parameters(n=_N, r=_R, p=_P), salt=salt),
        cipher=_Cipher(name="nacl/secretbox", nonce=nonce),
        ciphertext=SecretBox(secret).encrypt(key.pkcs8, nonce).ciphertext,
    )
    text = base64.b64encode(msgspec.json.encode(sealed)).decode()
    lines = [text[start : start + _LINE] for start in range(0, len(text), _LINE)]
    return "\n".join([f"-----BEGIN {_SEALED[0]}-----", *lines, f"-----END {_SEALED[0]}-----", ""]).encode()


def _unwrap(text: bytes, name: str) -> _Sealed:
    try:
        sealed = msgspec.json.decode(base64.b64decode(b"".join(text.split()), validate=True), type=_Sealed)
    except (binascii.Error, *UNREADABLE) as error:
        raise _damaged(name) from error
    cost = sealed.kdf.params
    known = sealed.kdf.name == "scrypt" and sealed.cipher.name == "nacl/secretbox"
    bearable = cost.n > 1 and not cost.n & (cost.n - 1) and cost.r > 0 and 0 < cost.p <= _MOST_ROUNDS
    if not known or not bearable or 128 * cost.r * cost.n > _MOST_MEMORY:
        raise UsageError(f"{name} is locked in a way that no cosign uses", next_step="make a new key pair")
    if len(sealed.cipher.nonce) != NONCE_BYTES:
        raise _damaged(name)
    return sealed


def _open(sealed: _Sealed, password: bytes, name: str) -> bytes:
    from nacl.exceptions import CryptoError
    from nacl.secret import SecretBox

    try:
        secret = _stretch(password, sealed.kdf.salt, sealed.kdf.params)
        return SecretBox(secret).decrypt(sealed.ciphertext, sealed.cipher.nonce)
    except (CryptoError, ValueError) as error:
        raise _wrong_password(name) from error


def _stretch(password: bytes, salt: bytes, cost: _Parameters) -> bytes:
    return hashlib.scrypt(password, salt=salt, n=cost.n, r=cost.r, p=cost.p, maxmem=2 * _MOST_MEMORY, dklen=32)


def _wrong_password(name: str) -> UsageError:
    return UsageError(
        f"{name} does not open with this password",
        cause=f"It was locked with another one, or {PASSWORD} holds that of another key.",
        next_step=f"{PASSWORD}=… and the same command again",
    )


def _wrong_kind(name: str) -> UsageError:
    return UsageError(
        f"{name} is not an ECDSA key on the curve P-256",
        cause="That is the only kind that every version of cosign takes by itself.",
        next_step="make a new key pair",
    )


def _damaged(name: str) -> UsageError:
    return UsageError(
        f"{name} is damaged: it is not a whole cosign key", next_step="copy it again from where it was made"
    )
