"""Debian packages with the libraries that an image lacks, and the commands to add them."""

import io
from pathlib import Path
from types import SimpleNamespace

import pytest

from graphcrate.checks import broken, new_image
from graphcrate.checks.audit import run as audit
from graphcrate.checks.reading import read_image
from graphcrate.compat.variants.next_steps import NextSteps
from graphcrate.compat.variants.request import BuildRequest
from graphcrate.host.context import Context
from graphcrate.inputs.bases import contents as index_of_files
from graphcrate.model.audit import AuditFinding
from graphcrate.model.errors import AuditError, NetworkError
from graphcrate.model.lock import encode
from graphcrate.model.recipe import Additions
from graphcrate.model.report import Audited
from graphcrate.resolve import libraries
from tests import ROOT
from tests.made import place, refused
from tests.unit import small_layouts
from tests.unit.audited import PYTHON, SITE, contents, package

BOOKWORM = b'ID=debian\nVERSION_CODENAME="bookworm"\n'
PACKAGES = {
    "libX11.so.6": ("libx11-6",),
    "libXext.so.6": ("libxext6",),
    "libmpi.so.40": ("libopenmpi3",),
    "libopenblas.so.0": ("libopenblas0-openmp", "libopenblas0-pthread"),
    "libc++.so.1": ("libc++1-14", "libc++1-16"),
    "libc++abi.so.1": ("libc++abi1-14",),
}
CAIRO = f"{SITE}/rdkit.libs/libcairo-83b71c49.so.2"


@pytest.fixture
def ctx(cache, progress, no_places):
    """A cache with a recent index of bookworm, and no server that answers."""
    made = place(cache, {**no_places, "DEBIAN_MIRROR": "http://127.0.0.1:9/debian"}, progress)
    found = index_of_files.ContentsIndex(suite="bookworm", sha256="0" * 64, read=1.8e9, packages=PACKAGES)
    cache.keep(cache.path("bases", "contents", "bookworm.json"), encode(found))
    return made


@pytest.fixture(autouse=True)
def now(monkeypatch):
    monkeypatch.setattr("graphcrate.host.settings.now", lambda: 1.8e9)


def judged(*needed, system=BOOKWORM, path=CAIRO):
    files = {**PYTHON, path: {"needed": needed}}
    owner = path.removeprefix(f"{SITE}/").partition("/")[0].removesuffix(".libs")
    image = contents(files, package(owner, files=[path]), texts={"/usr/lib/os-release": system})
    return audit.judge(image)


def told(found, ctx):
    return [(one.fix, one.packages) for one in libraries.advised(found, ctx).findings if one.missing]


def test_missing_library_finding_names_its_debian_packages(ctx):
    found = judged("libX11.so.6", "libXext.so.6", "libc.so.6")
    assert found.system == "debian bookworm"
    assert told(found, ctx) == [
        ("libx11-6 and libxext6 of Debian bookworm ('APT=libx11-6 libxext6')", ("libx11-6", "libxext6"))
    ]
    assert libraries.packages_of(libraries.advised(found, ctx)) == ("libx11-6", "libxext6")


def test_finding_on_a_broken_dependency_refers_to_its_finding():
    user = f"{SITE}/rdkit/Draw.so"
    files = {CAIRO: {"needed": ("libX11.so.6",)}, user: {"needed": (CAIRO.rpartition("/")[2],)}}
    owner = package("rdkit", files=files)
    found = {one.file: one.fix for one in audit.judge(contents({**PYTHON, **files}, owner)).findings}
    assert found["rdkit/Draw.so"] == "what is said of rdkit.libs/libcairo-83b71c49.so.2"


@pytest.mark.parametrize(
    ("needed", "words", "packages"),
    [
        (("libX11.so.6", "libown.so.3"), ("libx11-6", "no package of Debian bookworm has libown.so.3"), ("libx11-6",)),
        (("libopenblas.so.0",), ("one of libopenblas0-openmp and libopenblas0-pthread",), ()),
        (("libown.so.3",), ("no package of Debian bookworm has libown.so.3", "a wheel of rdkit that brings it"), ()),
    ],
)
def test_ambiguous_debian_package_is_mentioned_and_not_chosen(ctx, needed, words, packages):
    ((fix, chosen),) = told(judged(*needed), ctx)
    assert [word for word in words if word not in fix] == []
    assert chosen == packages


def test_alternative_libraries_choose_the_group_that_debian_completes():
    """mpi4py: Debian has a library of Open MPI's name, and none of MPICH's own."""
    index = index_of_files.ContentsIndex(suite="bookworm", sha256="", read=0, packages=PACKAGES)
    finding = AuditFinding("libraries", "fail", "mpi4py", "", "", missing=(("libmpi.so.12",), ("libmpi.so.40",)))
    assert libraries.of_debian(finding, index).packages == ("openmpi-bin",)  # without whose orted MPI_Init ends
    none = libraries.of_debian(finding, index_of_files.ContentsIndex(suite="sid", sha256="", read=0, packages={}))
    assert "libmpi.so.12 and libmpi.so.40" in none.fix
    assert none.packages == ()


def test_libraries_of_a_chosen_package_need_no_other_package():
    index = {**PACKAGES, "libc++.so.1": ("libc++1-14", "libc++1-16"), "libc++extra.so.1": ("libc++1-14",)}
    found = libraries.brought(
        ["libc++.so.1", "libc++extra.so.1"], index_of_files.ContentsIndex(suite="x", sha256="", read=0, packages=index)
    )
    assert found == libraries.Brought(("libc++1-14",))


@pytest.mark.parametrize(
    ("system", "command"),
    [
        (b"ID=ubuntu\nVERSION_CODENAME=jammy\n", "apt-file search libX11.so.6"),
        (b'ID="rocky"\nVERSION_ID="9.4"\n', "dnf provides '*/libX11.so.6'"),
        (b"ID=debian\nVERSION_CODENAME=trixie\n", "apt-file search libX11.so.6"),  # and nobody answers
        (b"ID=debian\nVERSION_CODENAME=../../x\n", "apt-file search libX11.so.6"),
        (b"ID=other\n", "package of its system"),
        (b"", "package of its system"),
    ],
)
def test_missing_library_on_another_system_names_its_search_command(ctx, system, command):
    ((fix, packages),) = told(judged("libX11.so.6", "libXext.so.6", system=system), ctx)
    assert command in fix
    assert packages == ()


def test_optional_missing_library_reads_no_index(ctx, monkeypatch):
    def asked(*_, **__):
        raise NetworkError("somebody was asked", next_step="nothing")

    monkeypatch.setattr(index_of_files, "index", asked)
    path = f"{SITE}/numba/np/ufunc/omppool.cpython-311-x86_64-linux-gnu.so"
    found = judged("libgomp-other.so.1", path=path)
    assert [one.severity for one in found.findings if one.missing] == ["note"]
    assert libraries.advised(found, ctx) == found


X11 = "ImportError: libX11.so.6: cannot open shared object file: No such file or directory"


@pytest.fixture
def here(ctx, typed, monkeypatch):
    """A clone of the project, with that cache and no server that answers."""
    made = Context(root=ROOT, environment={**ctx.environment, "GRAPHCRATE_CACHE": str(ctx.cache.root)})
    monkeypatch.setattr(Context, "here", classmethod(lambda kind: made))
    return typed


@pytest.mark.parametrize("how", [["--explain", X11], [f"--explain={X11}"], ["--explain", "-"]])
def test_doctor_names_the_debian_package_of_a_missing_library(here, monkeypatch, how):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(X11.encode())))
    code, out, _ = here("doctor", *how)
    assert (code, out.count("error:")) == (0, 1)
    assert out.endswith("apt:   libx11-6 of Debian bookworm: make image … APT=libx11-6\n")


@pytest.mark.parametrize(
    "how",
    [
        ["--explain", X11, "--json"],
        ["--explain", X11.replace("libX11.so.6", "libown.so.3")],
        ["--explain", "CUDA out of memory"],
    ],
)
def test_doctor_names_no_package_for_programs_or_unknown_libraries(here, how):
    _, out, _ = here("doctor", *how)
    assert "apt:" not in out


def test_doctor_explains_an_error_without_an_index(here, ctx, monkeypatch):
    monkeypatch.setattr("graphcrate.host.settings.now", lambda: 1.8e9)
    ctx.cache.path("bases", "contents", "bookworm.json").unlink()
    code, out, _ = here("doctor", "--explain", X11)
    assert (code, "apt:" in out) == (0, False)


ASKED = BuildRequest(name="pyg", cuda="11.8", additions=Additions(packages=("rdkit", "ase"), apt=("git", "tmux")))


@pytest.mark.parametrize(
    ("request_", "command"),
    [
        (ASKED, "make image CUDA=11.8 'WITH=rdkit ase' 'APT=git tmux libx11-6'"),
        (BuildRequest(name="torch", cuda="cpu"), "make image STACK=torch CUDA=cpu APT=libx11-6"),
        (
            BuildRequest(name="pyg", cuda="11.8", additions=Additions(apt=("git",)), recipe=Path("mine.toml")),
            'apt = ["git", "libx11-6"] in mine.toml',
        ),
        (
            BuildRequest(
                name="pyg",
                cuda="11.8",
                additions=Additions(packages=("rdkit",), constraints=("numpy<2",)),
                requirements=(Path("more.txt"),),
                words=(),
            ),
            "make image CUDA=11.8 REQUIREMENTS=more.txt APT=libx11-6",
        ),
        (
            BuildRequest(name="pyg", cuda="11.8", additions=Additions(apt=("git",), constraints=("numpy<2",))),
            "make image … 'APT=git libx11-6'",
        ),
    ],
)
def test_audit_error_on_a_missing_library_has_the_whole_command(request_, command, tmp_path):
    made = SimpleNamespace(name="pyg", tag="1", image="pyg:1")
    made.audit = Audited(binaries=1, fail=1, warn=0, note=0, failures=("rdkit: needs",), packages=("libx11-6",))
    with refused(AuditError, "see rdkit\n", "needs", command):
        broken.raise_if_broken(made, tmp_path, NextSteps(request_).with_apt)


@pytest.mark.parametrize(
    ("options", "recipe", "command"),
    [
        (("with_",), None, "make image STACK=torch CUDA=cpu 'WITH=a x' APT=b BUILD_APT=c"),
        (("apt",), None, "make image STACK=torch CUDA=cpu WITH=a 'APT=b x' BUILD_APT=c"),
        (("build_apt",), None, "make image STACK=torch CUDA=cpu WITH=a APT=b 'BUILD_APT=c x'"),
        (("build_apt", "apt"), None, "make image STACK=torch CUDA=cpu WITH=a 'APT=b x' 'BUILD_APT=c x'"),
        (("with_",), Path("mine.toml"), 'add "x" to pip in mine.toml'),
        (("build_apt",), Path("mine.toml"), 'build_apt = ["c", "x"] in mine.toml, then make …'),
        (
            ("build_apt", "apt"),
            Path("mine.toml"),
            'build_apt = ["c", "x"] and apt = ["b", "x"] in mine.toml, then make …',
        ),
    ],
)
def test_package_is_added_to_the_options_that_were_typed(options, recipe, command):
    additions = Additions(packages=("a",), apt=("b",), build_apt=("c",))
    request = BuildRequest(name="torch", cuda="cpu", additions=additions, recipe=recipe)
    assert NextSteps(request).beside({option: ["x"] for option in options}) == command


def test_report_has_the_debian_packages_of_failures(ctx, tmp_path, monkeypatch):
    """Packages of failures alone: a warning's are in the warning."""
    seen = []

    def advise(found, _):
        seen.append(found)
        missing = (("libX11.so.6",),)
        findings = tuple(
            AuditFinding("libraries", severity, "rdkit", "", "needs", missing=missing, packages=(f"lib-{severity}",))
            for severity in ("fail", "warn")
        )
        return type(found)(**{name: getattr(found, name) for name in found.__struct_fields__} | {"findings": findings})

    made = small_layouts.layout(tmp_path / "oci")
    report = new_image.vet(
        small_layouts.report(made, torch_cuda="cpu"), read_image(str(made.path), ctx), tmp_path, ctx, None, advise
    ).report
    assert seen
    assert report.audit.packages == ("lib-fail",)
