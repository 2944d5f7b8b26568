"""Debian's index of files: which package brings a library, by the name that programs ask for."""

import pytest

from debroot import contents as of_debian
from debroot.errors import BrokenFileError
from graphcrate.host import settings
from graphcrate.inputs.bases import contents
from graphcrate.model.errors import NetworkError
from tests.made import place, refused
from tests.unit import small_debian
from tests.unit.wheel_server import Fault

TRIPLET = "x86_64-linux-gnu"
SYSTEM = f"usr/lib/{TRIPLET}"
LINES = (
    f"{SYSTEM}/libX11.so.6                   libs/libx11-6",
    f"{SYSTEM}/nx/X11/libX11.so.6            x11/nxagent",
    f"{SYSTEM}/libGL.so.1                    libs/libgl1",
    f"{SYSTEM}/primus/libGL.so.1             utils/primus-libs",
    "lib/x86_64-linux-gnu/libz.so.1          libs/zlib1g",
    f"{SYSTEM}/libX11.so                     libdevel/libx11-dev",
    f"{SYSTEM}/debug/libz.so.1               debug/zlib1g-dbg",
    f"{SYSTEM}/libQt5Gui.so.5                contrib/libs/libqt5gui5-gles,libs/libqt5gui5",
    f"{SYSTEM}/libavcodec.so.59              libs/libavcodec-extra59,libs/libavcodec59",
    f"{SYSTEM}/libmeep.so.30.0.0             libs/libmeep-mpi-default30,libs/libmeep-openmpi30",
    f"{SYSTEM}/blas/libblas.so.3             libs/libblas3",
    f"{SYSTEM}/atlas/libblas.so.3            libs/libatlas3-base",
    f"{SYSTEM}/openblas-serial/libopenblas.so.0 libs/libopenblas0-serial",
    "usr/aarch64-linux-gnu/lib/libz.so.1     libs/libz-arm64-cross",
    "usr/share/doc/a file with spaces        doc/words",
)


@pytest.fixture
def debian(server, cache, progress, tmp_path, monkeypatch, no_places):
    made = small_debian.trusted(server, cache, progress, tmp_path, monkeypatch)
    made.ctx = place(cache, {**no_places, "DEBIAN_MIRROR": server.url("/debian")}, progress)
    return made


def later(monkeypatch, days):
    now = settings.now()
    monkeypatch.setattr(settings, "now", lambda: now + days * 86_400)


def asked(server, part):
    return sum(part in path for path in server.paths())


def test_contents_index_has_libraries_of_loader_folders_only():
    found = of_debian.libraries((f"{line}\n".encode() for line in LINES), TRIPLET)
    assert {name: of_debian.choice(name, packages) for name, packages in found.items()} == {
        "libGL.so.1": ("libgl1",),
        "libQt5Gui.so.5": ("libqt5gui5",),
        "libX11.so.6": ("libx11-6",),
        "libavcodec.so.59": ("libavcodec59",),
        "libblas.so.3": ("libblas3",),
        "libmeep.so.30.0.0": ("libmeep-mpi-default30", "libmeep-openmpi30"),
        "libopenblas.so.0": ("libopenblas0-serial",),
        "libz.so.1": ("zlib1g",),
    }


@pytest.mark.parametrize("size", [1, 7, 100, 100_000])
def test_contents_index_is_read_from_any_chunks(size):
    whole = "".join(f"{line}\n" for line in LINES).encode()
    pieces = [whole[start : start + size] for start in range(0, len(whole), size)]
    assert of_debian.libraries(pieces, TRIPLET) == of_debian.libraries([whole], TRIPLET)


def test_package_name_of_a_library_follows_debian_policy():
    names = {name: of_debian.package_of(name) for name in ("libX11.so.6", "libXext.so.6", "libssl.so.1.1")}
    assert names == {"libX11.so.6": "libx11-6", "libXext.so.6": "libxext6", "libssl.so.1.1": "libssl1.1"}
    assert of_debian.choice("libpng16.so.16", ["libpng16-16t64", "libpng-apng"]) == ("libpng16-16t64",)


#: what compilers, pkg-config and CMake look for
FOR_BUILDS = (
    "usr/bin/swig                                    devel/swig",
    "usr/include/cholmod.h                           libdevel/libother-dev",
    "usr/include/suitesparse/cholmod.h               libdevel/libsuitesparse-dev",
    "usr/include/deep/down/cholmod.h                 libdevel/libdeep-dev",
    "usr/include/a/thing.h                           libdevel/libthing-dev,libdevel/libthing-gles-dev",
    "usr/include/b/either.h                          libdevel/libb-dev,libdevel/liba-dev",
    "usr/share/doc/b/examples/usr/include/either.h   doc/b-doc",
    f"{SYSTEM}/libgsl.so                             libdevel/libgsl-dev",
    f"{SYSTEM}/libgsl.so.27                          libs/libgsl27",
    f"{SYSTEM}/pkgconfig/spatialindex.pc             libdevel/libspatialindex-dev",
    "usr/lib/cmake/fmt-10/fmt-config.cmake           libdevel/libfmt-dev",
    "usr/share/cmake/Catch/Catch2Config.cmake        libdevel/catch2",
)


@pytest.mark.parametrize(
    ("kind", "name", "packages"),
    [
        ("program", "swig", ("swig",)),
        ("header", "cholmod.h", ("libother-dev",)),
        ("header", "suitesparse/cholmod.h", ("libsuitesparse-dev",)),
        ("header", "a/thing.h", ("libthing-dev",)),
        ("header", "either.h", ("liba-dev", "libb-dev")),
        ("header", "x.*", ()),
        ("library", "gsl", ("libgsl-dev",)),
        ("library", "libspatialindex", ("libspatialindex-dev",)),
        ("library", "FMT", ("libfmt-dev",)),
        ("library", "Catch2", ("catch2",)),
        ("library", "nowhere", ()),
    ],
)
def test_what_a_build_lacks_is_found_in_debians_index_of_files(debian, kind, name, packages):
    debian.put_contents("bookworm", *LINES, *FOR_BUILDS)
    assert contents.bringing(kind, name, "bookworm", debian.ctx) == packages
    assert contents.bringing(kind, name, "bullseye", debian.ctx) == (), "nobody has it, which is no error"


def test_contents_index_with_an_endless_line_is_refused():
    with pytest.raises(BrokenFileError, match="line"):
        of_debian.libraries([b"x" * 50_000] * 2, TRIPLET)


def test_contents_index_is_downloaded_once_a_month(debian, server, monkeypatch):
    assert contents.index("bookworm", debian.ctx, ask=False) is None
    debian.put_contents("bookworm", *LINES, by_hash=True)
    assert contents.index("bookworm", debian.ctx).packages["libX11.so.6"] == ("libx11-6",)
    before = len(server.asked)
    assert contents.index("bookworm", debian.ctx).packages["libz.so.1"] == ("zlib1g",)
    assert len(server.asked) == before
    later(monkeypatch, -1)  # by a clock that went wrong when it was read, or does now
    contents.index("bookworm", debian.ctx)
    assert asked(server, "InRelease") == 2
    later(monkeypatch, 32)
    contents.index("bookworm", debian.ctx)  # of the same bytes: what Debian signed is asked for, no more
    assert (asked(server, "by-hash"), asked(server, "InRelease")) == (1, 3)
    debian.put_contents("bookworm", f"{SYSTEM}/libnew.so.1 libs/libnew1", by_hash=True)
    later(monkeypatch, 31)
    assert set(contents.index("bookworm", debian.ctx).packages) == {"libnew.so.1"}


def test_expired_contents_index_is_used_if_mirrors_are_silent(debian, server, monkeypatch):
    debian.put_contents("bookworm", *LINES)
    first = contents.index("bookworm", debian.ctx)
    server.faults["/debian/dists/bookworm/InRelease"] = [Fault(status=503)] * 99
    later(monkeypatch, 31)
    assert contents.index("bookworm", debian.ctx) == first
    with refused(NetworkError, "bullseye", "DEBIAN_MIRROR"):
        contents.index("bullseye", debian.ctx)


def test_unsigned_contents_index_is_refused(debian, server):
    debian.put_contents("bookworm", *LINES)
    server.put("/debian/dists/bookworm/main/Contents-amd64.gz", b"others")
    with refused(NetworkError, "Contents-amd64"):
        contents.index("bookworm", debian.ctx)
    assert contents.index("bookworm", debian.ctx, ask=False) is None


def test_package_of_an_installed_library_is_the_one_that_dpkg_knows(tmp_path):
    """Bookworm has libsnappy.so.1 in libsnappy1v5: that its name follows the library's is policy, and no rule."""
    lists = tmp_path / "var/lib/dpkg/info"
    lists.mkdir(parents=True)
    for package, paths in (
        ("libsnappy1v5:amd64", [f"/{SYSTEM}/libsnappy.so.1"]),
        ("libsnappy-dev:amd64", [f"/{SYSTEM}/libsnappy.so"]),
        ("libopenblas0:amd64", ["/usr/share/doc/libopenblas0"]),
        ("libopenblas0-pthread:amd64", [f"/{SYSTEM}/openblas-pthread/libopenblas.so.0"]),
        ("other", [f"/{SYSTEM}/my-libz.so.1"]),
    ):
        (lists / f"{package}.list").write_text("".join(f"{path}\n" for path in ("/.", *paths)))
    names = ("libsnappy.so.1", "libsnappy.so", "libopenblas.so.0", "libz.so.1")
    found = {name: of_debian.installed(name, tmp_path) for name in names}
    assert found == {
        "libsnappy.so.1": ("libsnappy1v5",),
        "libsnappy.so": (),
        "libopenblas.so.0": ("libopenblas0",),
        "libz.so.1": (),
    }
