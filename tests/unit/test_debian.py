import pytest

from graphcrate.inputs.bases import BaseDriftError, debian
from tests.made import bookworm, deb


def test_versions_of_python_and_glibc_come_from_the_lock():
    lock = bookworm(
        deb("libc6", "2.36-9+deb12u14"),
        deb("libpython3.11-stdlib", "3.11.9-1"),
        deb("python3", "3.11.2-1+b1"),
        deb("python3.11", "3.11.2-6+deb12u9"),
        deb("tar", "1:1.34+dfsg-1"),
    )
    assert debian.python_version(lock) == "3.11.2"
    assert [debian._upstream(lock, name) for name in ("libc6", "tar")] == ["2.36", "1.34+dfsg"]


def test_drift_names_what_is_gone_and_what_is_there_instead():
    wanted = [deb("libfoo", "1.2-1"), deb("libbar", "1"), deb("same", "1", sha256="1" * 64), deb("there", "1")]
    debian.check_drift("bookworm", wanted, [*wanted, deb("there", "2")])
    available = [deb("libfoo", "1.2-2"), deb("same", "1", sha256="2" * 64), deb("there", "1")]
    with pytest.raises(BaseDriftError) as caught:
        debian.check_drift("bookworm", wanted, available)
    assert "libfoo 1.2-1 (now 1.2-2), libbar 1 (now absent) and same 1 (now 1)" in caught.value.what
    assert "there" not in caught.value.what
    assert "lock again" in caught.value.next_step
