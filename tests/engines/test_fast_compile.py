"""Small headers and torch's own give the same operators, symbols and GPU code of PyG's sources.

Two packages for two architectures, compiled twice the fast way and once the plain way: an hour and more of two cores.
"""

import json
import os
import zipfile
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from bench.wheelhouse import chosen, make_job, parse
from graphcrate.compat.facts import compilers
from graphcrate.compat.variants.request import SourceOptions
from graphcrate.host.context import Context
from graphcrate.host.disk.cache import Cache
from graphcrate.host.sandbox import sandbox
from graphcrate.inputs.extensions.compile import make_venv, provide
from graphcrate.model.plan import VENV
from graphcrate.model.recipe import Channel
from graphcrate.resolve.sources.fetch import fetch_one
from graphcrate.resolve.sources.offers import Offers, UnavailableError
from graphcrate.resolve.sources.request_sources import Sources
from graphcrate.resolve.sources.target import WheelTarget
from graphcrate.resolve.stack.pinning import lock_offer
from nsbox.box import Bind
from treeaudit import elf, fatbin

pytestmark = [
    pytest.mark.weekly,
    pytest.mark.network,
    pytest.mark.engine("user namespaces"),
]

LOOKED_AT = "/tmp/looked-at"
#: what a process with these libraries has registered; where in a file that stood is no matter
REGISTERED = """
import json, re, sys, torch
before = {str(schema) for schema in torch._C._jit_get_all_schemas()}
for path in sys.argv[1:]:
    torch.ops.load_library(path)
schemas = sorted({str(schema) for schema in torch._C._jit_get_all_schemas()} - before)
names = sorted({schema.partition("(")[0] for schema in schemas})
dumps = {name: re.sub(r"registered at \\S+", "", torch._C._dispatch_dump(name)) for name in names}
print(json.dumps([schemas, dumps]))
"""


#: what PyG's extensions register
OPERATORS = json.loads(Path(__file__).with_name("operators.json").read_text())
TORCH_CUDA = "11.7"  #: of the torch that the lock of CUDA 11.8 has
#: Four cliques in a ring: which node is in which part, by both of METIS's ways
PARTITION = """
import itertools, json, sys, torch
torch.ops.load_library(sys.argv[1])
rows = [[b for b in range(36) if b != a and (a // 9 == b // 9 or abs(a - b) in (1, 35))] for a in range(36)]
starts = torch.tensor([0, *itertools.accumulate(map(len, rows))])
columns = torch.tensor(sum(rows, []))
print(json.dumps([torch.ops.torch_sparse.partition(starts, columns, None, 4, way).tolist() for way in (False, True)]))
"""


@pytest.fixture(scope="module")
def compiled(ground):
    """Compiles the packages into a cache of their own; sdist's sha256 → wheel, and what was said."""
    given = parse(["--packages", "torch-scatter", "torch-sparse", "--architectures", "7.0", "8.0+PTX"])
    lock, step = chosen(given)
    ctx = Context.here()
    stores = []

    def compile_them(jobs=2):
        stores.append(Cache(ground / f"fast-compile-{len(stores)}"))
        job = make_job(lock, step, ctx, stores[-1], jobs, ground / "logs")
        return job, provide(job)

    yield compile_them
    for store in stores:
        store.close()


@pytest.fixture(scope="module")
def compiled_for(ground):
    """A job that is not run: with its compiler and torch."""
    lock, step = chosen(parse(["--packages", "torch-scatter", "torch-sparse"]))
    store = Cache(ground / "fast-compile-none")
    yield make_job(lock, step, Context.here(), store, 2, ground / "logs")
    store.close()


@pytest.fixture(scope="module")
def both(compiled):
    """The job, wheels made the fast way, wheels made the plain way."""
    job, fast = compiled()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compilers, "_FOLDERS", {})
        _, plain = compiled()
    return job, fast, plain


@pytest.fixture(scope="module")
def unpacked(both, ground):
    """`fast` and `plain` → the libraries in all wheels, by name."""
    found = {}
    for way, wheels in zip(("fast", "plain"), both[1:], strict=True):
        folder = ground / "looked-at" / way
        for wheel in wheels.values():
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(folder)
        found[way] = {str(path.relative_to(folder)): path for path in folder.rglob("*.so")}
    assert found["fast"].keys() == found["plain"].keys()
    assert len(found["fast"]) == 16
    return found


def read(path):
    """The symbols that a library defines, but for weak ones (copies from headers), and its GPU code."""
    with path.open("rb") as stream:
        found = elf.read_stream(stream, path.name)
        codes = fatbin.read(stream, found.fat_binaries, path.name) if found.fat_binaries else ()
        table = ELFFile(stream).get_section_by_name(".dynsym")
        defined = [one for one in table.iter_symbols() if one["st_shndx"] != "SHN_UNDEF"]
    names = {one.name for one in defined if one["st_info"]["bind"] not in ("STB_LOCAL", "STB_WEAK")}
    return names, [{one[:2] for one in code} for code in codes if code]


def test_the_same_symbols_are_exported_and_the_same_gpus_have_code(unpacked):
    fast, plain = ({name: read(path) for name, path in unpacked[way].items()} for way in ("fast", "plain"))
    assert fast == plain
    assert any(code for _, code in fast.values())


@pytest.fixture(scope="module")
def inside(compiled_for, ground):
    """Runs a program in the image's base beside its torch, with the files of `looked-at`; gives its last line."""
    job = compiled_for
    venv = ground / "fast-compile-venv"
    beside = {package.name: package for package in job.step.against}
    make_venv(job, venv, [*beside.values()])

    def run(program, *arguments):
        argv = [f"{VENV}/bin/python", "-s", "-c", program, *arguments]
        binds = [Bind(venv, VENV), Bind(ground / "looked-at", LOOKED_AT)]
        done = sandbox.run_in(job.base.rootfs, sandbox.Exec(argv, {"PATH": f"{VENV}/bin:/usr/bin:/bin"}, binds))
        assert done.returncode == 0, done.lines
        return json.loads(done.lines[-1])

    return run


def expected(*names):
    """The schemas that these packages register."""
    return sorted(schema for name in names for schema in OPERATORS["operators"][name])


def test_fast_and_plain_compile_register_the_same_operators(unpacked, inside):
    found = {}
    for way, libraries in unpacked.items():
        found[way] = inside(REGISTERED, *(f"{LOOKED_AT}/{way}/{name}" for name in sorted(libraries)))
    assert found["fast"] == found["plain"]
    assert found["fast"][0] == expected("torch_scatter", "torch_sparse")


def test_metis_finds_the_cliques_of_a_graph(unpacked, inside):
    for way, libraries in unpacked.items():
        (library,) = (name for name in libraries if name.endswith("_metis_cuda.so"))
        for parts in inside(PARTITION, f"{LOOKED_AT}/{way}/{library}"):
            assert [len(set(parts[first : first + 9])) for first in range(0, 36, 9)] == [1] * 4
            assert len(set(parts)) == 4


def test_wheels_of_pygs_site_register_the_same_operators(compiled_for, ground, request):
    """Those of the folder that `WHEELS` names, else of PyG's page for this torch, where it is reached."""
    folder = ground / "looked-at" / "site"
    names = [name for name in OPERATORS["operators"] if unpack_site_wheel(name, compiled_for, folder)]
    if not names:
        pytest.skip("no wheel of PyG's site: it is not reached, and WHEELS names no folder with one")
    libraries = sorted(str(path.relative_to(folder)) for path in folder.rglob("*_cuda.so"))
    inside = request.getfixturevalue("inside")  # five gigabytes
    schemas, _ = inside(REGISTERED, *(f"{LOOKED_AT}/site/{name}" for name in libraries))
    assert schemas == expected(*names)


def unpack_site_wheel(name, job, folder):
    """Unpack PyG's wheel of a package for the job's torch; whether there is one."""
    torch = next(package.version for package in job.step.against if package.name == "torch")
    wheels = os.environ.get("WHEELS")
    request = SourceOptions(wheels=Path(wheels) if wheels else None)
    offers = Offers(Sources(request, job.cache, dict(os.environ), job.progress.note), torch, TORCH_CUDA)
    project, target = name.replace("_", "-"), WheelTarget(job.step.python, job.base.glibc)

    def fits(version):
        return version.public == OPERATORS["versions"][name]

    try:
        offer = offers.newest(Channel.LOCAL if wheels else Channel.PYG, project, target, fits, name)
    except UnavailableError:
        return False
    package = lock_offer(offer, offers.sources)
    fetch_one(package, offers)
    with zipfile.ZipFile(job.cache.file(package.file.sha256, package.file.name)) as archive:
        archive.extractall(folder)
    return True


def test_one_job_gives_the_same_bytes_as_two(both, compiled):
    _, again = compiled(jobs=1)
    assert again.keys() == both[1].keys()
    assert all(path.read_bytes() == both[1][name].read_bytes() for name, path in again.items())
