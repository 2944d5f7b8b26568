"""`doctor --explain`: errors as programs print them are recognised, and what is no known error is not."""

import configparser
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

from doctor import __main__ as program
from doctor.__main__ import main
from doctor.explain import LONGEST, PATTERNS, explain, read_patterns
from doctor.stated import other_versions
from tools import errors_page

#: (what the doctor should call it, where it was met, the text)
TEXTS = re.findall(
    r"^=== (\S+) \| (.*)\n((?:(?!=== ).*\n)*)",
    Path(__file__).with_name("doctor_errors.txt").read_text(encoding="utf-8"),
    re.MULTILINE,
)
IDS = [pattern.id for pattern in PATTERNS]


@pytest.mark.parametrize(("name", "source", "text"), TEXTS, ids=[f"{name}-{n}" for n, (name, _, _) in enumerate(TEXTS)])
def test_doctor_recognises_an_error_in_a_log(name, source, text):
    log = "Epoch: 010, Loss: 1.2346, Train: 0.5000\n" * 50 + text + "\nsrun: error: n1: task 0: Exited with code 1\n"
    assert name in {answer.id for answer in explain(log)}
    answers = {answer.id: answer for answer in explain(text)}
    assert len(answers) <= 3, "what was recognised besides is noise"
    found = answers[name]
    assert all((source, found.line, found.fix))
    assert not re.search(r"[{}]", found.cause), "a gap that nothing filled"


def test_doctor_patterns_are_all_tested_and_have_sources():
    assert len(PATTERNS) >= 30
    assert set(IDS) == {name for name, _, _ in TEXTS}
    assert len(IDS) == len(set(IDS))
    assert all(pattern.source and pattern.cause.endswith((".", "}")) for pattern in PATTERNS)
    assert {name for pattern in PATTERNS for name in pattern.hides} <= set(IDS)


ROW = "[a]\nsign = x\ncause = C.\nfix = f\nseen = here\n"


@pytest.mark.parametrize(
    ("table", "error"),
    [
        (f"; programs\n\n{ROW}\n; libraries\n\n{ROW}", configparser.DuplicateSectionError),
        (f"; programs\n\n{ROW}fix = g\n", configparser.DuplicateOptionError),
        ("; programs\n\n" + ROW.replace("fix = f\n", ""), KeyError),
        (f"; programs\n\n{ROW}no field\n", configparser.ParsingError),
    ],
)
def test_table_that_stops_the_doctor_stops_its_page(table, error):
    for reader in (read_patterns, errors_page.errors):
        with pytest.raises(error):
            reader(table)


def test_doctor_explains_no_unknown_error():
    for text in (
        "",
        "Everything is fine, all 12 tests passed in 3.4 s",
        "[INFO] Authenticating with user: <anonymous>\n[INFO] Authentication succeeded\n[INFO] Fetching image manifest",
        'Traceback (most recent call last):\n  File "a.py", line 1\n    x =\nSyntaxError: invalid syntax',
        "AttributeError: 'NoneType' object has no attribute 'shape'",
        "Building wheels for collected packages: a\n  Building wheel for a (setup.py): finished with status 'done'",
        "Collecting torch\nSuccessfully installed torch-2.3.1 numpy-1.26.4",
        "srun: job 7 queued and waiting for resources\nsrun: job 7 has been allocated resources",
        "INFO:    Creating SIF file...\nINFO:    Build complete: pyg.sif",
        "pyxis: imported docker image: registry.example.com#team/pyg:1",
        "export CUDA_HOME=/usr/local/cuda\nnvcc --version\nCuda compilation tools, release 11.8, V11.8.89",
        "DGL backend is set to pytorch. Graphbolt is loaded.",
    ):
        assert explain(text) == []


@given(st.text(alphabet=string.printable, max_size=300))
def test_doctor_explain_takes_any_text(text):
    explain(text)


@pytest.mark.parametrize(
    "line", ["a" * 200 + "\n", "a" * 5000, "/opt/lib/libx.so.1 ", "lib", "lib.so", "/x.so: undefined ", "\n", " \r\n"]
)
def test_doctor_explain_of_a_long_log_reads_both_ends_quickly(line):
    began = time.process_time()
    start, end = "CUDA out of memory\n", "\nOSError: [Errno 98] Address already in use"
    found = {answer.id for answer in explain(start + "\n" + line * (2 * LONGEST // len(line)) + end)}
    assert time.process_time() - began < 8
    assert found == {"cuda-memory", "address-in-use"}


SYMBOL = "OSError: /v/torch_scatter/_version.so: undefined symbol: _ZN5torch3jit17parseSchemaOrNameERKSs"
INCOMPATIBLE = "{} with CUDA capability {} is not compatible with the current PyTorch installation."
NO_KERNEL = "RuntimeError: CUDA error: no kernel image is available for execution on the device"
TOO_OLD = "The NVIDIA driver on your system is too old (found version {})"
FAILED = "FATAL:   container creation failed: "
HOOK = f"{FAILED}mount hook function failure: "
MOUNT = "mount /proc/self/fd/3->/var/lib/apptainer/mnt/session/rootfs error: while mounting image /proc/self/fd/3: {}"
SUPERBLOCK = MOUNT.format("kernel reported a bad superblock for squashfs image partition, possible causes")
NO_LOOP = MOUNT.format("could not attach image file to loop device: no loop devices available")
BIND = "mount /data->/data error: while mounting /data: destination /data doesn't exist in container"
TEXT_OF = {name: text for name, _, text in reversed(TEXTS)}


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        (SYMBOL, "undefined-symbol", "torch::jit::parseSchemaOrName(std::string const&) | torch_scatter/_version.so"),
        (SYMBOL, "undefined-symbol", "another version of torch than there is | old C++ ABI"),
        # the GPU that is named is the one to build for
        (INCOMPATIBLE.format("Warning:\nNVIDIA H100 PCIe", "sm_90"), "no-kernel-image", "GPU=h100 | code for sm_90"),
        (INCOMPATIBLE.format("NVIDIA Thor", "sm_110"), "no-kernel-image", "GPU=thor | TORCH_CUDA_ARCH_LIST=11.0"),
        (NO_KERNEL, "no-kernel-image", "this GPU's architecture | GPU=…"),
        # an image that cannot be mounted is no folder that is bound
        *[(before + SUPERBLOCK, "apptainer-squashfs", "") for before in (FAILED, HOOK)],
        *[(before + NO_LOOP, "apptainer-loop", "") for before in (FAILED, HOOK)],
        (HOOK + BIND, "apptainer-bind", ""),
        # the driver decides which image is named: by minor-version compatibility
        (TOO_OLD.format(11040), "driver-too-old", "CUDA 11.4 at most | make image CUDA=11.8"),
        (TOO_OLD.format(12020), "driver-too-old", "make image CUDA=12.8"),
        (TOO_OLD.format(10010), "driver-too-old", "make image CUDA=cpu"),
        # the part of a package that is there, not the package; a compiler's error, not what pip says of it
        (
            "No module named 'torchdata.datapipes'",
            "module-part",
            "torchdata is there | install 'torchdata<VERSION'",
        ),
        ("nvcc: not found\nerror: subprocess-exited-with-error", "no-toolkit", "FLAVOUR=devel"),
        ("No module named 'torch'\n", "no-module", "torch is not installed"),
        ("torch.library has no attribute register_fake", "module-attribute", "This torch.library has no register_fake"),
        (TEXT_OF["build-isolation"], "build-isolation", "has no torch"),
        (TEXT_OF["half-imported"], "half-imported", "While torch was imported"),
        (TEXT_OF["pip-none"], "pip-none", "no file of graphlearn-torch for this Python"),
        (TEXT_OF["numpy-names"], "numpy-names", "numpy<1.24"),
        (TEXT_OF["apptainer-space"], "apptainer-space", "APPTAINER_TMPDIR"),
        (TEXT_OF["enroot-folder"], "enroot-folder", "ENROOT_RUNTIME_PATH"),
        (TEXT_OF["pyxis-child-killed"], "pyxis-child-killed", "memory of the job"),
        # consequences are left out
        *[(TEXT_OF[name], name, "") for name in ("enroot-no-nvidia-cli", "nccl-shm")],
    ],
)
def test_doctor_explanation_has_details_of_the_log(text, name, words):
    (found,) = explain(text)
    assert found.id == name
    assert all(one.strip() in f"{found.cause}\n{found.fix}" for one in words.split("|"))


def test_doctor_explain_prints_cause_and_fix_or_ends_with_2(capsys):
    assert main(["--explain", "OSError: [Errno 98] Address already in use"]) == 0
    assert re.search("(?s)cause: The port of MASTER_PORT is taken.*fix: +export MASTER_PORT=", capsys.readouterr().out)
    assert main(["--explain", "the dog ate it"]) == 2
    assert f"knows {len(PATTERNS)} errors, and this is none of them" in capsys.readouterr().out


def test_doctor_explain_reads_stdin_and_prints_json(capsys, monkeypatch):
    text = b"\xd6\xd0\xce\xc4 GBK\nCUDA out of memory"  # of a locale that is not UTF-8
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text), "ascii", "strict"))
    assert main(["--explain", "-", "--json"]) == 0
    assert [each["id"] for each in json.loads(capsys.readouterr().out)["answers"]] == ["cuda-memory"]


HERE = {"Python": "3.11", "torch": "2.3.1", "NCCL": "2.20.5", "Slurm": "22.05.8", "NumPy": "2.0.1", "Docker": "24.0.1"}


@pytest.mark.parametrize(
    ("text", "others"),
    [
        ('File "/opt/venv/lib/python3.9/site-packages/torch/_ops.py", line 9', "Python 3.9 (here 3.11)"),
        ('File "/opt/venv/lib/python3.11/site-packages/torch/_ops.py", line 9', ""),
        ("PyTorch version: 1.13.1\nNCCL version 2.14.3+cuda11.7", "torch 1.13.1 (here 2.3.1), NCCL 2.14 (here 2.20.5)"),
        ("NCCL version 2.20.5+cuda12.4", ""),
        ("slurm-wlm 20.11.9\nsrun: error: n1", "Slurm 20.11 (here 22.05.8)"),
        ("compiled using NumPy 1.x cannot be run in\nNumPy 2.2.0 as it may crash", "NumPy 2.2 (here 2.0.1)"),
        # another minor release of Docker says the same; what a package asks for is not what is there
        ("Docker version 24.9.1, build 1", ""),
        ("torchvision 0.15.2 requires torch==2.0.1", ""),
        # not here, so there is nothing to differ
        ("apptainer version 1.1.3", ""),
    ],
)
def test_doctor_names_programs_of_a_text_that_are_here_in_another_version(text, others):
    said = other_versions(text, lambda row: HERE.get(row.name, ""))
    assert said.partition(": ")[2].partition(". What")[0] == others
    assert said.startswith("Text of another program's version: ") is bool(others)


def test_doctor_asks_a_program_for_its_version_only_where_the_text_names_it():
    asked = []
    assert other_versions("CUDA out of memory", lambda row: asked.append(row.name) or "1") == ""
    assert asked == []


def test_doctor_explain_says_first_that_a_text_is_of_another_version(capsys, monkeypatch):
    monkeypatch.setattr(program, "version_here", lambda _: lambda row: HERE.get(row.name, ""))
    text = "/usr/lib/python3.8/site-packages/x.py\nCUDA out of memory"
    assert main(["--explain", text]) == 0
    assert capsys.readouterr().out.startswith("Text of another program's version: Python 3.8 (here 3.11). ")
    assert main(["--explain", text, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["versions"].startswith("Text of another program's version: Python 3.8")
