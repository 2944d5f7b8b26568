"""Keys as cosign and openssl write them, signatures that everybody gets the same way, and files that are kept safe."""

import base64
import json
import stat

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa, utils
from hypothesis import given
from hypothesis import strategies as st

from graphcrate.model.errors import UsageError
from graphcrate.publish.attest import keyfile, keys

#: made by cosign 3.1.1, `generate-key-pair`, with this password
PASSWORD = "correct horse"
COSIGN_KEY = b"""-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----
eyJrZGYiOnsibmFtZSI6InNjcnlwdCIsInBhcmFtcyI6eyJOIjo2NTUzNiwiciI6
OCwicCI6MX0sInNhbHQiOiJYbk9jS1l1WllKbUFQZmhtbE1ldmJmbE8yS0JDK3dK
dDhFTDQ3Wm9LaVNRPSJ9LCJjaXBoZXIiOnsibmFtZSI6Im5hY2wvc2VjcmV0Ym94
Iiwibm9uY2UiOiJnaGl6WG5GelowaWVoN0RVQUphdWRGSkRGNmxpaXZOWCJ9LCJj
aXBoZXJ0ZXh0IjoidThDNysydkVpVVV3eVJXc3dmK29DL3lUOVJ3dW9qcG5rWkYx
STl0bWk2U2ZrdjZMeFpYREo3RkptY2lPOElhUnp5ZVk1bS9jL0pQMWZsdDlhR0tL
QWcwSjJ6U0NZN21zNzUrVkRncnROT0crRXF3RzU1dURmMUJSZTFZUVdISFJwbEUv
a2E2cFM1c0lrd1ptd01QMnNiQWppYU9XYTEvUloxYW1PV29zOU50Zm1aMmFPbFRk
RThlVDBOZlRkc1dNQ1EveW5JQnRZc0RDeVE9PSJ9
-----END ENCRYPTED SIGSTORE PRIVATE KEY-----
"""
COSIGN_PUB = b"""-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEt4+Obkw6MwHDlBJjA+9NlEBjBi1X
FepA6Ng8ZTJqghmfk67kbvKoWDvIK64qzLe6rx5/Yo7Y9YHMW3Tcka5jVQ==
-----END PUBLIC KEY-----
"""
FIXED = keys.PrivateKey(ec.derive_private_key(0xC0FFEE, ec.SECP256R1()))
SALT, NONCE = b"s" * 32, b"n" * 24


@pytest.fixture(scope="class")
def cheap():
    """New keys are locked in no time; what is read costs what its file says."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "_N", 16)
        yield


def pem(key, encryption=None, form=serialization.PrivateFormat.PKCS8):
    return key.private_bytes(serialization.Encoding.PEM, form, encryption or serialization.NoEncryption())


def test_a_key_of_cosign_is_read():
    key = keys.read_private(COSIGN_KEY, PASSWORD.encode(), "cosign.key")
    assert key.public.pem == COSIGN_PUB
    older = COSIGN_KEY.replace(b"ENCRYPTED SIGSTORE", b"ENCRYPTED COSIGN")
    assert keys.read_private(older, PASSWORD.encode(), "cosign.key").public.pem == COSIGN_PUB
    assert keys.wants_password(COSIGN_KEY)
    assert keys.wants_password(older)


@pytest.mark.parametrize("password", ["", "another password", PASSWORD + " "])
def test_another_password_is_told_of_and_not_shown(password):
    with pytest.raises(UsageError) as caught:
        keys.read_private(COSIGN_KEY, password.encode(), "cosign.key")
    assert "does not open" in caught.value.what
    assert "COSIGN_PASSWORD" in caught.value.next_step
    assert not password or password not in str(caught.value)


def test_plain_and_locked_pkcs8_and_sec1_are_read():
    key = ec.derive_private_key(0xC0FFEE, ec.SECP256R1())
    locked = pem(key, serialization.BestAvailableEncryption(b"secret"))
    sec1 = pem(key, form=serialization.PrivateFormat.TraditionalOpenSSL)
    assert sec1.startswith(b"-----BEGIN EC PRIVATE KEY")
    for data, password in ((pem(key), b""), (sec1, b""), (pem(key), b"not needed"), (locked, b"secret")):
        assert keys.read_private(data, password, "my.key").public.pem == FIXED.public.pem
    assert keys.wants_password(locked)
    assert not keys.wants_password(pem(key))
    with pytest.raises(UsageError, match="does not open"):
        keys.read_private(locked, b"other", "my.key")


@pytest.mark.parametrize(
    "key",
    [
        ec.derive_private_key(7, ec.SECP384R1()),
        ed25519.Ed25519PrivateKey.from_private_bytes(b"7" * 32),
        rsa.generate_private_key(public_exponent=65537, key_size=2048),
    ],
    ids=["P-384", "Ed25519", "RSA"],
)
def test_other_kinds_of_keys_are_refused_by_name(key):
    with pytest.raises(UsageError, match=r"my\.key is not an ECDSA key on the curve P-256"):
        keys.read_private(pem(key), b"", "my.key")
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    with pytest.raises(UsageError, match=r"my\.pub is not an ECDSA key"):
        keys.read_public(key.public_key().public_bytes(serialization.Encoding.PEM, form), "my.pub")


def rewritten(change):
    """cosign's key with something else in it."""
    body = json.loads(base64.b64decode(b"".join(COSIGN_KEY.splitlines()[1:-1])))
    change(body)
    lines = COSIGN_KEY.splitlines()
    return b"\n".join([lines[0], base64.b64encode(json.dumps(body).encode()), lines[-1], b""])


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("damaged", COSIGN_KEY.replace(b"\n", b"\n!", 2)),
        ("damaged", COSIGN_KEY[:200] + COSIGN_KEY[-60:]),
        ("damaged", rewritten(lambda body: body.pop("cipher"))),
        ("damaged", rewritten(lambda body: body["cipher"].update(nonce="AAAA"))),
        ("no cosign uses", rewritten(lambda body: body["kdf"].update(name="argon2"))),
        ("no cosign uses", rewritten(lambda body: body["cipher"].update(name="aes"))),
        ("no cosign uses", rewritten(lambda body: body["kdf"]["params"].update(N=1 << 30))),
        ("no cosign uses", rewritten(lambda body: body["kdf"]["params"].update(N=65535))),
        ("no cosign uses", rewritten(lambda body: body["kdf"]["params"].update(p=1 << 20))),
        ("no cosign uses", rewritten(lambda body: body["kdf"]["params"].update(r=0))),
        ("does not open", rewritten(lambda body: body.update(ciphertext="AAAA"))),
        ("not a private key", b""),
        ("not a private key", COSIGN_PUB),
        ("not a private key", b"\x00\xff" * 50),
    ],
)
def test_a_damaged_or_hostile_key_file_is_refused(name, data):
    with pytest.raises(UsageError, match=name):
        keys.read_private(data, PASSWORD.encode(), "cosign.key")


@given(st.binary(max_size=300))
def test_whatever_lies_in_a_key_file_is_refused_in_words(data):
    for read in (lambda: keys.read_private(data, b"", "k"), lambda: keys.read_public(data, "k")):
        with pytest.raises(UsageError):
            read()


@pytest.mark.usefixtures("cheap")
@given(st.text(max_size=20))
def test_what_is_sealed_opens_with_the_same_password_alone(password):
    sealed = keys.seal(FIXED, password.encode(), SALT, NONCE)
    assert keys.read_private(sealed, password.encode(), "k").pkcs8 == FIXED.pkcs8
    with pytest.raises(UsageError, match="does not open"):
        keys.read_private(sealed, password.encode() + b"x", "k")


def test_a_sealed_key_has_the_form_of_cosigns():
    sealed = keys.seal(FIXED, b"x", SALT, NONCE)
    ours, cosigns = (json.loads(base64.b64decode(b"".join(data.splitlines()[1:-1]))) for data in (sealed, COSIGN_KEY))
    assert ours["kdf"]["params"] == cosigns["kdf"]["params"]
    assert {name: value.keys() for name, value in ours.items() if isinstance(value, dict)} == {
        name: value.keys() for name, value in cosigns.items() if isinstance(value, dict)
    }
    assert len(ours["ciphertext"]) == len(cosigns["ciphertext"])
    assert {len(line) for line in COSIGN_KEY.splitlines()[1:-2]} == {len(line) for line in sealed.splitlines()[1:-2]}


def test_signatures_are_those_of_rfc_6979():
    """Appendix A.2.5, P-256 with SHA-256: what any implementation makes of this key and message."""
    scalar = 0xC9AFA9D845BA75166B5C215767B1D6934E50C3DB36E89B127B8A622B120F6721
    key = keys.PrivateKey(ec.derive_private_key(scalar, ec.SECP256R1()))
    r, s = utils.decode_dss_signature(key.sign(b"sample"))
    assert f"{r:064X}" == "EFD48B2AACB6A8FD1140DD9CD45E81D69D2C877B56AAF991C34D0EA84EAF3716"
    assert f"{s:064X}" == "F7CB1C942D657C41D436C7A1B6E29F65F3E900DBB9AFF4064DC4AB2F843ACDA8"


@given(st.binary(max_size=64), st.binary(min_size=1, max_size=8))
def test_only_what_was_signed_fits(data, more):
    signature = FIXED.sign(data)
    assert FIXED.public.fits(signature, data)
    assert not FIXED.public.fits(signature, data + more)
    assert not FIXED.public.fits(signature + more, data)
    assert not FIXED.public.fits(more, data)
    FIXED._key.public_key().verify(signature, data, ec.ECDSA(hashes.SHA256()))


# Files


def nobody(prompt):
    raise AssertionError(f"asked: {prompt}")


@pytest.mark.usefixtures("cheap")
def test_a_new_pair_is_its_owners_alone_and_opens(tmp_path):
    private, public = keyfile.make_pair(tmp_path / "keys", "geheim")
    assert [path.name for path in sorted((tmp_path / "keys").iterdir())] == ["cosign.key", "cosign.pub"]
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert stat.S_IMODE(public.stat().st_mode) == 0o644
    key = keyfile.read_private(private, {"COSIGN_PASSWORD": "geheim"}, nobody)
    assert keyfile.read_public(public).pem == key.public.pem
    other = keyfile.make_pair(tmp_path / "other", "geheim")
    assert other[0].read_bytes() != private.read_bytes()


@pytest.mark.usefixtures("cheap")
@pytest.mark.parametrize("name", ["cosign.key", "cosign.pub"])
def test_no_key_is_ever_replaced(tmp_path, name):
    (tmp_path / name).write_bytes(b"somebody's")
    with pytest.raises(UsageError, match="is there already"):
        keyfile.make_pair(tmp_path, "geheim")
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_bytes() == b"somebody's"


@pytest.mark.usefixtures("cheap")
def test_the_password_comes_from_the_environment_else_from_a_person(tmp_path):
    private, public = keyfile.make_pair(tmp_path, "geheim")
    prompts = []
    key = keyfile.read_private(private, {}, lambda prompt: prompts.append(prompt) or "geheim")
    assert key.public.pem == public.read_bytes()
    assert prompts == [f"password of {private}: "]
    with pytest.raises(UsageError, match="no terminal to ask") as caught:
        keyfile.read_private(private, {}, lambda prompt: None)
    assert "COSIGN_PASSWORD" in caught.value.next_step
    with pytest.raises(UsageError, match="does not open"):
        keyfile.read_private(private, {"COSIGN_PASSWORD": ""}, nobody)


def test_an_unlocked_key_asks_nobody(tmp_path):
    (tmp_path / "k").write_bytes(pem(ec.derive_private_key(0xC0FFEE, ec.SECP256R1())))
    assert keyfile.read_private(tmp_path / "k", {}, nobody).public.pem == FIXED.public.pem


def test_a_file_that_is_not_there_is_named(tmp_path):
    for read in (
        lambda: keyfile.read_public(tmp_path / "no"),
        lambda: keyfile.read_private(tmp_path / "no", {}, nobody),
    ):
        with pytest.raises(UsageError, match="no cannot be read: No such file"):
            read()
