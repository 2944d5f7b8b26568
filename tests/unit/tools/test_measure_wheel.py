"""Measuring wheels: here, and on a server of which only ranges are asked."""

import random
import zipfile

import msgspec
import pytest

from graphcrate.compat.facts import facts
from graphcrate.host.net import Client
from graphcrate.model.errors import IntegrityError, NetworkError
from graphcrate.model.platform import ARM64, DEFAULT
from graphcrate.resolve.sources.source import Link
from tests.made import refused
from tests.unit.elfmaker import PTX, SASS, entry, fat_binary, make_elf
from tests.unit.wheel_server import Fault
from tests.unit.wheelmaker import make_wheel
from tools import measure_wheel, torch_facts
from tools.ranged_file import RangedFile
from tools.wheel_contents import measure
from upkeep.news import torch_builds

LIST = b"sm_70 sm_80 compute_80\0"
METADATA = b"""\
Metadata-Version: 2.1
Name: torch
Version: 9.1.0
Requires-Python: >=3.9
Requires-Dist: nvidia-cudnn-cu12 (==9.1.0.70) ; platform_system == "Linux"
Requires-Dist: nvidia-nccl-cu12==2.20.5
Requires-Dist: sympy
"""


#: a library larger than what is read of a server
LARGE = {"padding": bytes(range(256)) * 64, "method": zipfile.ZIP_STORED}


def code(*entries):
    """A fat binary of (kind, architecture) pairs."""
    return fat_binary(*(entry(*one) for one in entries))


def torch_wheel(folder, *, told=LIST, cuda="'12.1'", fatbin=None, padding=b"", more=None, **options):
    """A torch in little: its own list, its code, its C++ ABI, its version."""
    string = "_ZN3c105ErrorC1ENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
    kernels = code((SASS, 70), (SASS, 80), (PTX, 80)) if fatbin is None else fatbin
    files = {
        "torch/version.py": f"cuda: Optional[str] = {cuda}\n".encode(),
        "torch/lib/libc10.so": make_elf(soname="libc10.so", defined=[string], needs={"libc.so.6": ["GLIBC_2.14"]}),
        "torch/lib/libtorch_cuda.so": make_elf(needs={"libc.so.6": ["GLIBC_2.17", "GLIBC_2.34?"]}, fatbin=kernels)
        + padding,
        "torch/lib/libtorch_python.so": make_elf(needs={"libstdc++.so.6": ["GLIBCXX_3.4.19"]}) + b"ipc_h" + told,
        "torch/lib/libcudnn.so.9": make_elf(fatbin=code((SASS, 50))),
        **(more or {}),
    }
    return make_wheel(
        folder, "torch", "9.1.0", files, tag="cp311-cp311-linux_x86_64", metadata=METADATA, purelib=False, **options
    )


def measured(path, **options):
    with path.open("rb") as stream:
        return measure(stream, path.name, **options)


def test_measured_wheel_has_versions_architectures_and_glibc(tmp_path):
    found = measured(torch_wheel(tmp_path))
    assert (found.name, found.version, found.python, found.cuda) == ("torch", "9.1.0", ">=3.9", "12.1")
    assert (found.sass, found.ptx, found.told) == (("7.0", "8.0"), ("8.0",), ("sm_70", "sm_80", "compute_80"))
    assert found.cxx11_abi is True
    assert (found.glibc, found.glibcxx) == ("2.17", "3.4.19")  # what is weak binds nobody
    assert found.unread == ()
    found = measured(torch_wheel(tmp_path, fatbin=code((SASS, 70)) * 3 + code((SASS, 90)), cuda="None"))
    assert (found.sass, found.some, found.cuda) == (("7.0",), ("9.0",), "cpu")
    found = measured(torch_wheel(tmp_path, **LARGE), most=10_000)
    assert (found.sass, found.unread) == ((), ("torch/lib/libtorch_cuda.so",))


EVAL_FRAME = b"""
def check_if_dynamo_supported():
    if sys.platform == "win32":
        raise RuntimeError("Windows not yet supported for torch.compile")
    if sys.version_info >= (3, 11):
        raise RuntimeError("Python 3.11+ not yet supported for torch.compile")

def other():
    return sys.version_info >= (3, 9)
"""


@pytest.mark.parametrize(
    ("text", "python"), [(EVAL_FRAME, "3.10"), (b"def other():\n  sys.version_info >= (3, 9)\n", ""), (None, "")]
)
def test_measured_torch_says_the_newest_python_of_torch_compile(tmp_path, text, python):
    """As in 2.0.1; 1.13.1 has no such file."""
    more = {"torch/_dynamo/eval_frame.py": text} if text else {}
    found = measured(torch_wheel(tmp_path, more=more))
    assert (found.compile_python, torch_facts.build_of(found).compile_python) == (python, python)
    assert ('compile_python = "3.10"' in torch_facts.written([], [torch_facts.build_of(found)])) is (python == "3.10")


def test_measured_architectures_are_those_of_the_deciding_libraries(tmp_path):
    """As in torch 2.12.1, whose MAGMA begins with 8.0, and in a torch that has such a library and needs it."""
    newer = make_elf(fatbin=code((SASS, 80)))
    names = ("libtorch_cuda_linalg.so", "libtorch_cuda_cu.so")
    found = [measured(torch_wheel(tmp_path, more={f"torch/lib/{name}": newer})) for name in names]
    assert [one.sass for one in found] == [("7.0", "8.0"), ("8.0",)]
    assert [one.features for one in found] == [{"libtorch_cuda_linalg": ("8.0",)}, {}]
    build = torch_facts.build_of(found[0])
    assert build.features == {"libtorch_cuda_linalg": ("8.0",)}
    assert 'features = { libtorch_cuda_linalg = ["8.0"] }' in torch_facts.written([], [build])


def test_measured_feature_is_lost_on_gpus_that_other_parts_serve(tmp_path):
    """cuSPARSELt begins with 8.0; what few of its parts have code for, it serves."""
    kernels = code((SASS, 70), (SASS, 80), (SASS, 90))
    for more, lost in (code((SASS, 80)), True), (code((SASS, 80)) * 2 + code((SASS, 90)), False):
        library = {"torch/lib/libcusparseLt-f80c68d1.so.0": make_elf(fatbin=more)}
        wheel = torch_wheel(tmp_path, told=b"sm_70 sm_80 sm_90\0", fatbin=kernels, more=library)
        assert (torch_facts.build_of(measured(wheel)).features == {"libcusparseLt": ("8.0",)}) is lost


def test_measuring_a_damaged_wheel_or_library_is_an_integrity_error(tmp_path):
    path = torch_wheel(tmp_path)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(IntegrityError, match=r"torch-9\.1\.0"):
        measured(path)
    with pytest.raises(IntegrityError, match=r"core\.so"):
        measured(make_wheel(tmp_path, files={"pkg/core.so": b"\x7fELF" + bytes(100)}))


def opened(server, path, content):
    server.put(path, content)
    return RangedFile(Client({}, sleep=lambda _: None), server.url(path))


def test_measuring_a_remote_wheel_fetches_ranges_only(tmp_path, server):
    noise = random.Random(1).randbytes(3_000_000)
    path = torch_wheel(tmp_path, padding=noise)
    file = opened(server, "/w.whl", path.read_bytes())
    assert measure(file, path.name, most=1_000_000) == measured(path, most=1_000_000)
    assert file.fetched < path.stat().st_size / 5
    assert all(asked.headers["range"].startswith("bytes=") for asked in server.asked)


def test_ranged_file_reads_at_any_offset_and_after_cut_connections(server):
    content = bytes(index * 7 % 251 for index in range(1_500_000))
    assert opened(server, "/small", b"tiny").read() == b"tiny"
    server.faults["/f"] = [Fault(), Fault(cut_after=100)]
    file = opened(server, "/f", content)
    for begin, count in ((0, 10), (700_000, 300_000), (5, 100), (1_499_990, 100), (0, 1_500_000)):
        file.seek(begin)
        assert file.read(count) == content[begin : begin + count]
    assert (file.seek(-3, 2), file.read(), file.read(1)) == (1_499_997, content[-3:], b"")


@pytest.mark.parametrize("ranges", [True, False])
def test_ranged_file_that_changes_or_has_no_ranges_is_a_network_error(server, ranges):
    file = opened(server, "/f", bytes(1_000_000)) if ranges else None
    server.ranges = ranges
    server.put("/f", bytes(1_000_001))
    with pytest.raises(NetworkError, match="changed the file" if ranges else "whole files only"):
        file.read() if file else RangedFile(Client({}), server.url("/f"))


def test_torch_fact_is_made_from_a_measured_wheel(tmp_path):
    build = torch_facts.build_of(measured(torch_wheel(tmp_path)))
    assert (build.torch, build.cuda, build.sm, build.ptx) == ("9.1.0", "12.1", ("7.0", "8.0"), ("8.0",))
    assert build.pins == ("nvidia-cudnn-cu12==9.1.0.70", "nvidia-nccl-cu12==2.20.5")
    assert (build.known, build.by) == ("measured", torch_facts.EACH)
    build = torch_facts.build_of(measured(torch_wheel(tmp_path, **LARGE), most=10_000))  # where libraries are left out
    assert (build.sm, build.ptx, build.by) == (("7.0", "8.0"), ("8.0",), "torch's own list")
    with refused(IntegrityError, "code for 7.0, 9.0, and has it for 7.0, 8.0"):
        torch_facts.build_of(measured(torch_wheel(tmp_path, told=b"sm_70 sm_90\0")))
    with refused(IntegrityError, "not found"):
        torch_facts.build_of(measured(torch_wheel(tmp_path, told=b"", **LARGE), most=10_000))


def test_committed_torch_facts_equal_the_written_ones():
    assert torch_facts.TORCH.read_text() == torch_facts.written(facts.torch_builds(), ())


def test_new_torch_facts_replace_old_ones(tmp_path):
    build = torch_facts.build_of(measured(torch_wheel(tmp_path)))
    old = facts.TorchBuild(torch="9.1.0", cuda="12.1", sm=("9.9",), known="documented")
    other = facts.TorchBuild(torch="9.0.0", cuda="12.10", sm=("8.0",), known="documented", cxx11_abi=False)
    text = torch_facts.written([old, other], [build])
    assert "9.9" not in text
    assert text.index('"9.0.0"') < text.index('"9.1.0"')
    assert "cxx11_abi = false" in text


def test_table_of_other_platforms_is_what_the_tool_writes_and_a_fresh_build_replaces_its_row():
    known = facts.ported_builds()
    text = torch_facts.PORTED.read_text()
    assert torch_facts.ported_written(known, ARM64.name, []) == text
    fresh = msgspec.structs.replace(known[ARM64.name][0], size=1)
    written = torch_builds.ported_in(torch_facts.ported_written(known, ARM64.name, [fresh]))
    assert written[ARM64.name] == (fresh, *known[ARM64.name][1:])


@pytest.mark.parametrize(("platform", "machine"), [(DEFAULT, "x86_64"), (ARM64, "aarch64")])
def test_wheels_of_one_platform_are_offered(monkeypatch, platform, machine):
    names = [f"torch-9.1.0-cp311-cp311-manylinux_2_28_{each}.whl" for each in ("x86_64", "aarch64")]
    links = [Link(name=name, url=f"https://index.example/{name}") for name in (*names, "torch-9.1.0.tar.gz")]
    monkeypatch.setattr(measure_wheel, "listed", lambda *_: links)
    assert [link.name for link in measure_wheel.offered(None, "torch", platform)] == [
        f"torch-9.1.0-cp311-cp311-manylinux_2_28_{machine}.whl"
    ]
