import pytest

from graphcrate.inputs.bases import BaseDriftError, debian
from graphcrate.model.errors import IntegrityError, ResolutionError
from graphcrate.model.lock import DebianBase
from tests.unit.test_apt import package


def lock_of(*packages):
    return DebianBase(suite="bookworm", packages=tuple(package(*one) for one in packages))


def test_versions_of_python_and_glibc_come_from_the_lock():
    lock = lock_of(
        ("libc6", "2.36-9+deb12u14"),
        ("libpython3.11-stdlib", "3.11.9-1"),
        ("python3", "3.11.2-1+b1"),
        ("python3.11", "3.11.2-6+deb12u9"),
        ("tar", "1:1.34+dfsg-1"),
    )
    assert debian.python_version(lock) == "3.11.2"
    assert [debian._upstream(lock, name) for name in ("libc6", "tar")] == ["2.36", "1.34+dfsg"]
    with pytest.raises(ResolutionError, match=r"no package python3"):
        debian.python_version(lock_of(("tar", "1")))


def test_drift_names_what_is_gone_and_what_is_there_instead():
    wanted = [package("libfoo", "1.2-1"), package("libbar", "1"), package("same", "1", "1" * 64), package("there", "1")]
    debian.check_drift("bookworm", wanted, [*wanted, package("there", "2")])
    available = [package("libfoo", "1.2-2"), package("same", "1", "2" * 64), package("there", "1")]
    with pytest.raises(BaseDriftError) as caught:
        debian.check_drift("bookworm", wanted, available)
    assert "libfoo 1.2-1 (now 1.2-2), libbar 1 (now absent), same 1 (now 1)" in caught.value.what
    assert "there" not in caught.value.what
    assert "lock again" in caught.value.next_step


def test_a_deb_that_is_not_the_locked_one_is_refused(tmp_path):
    path = tmp_path / "a_1_amd64.deb"
    path.write_bytes(b"other")
    with pytest.raises(IntegrityError, match="the lock says"):
        debian._check_hash(path, package("a", "1"))
    with pytest.raises(IntegrityError, match="did not bring"):
        debian._check_hash(tmp_path / "absent", package("a", "1"))
