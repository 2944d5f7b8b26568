"""A plan says which libraries of the system an image will lack, before anything is built."""

from types import SimpleNamespace

import msgspec
import pytest

from graphcrate.compat.variants.next_steps import NextSteps
from graphcrate.compat.variants.request import BuildRequest, SourceOptions
from graphcrate.inputs.bases import contents
from graphcrate.model.allowance import Allowance
from graphcrate.model.errors import NetworkError
from graphcrate.model.lock import RegistryBase, encode
from graphcrate.model.platform import DEFAULT
from graphcrate.model.recipe import Additions
from graphcrate.resolve import foreseen
from tests.made import bookworm, deb, locked, place, wheel
from tests.unit.elfmaker import make_elf
from tests.unit.wheel_server import small_wheel

PACKAGES = {
    "libX11.so.6": ("libx11-6",),
    "libXext.so.6": ("libxext6",),
    "libcairo.so.2": ("libcairo2",),
    "libz.so.1": ("zlib1g",),
    "libmpi.so.40": ("libopenmpi3",),
}
TAG = "cp311-cp311-manylinux_2_28_x86_64"
ASKED = BuildRequest(name="pyg", cuda="11.8", additions=Additions(packages=("rdkit",), apt=("git",)))
COMMAND = "    instead: make image CUDA=11.8 WITH=rdkit 'APT=git libx11-6'    (packages of Debian bookworm)"


def library(*needed, soname=""):
    return make_elf(needed=needed, **({"soname": soname} if soname else {}))


@pytest.fixture
def ctx(cache, progress, monkeypatch):
    monkeypatch.setattr("graphcrate.host.settings.now", lambda: 1.8e9)
    found = contents.ContentsIndex(suite="bookworm", sha256="0" * 64, read=1.8e9, packages=PACKAGES)
    cache.keep(cache.path("bases", "contents", "bookworm.json"), encode(found))
    return place(cache, progress=progress)


def added(ctx, *wheels, base=(), **files):
    """A lock with these wheels, which are in the cache; `files`: of a wheel of rdkit."""
    made = [*wheels, *([small_wheel("rdkit", "1", tag=TAG, files=files)] if files else [])]
    packages = [locked(one) for one in made]
    for one, (_, data) in zip(packages, made, strict=True):
        path = ctx.cache.path("files", one.file.sha256, one.file.name)
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(data)
    more = [wheel("torch", "2.0.1")]
    names = tuple(one.name for one in packages)
    return Lock(
        base=bookworm(*map(deb, base)),
        packages=(*packages, *more),
        additions=SimpleNamespace(packages=names, asked=names),
    )


class Lock(msgspec.Struct):
    """As much of a lock as is looked at."""

    base: object
    packages: tuple
    additions: object
    compilation: object = None
    platform: object = DEFAULT


def told(lock, ctx, request=ASKED):
    allow, with_apt = request.additions.allow, NextSteps(request).with_apt
    return list(foreseen.lines(lock, request.own_sources, allow, with_apt, ctx))


def test_plan_names_a_missing_library_with_the_apt_command(ctx):
    files = {"rdkit.libs/libcairo.so.2": library("libX11.so.6", "libz.so.1"), "rdkit/a.so": library("libcairo.so.2")}
    lines = ["  lacks     libX11.so.6, which rdkit needs: the audit would fail", COMMAND]
    lock = added(ctx, **files)
    assert told(lock, ctx) == lines
    ctx.cache.file(lock.packages[0].file.sha256, lock.packages[0].file.name).write_bytes(
        b"\0" * lock.packages[0].file.size
    )
    assert told(lock, ctx) == lines  # each wheel is read once


@pytest.mark.parametrize(
    ("files", "base"),
    [
        ({"rdkit/a.so": library("libX11.so.6")}, ("libx11-6",)),  # the base has it
        ({"rdkit/a.so": library("libX11.so.6"), "rdkit/b.so": library(soname="libX11.so.6")}, ()),
        ({"rdkit/a.so": library("libX11.so.6"), "rdkit.libs/libX11.so.6": library()}, ()),
        ({"rdkit/a.so": library("libcudart.so.12", "libtorch.so", "libcuda.so.1")}, ()),  # not Debian's to have
        ({"rdkit/a.so": b"no library"}, ()),
        ({"rdkit/a.txt": library("libX11.so.6")}, ()),
    ],
)
def test_plan_names_no_library_that_is_present_or_unknown_to_debian(ctx, files, base):
    assert told(added(ctx, base=base, **files), ctx) == []


def test_library_of_another_added_wheel_is_not_missing(ctx):
    other = small_wheel("cairo", "1", tag=TAG, files={"cairo/libX11.so.6": library()})
    assert told(added(ctx, other, **{"rdkit/a.so": library("libX11.so.6")}), ctx) == []


def test_plan_for_mpi4py_names_openmpi(ctx):
    files = {f"mpi4py/MPI.{name}.so": library(f"libmpi.so.{number}") for name, number in (("mpich", 12), ("ompi", 40))}
    mpi4py = small_wheel("mpi4py", "4", tag=TAG, files=files)
    first, second = told(added(ctx, mpi4py), ctx)
    assert "one of libmpi.so.12 and libmpi.so.40, which mpi4py needs" in first
    assert "APT=git openmpi-bin" in second
    assert told(added(ctx, mpi4py, base=("libopenmpi3",)), ctx) == []


def test_plan_needs_no_provider_of_a_wheels_mpi(ctx):
    """libfabric and UCX open those that they can."""
    files = {
        "mpich-5.data/data/lib/libmpi.so.12": library("libc.so.6"),
        "mpich-5.data/data/lib/mpich/ucx/libuct_ib.so.0": library("libX11.so.6"),
    }
    assert told(added(ctx, small_wheel("mpich", "5", tag=TAG, files=files)), ctx) == []
    closed = small_wheel("mpich", "5", tag=TAG, files={"mpich-5.data/data/lib/libmpi.so.12": library("libX11.so.6")})
    assert "libX11.so.6, which mpich needs" in told(added(ctx, closed), ctx)[0]


def test_plan_names_libcairo_for_cairocffi(ctx):
    cairo = small_wheel("cairocffi", "1.7.1")
    (line, command) = told(added(ctx, cairo), ctx)
    assert "libcairo.so.2, which cairocffi needs" in line
    assert "libcairo2" in command
    assert told(added(ctx, cairo, base=("libcairo2",)), ctx) == []


def test_plan_names_git_for_gitpython(ctx):
    lock = added(ctx, small_wheel("gitpython", "3.2.1"))
    (line, command) = told(lock, ctx, msgspec.structs.replace(ASKED, additions=Additions()))
    assert line == "  lacks     git, which gitpython runs when it is imported"
    assert "APT=git " in command
    assert told(added(ctx, small_wheel("gitpython", "3.2.1"), base=("git",)), ctx) == []
    lock.additions.asked = ()  # another package's, which may do without
    assert told(lock, ctx) == []


def test_devel_plan_counts_libraries_of_the_compiler_base(ctx):
    lock = added(ctx, **{"rdkit/a.so": library("libX11.so.6")})
    lock = msgspec.structs.replace(lock, compilation=SimpleNamespace(base=bookworm(deb("libx11-6"))))
    assert told(lock, ctx) != []
    assert told(lock, ctx, msgspec.structs.replace(ASKED, sources=SourceOptions(devel=True))) == []


def test_plan_omits_allowed_missing_libraries(ctx):
    allow = (Allowance(package="rdkit", library="libX*", why="nothing is drawn"),)
    request = msgspec.structs.replace(ASKED, additions=msgspec.structs.replace(ASKED.additions, allow=allow))
    assert told(added(ctx, **{"rdkit/a.so": library("libX11.so.6")}), ctx, request) == []


def test_plan_fetches_small_wheels_and_goes_on_without(ctx, monkeypatch):
    asked = []

    def fetch(lock, *_):
        asked.append([one.name for one in lock.packages])
        raise NetworkError("nobody answers", next_step="nothing")

    monkeypatch.setattr(foreseen, "fetch", fetch)
    lock = added(ctx)
    small, large = wheel("small", ending=f"-{TAG}.whl"), wheel("large", ending=f"-{TAG}.whl", size=foreseen.LARGEST)
    for packages in ((small,), (small, large), (wheel("pure"),)):
        names = SimpleNamespace(packages=tuple(one.name for one in packages), asked=())
        assert told(msgspec.structs.replace(lock, packages=packages, additions=names), ctx) == []
    assert asked == [["small"]]


def test_plan_on_ubuntu_or_without_an_index_names_no_libraries(ctx, monkeypatch):
    lock = added(ctx, **{"rdkit/a.so": library("libX11.so.6")})
    ubuntu = RegistryBase(
        reference="docker.io/library/ubuntu:22.04", digest="sha256:" + "0" * 64, interpreter="/usr/bin/python3"
    )
    assert told(msgspec.structs.replace(lock, base=ubuntu), ctx) == []

    def index(*_):
        raise NetworkError("nobody answers", next_step="nothing")

    monkeypatch.setattr(contents, "index", index)
    assert told(lock, ctx) == []
