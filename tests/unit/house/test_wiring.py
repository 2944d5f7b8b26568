"""Ends of commands: each exit code of errors.py is the end of a command here, and what a failure leaves behind.

The commands run in this process on an image of a few bytes. Stand-ins are what would start a process: the sandbox,
Debian's tools, the image's Python.
"""

import errno
import fcntl
import hashlib
import json
import os
import shutil
import socket
import tempfile
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from debroot import mirrors
from graphcrate.cli import options, run
from graphcrate.compat.facts.facts import TorchBuild
from graphcrate.compat.variants import recipes
from graphcrate.engines.embedded import build as embedded
from graphcrate.engines.embedded import run as running
from graphcrate.engines.embedded import unpacked_images
from graphcrate.host import settings
from graphcrate.host.context import Context
from graphcrate.host.defects import TRACEBACK
from graphcrate.host.disk.cache import Cache
from graphcrate.host.process import Completed
from graphcrate.host.sandbox import attach, gpu
from graphcrate.inputs.bases import Base
from graphcrate.model import errors
from graphcrate.model.errors import GraphcrateError
from graphcrate.model.lock import Added, Lock, encode
from graphcrate.resolve.additions import additions
from graphcrate.resolve.sources import search, wheel_mirrors
from graphcrate.resolve.stack import base, locks
from nsbox.box import Bind
from tests.made import bookworm, deb
from tests.unit import small_layouts, tars
from tests.unit.audited import PYTHON
from tests.unit.elfmaker import make_elf
from tests.unit.inputs.test_bytecode import InProcess
from tests.unit.wheelmaker import locked, make_wheel
from upkeep.news import run as updating
from upkeep.news.review import Review

RECIPE = """
name = "torch"
description = "a few bytes"
smoke = ["torch"]
requirements = []

[[variant]]
cuda = "cpu"
python = "3.11"
base = { provider = "debian", suite = "bookworm" }

[[variant.candidate]]
name = "pypi"
channels = ["pypi"]
torch = "1.0"
torch_cuda = "cpu"

[[variant]]
cuda = "10.2"
python = "3.9"
base = { provider = "debian", suite = "bullseye" }
unavailable = { why = "nobody made it", instead = "make image CUDA=cpu" }
"""
VERDICT = '{"suite":"torch","status":"%s","device":"cpu","metrics":{},"versions":{},"reason":"%s"}'
PASSED, FAILED = VERDICT % ("passed", ""), VERDICT % ("failed", "the loss grew")
PASSING = Completed(0, (PASSED,))
BUILD = ("image", "torch", "--cuda", "cpu")
USUAL = (tars.symlink("lib", "usr/lib"), tars.symlink("bin", "usr/bin"))
BROKEN = {"undefined": ("_ZN3c104cuda9SetDeviceEa",)}


@dataclass
class World:
    """A project of one recipe with its lock, all files in the cache; and what stands for processes."""

    root: Path
    place: Context
    typed: object
    patch: pytest.MonkeyPatch
    registry: object
    index: object  #: a server that has nothing
    deaf: socket.socket = field(default_factory=socket.socket)  #: a port that nobody listens at
    completed: Completed | BaseException = PASSING  #: how the sandbox ends
    programs: tuple = ("sh", "bash")  #: of the base
    ran: list = field(default_factory=list)  #: what ran in it: (argv, options)

    def lock(self, created=small_layouts.CREATED, library=None, **packages):
        """Commit a lock of these wheels, name → files. `library`: fields of torch's."""
        path = self.root / "recipes/torch.toml"
        path.write_text(RECIPE)
        variant = recipes.load(path).variants[0]
        wheels = {"torch": {"torch/__init__.py": b"1\n", "torch/lib/a.so": make_elf(**library or {})}, **packages}
        made = [self.wheel(name, files) for name, files in wheels.items()]
        request = locks.request_digest(recipes.load(path), variant, variant.candidates[0])
        names = {"recipe": "torch", "cuda": "cpu", "candidate": "pypi", "torch_cuda": "cpu", "python": "3.11"}
        libc = deb("libc6", size=5, sha256=hashlib.sha256(b"libc6").hexdigest())
        self.place.cache.write(self.place.cache.file(libc.file.sha256, libc.file.name), b"libc6")
        lock = Lock(**names, created=created, request_sha256=request, base=bookworm(libc), packages=tuple(made))
        committed = self.root / "images/torch/cpu/pypi.lock.json"
        committed.parent.mkdir(parents=True, exist_ok=True)
        committed.write_bytes(encode(lock))

    def wheel(self, name, files):
        """A locked wheel, in the cache."""
        file = make_wheel(self.root / "wheels", name.replace("-", "_"), files=files, method=zipfile.ZIP_STORED)
        package = locked(file, name)
        cached = self.place.cache.file(package.file.sha256, package.file.name)
        cached.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self.root / "wheels" / package.file.name, cached)
        return msgspec.structs.replace(package, channel="pypi")

    def leftovers(self):
        """Files that a command left half-written.

        A cache's folder may go while folders are read, with the cache: os.walk passes over it.
        """
        parts = (("cache/tmp", ""), ("dist", "."))
        found = [
            Path(folder, name)
            for part, begin in parts
            for folder, _, names in os.walk(self.root / part)
            for name in names
            if name.startswith(begin)
        ]
        return [path for path in found if path.is_file() and path.suffix != ".lock"]

    def base(self, *_):
        """In place of Debian's tools: what an audit looks at."""
        entries = [tars.file(path[1:], make_elf(**fields), mode=0o755) for path, fields in PYTHON.items()]
        programs = [tars.file(f"usr/bin/{name}", b"\x7fELF", mode=0o755) for name in self.programs]
        folder = self.root / "base"
        folder.mkdir(exist_ok=True)
        record = tars.record(folder, "base", [*entries, *programs, *USUAL])
        name = record.digest.removeprefix("sha256:")
        tars.overwrite(self.place.cache.blob(record.digest), (folder / name).read_bytes())
        return Base(
            layers=(record,), rootfs=folder, python="/usr/bin/python3", python_version="3.11.2", glibc="2.36",
            environment={"PATH": "/usr/bin"}, labels={},
        )  # fmt: skip

    def run_in(self, rootfs, command):
        """In place of the sandbox."""
        self.ran.append(command)
        if isinstance(self.completed, BaseException):
            raise self.completed
        for line in self.completed.lines if command.on_line else ():
            command.on_line(line)
        return self.completed

    def built(self, *options):
        """Build the image; its folder."""
        code, out, err = self.typed(*BUILD, *options)
        assert code == 0, err
        name, _, tag = out.partition("@")[0].partition(":")
        return self.root / "dist" / name / tag

    def published(self):
        """Build and publish the image; its name on the registry."""
        name = f"torch:{self.built().name}"
        code, out, err = self.typed("publish", name, "--to", f"{self.registry.host}/team", "--allow-cpu-only")
        assert code == 0, err
        return out.partition("@")[0].strip()


@pytest.fixture
def world(tmp_path, monkeypatch, typed, registry, server):
    for name in ("recipes", "suites"):
        (tmp_path / name).mkdir()
    (tmp_path / "suites/torch_check.py").write_text("print()\n")
    environment = {"GRAPHCRATE_CACHE": str(tmp_path / "cache"), "HOME": str(tmp_path), "PATH": ""}
    ctx = Context(root=tmp_path, environment=environment)
    world = World(tmp_path, ctx, typed, monkeypatch, registry, server)
    monkeypatch.setattr(Context, "here", classmethod(lambda kind: world.place))
    monkeypatch.setattr(base, "prepare_base", world.base)
    monkeypatch.setattr(embedded, "default_jobs", lambda: 0)
    monkeypatch.setattr(embedded, "InsidePython", lambda **_: InProcess())
    monkeypatch.setattr(running, "run_in", world.run_in)
    monkeypatch.setattr(gpu, "detect", gpu.HostGpu)
    monkeypatch.chdir(tmp_path)
    world.lock()
    yield world
    world.deaf.close()
    ctx.cache.close()


#: failures: exit code, words, and the command, or a function that makes it come and gives the command
ROWS = [
    (2, "there is no image 'torch:none'", ("run", "torch:none", "--", "true")),
    (2, "docker installs wheels as they are", (*BUILD, "--engine", "docker", "--slim", "all")),
    (2, "there are embedded, docker, podman, apptainer, singularity", (*BUILD, "--engine", "kaniko")),
    (4, "recipe torch is not available for CUDA '10.2'", ("image", "torch", "--cuda", "10.2")),
]


def row(code, says):
    def added(arrange):
        ROWS.append((code, says, arrange))
        return arrange

    return added


@row(2, "mine.toml is there, and is another recipe")
def adopted_over_another_recipe(world):
    (world.root / "Dockerfile").write_text("FROM pytorch/pytorch:2.0.1-cuda11.7-cudnn8-runtime\nRUN pip install a\n")
    (world.root / "mine.toml").write_text('extends = "torch"\n')
    return "adopt", str(world.root / "Dockerfile"), "--output", str(world.root / "mine.toml")


@row(3, "torch.toml:2: name: Expected `str`, got `int`")
def recipe(world):
    (world.root / "recipes/torch.toml").write_text(RECIPE.replace('"torch"', "1", 1))
    return BUILD


@row(5, "127.0.0.1")
def closed_port(world):
    world.deaf.bind(("127.0.0.1", 0))
    return "verify", f"127.0.0.1:{world.deaf.getsockname()[1]}/team/torch:1"


@row(6, "sha256")
def other_bytes_than_locked(world):
    cached = next((world.root / "cache").rglob("torch-1.0-*.whl"))
    size = cached.stat().st_size
    files = {"torch/__init__.py": b"2\n", "torch/lib/a.so": make_elf()}
    shutil.copyfile(make_wheel(world.root / "other", "torch", files=files, method=zipfile.ZIP_STORED), cached)
    assert cached.stat().st_size == size  # else it would be fetched again
    return BUILD


@row(7, "docker")
def no_engine(world):
    world.patch.setattr(settings, "SYSTEM_FOLDERS", ())
    return *BUILD, "--engine", "docker"


@row(8, "are free under")
def full_disk(world):
    world.patch.setattr(Cache, "free_bytes", lambda _: 0)
    return BUILD


@row(9, "torch/__init__.py")
def wheels_in_conflict(world):
    world.lock(other={"torch/__init__.py": b"2\n"})
    return BUILD


@row(10, "smoke test torch failed in torch:")
def failed_suite(world):
    folder = world.built()
    world.completed = Completed(1, (FAILED,))
    return "test", f"torch:{folder.name}", "--rerun"


@row(11, "cache")
def no_cache(world):
    (world.root / "file").touch()
    world.place = Context(root=world.root, environment={**world.place.environment, "GRAPHCRATE_CACHE": "file/cache"})
    return BUILD


@row(12, "compressed data is broken")
def damaged_layout(world):
    folder = world.built()
    blobs = (folder / "oci/blobs/sha256").iterdir()
    blob = next(path for path in blobs if path.read_bytes()[:2] == b"\x1f\x8b")
    tars.overwrite(blob, bytes(blob.stat().st_size))
    return "validate", f"torch:{folder.name}"


@row(13, "are not the same")
def two_images(world):
    first = world.built("--output", "dist")
    world.lock(other={"other/__init__.py": b""})
    world.built("--output", "other")
    return "diff", first, Path("other/torch") / first.name


@row(14, "breaks 2 of")
def no_shell(world):
    world.programs = ("bash",)
    return "check", f"torch:{world.built().name}"


@row(15, "a.so: ")
def broken_library(world):
    world.lock(library=BROKEN)
    return BUILD


@row(16, "is not published")
def untested(world):
    folder = world.built("--no-smoke")
    return "publish", f"torch:{folder.name}", "--to", f"{world.registry.host}/team"


@row(17, "nothing of the kind is attached")
def nothing_attached(world):
    found = world.published()
    world.registry.documents = {
        path: told for path, told in world.registry.documents.items() if not path.endswith(".att")
    }
    return "verify", found


@row(17, "built again, and other bytes")
def changed_bytes(world):
    found = world.published()
    world.programs = ("sh", "bash", "zsh")
    return "verify", "--rebuild", found


@row(18, "pypi: no committed lock answers this request")
def nothing_locked(world):
    (world.root / "images/torch/cpu/pypi.lock.json").unlink()
    return *BUILD, "--locked"


@row(18, "what you add to the stack is not locked")
def additions_without_a_lock(world):
    return *BUILD, "--locked", "--with", "einops"


@row(18, "1 locked file is nowhere any more")
def a_locked_file_is_gone(world):
    places = dict.fromkeys(("DEBIAN_FALLBACK", "DEBIAN_ARCHIVE", "DEBIAN_SNAPSHOT"), "none")
    places["DEBIAN_MIRROR"] = world.index.url("/debian")
    world.place.environment.update(places, UV_DEFAULT_INDEX=world.index.url("/simple"), PIP_CONFIG_FILE="/dev/null")
    world.patch.setattr(mirrors, "of_machine", lambda *_: None)
    world.patch.setattr(wheel_mirrors, "MIRRORS", {})
    world.patch.setattr(search, "AGAIN", ())
    return "lock", "--check"


@row(19, "a defect of graphcrate: ZeroDivisionError")
def what_nobody_expected(world):
    world.patch.setattr(tempfile, "tempdir", str(world.root))
    world.patch.delenv(TRACEBACK)
    world.completed = ZeroDivisionError("division by zero")
    return BUILD


@row(20, "there is news: torch 2.99.0")
def new_release(world):
    build = TorchBuild(torch="2.99.0", cuda="13.0", sm=("8.0",), known="measured")
    world.patch.setattr(updating, "run", lambda *_: Review(day="2026-11-26", facts=(build,)))
    return "update", "--check"


@row(7, "too little memory")
def no_memory(world):
    world.completed = MemoryError()
    return BUILD


@row(130, "interrupted")
def interrupted(world):
    world.completed = KeyboardInterrupt()
    return BUILD


@pytest.mark.parametrize(("expected", "says", "command"), ROWS)
def test_failing_command_ends_with_its_exit_code_and_leaves_no_files(world, expected, says, command):
    code, out, err = world.typed(*(command(world) if callable(command) else command))
    assert (code, says in err) == (expected, True), err
    assert "graphcrate: " in err
    assert "Traceback" not in err
    assert "torch:1.0" not in out  # what failed has no name for the next command
    assert world.leftovers() == []


def test_every_exit_code_has_a_row():
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, GraphcrateError)]
    codes = {kind.exit_code for kind in kinds} - {GraphcrateError.exit_code}
    assert codes | {130} == {code for code, *_ in ROWS}


#: what the system does for a build where the cache lies → (module or class, function)
ON_THE_DISK = {
    "a lock": (fcntl, "flock"),
    "a folder": (tempfile, "mkdtemp"),
    "bytes that have to stay": (os, "fsync"),
    "a new name": (Path, "replace"),
}
TROUBLES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), 8),
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOLCK), 11),
}


@pytest.mark.parametrize(
    ("what", "number"),
    [
        pytest.param(what, number, id=f"{what}: {errno.errorcode[number]}")
        for what in ON_THE_DISK
        for number in TROUBLES
        if (what, number) != ("a lock", errno.EACCES)  # how fcntl, which is not asked, says that another has it
    ],
)
def test_build_with_failing_cache_disk_names_the_error_at_each_system_call(world, what, number):
    (owner, name), code = ON_THE_DISK[what], TROUBLES[number]
    real, failed = getattr(owner, name), []

    def failing(*arguments, **options):
        first = next(iter(arguments), options.get("dir"))
        is_open = isinstance(first, int)
        path = Path(f"/proc/self/fd/{first}").readlink() if is_open else Path(options.get("dir") or first)
        if path.is_relative_to(world.root / "cache"):
            failed.append(path)
            raise OSError(number, os.strerror(number), str(path))
        return real(*arguments, **options)

    world.patch.setattr(owner, name, failing)
    ended, out, err = world.typed(*BUILD)
    assert failed, "the build asks for it"
    assert (ended, out, "GRAPHCRATE_CACHE=" in err, "Traceback" in err) == (code, "", True, False), err
    world.patch.setattr(owner, name, real)
    assert world.typed(*BUILD)[0] == 0, "nothing stands against the same command again"


def test_build_whose_disk_is_full_at_a_layer_names_that(world):
    real, failed = fcntl.flock, []

    def failing(file, operation):
        path = Path(f"/proc/self/fd/{file if isinstance(file, int) else file.fileno()}").readlink()
        if path.name.startswith("layer-"):
            failed.append(path)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return real(file, operation)

    world.patch.setattr(fcntl, "flock", failing)
    ended, out, err = world.typed(*BUILD)
    assert failed, "a layer is made by one build alone"
    assert (ended, out, "GRAPHCRATE_CACHE=" in err, "Traceback" in err) == (8, "", True, False), err


def test_second_build_of_a_failed_image_fails_again(world):
    world.completed = Completed(1, (FAILED,))
    assert [world.typed(*BUILD)[0] for _ in range(2)] == [10, 10]
    world.completed = Completed(0, (PASSED,))
    assert [world.typed(*BUILD)[0] for _ in range(2)] == [0, 0]
    world.lock(library=BROKEN)
    assert [world.typed(*BUILD)[0] for _ in range(2)] == [15, 15]


def unpacked(world):
    return [path.name for path in (world.root / "cache" / unpacked_images.FOLDER).glob("*")]


def test_tree_that_a_stack_was_tried_in_goes_and_that_of_run_stays(world):
    world.completed = Completed(1, (FAILED,))
    assert world.typed(*BUILD)[0] == 10
    assert len(unpacked(world)) == 1, "to be looked into"
    world.completed = PASSING
    shutil.rmtree(world.root / "cache" / unpacked_images.FOLDER)
    assert world.typed(*BUILD)[0] == 0
    assert unpacked(world) == []
    assert world.typed("run", f"torch:{world.built().name}", "--", "ls")[0] == 0
    assert world.typed(*BUILD, "--rerun")[0] == 0
    assert len(unpacked(world)) == 1, "somebody runs it"


def test_tree_of_an_image_with_additions_stays_since_it_is_built_again_and_again(world, mine):
    (code, _, err), _ = mine()
    assert (code, bool(unpacked(world))) == (0, True), err


def test_extension_in_the_lock_is_a_require_argument_of_the_ops_suite(world):
    """The argument is what `ops` fails by where an extension is not installed (test_suites)."""
    required = []
    for more in ({}, {"torch-scatter": {"torch_scatter/__init__.py": b""}}):
        world.lock(**more)
        (world.root / "recipes/torch.toml").write_text(RECIPE.replace('smoke = ["torch"]', 'smoke = ["ops"]'))
        world.completed = Completed(0, (PASSED.replace('"torch"', '"ops"'),))
        code, _, err = world.typed(*BUILD)
        assert code == 0, err
        argv = list(world.ran[-1].argv)
        required.append(argv[argv.index("--require") + 1] if "--require" in argv else "")
    assert required == ["", "torch_scatter"]


def test_unchanged_image_is_not_built_again_and_a_changed_lock_is_built(world):
    def built():
        code, out, err = world.typed(*BUILD)
        assert code == 0, err
        return out, "plan for" in err

    first, said = built()
    assert said
    assert built() == (first, False)
    world.lock(created=small_layouts.CREATED + 1)
    other, said = built()
    assert said
    assert other.partition("@")[0] == first.partition("@")[0]
    assert other != first


def test_unchanged_image_without_an_audit_is_audited(world):
    folder = world.built()
    report = json.loads((folder / "report.json").read_text())
    (folder / "report.json").write_text(json.dumps({**report, "audit": None, "contracts": []}))
    (folder / "audit.json").unlink()
    world.built()
    assert json.loads((folder / "report.json").read_text())["audit"] == report["audit"]
    assert (folder / "audit.json").is_file()


def test_smoke_suites_of_a_variant_override_those_of_its_recipe(world):
    (world.root / "suites/ops.py").write_text("print()\n")
    world.completed = Completed(0, (PASSED.replace('"torch"', '"ops"'),))
    world.lock()
    path = world.root / "recipes/torch.toml"
    path.write_text(path.read_text().replace('python = "3.11"', 'python = "3.11"\nsmoke = ["ops"]', 1))
    world.built()
    assert ["/opt/graphcrate/suites/ops.py" in command.argv for command in world.ran] == [True]


@pytest.fixture
def mine(world):
    """Builds an image on top of the stack with a test of one's own; how the test ends, and what ran since."""
    world.patch.setattr(
        additions,
        "add",
        lambda context, stack, *_, **__: msgspec.structs.replace(
            stack, lock=msgspec.structs.replace(stack.lock, added=Added(packages=(), asked=()))
        ),
    )
    (world.root / "mine.toml").write_text('extends = "torch"\nsmoke = ["python train.py"]\nenv = { MINE = "1" }\n')
    ends = {"stack": Completed(0, (PASSED,)), "own": Completed(0, ("epoch 1",))}

    def run_in(rootfs, command):
        own = "python train.py" in command.argv[-1]
        world.completed = ends["own" if own else "stack"]
        ran.append("own" if own else "stack")
        return world.run_in(rootfs, command)

    ran = []
    world.patch.setattr(running, "run_in", run_in)

    def build(*options, **endings):
        ends.update(endings)
        ran.clear()
        return world.typed("image", "./mine.toml", "--cuda", "cpu", *options), list(ran)

    return build


LATE = errors.BuildError("sh did not finish within 600 s and was ended")


@pytest.mark.parametrize(
    "own", [Completed(1, ("Traceback",)), Completed(-9, ()), LATE], ids=["fails", "killed", "late"]
)
def test_failing_own_test_ends_each_build_with_10_and_is_not_published(world, mine, own):
    for _ in range(2):
        (code, out, err), ran = mine(own=own)
        assert (code, out, "smoke test own-1 failed in mine:" in err) == (10, "", True), err
        assert ran[-1] == "own", "a failure is not remembered as a pass"
    (folder,) = {path.parent.resolve() for path in (world.root / "dist").glob("mine/*/report.json")}
    assert b'"failed"' in (folder / "report.json").read_bytes()
    where = "--to", f"{world.registry.host}/team", "--allow-cpu-only"
    assert world.typed("publish", f"mine:{folder.name}", *where)[0] == 16


def test_passed_tests_run_again_only_with_rerun(mine):
    (code, out, err), ran = mine()
    assert (code, sorted(set(ran))) == (0, ["own", "stack"]), err
    (code, same, err), again = mine()
    assert (code, same, again) == (0, out, []), err
    (code, _, err), again = mine("--rerun")
    assert (code, again) == (0, ran), err
    (code, _, err), again = mine("--rerun", own=Completed(1, ("Traceback",)))
    assert (code, again) == (10, ran), err


@pytest.mark.parametrize(("ended", "code"), [(0, 0), (7, 7), (130, 130), (-11, 139)])
def test_run_ends_with_the_exit_code_of_its_command(world, ended, code):
    name = f"torch:{world.built().name}"
    world.completed = Completed(ended, ())
    typed = "run", name, "--", "python", "-c", "exit()"
    assert world.typed(*typed)[:2] == (code, "")
    world.place.environment["HOME"] = "/home/other"
    assert world.typed(*typed) == (code, "", ""), "it is unpacked by then"
    world.place.environment["HOME"] = str(world.root)
    assert "all of the home folder" in world.typed(*typed)[2]


def test_words_behind_the_program_are_its_own(world):
    image, folder = f"torch:{world.built().name}", world.root
    for before in ([], ["--"]):
        typed = ["run", image, "--env", "A=1", f"--mount={folder}:/data:ro", "--workdir", "/data", *before]
        assert world.typed(*typed, "train.py", "--env", "B", "--output", "x", "--", "-v")[0] == 0
        command = world.ran[-1]
        assert command.argv == ["train.py", "--env", "B", "--output", "x", "--", "-v"]
        assert (command.environment["A"], command.cwd) == ("1", "/data")
        assert command.binds[1] == Bind(folder, "/data")
    assert world.typed("run", image)[0] == 0
    assert world.ran[-1].argv == ("/bin/bash",)


def test_option_of_docker_before_the_program_is_refused_with_ours(world):
    code, _, said = world.typed("run", f"torch:{world.built().name}", "-v", "/data:/data", "ls")
    assert (code, "-v is an option of another program's run" in said, "--mount SOURCE:TARGET" in said) == (
        2,
        True,
        True,
    )
    assert world.typed("run", f"torch:{world.built().name}", "ls", "-v")[0] == 0


@pytest.mark.parametrize(("option", "port"), [(("--jupyter",), 8888), (("--jupyter", "9001"), 9001)])
def test_jupyter_starts_a_server_for_loopback_with_a_token_in_no_command_line(world, option, port):
    image = f"torch:{world.built().name}"
    world.patch.setattr(attach, "free_port", lambda asked: asked or 8888)
    for words in ([*option, image], [image, *option]):
        assert world.typed("run", *words)[0] == 0
        *shell, text = world.ran[-1].argv
        assert shell == ["/bin/sh", "-c"]
        assert text.startswith(f"port={port}; JUPYTER_TOKEN=$(")
        assert "--ip 127.0.0.1 " in text
    for wrong in (["--", "ls"], ["--no-network"]):
        assert world.typed("run", *option, image, *wrong)[0] == 2


def test_folders_of_the_users_configuration_and_of_a_target_are_mounted(world):
    image, folder = f"torch:{world.built().name}", world.root
    (folder / ".config/graphcrate").mkdir(parents=True)
    (folder / ".config/graphcrate/config.toml").write_text(f'mounts = ["{folder}:/site:ro"]\n')
    (folder / "mine.toml").write_text(f'mounts = ["{folder}/dist:/images:ro"]\n')
    world.patch.setattr(options.settings, "environment", lambda: world.place.environment)
    for cached in (options.config, options.users_config):
        world.patch.setattr(options, cached.__name__, cached.__wrapped__)
    world.patch.setattr(run, "users_config", options.users_config)
    code, _, said = world.typed("run", image, "--target", "mine.toml", "--", "ls")
    assert code == 0, said
    assert [bind.target for bind in world.ran[-1].binds] == ["/work", "/site", "/images"]
    (folder / "graphcrate.toml").write_text('mounts = ["/:/host"]\n')
    code, _, said = world.typed("run", image, "--", "ls")
    assert (code, "a project's own file cannot have" in said) == (2, True), "it may be a stranger's"


def test_run_binds_the_working_folder_and_passes_terminal_and_gpus(world):
    world.place.environment["TERM"] = "xterm"
    assert world.typed("run", f"torch:{world.built().name}", "--", "ls", "-l")[0] == 0
    command = world.ran[-1]
    assert command.argv == ["ls", "-l"]
    assert command.binds == (Bind(world.root, "/work", read_only=False),)
    assert (command.cwd, command.gpu, command.attached) == ("/work", True, True)
    assert command.environment["TERM"] == "xterm"


def test_verify_rebuild_of_a_published_image_has_the_same_bytes(world):
    code, out, err = world.typed("verify", "--rebuild", world.published())
    assert (code, "pass  rebuild: built again, the same bytes" in out) == (0, True), err


COMMITTED = "images/torch/cpu/pypi.lock.json"
#: commands that read the lock of a stack, or of an image
READING = {
    "image": BUILD,
    "image --plan": (*BUILD, "--plan"),
    "image --with": (*BUILD, "--with", "einops"),
    "lock --check": ("lock", "--check"),
    "lock NAME --check": ("lock", "torch", "--cuda", "cpu", "--check"),
    "lock of one's own recipe": ("lock", "./mine.toml", "--cuda", "cpu"),
    "audit": ("audit", COMMITTED),
    "render": ("render", "torch", "--cuda", "cpu"),
    "matrix": ("matrix",),
    "catalog": ("catalog",),
}


@pytest.mark.parametrize("name", READING)
def test_lock_with_a_merge_conflict_is_an_error_of_every_command_that_reads_it(world, name):
    (world.root / "mine.toml").write_text('extends = "torch"\n')
    committed = world.root / COMMITTED
    committed.write_bytes(committed.read_bytes().replace(b"\n", b"\n<<<<<<< HEAD\n", 1))
    code, out, err = world.typed(*READING[name])
    assert (code, out) == (3, ""), err
    said = (COMMITTED, "merge conflict", "line 2", f"git checkout --theirs {COMMITTED}", "./build.py lock torch")
    assert [words for words in said if words not in err] == []


@pytest.mark.parametrize(
    "command", [("image", "./mine.toml"), ("lock", "--check", "./mine.toml"), ("render", "./mine.toml")]
)
def test_damaged_lock_beside_an_own_recipe_is_an_error_with_its_lock_command(world, command):
    (world.root / "mine.toml").write_text('extends = "torch"\n')
    lock = world.root / "mine.cpu.pypi.lock.json"
    lock.write_bytes((world.root / COMMITTED).read_bytes().replace(b'"size": ', b'"size": -', 1))
    code, out, err = world.typed(*command, "--cuda", "cpu")
    assert (code, out) == (3, ""), err
    said = (f"{lock.name}: $.base.packages[0].file.size: ", "./build.py lock mine.toml --cuda cpu")
    assert [words for words in said if words not in err] == []
    lock.unlink()
    lock.mkdir()
    assert world.typed(*command, "--cuda", "cpu")[0] == 3


def test_publish_refuses_an_image_whose_lock_has_a_merge_conflict(world):
    lock = world.built() / "lock.json"
    lock.write_bytes(b"<<<<<<< HEAD\n" + lock.read_bytes())
    code, _, err = world.typed("publish", f"torch:{lock.parent.name}", "--to", f"{world.registry.host}/team")
    assert (code, "lock.json: line 1: an unresolved git merge conflict" in err) == (3, True), err
    assert world.registry.received == 0


def test_verify_rebuild_with_an_invalid_lock_names_its_fault(world):
    name = world.published()
    (world.root / COMMITTED).write_bytes(b"[]")
    code, _, err = world.typed("verify", "--rebuild", name)
    assert (code, f"{COMMITTED}: $: expected `object`" in err) == (3, True), err


def test_damaged_lock_is_replaced_by_the_command_in_its_error(world):
    """`lock` itself does not read what it replaces: nothing of the damage is between a person and a whole lock."""
    whole = (world.root / COMMITTED).read_bytes()
    world.patch.setattr("graphcrate.resolve.stack.resolver.resolve", lambda *_: msgspec.json.decode(whole, type=Lock))
    (world.root / COMMITTED).write_bytes(whole[:100])
    code, _, err = world.typed(*BUILD)
    assert code == 3, err
    command = err.rpartition("./build.py ")[2].split()
    assert world.typed(*command)[0] == 0
    assert (world.root / COMMITTED).read_bytes() == whole


def test_lock_with_a_path_as_sha256_is_refused_and_the_file_stays(world):
    """Its hash names the file that a download is written to: an absolute path would be emptied and removed."""
    thesis = world.root / "thesis.tex"
    thesis.write_text("three years of work")
    committed = world.root / COMMITTED
    text = json.loads(committed.read_bytes())
    text["packages"][0]["file"]["sha256"] = str(thesis)
    committed.write_text(json.dumps(text))
    index = {"UV_DEFAULT_INDEX": world.index.url("/simple"), "PIP_CONFIG_FILE": "/dev/null", "WHEEL_FALLBACK": "none"}
    world.place.environment.update(index)
    code, _, err = world.typed(*BUILD)
    assert (code, "$.packages[0].file.sha256: expected a sha256" in err, str(thesis)[:60] in err) == (3, True, True), (
        err
    )
    assert thesis.read_text() == "three years of work"


@pytest.mark.parametrize("changed", ["layout", "name", "hash", "cut off"])
def test_invalid_report_is_named_and_its_image_built_again(world, changed):
    folder = world.built()
    path = folder / "report.json"
    whole = path.read_bytes()
    report = json.loads(whole)
    if changed == "layout":
        report["layout"] = report["artifact"]["reference"] = "/somewhere/else"
    elif changed == "name":
        report["name"] = "../../torch"
    elif changed == "hash":
        report["layers"][0]["digest"] = "sha256:../../x"
    path.write_bytes(whole[:100] if changed == "cut off" else json.dumps(report).encode())
    code, out, err = world.typed(*BUILD)
    assert (code, out.startswith(f"torch:{folder.name}@sha256:")) == (0, True), err
    assert f"dist/torch/{folder.name}/report.json: " in err
    assert json.loads(path.read_bytes())["digest"] == json.loads(whole)["digest"]
    assert "report.json" not in world.typed(*BUILD)[2]


def test_moved_images_are_found_by_output_without_a_rebuild(world):
    folder = world.built()
    (world.root / "dist").rename(world.root / "moved")
    code, _, err = world.typed(*BUILD, "--output", "moved")
    assert (code, "plan for" in err, "report.json" in err) == (0, False, False), err
    assert world.typed("run", f"torch:{folder.name}", "--output", "moved", "--", "true")[0] == 0
