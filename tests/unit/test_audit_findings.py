"""audit: GPU code, wasted bytes, metadata; and what reports say of all of it."""

import msgspec
import pytest

from graphcrate.checks import audit, wording
from graphcrate.checks.audit.code import runs_natively
from graphcrate.compat import packages as package_facts
from graphcrate.model.audit import GpuCode, PackageCode
from tests.unit.audited import GOOD, MODULE, PACKAGES, SITE, TORCH, found, package, stack
from tests.unit.elfmaker import PTX, SASS, entry, fat_binary

CODE = fat_binary(entry(SASS, 70), entry(SASS, 80), entry(PTX, 80))
BIG = bytes(2_000_000)


def with_code(data):
    return {**GOOD, "fatbin": data}


def test_code_for_each_gpu():
    image = stack(with_code(CODE))
    assert found(image, "V100", "A100") == []
    (told,) = found(image, "H100")
    assert told[:4] == ("warn", "architectures", "torch-scatter", "torch_scatter/_scatter_cuda.so")
    assert "PTX alone for H100 (sm_90): it has 7.0, 8.0" in told[4]
    ((*_, what),) = found(image, "sm_90")
    assert "PTX alone for sm_90: it has 7.0, 8.0" in what
    ((*_, what),) = found(image, "sm_90", "H100", "H200")
    assert "PTX alone for H100, H200 (sm_90): it has 7.0, 8.0" in what
    (told,) = found(image, "P100")
    assert told[:2] == ("fail", "architectures")
    judged = audit.judge(image, ["P100"])
    assert judged.findings[0].fix == "recompile torch-scatter with TORCH_CUDA_ARCH_LIST=6.0: make image GPU=p100"
    assert judged.code == (
        PackageCode(package="torch-scatter", version="2.1.2", code=GpuCode(sass=("7.0", "8.0"), ptx=("8.0",))),
    )


def test_code_in_few_parts_is_told():
    three = CODE * 3 + fat_binary(entry(SASS, 90, flags=0x100011))
    (told,) = found(stack(with_code(three)), "H100")
    assert told[:2] == ("note", "architectures")


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
    files = {lonely: {"soname": "libnppif.so.11", "fatbin": BIG[:0]}, named: {"soname": "libnppig.so.11"}}
    files[f"{SITE}/other/libplug.so"] = {"relocatable": b"\0libnppig.so.11\0"}
    image = stack(files=files)
    for path in (lonely, named):
        image.binaries[path] = replaced(image.binaries[path])
    assert [(each[0], each[1], each[3]) for each in found(image)] == [
        ("note", "unused", "nvidia/npp/lib/libnppif.so.11")
    ]
    (note,) = audit.judge(image).findings
    assert note.bytes == 5_000_000


def replaced(binary):
    return msgspec.structs.replace(binary, size=5_000_000)


def test_a_toolkit_beside_the_wheels():
    toolkit = {"/usr/local/cuda-11.8": 4_000_000_000}
    (told,) = found(stack(toolkit=toolkit))
    assert told[:4] == ("warn", "toolkit", "base", "/usr/local/cuda-11.8")
    assert "4.0 GB" in told[4]
    assert found(stack(toolkit=toolkit, meant=True)) == []


def told_of(*packages):
    return [
        (each[0], each[2], each[4]) for each in found(stack(packages=(*PACKAGES, *packages))) if each[1] == "metadata"
    ]


def test_requirements():
    fine = package(
        "fine", requires=["torch>=2.0,<2.1", "numpy; python_version < '3.9'", "extra; extra == 'x'", "?broken"]
    )
    assert told_of(fine) == []
    assert told_of(package("vision", "0.15.1", requires=["torch==2.0.0"])) == [
        ("warn", "vision", "requires torch==2.0.0; 2.0.1 is installed")
    ]
    assert told_of(package("lonely", requires=["gone>=1"])) == [
        ("warn", "lonely", "requires gone>=1, which is not installed")
    ]
    assert told_of(package("old", python=">=3.7,<3.10")) == [
        ("warn", "old", "wants Python >=3.7,<3.10; the image has 3.11")
    ]
    assert told_of(package("torch", "2.0.0")) == [("warn", "torch", "is installed twice: 2.0.1 and 2.0.0")]


def test_who_links_torch_is_built_for_one_minor_release_of_it():
    def one(version):
        packages = (*PACKAGES[:2], package("torch-scatter", "2.1.2", [MODULE], [f"torch=={version}"]))
        return [each[0] for each in found(stack(packages=packages)) if each[1] == "metadata"]

    assert [one(version) for version in ("2.0.1", "2.0.0", "2.1.0", "1.13.1")] == [[], ["warn"], ["fail"], ["fail"]]


def test_a_build_for_another_cuda_is_the_version_that_was_asked_for():
    local = (package("torch", "2.0.1+cu118", PACKAGES[0].files), *PACKAGES[1:], package("v", requires=["torch==2.0.1"]))
    assert found(stack(packages=local)) == []


def test_newer_cuda_libraries_of_one_major_version_are_a_note():
    def one(installed):
        packages = (package("torch", "2.0.1", PACKAGES[0].files, ["nvidia-cublas-cu11==11.10.3.66"]), *PACKAGES[1:])
        image = stack(packages=(*packages, package("nvidia-cublas-cu11", installed)))
        return [each[0] for each in found(image) if "nvidia-cublas" in each[4]]

    assert [one(version) for version in ("11.10.3.66", "11.11.3.6", "11.9.1", "12.0.1")] == [
        [],
        ["note"],
        ["warn"],
        ["warn"],
    ]


@pytest.mark.parametrize("pin", ["==12.*", "==12.1,!=12.1.3", "!=12.1.3,==12.1", "===12"])
def test_pins_in_any_form(pin):
    cublas = package("nvidia-cublas-cu12", "13.0")
    ((severity, name, _),) = told_of(package("a", requires=[f"nvidia-cublas-cu12{pin}"]), cublas)
    assert (severity, name) == ("warn", "a")
    newer = package("nvidia-cublas-cu12", "12.4")
    fits = [] if pin == "==12.*" else ["note"] if pin != "===12" else ["warn"]
    assert [each[0] for each in told_of(package("a", requires=[f"nvidia-cublas-cu12{pin}"]), newer)] == fits


def test_another_minor_release_of_torch_behind_another_clause():
    packages = (*PACKAGES[:2], package("torch-scatter", "2.1.2", [MODULE], ["torch!=2.3.0,==2.3.*"]))
    assert [each[0] for each in found(stack(packages=packages))] == ["fail"]


@pytest.mark.parametrize("marker", ["os_name ~= 'x y'", 'platform_release >= "4.0"', 'python_version >= "3.x"'])
def test_markers_that_nobody_can_evaluate_break_nothing(marker):
    assert told_of(package("a", requires=[f"torch>=2; {marker}", "gone"])) == [
        ("warn", "a", "requires gone, which is not installed")
    ]


def test_ptx_for_one_gpu_alone_serves_no_other():
    code = fat_binary(entry(SASS, 90, flags=0x100011), entry(PTX, 90, flags=0x100011))
    assert found(stack(with_code(code)), "H100") == []
    for model in ("B200", "RTX5090"):
        (told,) = found(stack(with_code(code)), model)
        assert told[:2] == ("fail", "architectures")
    family = fat_binary(entry(PTX, 100, flags=0x200011))
    assert [found(stack(with_code(family)), model)[0][0] for model in ("B200", "B300", "RTX5090")] == [
        "warn",
        "warn",
        "fail",
    ]


def test_gpu_code_of_a_format_that_is_yet_to_come_leaves_the_library_there():
    newer = fat_binary(entry(SASS, 70))[:4] + b"\x02" + fat_binary(entry(SASS, 70))[5:]
    library = f"{SITE}/torch/lib/libc10.so"
    image = stack(files={library: {**TORCH[library], "fatbin": newer}})
    (told,) = found(image)
    assert told[:4] == ("warn", "architectures", "torch", "torch/lib/libc10.so")
    assert "a fat binary of version 2" in told[4]
    assert audit.judge(image).broken == ()


def test_what_graphlearn_torch_needs_and_does_not_say():
    told = told_of(package("graphlearn-torch", "0.2.2"))
    assert ("fail", "graphlearn-torch") in {each[:2] for each in told}
    assert any("torch_sparse" in each[2] for each in told)


def test_what_others_need_and_do_not_say():
    assert told_of(package("torchrl", "0.6.0", requires=["torch"]))[0][0] == "fail"
    assert told_of(package("torchrl", "0.6.0", requires=["torch"]), package("setuptools", "70")) == []
    assert told_of(package("torchrl", "0.9.0", requires=["torch"])) == []


def test_who_links_torch_in_silence():
    silent = (*PACKAGES[:2], package("torch-scatter", "2.1.2", [MODULE]))
    (told,) = found(stack(packages=silent))
    assert told[:3] == ("note", "metadata", "torch-scatter")


def test_lines_and_summary():
    judged = audit.judge(stack(with_code(CODE)), ["P100"])
    *findings, code, done = wording.audit(judged).lines()
    assert len(findings) == 1
    assert findings[0].split("\t")[:4] == ["fail", "architectures", "torch-scatter", "torch_scatter/_scatter_cuda.so"]
    assert code.split("\t")[-1] == "7.0, 8.0; PTX 8.0"
    assert done.endswith("1 fail; its packages want glibc 2.14")
    assert next(iter(wording.audit_after_build(judged, "pyg:1"))) == "audit: 1 fail    (./build.py audit pyg:1)"
    good = audit.judge(stack(with_code(CODE)), ["V100"])
    assert list(wording.audit_after_build(good, "pyg:1")) == [
        f"audit: {good.binaries} programs and libraries, nothing that cannot be loaded or run"
    ]


def test_optional_libraries_are_named_by_package_and_file():
    assert package_facts.reason("torchaudio", "torio/lib/libtorio_ffmpeg6.so")
    assert package_facts.reason("torchaudio", "torchaudio/_torchaudio_ffmpeg.so")  # of 0.13 and 2.0
    assert package_facts.reason("torchaudio", "torchaudio/lib/libtorchaudio.so") is None
    addon = "torch_c_dlpack_ext/libtorch_c_dlpack_addon_torch{}-cuda.so"
    assert package_facts.reason("torch-c-dlpack-ext", addon.format("24"), "2.9.1")
    assert package_facts.reason("torch-c-dlpack-ext", addon.format("29"), "2.9.1+cu128") is None
    assert package_facts.reason("torch-c-dlpack-ext", addon.format("210"), "2.10.0") is None
