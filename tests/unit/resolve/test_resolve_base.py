"""A lock whose base the mirror no longer has: today's base stands in, is remembered, and the image says so."""

from types import SimpleNamespace

import msgspec
import pytest

from graphcrate.assembly import planned, with_engine
from graphcrate.assembly.job import BuildJob
from graphcrate.compat.plan import planning
from graphcrate.compat.variants.choice import VariantChoice
from graphcrate.compat.variants.request import BuildRequest
from graphcrate.host import settings
from graphcrate.inputs.bases import BaseDriftError
from graphcrate.model.errors import ResolutionError, UsageError
from graphcrate.model.lock import Compilation, Drift
from graphcrate.model.recipe import BaseSpec, Candidate, Channel, Variant
from graphcrate.resolve.stack import base
from graphcrate.resolve.stack.locks import Resolution
from tests.made import bookworm, deb, refused, sdist
from tests.unit.compiled_plans import plain_lock

CANDIDATE = Candidate(name="pypi", channels=(Channel.PYPI,), torch="2.0.1", torch_cuda="11.7")
VARIANT = Variant(cuda="11.8", python="3.11", base=BaseSpec(suite="bookworm"), candidates=(CANDIDATE,))


def debian(version):
    return bookworm(deb("apt", version))


@pytest.fixture
def today():
    """Versions that the mirror has had; the last is today's."""
    return ["2"]


@pytest.fixture
def place(context, monkeypatch, today):
    monkeypatch.setattr(base, "provider", lambda name: SimpleNamespace(lock=lambda *_: debian(today[-1])))
    return context


def resolution(version):
    lock = msgspec.structs.replace(plain_lock(), base=debian(version))
    return Resolution(lock=lock, candidate=CANDIDATE, outcomes=())


def renewed(place, asked):
    """Renew what the mirror lacks; whether that is worth another try, and what is built then."""
    tried = base.with_living_base(place, asked)
    return base.renew_base(place, VARIANT, asked.lock, tried.lock, compiler=False), base.with_living_base(place, asked)


def test_gone_base_is_replaced_and_noted_as_drift_in_the_lock(place, today):
    asked = resolution("1")
    assert base.with_living_base(place, asked) == asked
    worth, living = renewed(place, asked)
    assert (worth, living.lock.base, living.lock.packages) == (True, debian("2"), asked.lock.packages)
    assert living.lock.drifted == (Drift(of="base", name="apt", locked="1", taken="2"),)
    assert (living.lock.notes, asked.lock.drifted) == (asked.lock.notes, ())
    # One that is gone too is replaced again, and given up for the lock's own, which a mirror that lags has.
    assert not renewed(place, asked)[0], "today's is the one that was tried"
    today.append("3")
    living = renewed(place, asked)[1].lock
    assert (living.base, [one.taken for one in living.drifted]) == (debian("3"), ["3"])
    today.append("1")
    assert renewed(place, asked) == (True, asked)
    assert not renewed(place, asked)[0]


def test_gone_compiler_base_is_made_again_with_what_was_asked_for_and_rust(place, monkeypatch):
    asked = resolution("5").lock
    compilation = Compilation(architectures=(), compiler="g++-12", base=debian("1"), tools=(), with_apt=("swig",))
    asked = msgspec.structs.replace(
        asked, compilation=compilation, packages=(sdist("small", back_end=True, crates=()),)
    )
    specs = []
    monkeypatch.setattr(base, "lock_base", lambda _, variant: specs.append(variant.base.packages) or debian("2"))
    assert base.renew_base(place, VARIANT, asked, asked, compiler=True)
    assert [set(packages) for packages in specs] == [
        {"g++-12", "libpython3-dev", "swig", "cargo-web", "rustc-web", "pkg-config"}
    ]


def test_gone_compiler_base_is_replaced_alone(place):
    compilation = Compilation(architectures=(), compiler="g++-12", base=debian("1"), tools=())
    own = resolution("5")
    asked = msgspec.structs.replace(own, lock=msgspec.structs.replace(own.lock, compilation=compilation))
    assert base.renew_base(place, VARIANT, asked.lock, asked.lock, compiler=True)
    living = base.with_living_base(place, asked).lock
    assert (living.base, living.compilation.base) == (debian("5"), debian("2"))
    assert living.drifted == (Drift(of="compiler", name="apt", locked="1", taken="2"),)


def test_base_with_newer_lists_and_equal_packages_is_not_renewed(place, monkeypatch):
    """Else a build would take turns with what it has just tried."""
    asked = resolution("1")
    assert renewed(place, asked)[0]
    later = msgspec.structs.replace(debian("2"), listed="20261125T021215Z")
    monkeypatch.setattr(base, "provider", lambda name: SimpleNamespace(lock=lambda *_: later))
    assert not renewed(place, asked)[0]
    # What an old lock has no path of, and a new one has, is the same package.
    paths = tuple(msgspec.structs.replace(one, path=f"pool/main/{one.file.name}") for one in asked.lock.base.packages)
    monkeypatch.setattr(
        base, "provider", lambda name: SimpleNamespace(lock=lambda *_: msgspec.structs.replace(later, packages=paths))
    )
    assert renewed(place, asked) == (True, asked)


def test_replacement_base_is_remembered_for_a_day(place, monkeypatch):
    asked, clock = resolution("1"), [1_000_000.0]
    monkeypatch.setattr(settings, "now", lambda: clock[0])
    assert renewed(place, asked)[1].lock.base == debian("2")
    for seconds, version in ((base.REMEMBERED - 1, "2"), (base.REMEMBERED, "1"), (-1, "1")):
        clock[0] = 1_000_000.0 + seconds
        assert base.with_living_base(place, asked).lock.base == debian(version)


def made(place, monkeypatch, build, output):
    """Build by another way than the embedded builder's."""
    monkeypatch.setattr(planned.Forecast, "lines", lambda *_: [])
    monkeypatch.setattr(planned, "make_plan", lambda *_: SimpleNamespace(name="pyg", tag="1", aliases=()))
    monkeypatch.setattr(planning, "compile_steps", lambda _: ())
    monkeypatch.setattr(with_engine, "build", build)
    engine = SimpleNamespace(folder=lambda image: image, key=lambda plan: "key")
    request = BuildRequest(name="pyg", cuda="11.8", output=output)
    choice = VariantChoice(None, VARIANT, "", ())
    job = BuildJob(typed=request, choice=choice, engine=engine)
    return job.maker.make(resolution("2"), place)


@pytest.mark.parametrize(("worth", "builds"), [(None, 1), (True, 4)], ids=["today's is gone", "mirrors take turns"])
def test_repeated_base_drift_is_a_resolution_error(place, monkeypatch, worth, builds):
    built = []

    def gone(*_, **__):
        built.append(1)
        raise BaseDriftError("the lock's base is out of date")

    if worth:
        monkeypatch.setattr(base, "renew_base", lambda *_, **__: True)
    with pytest.raises(ResolutionError, match="out of date"):
        made(place, monkeypatch, gone, place.root / "dist")
    assert len(built) == builds


def test_impossible_output_is_refused_before_the_build(place, monkeypatch):
    (place.root / "file").touch()
    with refused(UsageError, "Not a directory", "--output"):
        made(place, monkeypatch, lambda *_: pytest.fail("it was built"), place.root / "file")
