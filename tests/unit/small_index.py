"""A little package index with torch and its company, and a stand-in for the uv program.

Unit tests start no process, so `answer` resolves as uv would for this index: every name once, the newest version that
all constraints allow, dependencies from METADATA. tests/engines runs the real uv against the same index.
"""

import io
import re
import urllib.parse
import zipfile
from pathlib import Path
from types import MappingProxyType

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from graphcrate.compat.failures.ends import ProgramFailure
from graphcrate.compat.variants.request import SourceOptions
from graphcrate.host.net import HttpError
from graphcrate.model.lock import DebianBase, DebianToolkit
from graphcrate.model.recipe import BaseSpec, Candidate, Channel, Recipe, Variant
from graphcrate.resolve.sources import pyg_lib
from graphcrate.resolve.sources.source import Source, SourceKind
from graphcrate.resolve.sources.target import project_and_version
from graphcrate.resolve.stack import base, extensions, pinning, resolver
from graphcrate.resolve.stack.locks import ResolveContext
from graphcrate.resolve.stack.pinning import UnsolvableError
from tests.made import deb, index_of, place
from tests.unit.wheel_server import small_sdist, small_wheel

CP311 = "cp311-cp311-linux_x86_64"
GEOMETRIC = """[build-system]
requires = ["flit_core"]
build-backend = "flit_core.buildapi"
[project]
name = "torch_geometric"
version = "2.3.1"
dependencies = ["numpy", "tqdm"]
"""


def fill(server):
    """Fill the package index."""
    many = {
        "torch": [
            small_wheel("torch", "2.0.1", tag=CP311, requires=["filelock", "nvidia-cublas-cu11==11.10.3.66"]),
            small_wheel("torch", "2.0.1", tag="cp39-cp39-linux_x86_64"),
            small_wheel("torch", "2.13.0", tag=CP311),
        ],
        "torch-geometric": [small_sdist("torch_geometric", "2.3.1", pyproject=GEOMETRIC)],
        "nvidia-cublas-cu11": [
            small_wheel("nvidia_cublas_cu11", version, tag="py3-none-manylinux1_x86_64")
            for version in ("11.10.3.66", "11.11.3.6")
        ],
        "numpy": [small_wheel("numpy", version, tag=CP311) for version in ("1.26.4", "2.4.0")],
        "filelock": [small_wheel("filelock", "3.0")],
        "tqdm": [small_wheel("tqdm", "4.66")],
        "flit-core": [small_wheel("flit_core", "3.9")],
        "torch-scatter": [small_sdist("torch_scatter", "2.1.2", pyproject="")],
        "setuptools": [small_wheel("setuptools", version) for version in ("69.5.1", "84.0")],
        "pip": [small_wheel("pip", "25.0")],
        "wheel": [small_wheel("wheel", "0.45")],
        "ninja": [
            small_wheel("ninja", version, tag="py3-none-manylinux_2_17_x86_64") for version in ("1.11", "1.13.2")
        ],
    }
    for project, files in many.items():
        server.simple(project, dict(files))


def pytorch_channel(server):
    """Put torch on PyTorch's channel; its file name and content."""
    name, content = small_wheel("torch", "2.0.1+cu118", tag=CP311, requires=["filelock"])
    server.pytorch("cu118", {name: content})
    return name, content


def put_torch(folder, version, requires=("filelock",)):
    """Put a wheel of torch into a folder; its content."""
    name, content = small_wheel("torch", version, tag=CP311, requires=requires)
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(content)
    return content


def recipe(*candidates, requirements=("numpy", "setuptools"), overrides=(), extensions=("pyg_lib", "torch_scatter")):
    """A recipe with one variant, CUDA 11.8, and these candidates."""
    variant = Variant(
        cuda="11.8",
        python="3.11",
        base=BaseSpec(suite="bookworm"),
        candidates=candidates,
        torch_geometric="2.3.1",
        extensions=extensions,
        architectures=("7.0", "8.0") if extensions else (),
    )
    return Recipe(name="pyg", description="", smoke=("dna",), variants=(variant,), requirements=requirements)


PYTORCH = Candidate(
    name="pytorch",
    channels=(Channel.PYTORCH, Channel.PYG, Channel.PYPI),
    torch="2.0.1+cu118",
    torch_cuda="11.8",
)
COMPATIBLE = Candidate(
    name="compatible",
    channels=(Channel.PYPI, Channel.PYG),
    torch="2.0.1",
    torch_cuda="11.7",
    suffix="-compat",
    overrides=("nvidia-cublas-cu11==11.11.3.6",),
)
LOCAL = Candidate(name="local", channels=(Channel.LOCAL, Channel.PYG, Channel.PYPI), torch="*", torch_cuda="cpu")


#: what stands for the locked toolkit: no index here has the real one's wheels
TOOLKIT = DebianToolkit(version="11.8.89", suite="bookworm", packages=(), wheels=())


def context(recipe, request, cache, environment, *, variant=None, progress=None, **options):
    """The request to resolve, as the pipeline makes it."""
    ctx = place(cache, environment, progress)
    return ResolveContext(recipe=recipe, variant=variant or recipe.variants[0], request=request, ctx=ctx, **options)


def locked(server, cache, candidate=COMPATIBLE, request=None, *, variant=None, **options):
    """The lock of a recipe with this candidate; `variant`: what is changed of its variant."""
    made = recipe(candidate, **options)
    changed = msgspec.structs.replace(made.variants[0], **(variant or {}))
    ctx = context(made, request or SourceOptions(), cache, index_of(server), variant=changed)
    return resolver.resolve(ctx, candidate, "f" * 64)


def stand_in_bases(monkeypatch):
    """No mirror of Debian's is asked for bases, nor anybody for a toolkit."""
    # the base with a compiler: one package that tells what was asked for
    monkeypatch.setattr(
        base,
        "lock_compiler",
        lambda place, variant, suite, wanted, besides=(): lock_base(
            suite, deb(wanted, "11"), *(deb(name, "1.96.0") for name in besides)
        ),
    )
    monkeypatch.setattr(resolver, "lock_base", lambda place, variant: lock_base(variant.base.suite))
    monkeypatch.setattr(extensions, "lock_toolkit", lambda *_: TOOLKIT)
    without_github(monkeypatch)


def without_github(monkeypatch):
    """GitHub, which has pyg_lib's sources, is not reached."""
    monkeypatch.setattr(pyg_lib, "reached", lambda _: False)


def lock_base(suite, *packages):
    return DebianBase(suite=suite, packages=packages)


NO_NAMES = MappingProxyType({})


class Uv:
    """Answers `uv.compile_requirements`; records what it was asked."""

    def __init__(self):
        self.calls = []
        self.newest = ""  # day of the last upload: with an older cutoff there is no solution

    def __call__(
        self, requirements, target, index, sources, options, preferred=(), wheels=None, cutoff=None, named=NO_NAMES
    ):
        limits = [Requirement(line) for line in options["constraints"]]
        asked = {"requirements": list(requirements), "target": target, "constraints": list(options["constraints"])}
        self.calls.append(asked | {"cutoff": cutoff})
        if cutoff and cutoff.date < self.newest:
            error = UnsolvableError("the requirements cannot be resolved")
            error.explanation = "no versions of numpy"
            raise error
        client, listings = sources.client, sources.listings
        folders = (source for source in sources.user.further if source.names is None)
        places = (*folders, Source(SourceKind.INDEX, index))
        fixed = {canonicalize_name(Requirement(line).name): Requirement(line) for line in options["overrides"]}
        entries, queue, seen = [], list(requirements), set()
        while queue:
            line = queue.pop(0)
            if " @ " in line:
                name, url = line.split(" @ ")
                file = urllib.parse.unquote(urllib.parse.urlsplit(url).path.rpartition("/")[2])
                entries.append((name, project_and_version(file)[1], f'archive = {{ url = "{url}" }}'))
                seen.add(name)
                queue += requires_of(self._given(client, line))
                continue
            requirement = fixed.get(canonicalize_name(Requirement(line).name), Requirement(line))
            name = canonicalize_name(requirement.name)
            if name in seen:
                continue
            seen.add(name)
            allowed = [item.specifier for item in (requirement, *limits) if canonicalize_name(item.name) == name]
            asked_of = [named[name]] if name in named else places
            offered = next(filter(None, (listings.project(one, name) for one in asked_of)), ())
            links = [
                link
                for link in offered
                if target.rank(link.name) and all(spec.contains(project_and_version(link.name)[1]) for spec in allowed)
            ]
            versions = [project_and_version(link.name)[1] for link in links]
            version = next((Version(one.version) for one in preferred if one.name == name), None)
            version = version if version in versions else max(versions)
            chosen = [link for link in links if project_and_version(link.name)[1] == version]
            wheels = ", ".join(f'{{ url = "{link.url}", hashes = {{ sha256 = "{link.sha256}" }} }}' for link in chosen)
            entries.append((name, version, f"wheels = [{wheels}]"))
            queue += requires_of(self._read(client, chosen[0].url))
        tables = (
            f'[[packages]]\nname = "{name}"\nversion = "{version}"\n{files}\n' for name, version, files in entries
        )
        return 'lock-version = "1.0"\n' + "".join(tables)

    def _given(self, client, line):
        """The wheel at a requirement's address; where there is none, uv's own words on it (0.9)."""
        why = "Failed to unzip wheel: unable to locate the end of central directory record"
        try:
            content = self._read(client, line.split(" @ ")[1])
        except HttpError as error:
            why = f"an upstream reader returned an error: {error.what}"
        else:
            if zipfile.is_zipfile(io.BytesIO(content)):
                return content
        lines = (f"error: Failed to download `{line}`", f"  cause: {why}")
        raise pinning._failure(ProgramFailure(program="uv", exit_code=pinning.NO_SOLUTION, lines=lines))

    def _read(self, client, url):
        parts = urllib.parse.urlsplit(url)
        if parts.scheme == "file":
            return Path(urllib.parse.unquote(parts.path)).read_bytes()
        return client.request("GET", url).body


def requires_of(content):
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        metadata = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = re.findall(r"^Requires-Dist: (.*)$", archive.read(metadata).decode(), re.MULTILINE)
        return [line for line in lines if "extra ==" not in line]
