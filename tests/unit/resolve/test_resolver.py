"""From a candidate to a lock."""

import tomllib
from pathlib import Path

import msgspec
import pytest

from graphcrate.compat.failures import ends
from graphcrate.compat.failures.ends import ProgramFailure
from graphcrate.compat.variants.request import SourceOptions
from graphcrate.host import process
from graphcrate.host.process import Completed
from graphcrate.model.errors import BuildError, CacheError, DiskFullError, NetworkError, ResolutionError
from graphcrate.model.lock import encode
from graphcrate.model.platform import DEFAULT
from graphcrate.model.recipe import Candidate, Channel
from graphcrate.resolve.sources import pyg_lib, wheel_mirrors
from graphcrate.resolve.sources.offers import Offers, UnavailableError
from graphcrate.resolve.sources.request_sources import Sources
from graphcrate.resolve.sources.source import Source, SourceKind
from graphcrate.resolve.sources.target import WheelTarget
from graphcrate.resolve.sources.user_indexes import UserIndexes
from graphcrate.resolve.stack import built_for, pinning, resolver
from graphcrate.resolve.stack.pinning import UnsolvableError, parse_pylock
from tests.made import file_of, refused
from tests.unit import small_index
from tests.unit.elfmaker import make_elf
from tests.unit.small_index import COMPATIBLE, CP311, LOCAL, PYTORCH, put_torch, pytorch_channel
from tests.unit.wheel_server import Fault, WheelServer, small_sdist, small_wheel

NO_WHEEL = "127.0.0.1 has wheels of torch 2.0.1+cu118, none for cp311 (cp310)"
CP310 = "cp310-cp310-linux_x86_64"
BOOKWORM = WheelTarget("3.11", "2.36")


@pytest.mark.parametrize("torch", ["1.13.1", "2.2.2", "2.7.1"])
def test_source_is_built_by_an_older_setuptools_where_nothing_asks_for_newer(torch):
    """Of mpi4py 3.1.6, whose setup.py gives `new_compiler` the argument `dry_run`; setuptools 81 takes none."""
    of_torch = tuple(pinning.constraints_of(torch))
    assert pinning.build_limits(torch) == ((*of_torch, "setuptools<81"), of_torch, ())


def test_compatible_candidate_is_locked_with_its_packages(server, lock):
    locked = lock()
    assert {package.name: package.version for package in locked.packages} == {
        "filelock": "3.0",
        "numpy": "1.26.4",
        "nvidia-cublas-cu11": "11.11.3.6",
        "setuptools": "69.5.1",
        "torch": "2.0.1",
        "torch-geometric": "2.3.1",
        "torch-scatter": "2.1.2",
        "tqdm": "4.66",
    }
    assert [package.name for package in locked.packages] == sorted(package.name for package in locked.packages)
    torch = locked.package("torch").file
    assert torch == file_of(torch.name, server.files[f"torch-2.0.1-{CP311}.whl"])
    assert {package.channel for package in locked.packages} == {Channel.PYPI}
    assert locked.notes[0].startswith("`pip check` complains: torch's metadata pins other versions of nvidia-cublas")


def test_package_without_a_wheel_is_locked_as_sdist_with_its_back_end(server, lock, program):
    geometric = lock().package("torch-geometric")
    assert geometric.is_sdist
    assert [package.file.name for package in geometric.build] == ["flit_core-3.9-py3-none-any.whl"]
    back_end, image = program.calls[:2]
    assert (back_end["target"], image["target"].python) == (resolver.BUILD_TARGET, "3.11")
    assert "numpy" in image["requirements"]
    assert not any("geometric" in line for line in image["requirements"])
    wheel = small_wheel("torch_geometric", "2.3.1", requires=["tqdm"])
    server.simple("torch-geometric", dict([small_sdist("torch_geometric", "2.3.1", pyproject=""), wheel]))
    geometric = lock().package("torch-geometric")
    assert (geometric.is_sdist, geometric.build) == (False, ())
    pyproject = small_index.GEOMETRIC.replace('flit_core"]', 'numpy"]')
    server.simple("torch-geometric", dict([small_sdist("torch_geometric", "2.3.1", pyproject=pyproject)]))
    with pytest.raises(ResolutionError, match="its back-end needs numpy"):
        lock()


def test_back_end_that_is_a_program_builds_a_users_own_project_and_no_package_of_a_lock(server, cache, program):
    program_of = dict([small_wheel("uv_build", "0.11", tag="py3-none-manylinux_2_17_x86_64")])
    server.simple("uv-build", program_of)
    offers = Offers(Sources(SourceOptions(), cache, small_index.index_of(server)), "2.0.1", "11.7")
    (locked,) = resolver.lock_back_end(["uv_build>=0.8"], "./mine", offers, DEFAULT)
    assert locked.file.name in program_of
    with refused(ResolutionError, "its back-end needs uv-build"):
        resolver.lock_back_end(["uv_build>=0.8"], "theirs.tar.gz", offers)
    server.simple("meson", dict([small_wheel("meson", "1.0", tag=CP311)]))
    with refused(ResolutionError, "its back-end needs meson", "uv build --wheel"):
        resolver.lock_back_end(["meson"], "./mine", offers, DEFAULT)


def test_torch_is_locked_from_its_channel_and_the_rest_from_the_index(server, lock, program):
    name, content = pytorch_channel(server)
    locked = lock(PYTORCH)
    torch = locked.package("torch")
    assert (torch.channel, torch.version, torch.file) == (Channel.PYTORCH, "2.0.1+cu118", file_of(name, content))
    assert {package.channel for package in locked.packages if package is not torch} == {Channel.PYPI}
    assert locked.notes == ()
    constraints = ["numpy<2", "setuptools<70", "torchvision==0.15.2", "torchaudio==2.0.2"]
    assert program.calls[1]["constraints"] == constraints
    assert not any(host in encode(locked).decode() for host in ("://", str(server.port)))


def test_extensions_are_locked_from_pygs_page(server, cache, lock):
    pytorch_channel(server)
    versions = (("2.1.2+pt20cu118", CP311), ("2.1.3+pt20cu118", CP310), ("2.1.3+pt20cu117", CP311))
    wheels = dict(small_wheel("torch_scatter", version, tag=tag) for version, tag in versions)
    server.pyg("2.0.0+cu118", wheels)
    locked = lock(PYTORCH)
    scatter = locked.package("torch-scatter")
    assert (scatter.version, scatter.channel) == ("2.1.2+pt20cu118", Channel.PYG)
    assert scatter.file == file_of(scatter.file.name, wheels[scatter.file.name])
    assert any("taken from the file itself" in note for note in locked.notes)
    assert cache.file(scatter.file.sha256, scatter.file.name).exists()
    (missing,) = locked.missing
    on_page, on_index, on_github = missing.reason.split("; ", 2)
    assert on_page == "pyg channel: 127.0.0.1 has no project pyg-lib"
    assert on_index == "the package index has no source of it"
    assert on_github == f"{pyg_lib.UNREACHED} (0.2.0)"
    assert "neighbour sampling" in missing.cost


def test_mirror_without_hashes_gets_them_from_the_official_page(server, lock):
    name, content = pytorch_channel(server)
    with WheelServer() as mirror:
        mirror.pytorch("cu118", {name: content}, prefix="", hashes=False)
        locked = lock(PYTORCH, SourceOptions(mirror=mirror.url("")))
    assert (locked.package("torch").file, locked.notes) == (file_of(name, content), ())


PYPI_TORCH = "/simple/torch/"


@pytest.mark.parametrize(
    ("candidate", "files", "faults", "what", "unreachable"),
    [
        (PYTORCH, (), {}, "pytorch channel: 127.0.0.1 has no project torch (HTTP 404)", False),
        (PYTORCH, [small_wheel("torch", "2.0.1+cu118", tag=CP310)], {}, f"pytorch channel: {NO_WHEEL}", False),
        (
            PYTORCH,
            [small_sdist("torch", "2.0.1+cu118", pyproject="")],
            {},
            "pytorch channel: 127.0.0.1 has torch 2.0.1+cu118 as source only",
            False,
        ),
        (
            PYTORCH,
            [small_wheel("torch", "2.1.0+cu118", tag=CP311)],
            {},
            "pytorch channel: 127.0.0.1 has no torch 2.0.1+cu118",
            False,
        ),
        (COMPATIBLE, (), {PYPI_TORCH: [Fault(status=503)] * 9}, "pypi channel: HTTP 503 (127.0.0.1)", True),
    ],
    ids=["no project", "no wheel for this Python", "source only", "other version", "overloaded"],
)
def test_channel_without_torch_is_an_unavailable_error(server, lock, candidate, files, faults, what, unreachable):
    for one in files:
        server.pytorch("cu118", dict([one]))
    server.faults |= faults
    with pytest.raises(UnavailableError) as caught:
        lock(candidate)
    assert (caught.value.what, caught.value.unreachable) == (what, unreachable)
    assert candidate is COMPATIBLE or "MIRROR=sjtu" in caught.value.next_step


def test_newest_torch_of_a_wheel_folder_is_locked_without_cuda_packages_for_cpu(lock, tmp_path):
    for version in ("2.12.0+cpu", "2.14.0", "2.13.0+cpu"):
        put_torch(tmp_path, version)
    locked = lock(LOCAL, SourceOptions(wheels=tmp_path))
    torch = locked.package("torch")
    assert (torch.version, torch.channel, locked.notes) == ("2.13.0+cpu", Channel.LOCAL, ())
    assert torch.file == file_of(torch.file.name, (tmp_path / torch.file.name).read_bytes())
    assert str(tmp_path) not in encode(locked).decode()
    put_torch(tmp_path, "2.15.0+cpu", ["nvidia-cublas-cu11"])
    with pytest.raises(ResolutionError, match="nvidia-cublas-cu11"):
        lock(LOCAL, SourceOptions(wheels=tmp_path))


@pytest.mark.parametrize("refused", [False, True])
def test_missing_file_size_is_requested_from_the_server(server, lock, refused):
    name, content = small_wheel("numpy", "1.26.4", tag=CP311)
    server.simple("numpy", {name: content}, sizes=False)
    # The first request is uv's, for metadata; a server may refuse the HEAD, and is asked for one byte then.
    server.faults[f"/files/{name}"] = [Fault(), Fault(status=405)] * refused
    assert lock().package("numpy").file.size == len(content)
    assert f"/files/{name}" in server.paths("HEAD")


@pytest.mark.parametrize("damage", [None, lambda content: content[:-1]], ids=["whole", "cut"])
def test_truncated_cached_file_does_not_set_the_locked_size(server, cache, lock, damage):
    """A lock with the size of a part would refuse the right file for ever."""
    made = small_wheel("numpy", "1.26.4", tag=CP311)
    name, content = made
    server.simple("numpy", {name: content}, sizes=False)
    cached = cache.file(file_of(*made).sha256, name)
    cached.parent.mkdir(parents=True)
    cached.write_bytes(damage(content) if damage else content)
    assert lock().package("numpy").file == file_of(*made)
    assert (f"/files/{name}" in server.paths("HEAD")) is bool(damage)


def test_answering_index_mirror_is_resolved_against(server, lock, monkeypatch):
    with WheelServer() as mirror:
        small_index.fill(mirror)
        monkeypatch.setitem(wheel_mirrors.MIRRORS, "tuna", wheel_mirrors.WheelMirror(pypi=mirror.url("/simple")))
        assert lock(request=SourceOptions(mirror="tuna")).package("torch").version == "2.0.1"
        assert "/simple/filelock/" in mirror.paths()
    assert "/simple/filelock/" not in server.paths()


def test_override_with_another_torch_is_a_resolution_error(lock):
    with pytest.raises(ResolutionError, match=r"torch 2\.0\.1 was asked for and 2\.13\.0 came out"):
        lock(msgspec.structs.replace(COMPATIBLE, overrides=("torch==2.13.0",)))


def put_torchaudio(server, version, library, *, needed=("libcudart.so.13",), tag=CP311):
    """Put torch 2.10.0 for CUDA 12.8 and a torchaudio on the index, whose library needs these."""
    server.simple("torch", dict([small_wheel("torch", "2.10.0", tag=CP311)]))
    files = {f"torchaudio/lib/{library}": make_elf(needed)}
    wheel = small_wheel("torchaudio", version, tag=tag, files=files)
    server.simple("torchaudio", dict([wheel]))
    return wheel[0]


CUDA_12_8 = Candidate(name="pypi", channels=(Channel.PYPI,), torch="2.10.0", torch_cuda="12.8")
CPU = Candidate(name="pypi", channels=(Channel.PYPI,), torch="2.10.0", torch_cuda="cpu")


def lock_with_torchaudio(lock, candidate):
    return lock(candidate, requirements=("torchaudio",), variant={"torch_geometric": "", "extensions": ()})


@pytest.mark.parametrize(("candidate", "own"), [(CUDA_12_8, "CUDA 12.8"), (CPU, "the CPU")])
def test_torchaudio_for_another_cuda_is_a_resolution_error(server, lock, candidate, own, monkeypatch):
    """torchaudio 2.11.0 names no torch in its metadata, is for CUDA 13, and was locked beside torch 2.10.0."""
    put_torchaudio(server, "2.11.0", "_torchaudio.abi3.so")
    monkeypatch.setattr(resolver, "constraints_of", lambda torch: [])
    with pytest.raises(ResolutionError) as caught:
        lock_with_torchaudio(lock, candidate)
    error = caught.value
    assert f"torchaudio 2.11.0 is for CUDA 13, and torch 2.10.0 for {own}" in error.what
    assert "torchaudio/lib/_torchaudio.abi3.so needs libcudart.so.13" in error.what
    assert ("torchaudio==2.10.0" in error.next_step) == (candidate is CUDA_12_8), "none on the index is for the CPU"


@pytest.mark.parametrize(
    ("library", "needed", "tag"),
    [
        ("libtorchaudio.so", ("libcudart.so.12", "libc10_cuda.so"), CP311),
        ("libtorchaudio_sox.so", ("libcudart.so.13",), CP311),  # without which torchaudio does
        ("libcudart.so.13", ("libcudart.so.13",), CP311),  # brings its own
        ("libtorchaudio.so", ("libcudart-0123abcd.so.13",), CP311),
        ("libtorchaudio.so", ("libcudart.so.13",), "py3-none-any"),  # nothing compiled, by its name
    ],
)
def test_torchaudio_that_loads_beside_torch_is_locked(server, cache, lock, library, needed, tag):
    name = put_torchaudio(server, "2.10.0", library, needed=needed, tag=tag)
    torchaudio = lock_with_torchaudio(lock, CUDA_12_8).package("torchaudio")
    assert torchaudio.file.name == name
    assert cache.file(torchaudio.file.sha256, name).is_file() == (tag == CP311), "only what is compiled is looked at"


def test_torchvision_is_locked_from_the_channel_of_torch(server, lock):
    """That of the package index is for CUDA 11.7, and its import fails beside a torch for 11.8."""
    asked = {"requirements": ("torchvision", "numpy"), "variant": {"torch_geometric": "", "extensions": ()}}
    name, content = pytorch_channel(server)
    of_index = small_wheel("torchvision", "0.15.2", tag=CP311)
    server.simple("torchvision", dict([of_index]))
    server.pytorch("cu118", {name: content, **dict([small_wheel("torchvision", "0.15.2", tag=CP311)])})
    with pytest.raises(UnavailableError, match=r"127\.0\.0\.1 has no torchvision for torch 2\.0\.1\+cu118"):
        lock(PYTORCH, **asked)
    others = [small_wheel("torchvision", version, tag=CP311) for version in ("0.15.2+cu118", "0.16.0+cu118", "0.15.2")]
    server.pytorch("cu118", {name: content, **dict(others)})
    torchvision = lock(PYTORCH, **asked).package("torchvision")
    assert (torchvision.version, torchvision.channel) == ("0.15.2+cu118", Channel.PYTORCH)
    assert lock(COMPATIBLE, **asked).package("torchvision").file.name == of_index[0]


def test_torchvision_of_the_index_for_another_cuda_is_refused(server, lock, tmp_path):
    put_torch(tmp_path, "2.0.1+cu118")
    server.simple("torchvision", dict([small_wheel("torchvision", "0.15.2", tag=CP311)]))
    local = msgspec.structs.replace(LOCAL, torch_cuda="11.8")
    asked = {"requirements": ("torchvision",), "variant": {"torch_geometric": "", "extensions": ()}}
    what = r"torchvision 0\.15\.2 is for CUDA 11\.7, and torch 2\.0\.1\+cu118 for CUDA 11\.8"
    with pytest.raises(ResolutionError, match=what):
        lock(local, SourceOptions(wheels=tmp_path), **asked)


def test_large_wheel_is_not_downloaded_for_the_cuda_check(server, cache, lock, monkeypatch):
    name = put_torchaudio(server, "2.10.0", "libtorchaudio.so")
    monkeypatch.setattr(built_for, "LARGEST", 100)
    torchaudio = lock_with_torchaudio(lock, CUDA_12_8).package("torchaudio")
    assert not cache.file(torchaudio.file.sha256, name).exists()


def test_uv_gets_python_and_platform_of_the_image_and_no_builds(cache, monkeypatch):
    def run(argv, *, environment, cwd, timeout):
        asked.append((argv, environment))
        Path(argv[argv.index("--output-file") + 1]).write_text("made")
        return Completed(0, ())

    asked = []
    monkeypatch.setattr(process, "run", run)
    sources = Sources(SourceOptions(), cache, {"UV_NO_BINARY": "1"})
    sources.user = UserIndexes("https://index.example/simple")
    index = "https://user:password@example.org/simple"
    assert pinning.compile_requirements(["numpy"], BOOKWORM, index, sources, {}) == "made"
    ((argv, environment),) = asked
    assert argv[argv.index("--only-binary") + 1] == ":all:"  # an sdist's setup.py is anybody's program
    assert argv[argv.index("--python-version") + 1] == "3.11"
    assert argv[argv.index("--python-platform") + 1] == "x86_64-manylinux_2_36"
    assert "password" not in " ".join(argv)
    assert "password" in environment["UV_DEFAULT_INDEX"]
    assert "UV_NO_BINARY" not in environment


@pytest.fixture
def asked(monkeypatch):
    """The calls of uv: its arguments and environment, each time."""
    found = []

    def run(argv, *, environment, cwd, timeout):
        found.append((argv, environment))
        Path(argv[argv.index("--output-file") + 1]).write_text("made")
        return Completed(0, ())

    monkeypatch.setattr(process, "run", run)
    return found


@pytest.mark.parametrize(
    ("given", "trusted"),
    [
        ({}, {"UV_SYSTEM_CERTS": "1"}),
        ({"PIP_CERT": "/site.pem"}, {"SSL_CERT_FILE": "/site.pem"}),
        ({"SSL_CERT_FILE": "/own.pem", "PIP_CERT": "/site.pem"}, {"SSL_CERT_FILE": "/own.pem"}),
        ({"REQUESTS_CA_BUNDLE": "/"}, {"SSL_CERT_DIR": "/"}),
        ({"UV_SYSTEM_CERTS": "0"}, {"UV_SYSTEM_CERTS": "0"}),
    ],
)
def test_uv_trusts_the_certificates_that_other_requests_trust(cache, asked, given, trusted):
    """A site's own authority is in the system's store, which uv does not read by itself."""
    sources = Sources(SourceOptions(), cache, given)
    sources.user = UserIndexes("https://index.example/simple")
    pinning.compile_requirements(["numpy"], BOOKWORM, "https://index.example/simple", sources, {})
    ((_, environment),) = asked
    names = ("UV_SYSTEM_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR")
    assert {name: environment[name] for name in names if name in environment} == trusted


@pytest.mark.parametrize("merged", [False, True])
def test_uv_index_strategy_is_first_index_unless_the_user_sets_it(cache, asked, merged):
    """A company's own package, under whose name an attacker uploads a higher version to a public index."""
    sources = Sources(SourceOptions(), cache, {"UV_INDEX_STRATEGY": "unsafe-best-match"})
    own = "https://me:secret@own.example/simple"
    sources.user = UserIndexes("https://index.example/simple", (own,), merged=merged)
    pinning.compile_requirements(["mine"], BOOKWORM, sources.user.default, sources, {})
    ((argv, environment),) = asked
    assert argv[argv.index("--index-strategy") + 1] == ("unsafe-best-match" if merged else "first-index")
    assert (environment["UV_INDEX"], "UV_INDEX_STRATEGY" in environment) == (own, False)
    assert not [word for word in argv if "secret" in word], "everybody on this machine sees argv"


def test_uv_gets_indexes_and_links_of_requirements_for_the_named_packages_alone(cache, asked, monkeypatch):
    sources = Sources(SourceOptions(), cache, {"UV_FIND_LINKS": "/theirs"})
    index = Source(SourceKind.INDEX, "https://me:secret@own.example/simple", ("mine",))
    page = Source(SourceKind.LINKS, "https://me:secret@own.example/page.html", ("theirs", "unasked"))
    further = (index, page, Source(SourceKind.FOLDER, "/srv/wheels,old"))
    sources.user = UserIndexes("https://index.example/simple", ("https://extra.example/simple",), further=further)
    written = {}
    monkeypatch.setattr(pinning.process, "run", reading(pinning.process.run, written))
    named = {"mine": index, "theirs": page}
    lines = ["mine>=1", 'theirs[a]; python_version > "3"', "other"]
    pinning.compile_requirements(lines, BOOKWORM, sources.user.default, sources, {}, named=named)
    ((argv, environment),) = asked
    assert environment["UV_INDEX"] == "https://extra.example/simple"
    assert environment["UV_FIND_LINKS"] == "file:///srv/wheels%2Cold"
    assert "--find-links" not in argv, "the variable would not count beside it"
    assert "secret" not in " ".join(argv)
    project = tomllib.loads(written["pyproject.toml"])
    assert project["project"]["dependencies"] == lines
    assert project["tool"]["uv"] == {
        "index": [
            {"name": "named-0", "url": index.location, "explicit": True},
            {"name": "named-1", "url": page.location, "explicit": True, "format": "flat"},
        ],
        "sources": {"mine": {"index": "named-0"}, "theirs": {"index": "named-1"}},
    }


def reading(run, written):
    """`run`, which also reads the file that uv is asked by."""

    def wrapped(argv, **options):
        path = Path(argv[-1])
        assert path.stat().st_mode & 0o077 == 0 or "secret" not in path.read_text()
        written[path.name] = path.read_text()
        return run(argv, **options)

    return wrapped


@pytest.mark.parametrize(
    ("exit_code", "error"),
    [(1, UnsolvableError), (2, NetworkError), (101, BuildError), (-9, BuildError)],
    ids=["no solution", "no answer", "panic", "killed"],
)
def test_uv_exit_code_decides_the_error_and_its_output_is_shown(cache, monkeypatch, exit_code, error):
    """Not its words, which another release may change: these speak of the network, where 2 packages are at odds."""
    words = (" error: Failed to fetch: no solution", "", "  cause: dns error, a==1")
    monkeypatch.setattr(process, "run", lambda *_, **__: Completed(exit_code, words))
    sources = Sources(SourceOptions(), cache, {})
    sources.user = UserIndexes("https://index.example/simple")
    with pytest.raises(error, match="dns error, a==1") as caught:
        pinning.compile_requirements(["a"], BOOKWORM, sources.user.default, sources, {})
    assert type(caught.value) is error
    assert error is not UnsolvableError or caught.value.explanation == "\n".join(line for line in words if line)


PYLOCK = """lock-version = "1.0"
created-by = "uv"

[[packages]]
name = "Torch_Geometric"
version = "2.7.0"
wheels = [{ url = "https://f.test/ab/torch_geometric-2.7.0-py3-none-any.whl", size = 5, hashes = { sha256 = "aa" } }]

[[packages]]
name = "numpy"
version = "1.26.4"
marker = "sys_platform == 'linux' and platform_machine == 'x86_64'"
wheels = [
    { url = "https://f.test/numpy-1.26.4-cp312-cp312-manylinux2014_x86_64.whl", hashes = { sha256 = "01" } },
    { url = "https://f.test/numpy-1.26.4-cp311-cp311-manylinux_2_17_x86_64.whl", hashes = { sha256 = "02" } },
]

[[packages]]
name = "colorama"
version = "0.4"
marker = "sys_platform == 'win32'"
wheels = [{ url = "https://f.test/colorama-0.4-py3-none-any.whl", hashes = { sha256 = "03" } }]

[[packages]]
name = "torch"
version = "2.13.0+cpu"
archive = { path = "/w/torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl", hashes = { sha256 = "04" } }

[[packages]]
name = "six"
version = "1.0"
wheels = [{ path = "/w h/six-1.0-py3-none-any.whl", hashes = { sha256 = "05" } }]
"""


def test_parse_pylock_takes_the_fitting_wheel_of_each_package():
    geometric, numpy, six = parse_pylock(PYLOCK, BOOKWORM)
    assert (geometric.name, geometric.link.size, geometric.link.sha256) == ("torch-geometric", 5, "aa")
    assert (numpy.name, numpy.link.sha256) == ("numpy", "02")
    assert six.link.url == "file:///w%20h/six-1.0-py3-none-any.whl"
    with pytest.raises(ResolutionError, match=r"numpy 1\.26\.4 has no wheel for Python 3\.9"):
        parse_pylock(PYLOCK, WheelTarget("3.9", "2.31"))


INDEX = "http://127.0.0.1:18765/simple"
#: in uv's words: as many rows as the table has, in its order
UV_ENDS = {
    "disk full": (
        2,
        "error: Failed to initialize cache at `full/uv`\n"
        "  cause: failed to write to file `/c/full/uv/CACHEDIR.TAG`: No space left on device (os error 28)",
        (DiskFullError, "disk of the cache is full", "GRAPHCRATE_CACHE=/path"),
    ),
    "quota": (
        2,
        "error: failed to write to file `/c/uv/.tmpjAnfDw`: Disk quota exceeded (os error 122)",
        (DiskFullError, "quota", "quota -s"),
    ),
    "closed cache": (
        2,
        "error: Failed to initialize cache at `closed/uv`\n"
        "  cause: failed to create directory `/c/closed/uv`: Permission denied (os error 13)",
        (CacheError, "cannot write into the cache", "belongs to another user", "GRAPHCRATE_CACHE=/path"),
    ),
    "certificate": (
        2,
        "error: Request failed\n  Caused by: invalid peer certificate: UnknownIssuer",
        (NetworkError, "certificate is not trusted", "SSL_CERT_FILE="),
    ),
    "dead proxy": (
        2,
        "error: Request failed after 1 retry in 1.5s\n  cause: client error (Connect)\n"
        "  cause: tunnel error: failed to create underlying connection\n  cause: Connection refused (os error 111)",
        (NetworkError, "the proxy does not let us through", "check https_proxy"),
    ),
    "unknown name": (
        2,
        "error: Request failed after 1 retry in 2.0s\n  cause: dns error\n  cause: error resolving DNS",
        (NetworkError, "name does not resolve", "getent hosts 127.0.0.1"),
    ),
    "closed port": (
        2,
        "error: Request failed after 1 retry in 1.5s\n  cause: tcp connect error\n"
        "  cause: Connection refused (os error 111)",
        (NetworkError, "connection refused", "The server, or the proxy before it, is down", "http_proxy"),
    ),
    "no route": (
        2,
        "error: Request failed\n  cause: Network is unreachable (os error 101)",
        (NetworkError, "no route to the host", "check the network"),
    ),
    "server error": (
        2,
        f"error: Request failed after 1 retry in 1.8s\n  cause: Failed to fetch: {INDEX}/six/\n"
        f"  cause: HTTP status server error (503 Service Unavailable) for url ({INDEX}/six/)",
        (NetworkError, "HTTP 503", "wait a little"),
    ),
    "login": (
        1,
        "error: No solution found when resolving dependencies\n  cause: Because six was not found in the package "
        f"registry and you require six, nothing is left.\n\nhint: An index URL ({INDEX}) could not be queried due "
        "to a lack of valid authentication credentials (401 Unauthorized)",
        (NetworkError, "HTTP 401", "asks for a login", "netrc"),
    ),
    "refusal": (
        1,
        "error: No solution found when resolving dependencies\n  cause: Because six was not found in the package "
        f"registry and you require six, nothing is left.\n\nhint: An index ({INDEX}) returned a 403 Forbidden "
        "error. Check that the index URL is correct and the credentials are valid.",
        (NetworkError, "HTTP 403", "bars this package", "netrc"),
    ),
    "anything else": (2, "error: something new", (NetworkError, "proxy that refuses", "check the network")),
}


def uv_failure(exit_code, *lines, address=""):
    return ProgramFailure(program="uv", exit_code=exit_code, lines=lines, address=address)


@pytest.mark.parametrize("name", UV_ENDS)
def test_end_of_uv_without_a_search_has_its_own_error_cause_and_next_step(name):
    exit_code, text, (error, *words) = UV_ENDS[name]
    failure = uv_failure(exit_code, *text.split("\n"), address=INDEX)
    found = pinning._failure(failure)
    assert type(found) is error
    assert [word for word in words if word not in str(found)] == []
    rows = [end for end in ends.ends() if end.program != "git"]
    assert next(ends.fitting(failure))[0] is rows[[*UV_ENDS].index(name)]


def test_each_row_of_the_ends_of_uv_has_its_words_here():
    assert len([end for end in ends.ends() if end.program != "git"]) == len(UV_ENDS)


def test_full_disk_under_a_wheel_by_address_blames_no_source():
    line = "error: Failed to download `torch @ https://files.example/torch.whl`"
    lines = (line, "  cause: failed to unzip: No space left on device (os error 28)")
    assert type(pinning._failure(uv_failure(1, *lines))) is DiskFullError


@pytest.mark.parametrize("name", ["login", "refusal"])
def test_refusal_of_a_further_index_leaves_the_requirements_unsolvable(name):
    exit_code, text, _ = UV_ENDS[name]
    failure = uv_failure(exit_code, text, address="https://index.example/simple")
    assert type(pinning._failure(failure)) is UnsolvableError


PORTAL = b"<html><head><title>Log in</title></head><body><a href='/help'>help</a></body></html>"


def test_login_page_in_place_of_the_index_is_said_before_uv_takes_it_for_an_empty_one(server, cache):
    place = Sources(SourceOptions(), cache, {})
    server.put("/simple/numpy/", PORTAL)
    with pytest.raises(NetworkError, match="no index of packages"):
        pinning._refuse_unusable(server.url("/simple"), place)
    pinning._refuse_unusable(server.url("/without"), place)  # of what is not there uv says it
    pinning._refuse_unusable("file:///no/such/index", place)
    assert server.paths() == ["/simple/numpy/", "/without/numpy/"]


def test_folders_of_wheels_with_a_comma_stay_one_for_uv(tmp_path):
    """Commas stand between uv's places."""
    named = Source(SourceKind.FOLDER, str(tmp_path / "b,c")), Source(SourceKind.LINKS, "https://links.example/a.html")
    found = list(pinning._find_links(named, tmp_path / "a,"))
    assert found == [f"{tmp_path.as_uri()}/a%2C", f"{tmp_path.as_uri()}/b%2Cc"]
