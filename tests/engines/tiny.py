"""A base image of a few megabytes for tests of builders: this machine's shell and what it is linked to.

As a program it builds a text on it and says what came of it, for a test that interrupts it:
python -m tests.engines.tiny ENGINE FOLDER CACHE TEXT
"""

import re
import subprocess
import sys
from pathlib import Path

from graphcrate.engines import apptainer, oci, table
from graphcrate.engines.backend import BuildOrder
from graphcrate.host import process, settings
from graphcrate.host.disk.cache import Cache
from graphcrate.host.engines import oci_engine
from graphcrate.host.progress import Progress
from graphcrate.inputs.bases import Base
from graphcrate.model.plan import BaseImage, BaseStep, ConfigStep, Plan, Stack
from graphcrate.oci.image import recorded
from ocilayout.layer import LayerWriter
from tests.conftest import program

PROGRAMS = ("sh", "cat", "env", "ls", "sleep", "seq", "mkdir", "cp")


def main(engine, folder, cache, text):
    process.interrupt_on_terminate()
    apptainer.definition = oci.dockerfile = lambda *_, **__: text
    if engine == "classic":
        oci_engine._has_buildkit = lambda *_: False
    builder = table.engine("docker" if engine in ("classic", "buildkit") else engine)
    try:
        print(builder.build(order(Path(folder), Cache(Path(cache)), settings.environment())).artifact)
    except KeyboardInterrupt:
        print("interrupted")
        sys.exit(130)


class Told(Progress):
    """Progress that remembers its notes."""

    def __init__(self):
        self.notes = []

    def note(self, message):
        self.notes.append(message)


def programs(*names):
    """Path in a root file system → this machine's file: programs, and what they are linked to."""
    found = {f"usr/bin/{name}": Path(path).resolve() for name in names if (path := program(name))}
    return found | libraries(found.values())


def libraries(paths):
    """The same of the libraries that these are linked to."""
    listed = subprocess.run(["ldd", *paths], capture_output=True, encoding="utf-8", check=False).stdout
    return {f"usr{one}".replace("usr/usr", "usr"): Path(one).resolve() for one in re.findall(r"(/\S+) \(", listed)}


def base(cache):
    """The base, its one layer in the cache."""
    places = programs(*PROGRAMS)
    with cache.folder() as folder:
        with (folder / "layer").open("wb") as stream:
            writer = LayerWriter(stream, 1)
            for name in ("bin", "lib", "lib64"):
                writer.symlink(name, f"usr/{name}")
            writer.folder("etc", 0o755)
            writer.folder("opt", 0o755)
            writer.data("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n", 0o644)
            writer.folder("tmp", 0o777)
            for name in sorted({str(parent) for place in places for parent in Path(place).parents} - {"."}):
                writer.folder(name, 0o755)
            for name, path in sorted(places.items()):
                writer.data(name, path.read_bytes(), 0o755)
            record = recorded(writer.finish(), "tiny")
        cache.adopt(folder / "layer", cache.blob(record.digest))
    return Base(
        layers=(record,),
        rootfs=Path("/nowhere"),
        python="/usr/bin/python3",
        python_version="3.11.2",
        glibc="2.36",
        environment={"PATH": "/usr/bin:/bin"},
        labels={},
    )


def order(folder, cache, environment, **changes):
    """An order for a plan with neither wheels nor files; a test gives the text itself."""
    plan = Plan(
        name=changes.pop("name", "graphcrate-test"),
        tag="1.0",
        created=1_700_000_000,
        stack=Stack(description="", cuda="cpu", python="3.11", torch="1", torch_cuda="cpu", candidate="pypi"),
        steps=(
            BaseStep(base=None, image=BaseImage(reference="tiny", interpreter="/usr/bin/python3")),
            ConfigStep(environment={}, labels={}, command=("sh",)),
        ),
    )
    values = {
        "plan": plan,
        "folder": folder,
        "base": base(cache),
        "files": {},
        "arguments": {},
        "certificates": None,
        "cache": cache,
        "environment": environment,
        "progress": Told(),
    }
    return BuildOrder(**{**values, **changes})


if __name__ == "__main__":
    main(*sys.argv[1:])
