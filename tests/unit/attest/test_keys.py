"""Keys as cosign and openssl write them, signatures that everybody gets the same way, and files that are kept safe."""

import base64
import functools
import hashlib
import json
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, utils
from hypothesis import given
from hypothesis import strategies as st

from graphcrate.attest import keys
from graphcrate.model.errors import UsageError
from tests.made import refused

GOLDEN = Path(__file__).parent.parent / "golden" / "proof"
#: of the pair there, which cosign 3.1.1 made, `generate-key-pair`
PASSWORD = "correct horse"
COSIGN_KEY, COSIGN_PUB = ((GOLDEN / name).read_bytes() for name in ("cosign.key", "cosign.pub"))
KEY = ec.derive_private_key(0xC0FFEE, ec.SECP256R1())
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
    assert public_pem(keys.parse_private(data, password.encode(), "my.key")) == public
    assert public_pem(keys.parse_public(public, "my.pub")) == public


@pytest.mark.parametrize(
    ("words", "files"),
    [
        ("is no cosign.key", [COSIGN_KEY.replace(b"\n", b"\n!", 2), COSIGN_KEY[:200] + COSIGN_KEY[-60:]]),
        ("is no cosign.key", [rewritten(cipher={"nonce": "AAAA"}), b"", COSIGN_PUB, b"\x00\xff" * 50]),
        ("is no cosign.key", [rewritten(kdf={"name": "argon2"}), rewritten(cipher={"name": "aes"})]),
        ("is no cosign.key", [rewritten(kdf_params={name: value}) for name, value in HOSTILE.items()]),
        ("is no cosign.key", [pem(P384), pem(ED25519)]),
        ("does not open", [rewritten(_={"ciphertext": "AAAA"}), LOCKED]),
    ],
)
def test_damaged_hostile_or_foreign_private_key_file_is_refused(words, files):
    for data in files:
        with refused(UsageError, words):
            keys.parse_private(data, PASSWORD.encode(), "cosign.key")


def test_public_keys_other_than_p256_are_refused():
    for key in (P384, ED25519):
        with refused(UsageError, "my.pub is no cosign.pub", "P-256"):
            keys.parse_public(public_pem(key), "my.pub")


def test_no_more_is_read_of_a_key_file_than_a_key_can_have(tmp_path):
    """It may be a disk, or what never ends."""
    (tmp_path / "my.pub").write_bytes(b"#" * (1 << 16) + public_pem(KEY))
    with refused(UsageError, "my.pub is no cosign.pub"):
        keys.read_public(tmp_path / "my.pub")
    (tmp_path / "my.pub").write_bytes(b"# mine\n" + public_pem(KEY))
    assert public_pem(keys.read_public(tmp_path / "my.pub")) == public_pem(KEY)


@given(st.binary(max_size=300))
def test_random_key_file_is_a_usage_error(data):
    for read in (lambda: keys.parse_private(data, b"", "k"), lambda: keys.parse_public(data, "k")):
        with pytest.raises(UsageError):
            read()


@pytest.mark.usefixtures("cheap")
@given(st.text(max_size=20))
def test_sealed_key_opens_with_its_password_only(password):
    sealed = keys.seal(KEY, password.encode(), SALT, NONCE)
    assert pem(keys.parse_private(sealed, password.encode(), "k")) == pem(KEY)
    with pytest.raises(UsageError, match="does not open"):
        keys.parse_private(sealed, password.encode() + b"x", "k")


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


# Files


def nobody(prompt):
    raise AssertionError(f"asked: {prompt}")


@pytest.mark.usefixtures("cheap")
def test_new_key_pair_is_private_and_never_replaced(tmp_path):
    private, public = keys.make_pair(tmp_path / "keys", "geheim")
    assert [path.name for path in (private, public)] == sorted(path.name for path in private.parent.iterdir())
    assert [stat.S_IMODE(path.stat().st_mode) for path in (private, public)] == [0o600, 0o644]
    assert keys.make_pair(tmp_path / "other", "geheim")[0].read_bytes() != private.read_bytes()
    for name in ("cosign.key", "cosign.pub"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_bytes(b"somebody's")
        with refused(UsageError, "is there already"):
            keys.make_pair(tmp_path / name, "geheim")
        assert [(one.name, one.read_bytes()) for one in (tmp_path / name).iterdir()] == [(name, b"somebody's")]


@pytest.mark.usefixtures("cheap")
def test_key_password_comes_from_the_environment_or_a_prompt(tmp_path):
    private, public = keys.make_pair(tmp_path, "geheim")
    prompts = []
    for environment, ask in (
        ({"COSIGN_PASSWORD": "geheim"}, nobody),
        ({}, lambda prompt: prompts.append(prompt) or "geheim"),
    ):
        assert public_pem(keys.read_private(private, environment, ask)) == public.read_bytes()
    assert prompts == [f"password of {private}: "]
    with refused(UsageError, "no terminal to ask", "COSIGN_PASSWORD"):
        keys.read_private(private, {}, lambda prompt: None)
    for password in ("", "secretly"):
        with refused(UsageError, "does not open", "COSIGN_PASSWORD") as caught:
            keys.read_private(private, {"COSIGN_PASSWORD": password}, nobody)
    assert "secretly" not in str(caught.value)
    private.write_bytes(pem(KEY))  # not locked: nobody is asked
    assert public_pem(keys.read_private(private, {}, nobody)) == public_pem(KEY)


def test_missing_key_file_is_a_usage_error(tmp_path):
    for read in (keys.read_public, lambda path: keys.read_private(path, {}, nobody)):
        with pytest.raises(UsageError, match="no cannot be read: No such file"):
            read(tmp_path / "no")
