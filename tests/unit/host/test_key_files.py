"""Files of signing keys: whose they are, whose password opens them, and what is said of one that cannot be used."""

import hashlib
import stat

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from dssesign import keys
from graphcrate.host.disk import key_files
from graphcrate.model.errors import UsageError
from tests.made import refused

KEY = ec.derive_private_key(0xC0FFEE, ec.SECP256R1())


@pytest.fixture(scope="class")
def cheap():
    """Keys are locked and opened in no time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "_stretch", lambda password, kdf: hashlib.sha256(password + kdf.salt).digest())
        yield


def pem(key):
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(*form, serialization.NoEncryption())


def public_pem(key):
    """Of a private key or a public one."""
    public = key.public_key() if hasattr(key, "sign") else key
    return public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def nobody(prompt):
    raise AssertionError(f"asked: {prompt}")


@pytest.mark.usefixtures("cheap")
def test_new_key_pair_is_private_and_never_replaced(tmp_path):
    private, public = key_files.make_pair(tmp_path / "keys", "geheim")
    assert [path.name for path in (private, public)] == sorted(path.name for path in private.parent.iterdir())
    assert [stat.S_IMODE(path.stat().st_mode) for path in (private, public)] == [0o600, 0o644]
    assert key_files.make_pair(tmp_path / "other", "geheim")[0].read_bytes() != private.read_bytes()
    for name in ("cosign.key", "cosign.pub"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_bytes(b"somebody's")
        with refused(UsageError, "is there already"):
            key_files.make_pair(tmp_path / name, "geheim")
        assert [(one.name, one.read_bytes()) for one in (tmp_path / name).iterdir()] == [(name, b"somebody's")]


@pytest.mark.usefixtures("cheap")
def test_key_password_comes_from_the_environment_or_a_prompt(tmp_path):
    private, public = key_files.make_pair(tmp_path, "geheim")
    prompts = []
    for environment, ask in (
        ({"COSIGN_PASSWORD": "geheim"}, nobody),
        ({}, lambda prompt: prompts.append(prompt) or "geheim"),
    ):
        assert public_pem(key_files.read_private(private, environment, ask)) == public.read_bytes()
    assert prompts == [f"password of {private}: "]
    with refused(UsageError, "no terminal to ask", "COSIGN_PASSWORD"):
        key_files.read_private(private, {}, lambda prompt: None)
    for password in ("", "secretly"):
        with refused(UsageError, "does not open", "COSIGN_PASSWORD") as caught:
            key_files.read_private(private, {"COSIGN_PASSWORD": password}, nobody)
    assert "secretly" not in str(caught.value)
    private.write_bytes(pem(KEY))  # not locked: nobody is asked
    assert public_pem(key_files.read_private(private, {}, nobody)) == public_pem(KEY)


def test_missing_key_file_is_a_usage_error(tmp_path):
    for read in (key_files.read_public, lambda path: key_files.read_private(path, {}, nobody)):
        with pytest.raises(UsageError, match=r"there is no file .*no\n"):
            read(tmp_path / "no")


def test_no_more_is_read_of_a_key_file_than_a_key_can_have(tmp_path):
    """It may be a disk, or what never ends."""
    (tmp_path / "my.pub").write_bytes(b"#" * (1 << 16) + public_pem(KEY))
    with refused(UsageError, "my.pub is no cosign.pub"):
        key_files.read_public(tmp_path / "my.pub")
    (tmp_path / "my.pub").write_bytes(b"# mine\n" + public_pem(KEY))
    assert public_pem(key_files.read_public(tmp_path / "my.pub")) == public_pem(KEY)


def test_file_that_is_no_key_is_refused_with_the_form_of_one(tmp_path):
    for name, read in (
        ("cosign.key", lambda path: key_files.read_private(path, {}, nobody)),
        ("cosign.pub", key_files.read_public),
    ):
        (tmp_path / "my.pem").write_bytes(b"no key")
        with refused(UsageError, f"my.pem is no {name} that can be used", "P-256", "make a new pair"):
            read(tmp_path / "my.pem")
