"""Attacks from inside the sandbox: `escapes.py` in each of its steps, as root and as a plain user.

`ESCAPES=write` writes what came of it into escapes.json, of which `make generate` makes dist/docs/escapes.md.
"""

import contextlib
import ctypes
import gzip
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from graphcrate.model.plan import ConfigStep
from graphcrate.oci.image import make_image
from graphcrate.oci.layout import write_layout
from tests import sources
from tests.engines import escapes
from tests.engines.workplace import until
from tests.unit.wheelmaker import make_wheel

RESULTS = Path(__file__).with_name("escapes.json")
PROGRAM = Path(escapes.__file__)
PASSWORD, SHARED_MEMORY, QUEUE, KEY = "a-password-of-the-tests", "graphcrate-escape", "/graphcrate-escape", 0x67726170
IPC_CREAT, IPC_EXCL, IPC_RMID = 0o1000, 0o2000, 0
#: where an attempt gets what the page says that it gets
NETWORK = {"the host's loopback", "the host's loopback, IPv6", "the cloud's metadata", "the cloud's metadata, IPv6"}
GRANTED = {
    "script": {
        *("the image's own files", "the Python that runs it", "a set-user-ID program"),
        *(name for name in escapes.ATTEMPTS if name.startswith("set-group-ID: ")),
    },
    "run": {*NETWORK, "a socket in no folder"},
}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.engine("root", "setpriv", "user namespaces", "/usr/bin/python3.11"),
    pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the packages of .venv are for another Python"),
]


@contextlib.contextmanager
def shared_memory():
    """System V's and POSIX's, which anybody may use."""
    libc, librt = ctypes.CDLL(None, use_errno=True), ctypes.CDLL("librt.so.1", use_errno=True)
    memory, semaphore = libc.shmget(KEY, 4096, IPC_CREAT | 0o666), libc.semget(KEY, 1, IPC_CREAT | 0o666)
    assert min(memory, semaphore) >= 0
    queue = librt.mq_open(QUEUE.encode(), os.O_CREAT | os.O_RDWR, 0o666, None)
    place = Path("/dev/shm", SHARED_MEMORY)
    place.write_text("others'")
    place.chmod(0o666)
    try:
        yield
    finally:
        place.unlink()
        librt.mq_unlink(QUEUE.encode())
        os.close(queue)
        libc.semctl(semaphore, 0, IPC_RMID)
        libc.shmctl(memory, IPC_RMID, None)


@contextlib.contextmanager
def servers():
    """On loopback and in no folder."""
    with contextlib.ExitStack() as stack:
        made = [
            stack.enter_context(socket.socket(family)) for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)
        ]
        made[0].bind(("127.0.0.1", 0))
        made[1].bind(("::1", 0))
        made[2].bind(b"\0graphcrate-escape")
        for server in made:
            server.listen(64)
        yield {"port": made[0].getsockname()[1], "port6": made[1].getsockname()[1], "abstract": "graphcrate-escape"}


@pytest.fixture(scope="module")
def outside(ground):
    """The targets outside: facts for the program. A process without any walls reaches them."""
    home = ground / "somebody"
    home.mkdir()
    home.chmod(0o755)
    (home / "secret").write_text("secret")
    (home / "cache").mkdir()
    marker = f"graphcrate-escape-{os.getpid()}"
    with shared_memory(), servers() as ports:
        with subprocess.Popen([sys.executable, "-c", "input()", marker], stdin=subprocess.PIPE) as process:
            until(lambda: marker in Path(f"/proc/{process.pid}/cmdline").read_text())
            facts = {"home": str(home), "secret": str(home / "secret"), "cache": str(home / "cache"), "marker": marker}
            facts |= {"code": str(PROGRAM), "folder": ""}
            facts |= {"pid": process.pid, "password": PASSWORD, "shm": SHARED_MEMORY, "queue": QUEUE, "key": KEY}
            yield {**facts, **ports, "own_files": ["/usr/", "/work/", "/tmp/"]}
            process.kill()


class User:
    """Root, or a user without rights, with a folder of their own."""

    def __init__(self, name, folder, python):
        self.name, self.folder, self.python = name, folder, python
        folder.mkdir()
        shutil.chown(folder, *self.owner)
        folder.chmod(0o755)

    @property
    def owner(self):
        return ("root", "root") if self.name == "root" else ("nobody", "nogroup")

    def call(self, code, *arguments, project, folder=None, mounts=""):
        """Run a program of this project's Python as this user, who has a password among the variables.

        `mounts`: what root mounts before, in a mount namespace of the program's own.
        """
        prefix = ("unshare", "--mount", "sh", "-ec", f'{mounts}\nexec "$@"', "sh") if mounts else ()
        if self.name != "root":
            prefix += ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--")
        packages = f"{sources(project)}:{sysconfig.get_path('purelib')}"
        variables = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "PYTHONPATH": packages}
        variables |= {"REGISTRY_TOKEN": PASSWORD, "GRAPHCRATE_CACHE": str(self.folder / "cache")}
        done = subprocess.run(
            [*prefix, self.python, *code, *map(str, arguments)],
            env=variables,
            cwd=folder or self.folder,
            capture_output=True,
            encoding="utf-8",
            timeout=900,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    def own(self):
        """Make all in the folder this user's."""
        for one in (self.folder, *self.folder.rglob("*")):
            if not one.is_symlink():
                shutil.chown(one, *self.owner)


@pytest.fixture(scope="module")
def python(ground):
    """The machine's own Python with pip, where every user may start it: ours may be where no other user gets in."""
    folder = ground / "attackers-python"
    subprocess.run(["/usr/bin/python3.11", "-m", "venv", "--without-pip", folder], check=True)
    shutil.copytree(Path(sysconfig.get_path("purelib"), "pip"), folder / "lib/python3.11/site-packages/pip")
    return folder / "bin/python"


@pytest.fixture(scope="module", params=["root", "user"])
def user(request, ground, python):
    return User(request.param, ground / f"attacker-{request.param}", python)


#: the wheel has what came of the attempts
BACKEND = """
import base64, hashlib, os, subprocess, sys, zipfile
def build_wheel(folder, settings=None, metadata=None):
    if not os.path.exists("found.json"):  # the second time: the first was for the wheel's metadata
        with open("found.json", "wb") as stream:
            subprocess.run([sys.executable, "escapes.py", "facts.json"], stdout=stream, check=True)
    with open("found.json", "rb") as stream:
        files = {"pkg/__init__.py": b"", "pkg/found.json": stream.read()}
    files["pkg-1.0.dist-info/METADATA"] = b"Metadata-Version: 2.1\\nName: pkg\\nVersion: 1.0\\n"
    files["pkg-1.0.dist-info/WHEEL"] = b"Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
    rows = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        rows.append(f"{name},sha256={digest},{len(data)}")
    files["pkg-1.0.dist-info/RECORD"] = "\\n".join([*rows, "pkg-1.0.dist-info/RECORD,,", ""]).encode()
    with zipfile.ZipFile(os.path.join(folder, "pkg-1.0-py3-none-any.whl"), "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return "pkg-1.0-py3-none-any.whl"
"""
BUILD = """
import contextlib, sys
from pathlib import Path
from graphcrate.host import settings
from graphcrate.host.disk.cache import Cache
from graphcrate.inputs.wheels.wheel_build import build_wheel
from tests.made import locked
archive = Path(sys.argv[1])
package = locked((archive.name, archive.read_bytes()))
with contextlib.closing(Cache(Path(sys.argv[2]))) as cache:
    print(build_wheel(package, archive, [], cache, settings.child_environment()))
"""


def of_sdist(user, facts, project, ready):
    """A source archive whose back-end attacks, built as any."""
    tree = user.folder / "pkg-1.0"
    tree.mkdir()
    (tree / "backend.py").write_text(BACKEND)
    (tree / "facts.json").write_text(json.dumps(facts))
    shutil.copyfile(PROGRAM, tree / "escapes.py")
    (tree / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: pkg\nVersion: 1.0\n")
    system = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    (tree / "pyproject.toml").write_text(system)
    with tarfile.open(user.folder / "pkg-1.0.tar.gz", "w:gz") as archive:
        archive.add(tree, "pkg-1.0")
    said = user.call(["-c", BUILD], user.folder / "pkg-1.0.tar.gz", user.folder / "cache", project=project)
    with zipfile.ZipFile(said.strip()) as wheel:
        return json.loads(wheel.read("pkg/found.json"))


#: the attack of a source that a user adds, whatever builds it: what came of it goes to the file that is named
ATTACK = """
import os, pathlib, subprocess, sys
here, tmp = pathlib.Path(__file__).parent, pathlib.Path("/tmp")
(tmp / "link").unlink(missing_ok=True)  # of an attack before
if (tmp / "below").is_dir():
    (tmp / "below").rmdir()
with open(sys.argv[1], "wb") as stream:
    subprocess.run([sys.executable, here / "escapes.py", here / "facts.json"], stdout=stream, check=True)
for folder in ("/opt/venv", "/opt/build-requirements", "/usr"):  # what others compile with
    try:
        pathlib.Path(folder, "escape").touch()
    except OSError:
        continue
    sys.exit(f"{folder} can be written")
"""
SETUPTOOLS, CMAKE = ("setuptools==84.2.1",), ("cmake==4.4.4", "ninja==1.13.2")
MESON = ("meson-python==0.18.0", "meson", "ninja==1.13.2", "pyproject-metadata", "packaging")
SETUP = """
import subprocess, sys
from setuptools import setup
{commands}
setup(name="pkg", version="1.0", packages=["pkg"], package_data={{"pkg": ["*.json"]}})
"""
ATTACKING = "subprocess.run([sys.executable, 'attack.py', 'pkg/{}.json'], check=True)\n"
SETUP_PY = SETUP.format(commands=ATTACKING.format("configured") + ATTACKING.format("built"))
CMAKE_LISTS = """
cmake_minimum_required(VERSION 3.18)
project(pkg LANGUAGES NONE)
set(attack /opt/venv/bin/python ${CMAKE_SOURCE_DIR}/attack.py)
execute_process(COMMAND ${attack} ${CMAKE_SOURCE_DIR}/pkg/configured.json COMMAND_ERROR_IS_FATAL ANY)
add_custom_command(OUTPUT built.json COMMAND ${attack} ${CMAKE_SOURCE_DIR}/pkg/built.json
                   COMMAND ${CMAKE_COMMAND} -E touch built.json)
add_custom_target(all_of_it ALL DEPENDS built.json)
"""
BY_CMAKE = (
    "subprocess.run(['cmake', '-B', 'made'], check=True)\nsubprocess.run(['cmake', '--build', 'made'], check=True)"
)
MESON_BUILD = """
project('pkg', version: '1.0')
py = import('python').find_installation(pure: true)
attack = [py, files('attack.py')]
run_command(attack, meson.current_build_dir() / 'configured.json', check: true)
made = custom_target(output: 'built.json', command: [attack, '@OUTPUT@'], build_by_default: true,
                     install: true, install_dir: py.get_install_dir() / 'pkg')
install_data(meson.current_build_dir() / 'configured.json', install_dir: py.get_install_dir() / 'pkg')
py.install_sources('pkg/__init__.py', subdir: 'pkg')
"""
MESONPY = '[build-system]\nrequires = ["meson-python"]\nbuild-backend = "mesonpy"\n'
MESONPY += '[project]\nname = "pkg"\nversion = "1.0"\n'
#: what builds the source → its files, and what it is built with
SOURCES = {
    "setup.py": ({"setup.py": SETUP_PY}, SETUPTOOLS),
    "CMakeLists.txt": (
        {"setup.py": SETUP.format(commands=BY_CMAKE), "CMakeLists.txt": CMAKE_LISTS},
        SETUPTOOLS + CMAKE,
    ),
    "meson.build": ({"meson.build": MESON_BUILD, "pyproject.toml": MESONPY}, MESON),
}
COMPILE = """
import contextlib, sys
from pathlib import Path
from graphcrate.engines.embedded.run import unpacked
from graphcrate.host.disk.cache import Cache
from graphcrate.host.progress import Progress
from graphcrate.inputs import extensions
from graphcrate.inputs.bases import Base
from graphcrate.inputs.extensions.compile import provide
from graphcrate.model.lock import Compilation
from graphcrate.model.plan import CompileStep
from graphcrate.oci.layout import read_layout
from tests.made import bookworm, locked
layout, cache, logs, source, torch, *build = map(Path, sys.argv[1:])
files = {}
def known(path, **more):
    package = locked((path.name, path.read_bytes()), **more)
    files[package.file.sha256] = path
    return package
package = known(source, compiled=True, back_end=True, build=tuple(map(known, build)))
compilation = Compilation(architectures=(), compiler="g++-12", base=bookworm(), tools=())
step = CompileStep(
    title="added", python="3.11", packages=(package,), against=(known(torch),), compilation=compilation
)
with contextlib.closing(Cache(cache)) as cache, unpacked(read_layout(layout), cache=cache) as image:
    base = Base(layers=(), rootfs=image.rootfs, python="/usr/bin/python3.11", python_version="3.11.2", glibc="2.36",
                environment={}, labels={})
    job = extensions.CompileJob(
        step=step, base=base, build_base=base, toolkit=None, files=files, cache=cache, progress=Progress(), jobs=2,
        log_folder=logs)
    print(*provide(job).values())
"""


@pytest.fixture(scope="module")
def tools(ground):
    """Build tools as wheels that every user can read; requirement → file."""
    folder = ground / "tools"
    wanted = dict.fromkeys((*SETUPTOOLS, *CMAKE, *MESON))
    command = ["pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", folder, *wanted]
    subprocess.run([sys.executable, "-m", *command], check=True)
    names = {path.name.partition("-")[0].lower().replace("_", "-"): path for path in folder.iterdir()}
    return {line: names[line.partition("==")[0]] for line in wanted}


def of_source(user, facts, project, ready, built_by):
    """A source that a user adds and its own back-end compiles: what its files run when it is configured and built."""
    layout, tree = _layout(user, ready), user.folder / built_by / "pkg-1.0"
    files, build = SOURCES[built_by]
    facts = {**facts, "own_files": [*facts["own_files"], "/build/"]}
    made = {"attack.py": ATTACK, "facts.json": json.dumps(facts), "escapes.py": PROGRAM.read_text()}
    made |= {"pkg/__init__.py": "", "PKG-INFO": "Metadata-Version: 2.1\nName: pkg\nVersion: 1.0\n", **files}
    for path, text in made.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(text)
    with tarfile.open(tree.with_name("pkg-1.0.tar.gz"), "w:gz") as archive:
        archive.add(tree, "pkg-1.0")
    torch = make_wheel(tree.parent, "torch", "2.0.1", {"torch/__init__.py": b""})
    user.own()
    arguments = (layout, user.folder / "cache", tree.parent, tree.with_name("pkg-1.0.tar.gz"), torch)
    said = user.call(["-c", COMPILE], *arguments, *(ready("tools")[line] for line in build), project=project)
    with zipfile.ZipFile(said.strip()) as wheel:
        configured, built = (json.loads(wheel.read(f"pkg/{name}.json")) for name in ("configured", "built"))
    assert configured == built
    return built


POSTINST = """#!/bin/sh
set -e
/usr/bin/python3.11 /usr/share/escapes/escapes.py /usr/share/escapes/facts.json > /var/lib/escapes.json
"""
CONTROL = "Package: escapes\nVersion: 1\nArchitecture: all\nMaintainer: x <x@x>\nDepends: python3.11\nDescription: x\n"
INSTALL = """
import sys
from pathlib import Path
from graphcrate.inputs.bases.install import install
install([Path(path) for path in sys.argv[3:]], Path(sys.argv[1]), sys.argv[2], lambda size: None)
"""


def _tar(files):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, (data, mode) in files.items():
            member = tarfile.TarInfo(f"./{name}")
            member.size, member.mode = len(data), mode
            archive.addfile(member, io.BytesIO(data))
    return stream.getvalue()


def _deb(path, facts):
    """A package whose script attacks, in the form of deb(5)."""
    control = {"control": (CONTROL.encode(), 0o644), "postinst": (POSTINST.encode(), 0o755)}
    files = {"escapes.py": PROGRAM.read_bytes(), "facts.json": json.dumps(facts).encode()}
    data = {f"usr/share/escapes/{name}": (content, 0o644) for name, content in files.items()}
    members = {"debian-binary": b"2.0\n", "control.tar.gz": _tar(control), "data.tar": gzip.decompress(_tar(data))}
    content = b"!<arch>\n"
    for name, one in members.items():
        content += b"%-16s%-12d%-6d%-6d%-8s%-10d`\n" % (name.encode(), 0, 0, 0, b"100644", len(one))
        content += one + b"\n" * (len(one) % 2)
    path.write_bytes(content)
    return path


def of_script(user, facts, project, ready):
    """A package whose postinst attacks, installed with a base's."""
    debs = [ready("bookworm").cache.file(one.file.sha256, one.file.name) for one in ready("bookworm").lock.packages]
    root = user.folder / "base"
    user.call(["-c", INSTALL], root, "bookworm", *debs, _deb(user.folder / "escapes_1_all.deb", facts), project=project)
    return json.loads((root / "var/lib/escapes.json").read_bytes())


SMOKE = """
import contextlib, json, sys
from pathlib import Path
from graphcrate.engines.embedded.run import unpacked
from graphcrate.host.disk.cache import Cache
from graphcrate.host.sandbox.sandbox import Exec
from nsbox.box import Bind
from graphcrate.oci.layout import read_layout
layout = read_layout(Path(sys.argv[1]))
with contextlib.closing(Cache(Path(sys.argv[2]))) as cache, unpacked(layout, cache=cache) as image:
    argv = ["/usr/bin/python3.11", "/work/escapes.py", "/work/facts.json"]
    print("\\n".join(image.run(Exec(argv, binds=[Bind(Path(sys.argv[3]), "/work", read_only=False)])).lines))
"""


def _layout(user, ready):
    """The base as an image, in a folder with the program."""
    folder = user.folder / "oci"
    if not folder.exists():
        config = ConfigStep(environment={"PATH": "/usr/bin:/bin"}, labels={}, command=("sh",))
        write_layout(folder, make_image(ready("bookworm").base.layers, config, 0), ready("bookworm").cache.blob, "1.0")
        (user.folder / "work").mkdir()
        shutil.copyfile(PROGRAM, user.folder / "work/escapes.py")
    (user.folder / "work/link").unlink(missing_ok=True)
    return folder


def _in_image(user, facts, ready):
    layout = _layout(user, ready)
    (user.folder / "work/facts.json").write_text(json.dumps({**facts, "folder": "/work"}))
    user.own()
    return layout


def of_smoke(user, facts, project, ready):
    """A smoke test of an image that attacks."""
    layout = _in_image(user, facts, ready)
    said = user.call(["-c", SMOKE], layout, user.folder / "cache", user.folder / "work", project=project)
    return json.loads(said)


#: the host's file systems below the folder of `run`; those that a machine lacks are left out
MOUNTS = """
for kind in proc:proc proc:"a b/deep/proc" sysfs:sys cgroup2:cgroup devtmpfs:dev devpts:pts mqueue:mqueue \\
    securityfs:security tracefs:tracing debugfs:debug
do
    mkdir -p "${kind#*:}"
    mount -t "${kind%%:*}" none "${kind#*:}" || test "${kind%%:*}" != proc
done 2>&-
touch swappiness
mount --bind /proc/sys/vm/swappiness swappiness
"""


def of_run(user, facts, project, ready, *options):
    """A program of an image, by the command `run`."""
    layout = _in_image(user, facts, ready)
    inside = ("--", "/usr/bin/python3.11", "/work/escapes.py", "/work/facts.json")
    run = ["-m", "graphcrate.cli.main", "run", *options, layout, *inside]
    return json.loads(user.call(run, project=project, folder=user.folder / "work", mounts=MOUNTS))


def of_run_alone(user, facts, project, ready):
    """The same without a network."""
    return of_run(user, facts, project, ready, "--no-network")


def _added(built_by):
    def attacks(user, facts, project, ready):
        return of_source(user, facts, project, ready, built_by)

    return attacks


PLACES = {"sdist": of_sdist, "script": of_script, "smoke": of_smoke, "run alone": of_run_alone, "run": of_run}
PLACES |= {built_by: _added(built_by) for built_by in SOURCES}


@pytest.mark.parametrize("place", PLACES)
def test_escape_attempts_end_as_recorded(place, user, outside, project, request):
    found = PLACES[place](user, outside, project, request.getfixturevalue)
    assert list(found) == list(escapes.ATTEMPTS)
    if os.environ.get("ESCAPES") == "write":
        known = json.loads(RESULTS.read_text())
        known["wishes"] = {name: wish for name, (wish, _) in escapes.ATTEMPTS.items()}
        known["results"].setdefault(place, {})[user.name] = found
        RESULTS.write_text(json.dumps(known, indent=1, sort_keys=False) + "\n")
    assert {name: came for name, came in found.items() if came.startswith("ERROR")} == {}
    got = {name: came for name, came in found.items() if came.startswith("OUT")}
    assert not set(got) - GRANTED.get(place, set()), got


def test_harmless_attempts_get_through_where_there_are_no_walls_and_no_others_are_made(outside, project, user):
    """Else a mistake in the program would pass for a wall."""
    facts = user.folder / "facts.json"
    facts.write_text(json.dumps({**outside, "folder": str(user.folder)}))
    user.own()
    (user.folder / "link").unlink(missing_ok=True)
    found = json.loads(user.call([PROGRAM], facts, project=project))
    (user.folder / "link").unlink()
    assert {name: found[name] for name in escapes.HARMLESS if not found[name].startswith("OUT")} == {}
    assert {came for name, came in found.items() if name not in escapes.HARMLESS} == {
        "ERROR: not tried: there are no walls here"
    }


def test_the_page_is_about_these_attempts_and_no_result_of_it_is_an_escape():
    known = json.loads(RESULTS.read_text())
    assert list(known["wishes"]) == list(escapes.ATTEMPTS)
    for place in PLACES:
        for found in known["results"][place].values():
            out = {name for name, came in found.items() if came.startswith("OUT")}
            assert not out - GRANTED.get(place, set())
