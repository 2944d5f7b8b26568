"""The embedded builder: what it makes, what it finds in the cache, what it refuses. All work in this process."""

import contextlib
import gzip
import importlib.util
import io
import os
import tarfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from graphcrate.compat.facts.start_up import LABEL
from graphcrate.compat.plan.planning import ADDED_FILES_TITLE
from graphcrate.engines.backend import BuildOrder
from graphcrate.engines.embedded import build as embedded
from graphcrate.engines.embedded import layers, run
from graphcrate.engines.embedded.layers import BATCH, batched
from graphcrate.host.arrivals import Arrivals
from graphcrate.host.disk.cache import Cache
from graphcrate.host.disk.sealed import kept
from graphcrate.host.process import Completed
from graphcrate.host.workers import Pool
from graphcrate.inputs import extensions
from graphcrate.inputs.bases import Base
from graphcrate.inputs.wheels import bytecode, compile_program, wheel_build
from graphcrate.model.errors import BuildError, DiskFullError, LayoutError
from graphcrate.model.lock import Compilation, DebianBase
from graphcrate.model.plan import (
    BaseImage,
    BaseStep,
    CompileStep,
    ConfigStep,
    FilesStep,
    Plan,
    PlannedFile,
    RequirementsStep,
    Slim,
    Stack,
    ToolkitStep,
    WheelsStep,
)
from graphcrate.model.recipe import Channel
from graphcrate.model.report import LayerRecord
from graphcrate.oci.layout import read_layout
from graphcrate.oci.validate import Validation, validate
from tests import made
from tests.made import refused
from tests.unit import small_layouts, tars
from tests.unit.conftest import Recorder
from tests.unit.inputs.test_bytecode import InProcess
from tests.unit.inputs.test_sdist import Pip
from tests.unit.small_index import TOOLKIT
from tests.unit.wheelmaker import locked, make_wheel

IMAGE = BaseImage(reference="debian:bookworm-slim", interpreter="/usr/bin/python3.11")
STACK = Stack(description="", cuda="cpu", python="3.11", torch="1", torch_cuda="cpu", candidate="pypi")
PACKAGES = "opt/venv/lib/python3.11/site-packages"
BASE = Base(
    layers=(), rootfs=Path("/nowhere"), python="/usr/bin/python3", python_version="3.11.2", glibc="2.36",
    environment={"PATH": "/usr/bin"}, labels={},
)  # fmt: skip


@pytest.fixture(autouse=True)
def compiled_here(monkeypatch):
    starts = []

    class Python(InProcess):
        def __init__(self, rootfs, python, version, base, emulator):
            super().__init__()
            self.version, self.base, self.evil = version, base, b""
            if base == "evil":
                self.evil = b"# evil"

        def compile(self, folder):
            """As a base whose Python makes other code of every source."""
            for path in folder.glob("*.sources"):
                with path.open("rb") as stream:
                    entries = [(name, size) for name, _, size in compile_program.entries(stream)]
                with path.with_suffix(".bytecode").open("wb") as stream:
                    for name, _ in entries:
                        compile_program.write_entry(stream, bytecode.compiled_path(name, "3.11"), self.evil)
            return Completed(0, ())

        def run(self, folder):
            starts.append(folder)
            return self.compile(folder) if self.evil else super().run(folder)

    monkeypatch.setattr(embedded, "InsidePython", Python)
    return starts


def wheels(folder, **contents):
    """Packages and their files, by name: files of the wheel."""
    packages, files = [], {}
    for name, content in contents.items():
        path = make_wheel(folder, name, files=content)
        package = locked(path, name)
        packages.append(package)
        files[package.file.sha256] = path
    return tuple(packages), files


def planned(*steps):
    config = ConfigStep(environment={"PATH": "/opt/venv/bin:/usr/bin"}, labels={"a": "b"}, command=("python",))
    base = BaseStep(base=DebianBase(suite="bookworm", packages=()), image=IMAGE)
    return Plan(name="pkg", tag="1.0", created=1_700_000_000, stack=STACK, steps=(base, *steps, config))


def wheels_step(title, packages):
    return WheelsStep(title=title, python="3.11", packages=packages)


def order_of(plan, files, cache, progress=None, base=BASE, compiled=None):
    return BuildOrder(
        plan=plan, folder=Path("/nowhere"), base=base, files=files, compiled=compiled, cache=cache, environment={},
        progress=progress or Recorder(),
    )  # fmt: skip


def build(*given, **more):
    return embedded.build_layers(order_of(*given, **more), 0)


@pytest.fixture
def one(tmp_path):
    """A plan with a layer of one small wheel, and its file."""
    packages, files = wheels(tmp_path, one={"one/__init__.py": b"x = 1\n"})
    return planned(wheels_step("t", packages)), files


def names(cache, record):
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(cache.blob(record.digest).read_bytes()))) as archive:
        return {member.name: member for member in archive}


@pytest.mark.parametrize(
    ("wheel", "file", "starts"),
    [
        ({"evil/__init__.py": b""}, None, []),
        ({"evil.pth": b"import os\n"}, None, ["evil.pth"]),
        ({"evil/__init__.py": b""}, "sitecustomize.py", ["sitecustomize.py"]),
        ({"evil.pth": b"import os\n"}, "sitecustomize.py", ["evil.pth", "sitecustomize.py"]),
    ],
)
def test_label_of_an_image_names_what_runs_by_itself_whether_or_not_the_cache_has_it(
    tmp_path, cache, monkeypatch, wheel, file, starts
):
    packages, files = wheels(tmp_path, evil=wheel)
    steps = [wheels_step("evil", packages)]
    if file:
        steps.append(FilesStep(title="files", files=(PlannedFile(path=f"/{PACKAGES}/{file}", content="x = 1\n"),)))
    monkeypatch.setattr(embedded, "default_jobs", lambda: 0)
    order = BuildOrder(
        plan=planned(*steps), folder=tmp_path, base=BASE, files=files, cache=cache, environment={}, progress=Recorder()
    )
    for _ in range(2):
        labels = embedded.build_layout(order).config.run.labels
        assert labels == {"a": "b", **({LABEL: " ".join(f"/{PACKAGES}/{name}" for name in starts)} if starts else {})}


def test_wheel_that_takes_a_module_of_another_from_beside_is_refused(tmp_path, cache):
    packages, files = wheels(
        tmp_path, torch={"torch/__init__.py": b"", "torch/part.py": b""}, evil={"torch/part/__init__.py": b""}
    )
    steps = wheels_step("torch", packages[:1]), wheels_step("evil", packages[1:])
    for _ in range(2):
        with refused(BuildError, "evil 1.0 and torch 1.0 both own the module torch.part", "leave one of them out"):
            build(planned(*steps), files, cache)


def test_embedded_build_of_a_plan_gives_a_valid_layout(tmp_path, cache, monkeypatch):
    contents = {"one/__init__.py": b"x = 1\n", "one/bad.py": b"print 1"}
    packages, files = wheels(tmp_path, one=contents, two={"two/lib.so": bytes(200_000)})
    folder = PlannedFile(path="/opt/venv/bin", folder=True, mode=0o755)
    venv = FilesStep(title="venv", files=(PlannedFile(path="/opt/venv/bin/python", link="/usr/bin/python3"), folder))
    plan = planned(venv, wheels_step("both", packages))
    progress = Recorder()
    monkeypatch.setattr(embedded, "default_jobs", lambda: 0)
    order = BuildOrder(
        plan=plan, folder=tmp_path, base=BASE, files=files, cache=cache, environment={}, progress=progress
    )
    artifact = embedded.artifact(embedded.build_layout(order))
    made = embedded.build_layout(order)
    assert [owner.name for owner in made.records[-1].owners] == ["one", "two", "bytecode"]
    compiled = [name for name in names(cache, made.records[-1]) if name.endswith(".pyc")]
    assert [name.rpartition(".cpython")[0] for name in compiled] == [f"{PACKAGES}/one/__pycache__/__init__"]
    layout = read_layout(tmp_path / "oci")
    assert validate(layout).faults == ()
    assert (artifact.kind, artifact.reference, artifact.digest) == ("layout", str(tmp_path / "oci"), layout.digest)
    assert (layout.tag, progress.total) == ("1.0", sum(package.file.size for package in packages))
    assert progress.total * 0.95 < progress.done <= progress.total


def arriving(plan, files, cache, base, python):
    """An order whose files and base are on their way."""
    return BuildOrder(
        plan=plan, folder=Path("/nowhere"), base=BASE, files=files, cache=cache, environment={}, progress=Recorder(),
        arrivals=Arrivals(files), made_base=base, python=python,
    )  # fmt: skip


def test_layers_are_written_before_the_last_wheel_and_the_base_are_there(tmp_path, cache):
    packages, files = wheels(tmp_path, one={"one/x.py": b"1"}, two={"two/x.py": b"2"}, three={"three/x": b"3"})
    plan = planned(*(wheels_step(package.name, (package,)) for package in packages))
    with contextlib.closing(Cache(tmp_path / "other")) as other:
        expected = build(plan, files, other)
    one, two, three = (package.file.sha256 for package in packages)
    order = arriving(plan, files, cache, Future(), Future())
    hidden = files[two].rename(tmp_path / "on its way")

    def written(*titles):
        while {kept(path, LayerRecord).title for path in cache.root.glob("layers/*.json")} != set(titles):
            time.sleep(0.01)

    def go():
        order.arrivals.arrived(three)
        written("three")  # which has no source to compile
        order.arrivals.arrived(one)
        order.python.set_result(tmp_path)
        written("one", "three")
        hidden.rename(files[two])
        order.arrivals.arrived(two)
        written("one", "two", "three")
        order.made_base.set_result(BASE)

    with ThreadPoolExecutor(1) as side:
        going = side.submit(go)
        assert embedded.build_layers(order, 0) == expected
        going.result()


@pytest.mark.parametrize(("alone", "jobs"), [(layers.ALONE, 0), (10, 2)], ids=["small", "large"])
def test_small_layers_start_no_worker(one, cache, monkeypatch, alone, jobs):
    plan, files = one
    asked = []

    def pool(jobs, advance):
        asked.append(jobs)
        return Pool(0, advance)

    monkeypatch.setattr(layers, "ALONE", alone)
    monkeypatch.setattr(layers, "Pool", pool)
    embedded.build_layers(order_of(plan, files, cache), 2)
    assert asked == [jobs, 0], "of the second stage's layers, of which there are none"


@pytest.mark.parametrize("which", ["wheel", "base"])
def test_build_ends_with_the_error_of_what_is_on_its_way(one, cache, which):
    base = Future()
    order = arriving(*one, cache, base, base)
    if which == "base":
        for sha256 in order.files:
            order.arrivals.arrived(sha256)
        base.set_exception(BuildError("no such base"))
    else:
        order.arrivals.fail(BuildError("no such wheel"))
    with refused(BuildError, f"no such {which}"):
        embedded.build_layers(order, 0)


def test_embedded_build_reuses_layers_except_for_another_python(one, cache, compiled_here):
    plan, files = one
    first = build(plan, files, cache)
    progress = Recorder()
    # The wheels need not even be there.
    assert build(plan, {}, cache, progress) == first
    assert (progress.total, len(compiled_here)) == (0, 1)
    build(plan, files, cache, base=msgspec.structs.replace(BASE, python_version="3.11.9"))
    assert len(compiled_here) == 2


def test_bytecode_of_a_strangers_base_is_in_no_image_of_another(one, cache, compiled_here):
    """Both have Python 3.11.2: the version alone was the key, and its bytecode is never compared with the source."""
    plan, files = one
    evil = build(plan, files, cache, base=msgspec.structs.replace(BASE, identity="evil"))
    honest = build(plan, files, cache, base=msgspec.structs.replace(BASE, identity="honest"))
    path = f"{PACKAGES}/one/__pycache__/__init__.cpython-311.pyc"
    assert content(cache, evil[0], path) == b"# evil"
    assert content(cache, honest[0], path)[:4] == importlib.util.MAGIC_NUMBER
    assert len(compiled_here) == 2
    assert build(plan, {}, cache, base=msgspec.structs.replace(BASE, identity="honest")) == honest


def test_layer_is_written_once_for_two_bases_with_the_same_bytecode(one, cache, compiled_here, monkeypatch):
    plan, files = one
    first = build(plan, files, cache, base=msgspec.structs.replace(BASE, identity="of today"))
    monkeypatch.setattr(layers, "write_wheels_layer", None)
    assert build(plan, files, cache, base=msgspec.structs.replace(BASE, identity="of tomorrow")) == first
    assert len(compiled_here) == 2


def content(cache, record, path):
    with gzip.open(cache.blob(record.digest)) as stream, tarfile.open(fileobj=stream) as tar:
        return tar.extractfile(path).read()


@pytest.mark.parametrize(
    ("pattern", "damage"),
    [
        ("blobs/sha256/*", Path.unlink),
        ("blobs/sha256/*", lambda path: path.write_bytes(path.read_bytes()[:-1])),
        ("layers/*", lambda path: path.write_bytes(b"{")),
        ("layers/*", lambda path: path.write_bytes(path.read_bytes().replace(b'"title":"t"', b'"title":"u"'))),
        ("installations/*/*.msgpack", lambda path: path.write_bytes(b"")),
    ],
    ids=["no blob", "a short one", "record", "other record", "installation"],
)
def test_damaged_cached_layer_is_built_again(one, cache, pattern, damage, compiled_here):
    plan, files = one
    first = build(plan, files, cache)
    content = cache.blob(first[0].digest).read_bytes()
    for path in cache.root.glob(pattern):
        damage(path)
    assert build(plan, files, cache) == first
    assert cache.blob(first[0].digest).read_bytes() == content
    assert len(compiled_here) == 1  # the bytecode was still there


def test_damaged_cached_layer_is_not_put_into_an_image(one, cache, tmp_path, monkeypatch):
    """Found when the image is made, whichever way the layer came there; the same command again mends it."""
    monkeypatch.setattr(embedded, "default_jobs", lambda: 0)
    plan, files = one
    order = BuildOrder(
        plan=plan, folder=tmp_path, base=BASE, files=files, compiled=None, cache=cache, environment={},
        progress=Recorder(),
    )  # fmt: skip
    first = embedded.build_layout(order)
    (layer,) = first.records
    blob = cache.blob(layer.digest)
    content = blob.read_bytes()
    for place in (0, len(content) // 2, len(content) - 1):
        damaged = bytearray(content)
        damaged[place] ^= 1
        tars.overwrite(blob, bytes(damaged))
        os.utime(blob, (1_700_000_000, 1_700_000_000))  # what this build wrote is hashed as it is written
        with refused(LayoutError, "layer t is damaged", "the same command again"):
            embedded.build_layout(order)
        assert validate(read_layout(first.path)) == Validation(), "the image that was there stays as it was"
        assert embedded.build_layout(order).digest == first.digest
        assert blob.read_bytes() == content
    assert validate(read_layout(tmp_path / embedded.FOLDER)).faults == ()


@pytest.mark.parametrize(
    ("one", "message"),
    [
        ({"shared/x.py": b"1"}, r"one 1.0 and two 1.0 both own .*/shared/x.py"),
        ({"shared": b"1"}, r"one 1.0 has the file .*/shared, and two 1.0 has"),
        ({"shared/x.py": b"2"}, None),
    ],
    ids=["other content", "file and folder", "the same"],
)
def test_file_conflicts_across_new_or_cached_layers_are_build_errors(tmp_path, cache, one, message):
    packages, files = wheels(tmp_path, one=one, two={"shared/x.py": b"2"})
    plan = planned(*(wheels_step(package.name, (package,)) for package in packages))
    for _ in range(2):
        with pytest.raises(BuildError, match=message) if message else contextlib.nullcontext():
            assert all(f"{PACKAGES}/shared/x.py" in names(cache, record) for record in build(plan, files, cache))


def test_sdist_is_built_into_a_layer(tmp_path, cache, monkeypatch):
    monkeypatch.setattr(wheel_build.sandbox, "run_in", Pip())
    package = made.sdist("pkg", compiled=False)
    (tmp_path / package.file.name).write_bytes(gzip.compress(tars.tar([tars.file("pkg-1.0/PKG-INFO")])))
    packages, files = wheels(tmp_path, one={"one/x": b"1"})
    plan = planned(wheels_step("t", (*packages, package)))
    record = build(plan, files | {package.file.sha256: tmp_path / package.file.name}, cache)[0]
    assert {f"{PACKAGES}/pkg/__init__.py", f"{PACKAGES}/one/x"} <= names(cache, record).keys()
    assert build(plan, {}, cache) == (record,)


def test_extension_is_compiled_once_and_again_after_a_change_or_loss(tmp_path, cache, monkeypatch):
    packages, files = wheels(tmp_path, ext={"ext/__init__.py": b""})
    package = msgspec.structs.replace(packages[0], compiled=True)
    base = DebianBase(suite="bookworm", packages=())
    compilation = Compilation(architectures=(), compiler="g++-11", base=base, tools=())
    step = CompileStep(title="ext", python="3.11", packages=(package,), against=(), compilation=compilation)
    times = []

    def compiling():
        build(planned(wheels_step("none", ()), step), {}, cache, compiled=lambda _: times.append(1) or files)
        return len(times)

    assert [compiling(), compiling()] == [1, 1]
    monkeypatch.setattr(extensions, "WHEELHOUSE_FORMAT", "another")
    layers = len(list((cache.root / "layers").iterdir()))
    assert [compiling(), compiling()] == [2, 2]
    assert len(list((cache.root / "layers").iterdir())) == layers + 2, "by its base, and by its bytecode"
    for installation in (cache.root / "installations").rglob("*.msgpack"):
        installation.unlink()
    assert compiling() == 3


def test_wheel_or_base_for_another_python_is_refused(tmp_path, cache):
    path = make_wheel(tmp_path, tag="cp310-cp310-manylinux_2_17_x86_64")
    package = locked(path)
    plan = planned(wheels_step("t", (package,)))
    with pytest.raises(BuildError, match=r"is not for this image: Python 3.11"):
        build(plan, {package.file.sha256: path}, cache)
    with pytest.raises(BuildError, match=r"plan is for Python 3.11 and the base has 3.13.5"):
        build(plan, {}, cache, base=msgspec.structs.replace(BASE, python_version="3.13.5"))
    step = RequirementsStep(title="torch", python="3.11", channel=Channel.PYTORCH, requirements=("torch==1",))
    with pytest.raises(BuildError, match="cannot install 'torch': no lock says"):
        build(planned(step), {}, cache)


def test_embedded_build_without_disk_space_is_refused_at_once(one, cache, monkeypatch):
    monkeypatch.setattr(Cache, "free_bytes", lambda self: 100)
    with pytest.raises(DiskFullError, match="making layers needs"):
        build(*one, cache)


def test_planned_files_layer_has_modes_and_folders(cache):
    step = FilesStep(
        title="files",
        files=(
            PlannedFile(path="/root/.config/x", content="ü", mode=0o600),
            PlannedFile(path="/srv/data/in", content="1"),
            PlannedFile(path="/srv/data", folder=True, mode=0o1777),
            PlannedFile(path="/usr/bin/tool", link="other"),
        ),
    )
    record = build(planned(step), {}, cache)[0]
    found = names(cache, record)
    modes = {"root": 0o700, "root/.config": 0o755, "root/.config/x": 0o600, "srv": 0o755, "srv/data": 0o1777}
    modes |= {"srv/data/in": 0o644, "usr": 0o755, "usr/bin": 0o755}
    assert {name: member.mode for name, member in found.items() if not member.issym()} == modes
    assert found["usr/bin/tool"].linkname == "other"
    assert record.owners[0].bytes == 3


def test_folder_of_a_recipe_is_made_unless_the_image_has_it(cache, tmp_path):
    """Permissions of Debian's folders stay, and no file becomes a folder."""
    (tmp_path / "root/srv").mkdir(parents=True)
    (tmp_path / "root/srv/file").touch()
    base = msgspec.structs.replace(BASE, rootfs=tmp_path / "root")

    def made_of(**modes):
        folders = tuple(PlannedFile(path=path, folder=True, mode=mode) for path, mode in modes.items())
        plan = planned(FilesStep(title=ADDED_FILES_TITLE, files=folders))
        (record,) = build(plan, {}, cache, base=base)
        return {name: member.mode for name, member in names(cache, record).items()}

    assert made_of(**{"/srv": 0o755, "/data": 0o1777}) == {"data": 0o1777}
    with pytest.raises(BuildError, match="gives /srv the permissions 0700, and it is a folder of the image"):
        made_of(**{"/srv": 0o700})
    with pytest.raises(BuildError, match="cannot be /srv/file, which is a file or a link in the image"):
        made_of(**{"/srv/file": 0o755})


def test_planned_files_layer_is_ordered_by_path(cache):
    paths = [f"/opt/{name}" for name in ("z", "a/b", "a-b", "a/a/x", "a.b", "b", "é", "a/a.x")]
    expected = sorted((path[1:] for path in paths), key=lambda path: path.split("/"))
    records = {
        build(
            planned(FilesStep(title="f", files=tuple(PlannedFile(path=path, content=path) for path in order))),
            {},
            cache,
        )[0].digest
        for order in (paths, paths[::-1], sorted(paths))
    }
    assert len(records) == 1
    (record,) = records
    found = names(cache, SimpleNamespace(digest=record))
    assert [name for name, member in found.items() if member.isfile()] == expected


def test_toolkit_layer_does_not_depend_on_umask_or_order(cache, tmp_path, monkeypatch):
    """Its modes are two, executable or not, and its order is that of names: neither umask nor disk shows in it."""
    listed, digests = Path.iterdir, set()
    for number, (umask, turned) in enumerate(((0o022, False), (0o077, True), (0o002, True))):
        before = os.umask(umask)
        folder = tmp_path / str(number)
        for name in ("bin/nvcc", "bin/ptxas", "include/a.h", "include/b.h", "nvvm/libdevice.bc", "version.json"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            with open(folder / name, "w", opener=lambda path, flags: os.open(path, flags, 0o777)) as stream:
                stream.write(name)
            if not name.startswith("bin/"):
                (folder / name).chmod(0o666 & ~umask)
        (folder / "lib").symlink_to("lib64")
        os.umask(before)
        monkeypatch.setattr(Path, "iterdir", lambda path, turned=turned: sorted(listed(path), reverse=turned))
        step = ToolkitStep(title=f"toolkit {number}", toolkit=TOOLKIT)
        order = BuildOrder(
            plan=planned(step), folder=Path("/nowhere"), base=BASE, files={}, toolkit=lambda folder=folder: folder,
            cache=cache, environment={}, progress=Recorder(),
        )  # fmt: skip
        (record,) = embedded.build_layers(order, 0)
        digests.add(record.digest)
        modes = {name: member.mode for name, member in names(cache, record).items() if not member.issym()}
        assert {mode for name, mode in modes.items() if "/bin" in name or "." not in name} == {0o755}
        assert {mode for name, mode in modes.items() if "." in name} == {0o644}
    assert len(digests) == 1


def test_slim_format_change_rebuilds_slim_layers_only(one, cache, monkeypatch):
    plan, files = one
    (step,) = plan.of(WheelsStep)
    cut = planned(msgspec.structs.replace(step, slim=Slim(capabilities=("7.0",), ptx=False, everything=False)))
    shop = {"python": "3.11", "glibc": "2.36", "interpreter": embedded.InsidePython("/", "p", "3.11.2", "b", None)}

    def keys():
        workshop = layers.Workshop(**shop, files=files, cache=cache, environment={})
        return [workshop.key(one) for plan_ in (plan, cut) for one in plan_.of(WheelsStep)]

    whole, slim = keys()
    assert whole != slim
    monkeypatch.setattr(layers, "SLIM_FORMAT", layers.SLIM_FORMAT + 1)
    assert (keys()[0] == whole, keys()[1] == slim) == (True, False)


def test_planned_file_over_a_link_of_the_base_is_refused(cache):
    for path in ("lib/x", "/lib/x", "/bin/sh", "/lib64", "x", ""):
        with pytest.raises(BuildError, match="planned file cannot be"):
            build(planned(FilesStep(title="f", files=(PlannedFile(path=path, content="1"),))), {}, cache)


def test_wheel_batches_have_similar_sizes():
    jobs = [SimpleNamespace(size=size) for size in (*[BATCH // 3] * 7, BATCH * 2, 1)]
    assert [len(batch) for batch in batched(jobs)] == [3, 3, 1, 1, 1]


# Unpacked images in the cache: made once, kept while in use, pruned. Running in them is in tests/engines.


@pytest.fixture
def image(tmp_path: Path):
    """A function that makes a layout with one file."""
    return lambda name: small_layouts.layout(tmp_path / name, [tars.file("etc/name", name.encode())], tag=name)


def unpacked(cache):
    return {path.read_text() for path in cache.root.glob("rootfs/*/root/etc/name")}


def use(layout, cache, when: float):
    with run.unpacked(layout, cache=cache) as inside:
        assert (inside.rootfs / "etc/name").read_text() == layout.tag
    os.utime(run.folder_of(layout.digest, cache), (when, when))


def test_unpacked_images_keep_the_two_last_used(cache, image, monkeypatch):
    one, two, three = map(image, ("one", "two", "three"))
    for when, layout in enumerate((one, two, one, three), 1000):
        use(layout, cache, when)
    assert unpacked(cache) == {"one", "three"}
    monkeypatch.setattr(run, "unpack", None)
    use(three, cache, 2000)


def test_unpacked_image_in_use_is_not_removed(cache, image):
    one, two, three = image("one"), image("two"), image("three")
    with run.unpacked(one, cache=cache):
        os.utime(run.folder_of(one.digest, cache), (1, 1))
        use(two, cache, 1000)
        use(three, cache, 2000)
        assert "one" in unpacked(cache)
    os.utime(run.folder_of(one.digest, cache), (1, 1))
    use(three, cache, 3000)
    assert unpacked(cache) == {"two", "three"}


def test_unpacking_without_disk_space_is_refused(cache, image, monkeypatch):
    layout = image("one")
    monkeypatch.setattr(Cache, "free_bytes", lambda self: 10)
    with pytest.raises(DiskFullError, match="unpacking the image"), run.unpacked(layout, cache=cache):
        pass
    assert not list(cache.root.glob("rootfs/*/root"))
