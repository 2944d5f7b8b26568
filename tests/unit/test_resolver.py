"""From a candidate to a lock."""

import hashlib
from pathlib import Path

import msgspec
import pytest

from graphcrate.compat.request import SourceOptions
from graphcrate.host import process
from graphcrate.host.process import Completed
from graphcrate.model.errors import NetworkError, ResolutionError
from graphcrate.model.lock import encode
from graphcrate.model.recipe import Channel
from graphcrate.resolve import channels, pinning, resolver
from graphcrate.resolve.channels import UserIndexes
from graphcrate.resolve.offers import Sources, UnavailableError
from graphcrate.resolve.pinning import parse_pylock
from graphcrate.resolve.target import Target
from tests.unit import small_index
from tests.unit.small_index import COMPATIBLE, CP311, LOCAL, PYTORCH
from tests.unit.small_index import locked as lock
from tests.unit.wheel_server import Fault, WheelServer, small_sdist, small_wheel

CP310 = "cp310-cp310-linux_x86_64"


@pytest.fixture
def server(channels):
    small_index.fill(channels)
    return channels


def versions(locked):
    return {package.name: package.version for package in locked.packages}


def pytorch_channel(server, **options):
    name, content = small_wheel("torch", "2.0.1+cu118", tag=CP311, requires=["filelock"])
    server.pytorch("cu118", {name: content}, **options)
    return name, content


def test_the_compatible_candidate(server, cache, program):
    locked = lock(server, cache, COMPATIBLE)
    assert [*versions(locked).items()] == [
        ("filelock", "3.0"),
        ("numpy", "1.26.4"),
        ("nvidia-cublas-cu11", "11.11.3.6"),
        ("setuptools", "69.5.1"),
        ("torch", "2.0.1"),
        ("torch-geometric", "2.3.1"),
        ("torch-scatter", "2.1.2"),
        ("tqdm", "4.66"),
    ]
    torch = locked.package("torch")
    assert torch.file.name == f"torch-2.0.1-{CP311}.whl"
    assert torch.file.sha256 == hashlib.sha256(server.files[torch.file.name]).hexdigest()
    assert torch.file.size == len(server.files[torch.file.name])
    assert all(package.channel is Channel.PYPI for package in locked.packages)
    assert "pip check" in locked.notes[0]
    assert "nvidia-cublas-cu11" in locked.notes[0]


def test_an_sdist_comes_with_its_build_back_end_where_there_is_no_wheel(server, cache, program):
    geometric = lock(server, cache, COMPATIBLE).package("torch-geometric")
    assert geometric.is_sdist
    assert [(package.name, package.file.name) for package in geometric.build] == [
        ("flit-core", "flit_core-3.9-py3-none-any.whl")
    ]
    assert program.calls[0]["target"] == resolver.BUILD_TARGET
    assert program.calls[1]["target"].python == "3.11"
    assert "numpy" in program.calls[1]["requirements"]
    assert not any("geometric" in line for line in program.calls[1]["requirements"])
    wheel = small_wheel("torch_geometric", "2.3.1", requires=["tqdm"])
    server.simple("torch-geometric", dict([small_sdist("torch_geometric", "2.3.1", pyproject=""), wheel]))
    geometric = lock(server, cache, COMPATIBLE).package("torch-geometric")
    assert (geometric.is_sdist, geometric.build) == (False, ())


def test_a_back_end_that_is_not_pure_python_is_refused(server, cache, program):
    pyproject = small_index.GEOMETRIC.replace('flit_core"]', 'numpy"]')
    server.simple("torch-geometric", dict([small_sdist("torch_geometric", "2.3.1", pyproject=pyproject)]))
    with pytest.raises(ResolutionError, match="its back-end needs numpy"):
        lock(server, cache, COMPATIBLE)


def test_torch_comes_from_its_channel_and_the_rest_from_the_index(server, cache, program):
    name, content = pytorch_channel(server)
    locked = lock(server, cache, PYTORCH)
    torch = locked.package("torch")
    assert (torch.channel, torch.version, torch.file.name) == (Channel.PYTORCH, "2.0.1+cu118", name)
    assert torch.file.size == len(content)
    assert {package.channel for package in locked.packages if package is not torch} == {Channel.PYPI}
    assert locked.notes == ()
    assert program.calls[1]["constraints"] == ["numpy<2", "setuptools<70", "torchaudio==2.0.*"]
    text = encode(locked).decode()
    assert "://" not in text
    assert str(server.port) not in text


def test_extensions_from_pyg_s_page(server, cache, program):
    pytorch_channel(server)
    versions = (("2.1.1+pt20cu118", CP311), ("2.1.2+pt20cu118", CP311), ("2.1.2+pt20cu118", CP310))
    wanted = [small_wheel("torch_scatter", version, tag=tag) for version, tag in versions]
    wanted.append(small_wheel("torch_scatter", "2.1.3+pt20cu117", tag=CP311))
    server.pyg("2.0.0+cu118", dict(wanted))
    locked = lock(server, cache, PYTORCH)
    scatter = locked.package("torch-scatter")
    assert (scatter.version, scatter.channel) == ("2.1.2+pt20cu118", Channel.PYG)
    assert scatter.file.sha256 == hashlib.sha256(dict(wanted)[scatter.file.name]).hexdigest()
    assert any("taken from the file itself" in note for note in locked.notes)
    assert cache.file(scatter.file.sha256, scatter.file.name).exists()
    (missing,) = locked.missing
    assert missing.name == "pyg-lib"
    assert missing.reason == "pyg channel: 127.0.0.1 has no pyg-lib; the package index does not have it"
    assert "neighbour sampling" in missing.cost


def test_a_mirror_without_hashes_is_vouched_for_by_the_official_page(server, cache, program):
    name, content = pytorch_channel(server)
    with WheelServer() as mirror:
        mirror.pytorch("cu118", {name: content}, prefix="", hashes=False)
        locked = lock(server, cache, PYTORCH, SourceOptions(mirror=mirror.url("")))
    assert locked.package("torch").file.sha256 == hashlib.sha256(content).hexdigest()
    assert locked.notes == ()


@pytest.mark.parametrize(
    ("candidate", "tags", "faults", "what", "unreachable"),
    [
        (PYTORCH, (), {}, "pytorch channel: HTTP 404 (127.0.0.1)", False),
        (PYTORCH, (CP310,), {}, "pytorch channel: 127.0.0.1 has no wheel of torch 2.0.1+cu118 for Python 3.11", False),
        (COMPATIBLE, (), {"/simple/torch/": [Fault(status=503)] * 9}, "pypi channel: HTTP 503 (127.0.0.1)", True),
    ],
    ids=["out", "without this Python", "overloaded"],
)
def test_a_channel_without_torch(server, cache, program, candidate, tags, faults, what, unreachable):
    for tag in tags:
        server.pytorch("cu118", dict([small_wheel("torch", "2.0.1+cu118", tag=tag)]))
    server.faults |= faults
    with pytest.raises(UnavailableError) as caught:
        lock(server, cache, candidate)
    assert (caught.value.what, caught.value.unreachable) == (what, unreachable)
    assert candidate is COMPATIBLE or "MIRROR=sjtu" in caught.value.next_step


def local_torch(folder, version="2.13.0+cpu", requires=("filelock",)):
    name, content = small_wheel("torch", version, tag=CP311, requires=requires)
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(content)
    return name, content


def test_the_newest_torch_of_a_folder(server, cache, program, tmp_path):
    for version in ("2.12.0+cpu", "2.14.0", "2.13.0+cpu"):
        local_torch(tmp_path / "w", version)
    locked = lock(server, cache, LOCAL, SourceOptions(wheels=tmp_path / "w"))
    torch = locked.package("torch")
    assert (torch.version, torch.channel) == ("2.13.0+cpu", Channel.LOCAL)
    assert torch.file.sha256 == hashlib.sha256((tmp_path / "w" / torch.file.name).read_bytes()).hexdigest()
    assert locked.notes == ()
    assert str(tmp_path) not in encode(locked).decode()


def test_cuda_packages_do_not_slip_into_a_cpu_image(server, cache, program, tmp_path):
    local_torch(tmp_path / "w", requires=["nvidia-cublas-cu11"])
    with pytest.raises(ResolutionError, match="nvidia-cublas-cu11"):
        lock(server, cache, LOCAL, SourceOptions(wheels=tmp_path / "w"))


@pytest.mark.parametrize("refused", [False, True])
def test_sizes_that_no_page_states_are_asked_for(server, cache, program, refused):
    name, content = small_wheel("numpy", "1.26.4", tag=CP311)
    server.simple("numpy", {name: content}, sizes=False)
    # The first request is uv's, for metadata; a server may refuse the HEAD, and is asked for one byte then.
    server.faults[f"/files/{name}"] = [Fault(), Fault(status=405)] * refused
    assert lock(server, cache, COMPATIBLE).package("numpy").file.size == len(content)
    assert f"/files/{name}" in server.paths("HEAD")


def test_a_mirror_of_the_index_is_resolved_against_when_it_answers(server, cache, program, monkeypatch):
    with WheelServer() as mirror:
        small_index.fill(mirror)
        monkeypatch.setitem(channels.MIRRORS, "tuna", channels.Mirror(pypi=mirror.url("/simple")))
        locked = lock(server, cache, COMPATIBLE, SourceOptions(mirror="tuna"))
        assert "/simple/filelock/" in mirror.paths()
    assert "/simple/filelock/" not in server.paths()
    assert locked.package("torch").version == "2.0.1"


def test_a_requirement_on_another_torch_is_noticed(server, cache, program, monkeypatch):
    candidate = msgspec.structs.replace(COMPATIBLE, overrides=("torch==2.13.0",))
    with pytest.raises(ResolutionError, match=r"torch 2\.0\.1 was asked for and 2\.13\.0 came out"):
        lock(server, cache, candidate)


def test_uv_is_told_what_image_it_is_for_and_to_run_no_package(cache, monkeypatch):
    def run(argv, *, environment, cwd, timeout):
        asked.append((argv, environment))
        Path(argv[argv.index("--output-file") + 1]).write_text("made")
        return Completed(0, ())

    asked = []
    monkeypatch.setattr(process, "run", run)
    market = Sources(SourceOptions(), cache, {"UV_NO_BINARY": "1"})
    market.user = UserIndexes("https://index.example/simple")
    index = "https://user:password@example.org/simple"
    made = pinning.compile_requirements(["numpy"], Target("3.11", "2.36"), index, market, {})
    ((argv, environment),) = asked
    assert made == "made"
    assert argv[argv.index("--only-binary") + 1] == ":all:"  # an sdist's setup.py is anybody's program
    assert argv[argv.index("--python-version") + 1] == "3.11"
    assert argv[argv.index("--python-platform") + 1] == "x86_64-manylinux_2_36"
    assert "password" not in " ".join(argv)
    assert "password" in environment["UV_DEFAULT_INDEX"]
    assert "UV_NO_BINARY" not in environment


def test_uv_s_own_words_become_errors():
    failure = pinning._failure(["  x No solution found when resolving dependencies:", "  ╰─▶ Because a==1 …"])
    assert isinstance(failure, ResolutionError)
    assert "No solution found" in failure.what
    assert isinstance(pinning._failure(["error: Request failed after 3 retries", "dns error"]), NetworkError)


BOOKWORM = Target("3.11", "2.36")
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


def test_the_fitting_wheel_of_each_package():
    found = {package.name: package for package in parse_pylock(PYLOCK, BOOKWORM)}
    assert list(found) == ["torch-geometric", "numpy", "torch", "six"]
    assert (found["torch-geometric"].link.size, found["torch-geometric"].link.sha256) == (5, "aa")
    assert found["numpy"].link.sha256 == "02"
    assert found["torch"].link is None
    assert found["torch"].version == "2.13.0+cpu"
    assert found["six"].link.url == "file:///w%20h/six-1.0-py3-none-any.whl"


def test_a_package_without_a_fitting_wheel_is_named():
    with pytest.raises(ResolutionError, match=r"numpy 1\.26\.4 has no wheel for Python 3\.9"):
        parse_pylock(PYLOCK, Target("3.9", "2.31"))
