"""A project whose one stack is a few megabytes: a base with a real Python on a registry, wheels on an index, a lock.

Everything is on loopback and made here, so that a whole build by the command line takes seconds and needs no network.
"""

import contextlib
import dataclasses
import functools
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from graphcrate.host.disk.trees import remove_tree
from graphcrate.oci.layout import read_layout
from graphcrate.oci.validate import validate
from tests.engines import tiny
from tests.engines.workplace import Workplace, copy_project, until
from tests.faults.rows import Watch
from tests.unit import tars
from tests.unit.elfmaker import make_elf
from tests.unit.wheel_server import core_metadata
from tests.unit.wheelmaker import wheel_bytes

IMAGE = ("image", "torch", "--cuda", "cpu")
RECIPE = """
name = "torch"
description = "a few megabytes"
smoke = ["torch"]
requirements = ["numpy"]

[[variant]]
cuda = "cpu"
python = "{python}"
base = {{ provider = "registry", reference = "{base}" }}

[[variant.candidate]]
name = "pypi"
channels = ["pypi"]
torch = "2.0.1"
torch_cuda = "cpu"
"""
#: what ends as suites/torch_check.py ends, and uses what is installed
SUITE = """import json, time
import numpy, torch
print("learning")
time.sleep(0.2)
ended = {"suite": "torch", "status": "passed", "device": "cpu", "metrics": {"loss": 0.1}, "versions": {}, "reason": ""}
print(json.dumps(ended))
"""
SHELL = ("sh", "bash", "env", "cat", "ls", "mkdir", "cp", "id", "grep", "sed", "ps")
#: parts of the standard library that no wheel here needs, and modules whose libraries are a third of a base's bytes
LEFT_OUT = re.compile(
    r"(test|tests|idlelib|lib2to3|ensurepip|tkinter|pydoc_data|config-[^/]*|distutils|__pycache__|asyncio|xml)/"
    r"|lib-dynload/(_ssl|_hashlib|_dbm|_gdbm|_sqlite3|nis|readline|_curses\w*|_codecs_\w+)\."
)
SIZES = {"torch": 3_000_000, "numpy": 400_000}  #: bytes of one library of each wheel, that no compressor makes smaller


@functools.cache
def python():
    """This machine's own Python, which goes into the base: (version such as 3.11, its path, its library)."""
    ask = "import sys, sysconfig; print('%d.%d' % sys.version_info[:2], sys.executable, sysconfig.get_path('stdlib'))"
    told = subprocess.run(["/usr/bin/python3", "-ISc", ask], capture_output=True, encoding="utf-8", check=True).stdout
    version, path, library = told.split()
    return version, Path(path).resolve(), Path(library)


@functools.cache
def base_layer():
    """The tar entries of a base: a shell, Python and its library, and what they are linked to."""
    version, interpreter, library = python()
    modules = [path for path in sorted(library.rglob("*")) if path.is_file() and path.suffix in (".py", ".so")]
    wanted = {
        f"usr/lib/python{version}/{path.relative_to(library)}": path
        for path in modules
        if not LEFT_OUT.search(f"{path.relative_to(library)}")
    }
    programs = tiny.programs(*SHELL) | {f"usr/bin/python{version}": interpreter}
    programs |= tiny.libraries([interpreter, *(path for path in wanted.values() if path.suffix == ".so")])
    links = [tars.symlink(name, f"usr/{name}") for name in ("bin", "lib", "lib64", "sbin")]
    parents = {str(parent) for name in (*wanted, *programs) for parent in Path(name).parents} - {"."}
    folders = sorted({*parents, "etc", "tmp", "proc", "dev", "sys", "opt", "root", "usr/sbin"})
    files = [tars.file(name, path.read_bytes(), mode=0o644) for name, path in sorted(wanted.items())]
    files += [tars.file(name, path.read_bytes(), mode=0o755) for name, path in sorted(programs.items())]
    system = [
        tars.file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n"),
        tars.file("etc/os-release", b'ID=debian\nVERSION_ID="12"\nPRETTY_NAME="Debian"\n'),
    ]
    return [*links, *(tars.folder(name) for name in folders), *system, *files]


def library(name):
    """An ELF library with bytes that stay as large when they are compressed."""
    seed = [sha for number in range(SIZES[name] // 32) for sha in [_hash(f"{name} {number}")]]
    return make_elf() + b"".join(seed)


def _hash(text):
    return bytes.fromhex(tars.sha256(text.encode()).removeprefix("sha256:"))


@functools.cache
def wheels():
    """The stack's wheels, file name → content. Others of a test may take their names."""
    made = {}
    needs = {"torch": ["numpy"], "numpy": [], "filelock": []}
    for name, version in {"torch": "2.0.1", "numpy": "1.26.4"}.items():
        files = {f"{name}/__init__.py": b"value = 1\n", f"{name}/lib/lib{name}.so": library(name)}
        files |= {f"{name}/part_{number}.py": f"value = {number}\n".encode() * 50 for number in range(20)}
        metadata = core_metadata(name, version, needs[name]).encode()
        made[f"{name}-{version}-py3-none-any.whl"] = wheel_bytes(name, version, files, metadata=metadata)
    return made


def fill_index(server, more=None):
    """Let an index (`wheel_server.WheelServer`) have the stack's wheels, and other ones."""
    for name, content in {**wheels(), **(more or {})}.items():
        server.simple(name.split("-")[0].replace("_", "-"), {name: content})


def fill_registry(server):
    """Let a registry (`registry_server.RegistryServer`) have the base; its reference."""
    run = {"Env": ["PATH=/usr/sbin:/usr/bin"], "Cmd": ["sh"]}
    server.image("faults/base", [base_layer()], "1", run=run)
    return f"{server.host}/faults/base:1"


def make_project(folder, index, base):
    """The project, with an empty cache beside it."""
    copy_project(folder / "project")
    for part in ("recipes", "images"):
        remove_tree(folder / "project" / part)
        (folder / "project" / part).mkdir()
    (folder / "project/recipes/torch.toml").write_text(RECIPE.format(python=python()[0], base=base))
    (folder / "project/suites/torch_check.py").write_text(SUITE)
    return Workplace(folder / "project", folder / "cache", environment=environment(folder, index))


def environment(home, index):
    """Variables that keep this machine's own settings out. Temporary files go where a row can count them."""
    own = {name: "" for name in os.environ if re.match(r"(PIP_|UV_|.*_proxy$|.*_PROXY$|SOURCE_DATE_EPOCH$)", name)}
    (home / "tmp").mkdir(parents=True, exist_ok=True)
    settings = {"PIP_CONFIG_FILE": "/dev/null", "UV_DEFAULT_INDEX": index}
    return {**own, **settings, "HOME": str(home), "TMPDIR": str(home / "tmp")}


def lock(place):
    """Lock the stack, as a person does; the lock is committed in the project's folder from then on."""
    done = place.run("lock", "torch", "--cuda", "cpu").ok()
    return place.folder / done.out.strip()


def copy(place, folder, *, warm=False):
    """Another copy of the project with the same lock; `warm`: with its image and all that its cache has."""
    left = shutil.ignore_patterns() if warm else shutil.ignore_patterns("dist")
    shutil.copytree(place.folder, folder / "project", symlinks=True, ignore=left)
    if warm:
        copy_cache(place.cache, folder / "cache")
    (folder / "tmp").mkdir(parents=True, exist_ok=True)
    moved = {**place.environment, "HOME": str(folder), "TMPDIR": str(folder / "tmp")}
    return dataclasses.replace(place, folder=folder / "project", cache=folder / "cache", environment=moved)


def copy_cache(cache, copy):
    """Another cache with the same content, but for what runs work on. What is never written again is linked."""

    def duplicate(source, target, **_):
        if Path(source).relative_to(cache).parts[0] in ("bases", "blobs", "files", "rootfs"):
            os.link(source, target, follow_symlinks=False)
        else:
            shutil.copy2(source, target, follow_symlinks=False)

    def working(folder, _):
        return ["tmp"] if Path(folder) == Path(cache) else []

    shutil.copytree(cache, copy, symlinks=True, copy_function=duplicate, ignore=working)


def report(place, finished):
    """The report of the image that a finished `image --json` made, which is whole and left nothing beside it."""
    assert finished.code == 0, finished.err
    assert left_behind(place) == []
    return json.loads(finished.out)


def goes_on(place, digest):
    """Run the build that failed again: it ends well with this digest, an image that is whole, and nothing else.

    The seconds that it took.
    """
    watch = Watch()
    made = report(place, place.run(*IMAGE, "--json"))
    seconds = watch.seconds
    assert made["digest"] == digest
    assert validate(read_layout(place.layout(made))).faults == ()
    return seconds


def failed(place, finished, *codes):
    """A command that ended with one of these exit codes in one sentence with a next step; what it said."""
    assert finished.code in codes, (finished.code, finished.err)
    assert "Traceback" not in finished.err, finished.err
    assert "next: " in finished.err, finished.err
    assert finished.out == ""
    assert left_behind(place) == []
    return finished.err


def said(finished, most=150):
    """The sentence of a failure, without what is another one each time."""
    line = next(line for line in finished.err.splitlines() if line.startswith("graphcrate: "))
    text = re.sub(r"127\.0\.0\.1:\d+", "HOST", line.removeprefix("graphcrate: "))
    text = re.sub(r"/\S*/(project|cache)/", "", re.sub(r"[0-9a-f]{16,}", "…", text))
    return f'"{text if len(text) <= most else text[:most] + "…"}"'


def whole(registry, name, tag):
    """The tag names an image whose blobs the registry has, and so does everything else that it names there."""
    assert f"{name}/manifests/{tag}" in registry.documents
    for path, (_, data) in registry.documents.items():
        if path.startswith(f"{name}/manifests/"):
            document = json.loads(data)
            for one in [document.get("config"), *document.get("layers", ())]:
                assert one is None or one["digest"] in registry.homes[name], path


def left_behind(place):
    """Files half-written, temporary files, mounts and processes of a place where no command runs."""
    found = [str(path) for path in place.leftovers()]
    temporary = Path(place.environment["TMPDIR"])
    inside = temporary.iterdir() if temporary.exists() else ()
    found += [str(path) for path in inside if not is_trial_of_python(path)]
    root = str(temporary.parent)
    found += [line for line in Path("/proc/self/mounts").read_text().splitlines() if f" {place.folder}/" in line]
    with contextlib.suppress(AssertionError):  # one that was killed may take a moment on a busy machine
        until(lambda: not processes(root), 30)
    return found + processes(root)


def is_trial_of_python(path):
    """Tell whether a file is the one by which `tempfile` tries a folder: a kill may come before it removes that."""
    return bool(re.fullmatch("[a-z0-9_]{8}", path.name)) and path.is_file() and path.read_bytes() in (b"", b"blat")


def processes(root):
    """Those whose command line, folder or environment names a folder, but for this one."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            is_dead = process.joinpath("stat").read_text().rpartition(")")[2].split()[0] == "Z"
            if is_dead or int(process.name) == os.getpid():
                continue
            texts = [process.joinpath(name).read_bytes() for name in ("cmdline", "environ")]
            texts.append(os.fsencode(process.joinpath("cwd").readlink()))
        except OSError:
            continue
        if any(f"{root}/".encode() in text + b"/" for text in texts):
            found.append(texts[0].replace(b"\0", b" ").decode(errors="replace"))
    return found
