"""Keys as cosign and openssl write them, and signatures that everybody gets the same way."""

import base64
import functools
import hashlib
import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, utils
from hypothesis import given, settings
from hypothesis import strategies as st

from dssesign import keys
from dssesign.errors import KeyFault, UnusableKeyError

DATA = Path(__file__).parent / "test-data"
#: of the pair there, which cosign 3.1.1 made, `generate-key-pair`
PASSWORD = "correct horse"
COSIGN_KEY, COSIGN_PUB = ((DATA / name).read_bytes() for name in ("cosign.key", "cosign.pub"))
KEY = ec.derive_private_key(0xC0FFEE, ec.SECP256R1())
STRANGER = ec.derive_private_key(0xBAD, ec.SECP256R1())
SALT, NONCE = b"s" * 32, b"n" * 24


@pytest.fixture(scope="class")
def cheap():
    """Keys are locked and opened in no time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "_stretch", lambda password, kdf: hashlib.sha256(password + kdf.salt).digest())
        yield


def pem(key, encryption=None, form=serialization.PrivateFormat.PKCS8):
    return key.private_bytes(serialization.Encoding.PEM, form, encryption or serialization.NoEncryption())


def public_pem(key):
    """Of a private key or a public one."""
    public = key.public_key() if hasattr(key, "sign") else key
    return public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def body(sealed):
    return json.loads(base64.b64decode(b"".join(sealed.splitlines()[1:-1])))


def rewritten(**changes):
    """cosign's key with other values in it: kdf_params={"N": 1} updates the values below kdf and params."""
    document, lines = body(COSIGN_KEY), COSIGN_KEY.splitlines()
    for path, change in changes.items():
        functools.reduce(dict.get, filter(None, path.split("_")), document).update(change)
    return b"\n".join([lines[0], base64.b64encode(json.dumps(document).encode()), lines[-1], b""])


LOCKED = pem(KEY, serialization.BestAvailableEncryption(b"secret"))
SEC1 = pem(KEY, form=serialization.PrivateFormat.TraditionalOpenSSL)
HOSTILE = {"N": 1 << 30, "p": 1 << 20, "r": 0}  #: costs that would take all memory, or divide by nothing
P384, ED25519 = ec.derive_private_key(7, ec.SECP384R1()), ed25519.Ed25519PrivateKey.from_private_bytes(b"7" * 32)


@pytest.mark.parametrize(
    ("data", "password", "public"),
    [
        *((data, PASSWORD, COSIGN_PUB) for data in (COSIGN_KEY, COSIGN_KEY.replace(b"ED SIGSTORE", b"ED COSIGN"))),
        *((pem(KEY), password, public_pem(KEY)) for password in ("", "not needed")),
        *((SEC1, "", public_pem(KEY)), (LOCKED, "secret", public_pem(KEY))),
    ],
)
def test_keys_of_cosign_and_openssl_are_read(data, password, public):
    assert public_pem(keys.parse_private(data, password.encode())) == public
    assert public_pem(keys.parse_public(public)) == public


@pytest.mark.parametrize(
    ("fault", "files"),
    [
        (KeyFault.FORM, [COSIGN_KEY.replace(b"\n", b"\n!", 2), COSIGN_KEY[:200] + COSIGN_KEY[-60:]]),
        (KeyFault.FORM, [rewritten(cipher={"nonce": "AAAA"}), b"", COSIGN_PUB, b"\x00\xff" * 50]),
        (KeyFault.FORM, [rewritten(kdf={"name": "argon2"}), rewritten(cipher={"name": "aes"})]),
        (KeyFault.FORM, [rewritten(kdf_params={name: value}) for name, value in HOSTILE.items()]),
        (KeyFault.FORM, [pem(P384), pem(ED25519)]),
        (KeyFault.PASSWORD, [rewritten(_={"ciphertext": "AAAA"}), LOCKED]),
    ],
)
def test_damaged_hostile_or_foreign_private_key_file_is_refused(fault, files):
    for data in files:
        with pytest.raises(UnusableKeyError) as caught:
            keys.parse_private(data, PASSWORD.encode())
        assert caught.value.fault is fault


def test_public_keys_other_than_p256_are_refused():
    for key in (P384, ED25519):
        with pytest.raises(UnusableKeyError) as caught:
            keys.parse_public(public_pem(key))
        assert caught.value.fault is KeyFault.FORM


@given(st.binary(max_size=300))
def test_random_bytes_are_no_key(data):
    for read in (lambda: keys.parse_private(data, b""), lambda: keys.parse_public(data)):
        with pytest.raises(UnusableKeyError):
            read()


@pytest.mark.usefixtures("cheap")
@settings(max_examples=settings.default.max_examples // 4)  # three stretched passwords in each
@given(st.text(max_size=20))
def test_sealed_key_opens_with_its_password_only(password):
    sealed = keys.seal(KEY, password.encode(), SALT, NONCE)
    assert pem(keys.parse_private(sealed, password.encode())) == pem(KEY)
    with pytest.raises(UnusableKeyError, match="does not open"):
        keys.parse_private(sealed, password.encode() + b"x")


@pytest.mark.usefixtures("cheap")
def test_new_pair_belongs_together_and_is_another_each_time():
    one, other = keys.new_pair(b"x"), keys.new_pair(b"x")
    assert public_pem(keys.parse_private(one.private, b"x")) == one.public != other.public


def test_file_signature_fits_its_key_and_file_alone():
    sha256 = hashlib.sha256(b"a file").hexdigest()
    beside = keys.sign_file(KEY, sha256)
    assert keys.fits_file(KEY.public_key(), beside, sha256)
    assert not keys.fits_file(STRANGER.public_key(), beside, sha256)
    assert not keys.fits_file(KEY.public_key(), beside, hashlib.sha256(b"another").hexdigest())
    assert not keys.fits_file(KEY.public_key(), b"% no base64", sha256)


def test_sealed_key_has_the_format_of_cosign():
    sealed = keys.seal(KEY, b"x", SALT, NONCE)
    ours, cosigns = body(sealed), body(COSIGN_KEY)
    for document in (ours, cosigns):
        document["kdf"].pop("salt"), document["cipher"].pop("nonce")
        document["ciphertext"] = len(document["ciphertext"])
    assert ours == cosigns
    assert {len(line) for line in COSIGN_KEY.splitlines()[1:-2]} == {len(line) for line in sealed.splitlines()[1:-2]}


def test_signature_equals_the_rfc_6979_example():
    """Appendix A.2.5, P-256 with SHA-256: what any implementation makes of this key and message."""
    scalar = 0xC9AFA9D845BA75166B5C215767B1D6934E50C3DB36E89B127B8A622B120F6721
    r, s = utils.decode_dss_signature(keys.sign(ec.derive_private_key(scalar, ec.SECP256R1()), b"sample"))
    assert f"{r:064X}" == "EFD48B2AACB6A8FD1140DD9CD45E81D69D2C877B56AAF991C34D0EA84EAF3716"
    assert f"{s:064X}" == "F7CB1C942D657C41D436C7A1B6E29F65F3E900DBB9AFF4064DC4AB2F843ACDA8"
