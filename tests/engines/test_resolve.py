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

from graphcrate.compat import addresses, own, planning
from graphcrate.compat.request import SourceOptions
from graphcrate.host import settings
from graphcrate.host.cache import Cache
from graphcrate.model.errors import BuildError, NetworkError, ResolutionError
from graphcrate.model.lock import encode
from graphcrate.model.recipe import Additions, Channel
from graphcrate.resolve import additions, offers
from graphcrate.resolve.candidates import choose
from graphcrate.resolve.fetch import fetch
from graphcrate.resolve.offers import Sources
from tests.made import place
from tests.unit import small_index
from tests.unit.elfmaker import make_elf
from tests.unit.small_index import COMPATIBLE, CP311, PYTORCH
from tests.unit.test_sdist import zipped
from tests.unit.wheel_server import Fault, WheelServer, small_sdist, small_wheel

pytestmark = pytest.mark.engine("uv", "git")

FLIT = '[build-system]\nrequires = ["flit_core"]\nbuild-backend = "flit_core.buildapi"\n'
SETUPTOOLS = '[build-system]\nrequires = ["setuptools>=40", "flit_core"]\nbuild-backend = "setuptools.build_meta"\n'


def index_of_many():
    """Projects, each with one way of people's packages to fit or not to fit, and their files."""
    return _fitting() | _sources()


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
        "sklearn": [small_sdist("sklearn", "0.0", pyproject=FLIT)],
        "wants-old-tqdm": [small_wheel("wants_old_tqdm", "1.0", requires=["tqdm<4.5"])],
        "wants-numpy": [small_wheel("wants_numpy", "1.0", requires=["numpy>=2"])],
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
        "native": [
            small_sdist("native", "1.0", pyproject=SETUPTOOLS, more={"setup.py": "", "src/a.c": "int a;"}),
        ],
        "torchcodec": [
            small_wheel("torchcodec", "1.0", tag=CP311, files={"torchcodec/_core.so": make_elf(("libcudart.so.13",))})
        ],
        "other-python": [small_wheel("other_python", "1.0", tag="cp38-cp38-linux_x86_64")],
    }


@pytest.fixture(scope="module")
def server():
    with WheelServer() as running, pytest.MonkeyPatch.context() as patch:
        patch.setitem(addresses.ROOTS, Channel.PYTORCH, running.url("/whl"))
        patch.setitem(addresses.ROOTS, Channel.PYG, running.url("/whl"))
        small_index.fill(running)
        for project, files in index_of_many().items():
            running.simple(project, dict(files))
        yield running


def environment(server):
    kept = {name: value for name, value in settings.environment().items() if not name.startswith(("UV_", "PIP_"))}
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


@pytest.fixture
def add(server, cache, tmp_path, monkeypatch):
    """What a person's words make of the stack's lock; the index wants a password of them."""
    monkeypatch.chdir(tmp_path)
    index = {"UV_DEFAULT_INDEX": server.url("/simple").replace("://", "://me:hunter2@")}
    recipe = small_index.recipe(COMPATIBLE, extensions=())
    context = small_index.context(recipe, SourceOptions(), cache, environment(server) | index)
    stack = choose(context, {})

    def run(*packages, committed=None, **more):
        given = own.merge_additions(Additions(**more), own.given(packages)) if more else own.given(packages)
        return stack.lock, additions.add(context, stack, given, committed).lock

    yield run
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()], "kept"


def test_a_page_of_links_that_requirements_name_gives_a_package(server, cache, tmp_path, monkeypatch):
    """With a password in its address, which is in no file; the index does not have the package."""
    name, content = small_wheel("mine", "1.0")
    server.pyg("mine", {name: content})
    page = server.url("/whl/torch-mine.html").replace("://", "://me:hunter2@")
    (tmp_path / "requirements.txt").write_text(f"--find-links {page}\nmine\n")
    given = own.given([], [tmp_path / "requirements.txt"])
    (tmp_path / "requirements.txt").unlink()
    recipe = small_index.recipe(COMPATIBLE, extensions=())
    request = SourceOptions(further=given.channels)
    context = small_index.context(recipe, request, cache, environment(server))
    lock = additions.add(context, choose(context, {}), given, None).lock
    assert lock.package("mine").version == "1.0"
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()], "kept"


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


@pytest.mark.parametrize(
    ("word", "what"),
    [
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
            r"torchcodec 1\.0 is for CUDA 13, and torch 2\.0\.1 for CUDA 11\.7:\ntorchcodec/_core\.so needs",
        ),
        ("compiled", r"compiled 1.0 is there as source only, and has to be compiled \(src/a.cpp\)"),
        ("by-cmake", r"by-cmake 1.0 .* compiled \(src/a.cpp\)\ncause: Its setup.py builds it by CMake"),
    ],
)
def test_what_cannot_be_added_is_refused_with_who_wants_what(add, word, what):
    with pytest.raises(ResolutionError, match=what) as caught:
        add(word)
    assert caught.value.next_step
    assert "hunter2" not in str(caught.value)


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


def test_a_source_in_a_zip_is_one(add):
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
    assert (native.compiled, [one.name for one in native.build]) == (True, ["flit-core"])
    assert (lock.compilation.compiler[:4], lock.compilation.toolkit) == ("g++-", None)
    (step,) = planning.compile_steps(lock)
    assert (step.title, step.packages) == (planning.ADDED_SOURCES, (native,))
    assert {"torch", "flit-core"} <= {one.name for one in step.against}


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
    assert [one.name for one in mine.build] == ["flit-core"]
    assert "plain" in names(lock)
    assert (lock.compilation.toolkit, lock.compilation.architectures) == (None, ())
    (step,) = planning.compile_steps(lock)
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


def test_an_index_that_breaks_down_under_uv(server, cache, monkeypatch):
    monkeypatch.setitem(server.faults, "/simple/filelock/", [Fault(status=500)] * 50)
    with pytest.raises(NetworkError):
        resolved(server, cache, COMPATIBLE)


def test_uv_tells_its_default_index(tmp_path):
    variables = {"UV_DEFAULT_INDEX": "https://index.example/simple", "PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    told = offers.emitted_indexes(variables)
    assert "--index-url https://index.example/simple" in told


def test_an_index_in_uv_s_own_settings_is_one_s_own_and_no_setting_is_none(tmp_path):
    """What decides whether public mirrors may be asked for packages."""
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
