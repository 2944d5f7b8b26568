"""Signing keys in their files' forms: ECDSA on P-256 with SHA-256; PEM of cosign, PKCS#8 and SEC 1.

cosign's private key is JSON in PEM: scrypt (RFC 7914) makes a key of the password, libsodium's secret box
(XSalsa20-Poly1305) holds the PKCS#8 key. Shape: github.com/secure-systems-lab/go-securesystemslib, `encrypted`.
"""

import base64
import hashlib
import os
import re
from typing import Annotated, Literal, NamedTuple

import msgspec
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed

from dssesign.errors import UNREADABLE, KeyFault, UnusableKeyError

SIGNATURE = (
    ".sig"  #: of a file, in the name of the one beside it that has its signature, as `cosign sign-blob` writes it
)
PrivateKey = ec.EllipticCurvePrivateKey
PublicKey = ec.EllipticCurvePublicKey
_SEALED = ("ENCRYPTED SIGSTORE PRIVATE KEY", "ENCRYPTED COSIGN PRIVATE KEY")  #: written today; by cosign before 2.0
_PEM = re.compile(rb"-----BEGIN (?:%b)-----(.*?)-----END " % "|".join(_SEALED).encode(), re.DOTALL)
_LINE = 64


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


_READER = msgspec.json.Decoder(_Sealed)  # made here: the first use of a type by several threads crashes msgspec


class KeyPair(NamedTuple):
    """The bytes of cosign.key and cosign.pub."""

    private: bytes
    public: bytes


def sign(key: PrivateKey, data: bytes) -> bytes:
    """Return the signature as ASN.1 DER. The same data gets the same one (RFC 6979): publishing again sends nothing."""
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


def parse_private(pem: bytes, password: bytes) -> PrivateKey:
    """Read a private key in any of the forms. Raises UnusableKeyError."""
    sealed, locked = _PEM.search(pem), is_locked(pem)
    try:
        if sealed:
            key = serialization.load_der_private_key(_unseal(sealed[1], password), None)
        else:
            key = serialization.load_pem_private_key(pem, password if locked else None)
    except (ValueError, TypeError, UnsupportedAlgorithm, *UNREADABLE) as error:
        if locked and not sealed and isinstance(error, ValueError):
            raise UnusableKeyError(KeyFault.PASSWORD) from error
        raise UnusableKeyError(KeyFault.FORM) from error
    if not isinstance(key, PrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise UnusableKeyError(KeyFault.FORM)
    return key


def parse_public(pem: bytes) -> PublicKey:
    """Read a public key (PEM, SubjectPublicKeyInfo). Raises UnusableKeyError."""
    try:
        key = serialization.load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UnusableKeyError(KeyFault.FORM) from error
    if not isinstance(key, PublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise UnusableKeyError(KeyFault.FORM)
    return key


def new_pair(password: bytes) -> KeyPair:
    """Make a new key: the bytes of cosign.key, locked with the password, and of cosign.pub."""
    key = ec.generate_private_key(ec.SECP256R1())
    form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    private = seal(key, password, os.urandom(32), os.urandom(24))
    return KeyPair(private=private, public=key.public_key().public_bytes(*form))


def seal(key: PrivateKey, password: bytes, salt: bytes, nonce: bytes) -> bytes:
    """Return cosign.key: the key as cosign writes and reads it. `salt` and `nonce` are 32 and 24 random bytes."""
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


def is_locked(pem: bytes) -> bool:
    """Tell whether a private key opens with a password alone."""
    return any(f"BEGIN {name}".encode() in pem for name in (*_SEALED, "ENCRYPTED PRIVATE KEY"))


def _unseal(text: bytes, password: bytes) -> bytes:
    """Open the PKCS#8 key. Raises UnusableKeyError for another password; for damage ValueError and others."""
    from nacl.exceptions import CryptoError
    from nacl.secret import SecretBox

    sealed = _READER.decode(base64.b64decode(b"".join(text.split()), validate=True))
    try:
        return SecretBox(_stretch(password, sealed.kdf)).decrypt(sealed.ciphertext, sealed.cipher.nonce)
    except (CryptoError, ValueError) as error:
        raise UnusableKeyError(KeyFault.PASSWORD) from error


def _stretch(password: bytes, kdf: _Derivation) -> bytes:
    cost = kdf.params
    return hashlib.scrypt(password, salt=kdf.salt, n=cost.n, r=cost.r, p=cost.p, maxmem=1 << 28, dklen=32)
