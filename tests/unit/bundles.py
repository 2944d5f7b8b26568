"""Images and bundles made up for tests of bundles: every file of their locks lies in the cache."""

import contextlib
import hashlib
import random

from graphcrate.destinations import bundle
from graphcrate.host.workplace import Workplace
from graphcrate.model.lock import (
    Compilation,
    DebianBase,
    DebianPackage,
    Lock,
    LockedFile,
    LockedPackage,
    decode_lock,
    encode,
)
from graphcrate.model.recipe import Channel
from graphcrate.model.report import Artifact, BuildReport
from graphcrate.planning import compile_step
from graphcrate.wheelhouse.shelf import folder as compiled_folder
from tests.unit import small_layouts, tars

TAG = "2.0-cpu"


@contextlib.contextmanager
def workplaces(folder):
    """Gives workplaces by name, such as where an image is built and where it is taken in."""
    places = {}

    def make(name):
        if name not in places:
            root = folder / name
            (root / "recipes").mkdir(parents=True)
            (root / "recipes" / "torch.toml").write_text("# the recipe\n")
            places[name] = Workplace(root=root, environment={"GRAPHCRATE_CACHE": str(root / "cache")})
        return places[name]

    yield make
    for place in places.values():
        place.cache.close()


def stored(place, name, size=3000):
    """A file of the cache with bytes that belong to its name."""
    data = random.Random(name).randbytes(size)
    file = LockedFile(name=name, size=size, sha256=hashlib.sha256(data).hexdigest())
    place.cache.write(place.cache.file(file.sha256, name), data)
    return file


def wheel(place, name, **more):
    file = stored(place, f"{name}-1.0{'.tar.gz' if more.get('build') or more.get('compiled') else '-py3-none-any.whl'}")
    return LockedPackage(name=name, version="1.0", channel=Channel.PYPI, file=file, **more)


def deb(place, name):
    return DebianPackage(name=name, version="1:1.0", architecture="amd64", file=stored(place, f"{name}_1.0_amd64.deb"))


def make_lock(place, *, compiled):
    base = DebianBase(suite="bookworm", packages=(deb(place, "libc6"), deb(place, "libstdc++6")))
    packages = [wheel(place, "torch"), wheel(place, "pure", build=(wheel(place, "setuptools"),))]
    compilation = None
    if compiled:
        packages.append(wheel(place, "torch-sparse", compiled=True))
        with_compiler = DebianBase(suite="bookworm", packages=(*base.packages, deb(place, "g++-12")))
        compilation = Compilation(
            architectures=(), compiler="g++-12", base=with_compiler, tools=(wheel(place, "ninja"),)
        )
    return Lock(
        recipe="torch",
        cuda="cpu",
        candidate="local",
        torch_cuda="cpu",
        python="3.11",
        created=1_700_000_000,
        request_sha256=hashlib.sha256(b"asked").hexdigest(),
        base=base,
        packages=tuple(packages),
        compilation=compilation,
    )


def make_image(place, *, compiled=False, seed=1):
    """dist/torch/<TAG> as a build leaves it; its folder."""
    folder = place.root / "dist" / "torch" / TAG
    content = random.Random(seed).randbytes(5000)
    layout = small_layouts.layout(place.root / f"made{seed}", [tars.file("a", content)], tag=TAG)
    folder.mkdir(parents=True)
    layout.path.rename(folder / "oci")
    where = str(folder / "oci")
    report = BuildReport(
        name="torch",
        tag=TAG,
        digest=layout.digest,
        artifact=Artifact(engine="embedded", kind="layout", reference=where, digest=layout.digest, bytes=layout.size),
        layout=where,
        bytes=layout.size,
        candidate="local",
        torch="1.0",
        torch_cuda="cpu",
        cuda="cpu",
        python="3.11",
        packages=(),
        smoke=None,
        seconds=1.0,
    )
    lock = make_lock(place, compiled=compiled)
    (folder / "report.json").write_bytes(encode(report))
    (folder / "lock.json").write_bytes(encode(lock))
    (folder / "audit.json").write_text("{}\n")
    (folder / "passes").mkdir()
    (folder / "passes" / "torch-0123.json").write_text("{}\n")
    (folder.parent / "newest").symlink_to(TAG)
    return folder


def write(place, path):
    """A bundle of an image with a wheel compiled: the image's folder, and what `bundle.write` said."""
    folder = make_image(place, compiled=True)
    lock = decode_lock((folder / "lock.json").read_bytes())
    step = compile_step(lock)
    made = compiled_folder(step.packages[0], step, place.cache) / "torch_sparse-1.0-cp311-cp311-linux_x86_64.whl"
    made.parent.mkdir(parents=True)
    made.write_bytes(b"compiled")
    return folder, bundle.write(folder, path, place, proofs={"sbom.json": b"{}"})


def leftovers(place):
    found = [*(place.root / "cache" / "tmp").rglob("*"), *(place.root / "dist").rglob(".*")]
    return [path for path in found if path.is_file() and path.suffix != ".lock"]
