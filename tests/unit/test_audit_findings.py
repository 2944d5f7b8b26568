"""audit: GPU code, wasted bytes, metadata; and what reports say of all of it."""

import msgspec
import pytest

from graphcrate.checks import audit, wording
from graphcrate.checks.audit.code import runs_natively
from graphcrate.compat import packages as package_facts
from graphcrate.model.audit import GpuCode, PackageCode
from tests.unit.audited import GOOD, MODULE, PACKAGES, PYTHON, SITE, TORCH, contents, found, package, stack
from tests.unit.elfmaker import PTX, SASS, entry, fat_binary

CODE = fat_binary(entry(SASS, 70), entry(SASS, 80), entry(PTX, 80))


def with_code(data):
    return {**GOOD, "fatbin": data}


FEW = CODE * 3 + fat_binary(entry(SASS, 90, flags=0x100011))
OF_ONE = fat_binary(entry(SASS, 90, flags=0x100011), entry(PTX, 90, flags=0x100011))
OF_FAMILY = fat_binary(entry(PTX, 100, flags=0x200011))


@pytest.mark.parametrize(
    ("code", "gpus", "told"),
    [
        (CODE, ["V100", "A100"], None),
        (CODE, ["H100"], ("warn", "PTX alone for H100 (sm_90): it has 7.0, 8.0")),
        (CODE, ["sm_90"], ("warn", "PTX alone for sm_90: it has 7.0, 8.0")),
        (CODE, ["sm_90", "H100", "H200"], ("warn", "PTX alone for H100, H200 (sm_90): it has 7.0, 8.0")),
        (CODE, ["P100"], ("fail", "has no code for P100 (sm_60): it has 7.0, 8.0")),
        (FEW, ["H100"], ("note", "in few of its parts")),
        (OF_ONE, ["H100"], None),
        *[(OF_ONE, [model], ("fail", "has no code for")) for model in ("B200", "RTX5090")],
        *[(OF_FAMILY, [model], ("warn", "PTX alone")) for model in ("B200", "B300")],
        (OF_FAMILY, ["RTX5090"], ("fail", "has no code for")),
    ],
)
def test_code_for_each_gpu(code, gpus, told):
    findings = found(stack(with_code(code)), *gpus)
    assert len(findings) == bool(told)
    for severity, check, owner, path, what in findings:
        assert (severity, check, owner) == (told[0], "architectures", "torch-scatter")
        assert MODULE.endswith(path)
        assert told[1] in what


def test_code_is_told_by_package_and_what_is_missing_with_its_fix():
    judged = audit.judge(stack(with_code(CODE)), ["P100"])
    assert judged.findings[0].fix == "recompile torch-scatter with TORCH_CUDA_ARCH_LIST=6.0: make image GPU=p100"
    code = GpuCode(sass=("7.0", "8.0"), ptx=("8.0",))
    assert judged.code == (PackageCode(package="torch-scatter", version="2.1.2", code=code),)


def test_what_nvidias_libraries_lack_is_no_failure():
    library = f"{SITE}/nvidia/cusparselt/lib/libcusparseLt.so.0"
    files = {
        library: {"fatbin": fat_binary(entry(SASS, 80))},
        f"{SITE}/torch/lib/libuser.so": {
            "needed": ("libcusparseLt.so.0",),
            "runpath": "$ORIGIN/../../nvidia/cusparselt/lib",
        },
    }
    packages = (*PACKAGES, package("nvidia-cusparselt-cu12", files=[library]))
    told = found(stack(files=files, packages=packages), "V100")
    assert [each[:3] for each in told] == [("warn", "architectures", "nvidia-cusparselt-cu12")]


@pytest.mark.parametrize(
    ("sass", "capability", "runs"),
    [
        (["8.0"], "8.6", True),
        (["8.6"], "8.0", False),
        (["9.0a"], "9.0", True),
        (["9.0a"], "9.1", False),
        (["10.0f"], "10.3", True),
        (["10.0a"], "10.3", False),
        ([], "7.0", False),
    ],
)
def test_which_machine_code_runs_where(sass, capability, runs):
    assert runs_natively(sass, capability) is runs


def test_two_copies_of_one_library_of_cuda():
    copy = f"{SITE}/torch/lib/libcudart-d0da41ae.so.11.0"
    files = {copy: {"soname": "libcudart-d0da41ae.so.11.0"}}
    (told,) = found(stack(files=files))
    assert told[:3] == ("note", "copies", "torch")  # its own wheel both has it and requires it
    packages = (package("torch", "2.0.1", PACKAGES[0].files), *PACKAGES[1:])
    (told,) = found(stack(files=files, packages=packages))
    assert told[:3] == ("warn", "copies", "torch")
    assert told[4].startswith(
        "is a second copy of nvidia/cuda_runtime/lib/libcudart.so.11.0 (nvidia-cuda-runtime-cu11)"
    )


def test_libraries_that_nobody_links_or_names():
    lonely, named = (f"{SITE}/nvidia/npp/lib/lib{name}.so.11" for name in ("nppif", "nppig"))
    files = {lonely: {"soname": "libnppif.so.11"}, named: {"soname": "libnppig.so.11"}}
    files[f"{SITE}/other/libplug.so"] = {"relocatable": b"\0libnppig.so.11\0"}
    image = stack(files=files)
    for path in (lonely, named):
        image.binaries[path] = msgspec.structs.replace(image.binaries[path], size=5_000_000)
    (note,) = audit.judge(image).findings
    assert (note.severity, note.check, note.file) == ("note", "unused", "nvidia/npp/lib/libnppif.so.11")
    assert note.bytes == 5_000_000


def test_a_toolkit_beside_the_wheels():
    toolkit = {"/usr/local/cuda-11.8": 4_000_000_000}
    (told,) = found(stack(toolkit=toolkit))
    assert told[:4] == ("warn", "toolkit", "base", "/usr/local/cuda-11.8")
    assert "4.00 GB" in told[4]
    assert found(stack(toolkit=toolkit, meant=True)) == []


def told_of(*packages):
    told = found(stack(packages=(*PACKAGES, *packages)))
    return [(each[0], each[2], each[4]) for each in told if each[1] == "metadata"]


def needing(*requires, name="a", version="1.0", **fields):
    return package(name, version, requires=requires, **fields)


CUBLAS = package("nvidia-cublas-cu12", "12.4")


@pytest.mark.parametrize(
    ("packages", "told"),
    [
        ([needing("torch>=2.0,<2.1", "numpy; python_version < '3.9'", "extra; extra == 'x'", "?broken")], []),
        ([needing("torch==2.0.0")], [("warn", "a", "requires torch==2.0.0; 2.0.1 is installed")]),
        ([needing("gone>=1")], [("warn", "a", "requires gone>=1, which is not installed")]),
        ([needing(python=">=3.7,<3.10")], [("warn", "a", "needs Python >=3.7,<3.10; the image has 3.11")]),
        ([needing(python="soon")], []),
        ([package("torch", "2.0.0")], [("warn", "torch", "is installed twice: 2.0.1 and 2.0.0")]),
        *[  # markers that nobody can evaluate
            ([needing(f"torch>=2; {marker}", "gone")], [("warn", "a", "requires gone, which is not installed")])
            for marker in ("os_name ~= 'x y'", 'platform_release >= "4.0"', 'python_version >= "3.x"')
        ],
        # within a major version NVIDIA's libraries keep their ABI
        *[
            (
                [needing(f"nvidia-cublas-cu12{pin}"), CUBLAS],
                [(severity, "a", f"requires nvidia-cublas-cu12{said}; 12.4 is installed")],
            )
            for pin, said, severity in (
                ("==12.1,!=12.1.3", "!=12.1.3,==12.1", "note"),
                ("==12.5", "==12.5", "warn"),
                ("==11.*", "==11.*", "warn"),
                ("===12", "===12", "warn"),
            )
        ],
        ([needing("nvidia-cublas-cu12==12.*"), CUBLAS], []),
        # what packages need and do not say
        ([needing("torch", name="torchrl", version="0.6.0"), package("setuptools", "70")], []),
        ([needing("torch", name="torchrl", version="0.9.0")], []),
    ],
)
def test_requirements(packages, told):
    assert told_of(*packages) == told


def test_what_others_need_and_do_not_say():
    assert told_of(needing("torch", name="torchrl", version="0.6.0"))[0][0] == "fail"
    told = told_of(package("graphlearn-torch", "0.2.2"))
    assert ("fail", "graphlearn-torch") in {each[:2] for each in told}
    assert any("torch_sparse" in each[2] for each in told)


@pytest.mark.parametrize(
    ("requires", "severities"),
    [
        (["torch==2.0.1"], []),
        (["torch==2.0.0"], ["warn"]),
        (["torch==2.1.0"], ["fail"]),
        (["torch==1.13.1"], ["fail"]),
        (["torch!=2.3.0,==2.3.*"], ["fail"]),
        ([], ["note"]),  # in silence
    ],
)
def test_who_links_torch_is_built_for_one_minor_release_of_it(requires, severities):
    packages = (*PACKAGES[:2], package("torch-scatter", "2.1.2", [MODULE], requires))
    told = found(stack(packages=packages))
    assert [each[:3] for each in told] == [(severity, "metadata", "torch-scatter") for severity in severities]


def test_a_build_for_another_cuda_is_the_version_that_was_asked_for():
    local = (package("torch", "2.0.1+cu118", PACKAGES[0].files), *PACKAGES[1:], needing("torch==2.0.1"))
    assert found(stack(packages=local)) == []


def test_gpu_code_of_a_format_that_is_yet_to_come_leaves_the_library_there():
    newer = fat_binary(entry(SASS, 70))[:4] + b"\x02" + fat_binary(entry(SASS, 70))[5:]
    library = f"{SITE}/torch/lib/libc10.so"
    image = stack(files={library: {**TORCH[library], "fatbin": newer}})
    (told,) = found(image)
    assert told[:4] == ("warn", "architectures", "torch", "torch/lib/libc10.so")
    assert "a fat binary of version 2" in told[4]
    assert audit.judge(image).broken == ()


def test_pytorch_for_the_cpu_leaves_a_gpu_idle():
    for_cpu = {path: fields for path, fields in TORCH.items() if "cuda" not in path}
    image = contents({**PYTHON, **for_cpu})
    (told,) = [one for one in audit.judge(image, ["V100"]).findings if one.check == "architectures"]
    assert (told.severity, told.package) == ("fail", "torch")
    assert "PyTorch for the CPU" in told.what
    assert [one for one in audit.judge(image).findings if one.check == "architectures"] == []


def test_lines_and_summary():
    judged = audit.judge(stack(with_code(CODE)), ["P100"])
    lines = [line for line, _ in wording.audit(judged).lines()]
    assert lines[0].startswith("fail  torch-scatter torch_scatter/_scatter_cuda.so: ")
    assert next(line for line in lines if line.startswith("torch-scatter ")).endswith("7.0, 8.0; PTX 8.0")
    assert lines[-1].endswith("1 fail; its packages need glibc 2.14")
    assert "GPU code" not in [line for line, _ in wording.audit(judged, everything=False).lines()]


def test_optional_libraries_are_named_by_package_and_file():
    assert package_facts.reason("torchaudio", "torio/lib/libtorio_ffmpeg6.so")
    assert package_facts.reason("torchaudio", "torchaudio/_torchaudio_ffmpeg.so")  # of 0.13 and 2.0
    assert package_facts.reason("torchaudio", "torchaudio/lib/libtorchaudio.so") is None
    addon = "torch_c_dlpack_ext/libtorch_c_dlpack_addon_torch{}-cuda.so"
    assert package_facts.reason("torch-c-dlpack-ext", addon.format("24"), "2.9.1")
    assert package_facts.reason("torch-c-dlpack-ext", addon.format("29"), "2.9.1+cu128") is None
    assert package_facts.reason("torch-c-dlpack-ext", addon.format("210"), "2.10.0") is None
