"""What small headers make of PyG's sources and what torch's own make of them: the same operators, symbols, GPU code.

Two packages for two architectures, compiled twice the fast way and once the plain way: an hour and more of two cores.
"""

import json
import zipfile

import pytest
from elftools.elf.elffile import ELFFile

from bench.wheelhouse import chosen, make_job, parse
from graphcrate.artifacts.formats import elf, fatbin
from graphcrate.compat import compilers
from graphcrate.host import sandbox
from graphcrate.host.cache import Cache
from graphcrate.host.context import Context
from graphcrate.inputs.extensions.compile import make_venv, provide
from graphcrate.model.plan import VENV

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
    """What a library defines, weak symbols (copies of what stands in headers) aside, and its GPU code."""
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


def test_the_same_operators_are_registered(both, unpacked, ground):
    job = both[0]
    venv = ground / "fast-compile-venv"
    beside = {package.name: package for package in job.step.against}
    make_venv(job, venv, [*beside.values()])
    told = {}
    for way, libraries in unpacked.items():
        inside = [f"{LOOKED_AT}/{way}/{name}" for name in sorted(libraries)]
        argv = [f"{VENV}/bin/python", "-s", "-c", REGISTERED, *inside]
        binds = [sandbox.Bind(venv, VENV), sandbox.Bind(ground / "looked-at", LOOKED_AT)]
        command = sandbox.Exec(argv, {"PATH": f"{VENV}/bin:/usr/bin:/bin"}, binds)
        done = sandbox.run_in(job.base.rootfs, command)
        assert done.returncode == 0, done.lines
        told[way] = json.loads(done.lines[-1])
    assert told["fast"] == told["plain"]
    assert {schema.partition("::")[0] for schema in told["fast"][0]} == {"torch_scatter", "torch_sparse"}


def test_one_job_gives_the_same_bytes_as_two(both, compiled):
    _, again = compiled(jobs=1)
    assert again.keys() == both[1].keys()
    assert all(path.read_bytes() == both[1][name].read_bytes() for name, path in again.items())
