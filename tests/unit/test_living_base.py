"""A lock whose base the mirror no longer has: today's base stands in, is remembered, and the image says so."""

from types import SimpleNamespace

import msgspec
import pytest

from graphcrate.build import pipeline, with_engine
from graphcrate.compat import planning
from graphcrate.compat.request import BuildRequest
from graphcrate.inputs.bases import BaseDriftError
from graphcrate.model.errors import ResolutionError, UsageError
from graphcrate.model.lock import DebianBase, DebianPackage, LockedFile
from graphcrate.model.recipe import BaseSpec, Candidate, Channel, Variant
from graphcrate.resolve import base
from graphcrate.resolve.locks import Resolution
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
def place(context, monkeypatch, today):
    monkeypatch.setattr(base, "PROVIDERS", {"debian": lambda: SimpleNamespace(lock=lambda *_: debian(today[-1]))})
    return context


def resolution(version):
    return Resolution(lock=msgspec.structs.replace(lock(), base=debian(version)), candidate=CANDIDATE, outcomes=())


def test_a_base_that_is_available_is_left_alone(place):
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


def test_a_mirror_that_lags_gives_the_older_base_again(place, today):
    asked = resolution("1")
    assert base.replace_base(place, VARIANT, asked.lock)
    today.append("1")
    assert base.replace_base(place, VARIANT, base.with_living_base(place, asked).lock)
    assert base.with_living_base(place, asked) is asked
    assert base.with_living_base(place, resolution("2")).lock.base == debian("1")


def test_a_base_that_is_todays_is_not_replaced_by_itself(place):
    asked = resolution("2")
    assert not base.replace_base(place, VARIANT, asked.lock)
    assert base.with_living_base(place, asked) is asked


def test_records_that_lead_in_a_circle_do_not_hold_a_build(place):
    for old, new in (("1", "2"), ("2", "1"), ("3", "3")):
        place.cache.write(base._replacement(place, debian(old)), msgspec.json.encode(debian(new)))
    assert base.with_living_base(place, resolution("1")).lock.base in (debian("1"), debian("2"))
    assert base.with_living_base(place, resolution("3")).lock.base == debian("3")


class Built(with_engine.Embedded):
    """The embedded builder with another way to build."""

    def __init__(self, build):
        super().__init__("embedded")
        object.__setattr__(self, "build", build)

    def key(self, plan):
        return "key"


def made(place, monkeypatch, build, output):
    monkeypatch.setattr(pipeline, "_plan_lines", lambda *_: [])
    monkeypatch.setattr(pipeline, "_plan", lambda job, found: SimpleNamespace(name="pyg", tag="1", aliases=()))
    monkeypatch.setattr(planning, "compile_step", lambda _: None)
    request = BuildRequest(name="pyg", cuda="11.8", output=output)
    job = pipeline._Job(request=request, ctx=place, recipe=None, variant=VARIANT, engine=Built(build), start=0)
    return pipeline._reuse_or_build(job, resolution("2"))


def test_a_drift_that_todays_base_does_not_end_is_said_and_not_tried_again(place, monkeypatch):
    def gone(*_):
        raise BaseDriftError("the lock's base is out of date")

    with pytest.raises(ResolutionError, match="out of date"):
        made(place, monkeypatch, gone, place.root / "dist")


def test_mirrors_that_take_turns_do_not_hold_a_build_for_ever(place, monkeypatch):
    built = []

    def gone(*_):
        built.append(1)
        raise BaseDriftError("the lock's base is out of date")

    monkeypatch.setattr(base, "replace_base", lambda *_: True)
    with pytest.raises(ResolutionError, match="out of date"):
        made(place, monkeypatch, gone, place.root / "dist")
    assert len(built) == 4


def test_an_output_that_cannot_be_is_said_before_anything_is_fetched(place, monkeypatch):
    (place.root / "file").touch()
    with pytest.raises(UsageError, match="Not a directory") as caught:
        made(place, monkeypatch, lambda *_: pytest.fail("it was built"), place.root / "file")
    assert "--output" in caught.value.next_step
