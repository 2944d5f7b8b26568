"""A lock whose base the mirror no longer has: today's base stands in, is remembered, and the image says so."""

from types import SimpleNamespace

import msgspec
import pytest

from graphcrate.host.workplace import Workplace
from graphcrate.model.lock import DebianBase, DebianPackage, LockedFile
from graphcrate.model.recipe import BaseSpec, Candidate, Channel, Variant
from graphcrate.resolve import base
from graphcrate.resolve.candidates import Resolution
from tests.unit.test_planning import lock

CANDIDATE = Candidate(name="pypi", channels=(Channel.PYPI,), torch="2.0.1", torch_cuda="11.7")
VARIANT = Variant(cuda="11.8", python="3.11", base=BaseSpec(suite="bookworm"), candidates=(CANDIDATE,))


def debian(version):
    file = LockedFile(name=f"apt_{version}_amd64.deb", size=1, sha256=version[-1] * 64)
    package = DebianPackage(name="apt", version=version, architecture="amd64", file=file)
    return DebianBase(suite="bookworm", packages=(package,))


@pytest.fixture
def today():
    """Versions that the mirror has had; the last is today's."""
    return ["2"]


@pytest.fixture
def place(tmp_path, monkeypatch, today):
    place = Workplace(root=tmp_path, environment={"GRAPHCRATE_CACHE": str(tmp_path / "cache")})
    monkeypatch.setattr(base, "PROVIDERS", {"debian": lambda: SimpleNamespace(lock=lambda *_: debian(today[-1]))})
    return place


def resolution(version):
    return Resolution(lock=msgspec.structs.replace(lock(), base=debian(version)), candidate=CANDIDATE, outcomes=())


def test_a_base_that_can_be_had_is_left_alone(place):
    asked = resolution("1")
    assert base.with_living_base(place, asked) is asked


def test_a_base_that_is_gone_is_replaced_from_then_on_and_the_lock_says_so(place):
    asked = resolution("1")
    base.replace_base(place, VARIANT, asked.lock)
    for _ in range(2):
        living = base.with_living_base(place, asked)
        assert living.lock.base == debian("2")
        assert "newer packages" in living.lock.notes[-1]
        assert living.lock.packages == asked.lock.packages


def test_a_replacement_that_is_gone_too_is_replaced_again(place, today):
    asked = resolution("1")
    base.replace_base(place, VARIANT, asked.lock)
    today.append("3")
    base.replace_base(place, VARIANT, base.with_living_base(place, asked).lock)
    assert base.with_living_base(place, asked).lock.base == debian("3")
