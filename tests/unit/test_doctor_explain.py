"""`doctor --explain`: errors as programs print them are recognised, and what is no known error is not."""

import io
import json
import re
import string
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.__main__ import main
from doctor.explain import LONGEST, PATTERNS, explain

#: (what the doctor should call it, where it was met, the text)
TEXTS = re.findall(
    r"^=== (\S+) \| (.*)\n((?:(?!=== ).*\n)*)",
    Path(__file__).with_name("doctor_errors.txt").read_text(encoding="utf-8"),
    re.MULTILINE,
)
IDS = [pattern.id for pattern in PATTERNS]


@pytest.mark.parametrize(("name", "source", "text"), TEXTS, ids=[f"{name}-{n}" for n, (name, _, _) in enumerate(TEXTS)])
def test_an_error_is_recognised(name, source, text):
    assert source
    log = (
        "Epoch: 010, Loss: 1.2346, Train: 0.5000\n" * 50 + text + "\nsrun: error: n1: task 0: Exited with exit code 1\n"
    )
    assert name in {answer.id for answer in explain(log)}
    answers = {answer.id: answer for answer in explain(text)}
    assert name in answers
    assert len(answers) <= 3, "what was recognised besides is noise"
    found = answers[name]
    assert found.line
    assert not re.search(r"[{}]", found.cause), "a gap that nothing filled"
    assert found.fix


def test_every_pattern_is_tested_and_has_a_source():
    assert len(PATTERNS) >= 30
    assert set(IDS) == {name for name, _, _ in TEXTS}
    assert len(IDS) == len(set(IDS))
    assert all(pattern.source and pattern.cause.endswith((".", "}")) for pattern in PATTERNS)
    assert {name for pattern in PATTERNS for name in pattern.hides} <= set(IDS)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Epoch: 010, Loss: 1.2346, Train: 0.5000, Val: 0.4000, Test: 0.3000",
        "Everything is fine, all 12 tests passed in 3.4 s",
        "KeyError: 'loss'",
        "[INFO] Authenticating with user: <anonymous>\n[INFO] Authentication succeeded\n[INFO] Fetching image manifest",
        'Traceback (most recent call last):\n  File "a.py", line 1\n    x =\nSyntaxError: invalid syntax',
    ],
)
def test_what_is_no_known_error_is_not_explained(text):
    assert explain(text) == []


@given(st.text(alphabet=string.printable, max_size=300))
def test_no_text_breaks_it(text):
    explain(text)


@pytest.mark.parametrize(
    "line", ["a" * 200 + "\n", "a" * 5000, "/opt/lib/libx.so.1 ", "lib", "lib.so", "/x.so: undefined ", "\n", " \r\n"]
)
def test_a_long_log_is_read_at_both_ends_and_soon(line):
    began = time.process_time()
    start, end = "CUDA out of memory\n", "\nOSError: [Errno 98] Address already in use"
    found = {answer.id for answer in explain(start + "\n" + line * (2 * LONGEST // len(line)) + end)}
    assert time.process_time() - began < 8
    assert found == {"cuda-memory", "address-in-use"}


def test_symbols_are_read_as_people_do():
    (found,) = explain(
        "OSError: /v/site-packages/torch_scatter/_version.so: undefined symbol: _ZN5torch3jit17parseSchemaOrNameERKSs"
    )
    assert "torch::jit::parseSchemaOrName(std::string const&)" in found.cause
    assert "another version of torch than there is" in found.cause
    assert "torch_scatter/_version.so" in found.cause
    assert "old C++ ABI" in found.cause


def test_the_gpu_that_is_named_is_the_one_to_build_for():
    words = "{} with CUDA capability {} is not compatible with the current PyTorch installation."
    (found,) = explain(words.format("UserWarning:\nNVIDIA H100 PCIe", "sm_90"))
    assert "no machine code for sm_90" in found.cause
    assert "make image GPU=h100 " in found.fix
    assert found.fix.endswith("TORCH_CUDA_ARCH_LIST=9.0")
    (found,) = explain(words.format("NVIDIA Thor", "sm_110"))
    assert "GPU=sm_110 " in found.fix
    assert found.fix.endswith("TORCH_CUDA_ARCH_LIST=11.0")
    (found,) = explain("RuntimeError: CUDA error: no kernel image is available for execution on the device")
    assert "this GPU's architecture" in found.cause
    assert "GPU=… " in found.fix
    assert "7.0" not in found.fix


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("kernel reported a bad superblock for squashfs image partition, possible causes", "apptainer-squashfs"),
        (
            "failed to find loop device: could not attach image file to loop device: no loop devices available",
            "apptainer-loop",
        ),
    ],
)
def test_an_image_that_cannot_be_mounted_is_no_folder_that_is_bound(text, name):
    mount = "mount /proc/self/fd/3->/var/lib/apptainer/mnt/session/rootfs error: while mounting image /proc/self/fd/3"
    hook = "FATAL:   container creation failed: mount hook function failure: "
    for before in ("FATAL:   container creation failed: ", hook):
        assert [answer.id for answer in explain(f"{before}{mount}: {text}")] == [name]
    bound = f"{hook}mount /data->/data error: while mounting /data: destination /data doesn't exist in container"
    assert [answer.id for answer in explain(bound)] == ["apptainer-bind"]


def test_the_driver_decides_which_image_is_named():
    too_old = "The NVIDIA driver on your system is too old (found version {})"
    assert "CUDA 11.4 at most" in explain(too_old.format(11040))[0].cause
    assert "make image CUDA=11.8 " in explain(too_old.format(11040))[0].fix  # by minor-version compatibility
    assert "make image CUDA=12.8 " in explain(too_old.format(12020))[0].fix
    assert "make image CUDA=cpu " in explain(too_old.format(10010))[0].fix


def test_consequences_are_left_out():
    told = explain(next(text for name, _, text in TEXTS if name == "enroot-no-nvidia-cli"))
    assert [answer.id for answer in told] == ["enroot-no-nvidia-cli"]
    told = explain(next(text for name, _, text in TEXTS if name == "nccl-shm"))
    assert [answer.id for answer in told] == ["nccl-shm"]


def test_the_command_prints_cause_and_fix(capsys):
    assert main(["--explain", "OSError: [Errno 98] Address already in use"]) == 0
    out = capsys.readouterr().out
    assert "cause: The port of MASTER_PORT is taken" in out
    assert "fix:   export MASTER_PORT=" in out


def test_it_reads_stdin_and_prints_json(capsys, monkeypatch):
    text = b"\xd6\xd0\xce\xc4 GBK\nCUDA out of memory"  # of a locale that is not UTF-8
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text), "ascii", "strict"))
    assert main(["--explain", "-", "--json"]) == 0
    assert [each["id"] for each in json.loads(capsys.readouterr().out)["answers"]] == ["cuda-memory"]


def test_it_says_when_it_knows_nothing(capsys):
    assert main(["--explain", "the dog ate it"]) == 2
    out = capsys.readouterr().out
    assert f"knows {len(PATTERNS)} errors, and this is none of them" in out
    assert "doctor --json" in out
