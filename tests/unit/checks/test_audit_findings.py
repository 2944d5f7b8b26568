"""audit: GPU code, wasted bytes, metadata; and what reports say of all of it."""

import msgspec
import pytest

from graphcrate.checks import wording
from graphcrate.checks.audit import run as audit
from graphcrate.compat.facts import gpu_table
from graphcrate.compat.facts import packages as package_facts
from graphcrate.model.audit import PackageCode
from tests.unit.audited import GOOD, MODULE, PACKAGES, PYTHON, SITE, TORCH, check, contents, package, stack
from tests.unit.elfmaker import PTX, SASS, entry, fat_binary
from treeaudit.values import GpuCode

CODE = fat_binary(entry(SASS, 70), entry(SASS, 80), entry(PTX, 80))


FEW = fat_binary(entry(SASS, 70), entry(SASS, 80)) * 3 + fat_binary(entry(SASS, 90, flags=0x100011))
OF_ONE = fat_binary(entry(SASS, 90, flags=0x100011), entry(PTX, 90, flags=0x100011))
OF_FAMILY = fat_binary(entry(PTX, 100, flags=0x200011))
HAS = "it has 7.0, 8.0"


@pytest.mark.parametrize(
    ("code", "gpus", "told"),
    [
        (CODE, "V100 A100", None),
        (CODE, "H100", f"warn architectures | PTX alone for H100 (sm_90): {HAS}"),
        (CODE, "sm_90", f"warn architectures | PTX alone for sm_90: {HAS}"),
        (CODE, "sm_90 H100 H200", f"warn architectures | PTX alone for H100, H200 (sm_90): {HAS}"),
        (CODE, "P100", f"fail architectures | has no code for P100 (sm_60): {HAS}"),
        (FEW, "H100", "note architectures | in few of its parts"),
        (FEW + CODE * 4, "H100", "warn architectures | PTX alone for H100"),
        (OF_ONE, "H100", None),
        *[(OF_ONE, model, "fail architectures | has no code for") for model in ("B200", "RTX5090")],
        *[(OF_FAMILY, model, "warn architectures | PTX alone") for model in ("B200", "B300")],
        (OF_FAMILY, "RTX5090", "fail architectures | has no code for"),
    ],
)
def test_gpu_without_code_in_an_extension_is_a_finding(code, gpus, told):
    words = [f"{told} | torch-scatter torch_scatter/_scatter_cuda.so"] if told else []
    check(stack({**GOOD, "fatbin": code}), *words, gpus=gpus.split())


def test_missing_gpu_code_names_package_and_make_image_gpu():
    judged = audit.judge(stack({**GOOD, "fatbin": CODE}), ["P100"])
    fix = "recompile torch-scatter with TORCH_CUDA_ARCH_LIST=6.0: make image … GPU=p100; as it is it runs on A100: "
    assert judged.findings[0].fix == f"{fix}make image … GPU=a100"
    code = GpuCode(sass=("7.0", "8.0"), ptx=("8.0",))
    assert judged.code == (PackageCode(package="torch-scatter", version="2.1.2", code=code),)
    lines = [line for line, _ in wording.audit(judged).lines()]
    assert lines[0].startswith("fail  torch-scatter torch_scatter/_scatter_cuda.so: ")
    assert next(line for line in lines if line.startswith("torch-scatter ")).endswith("7.0, 8.0; PTX 8.0")
    assert lines[-1].endswith("1 fail; its packages need glibc 2.14")
    assert "GPU code" not in [line for line, _ in wording.audit(judged, everything=False).lines()]


def opened(folder, library, codes, owner):
    """An image in which torch opens this library, of that package."""
    path = f"{SITE}/{folder}/{library}"
    user = {"needed": (library,), "runpath": f"$ORIGIN/../../{folder}"}
    files = {path: {"fatbin": fat_binary(*(entry(SASS, code) for code in codes))}, f"{SITE}/torch/lib/libuser.so": user}
    if owner != "torch":
        return stack(GOOD, package(owner, files=[path]), files=files)
    torch = msgspec.structs.replace(PACKAGES[0], files=PACKAGES[0].files | {path})
    return stack(GOOD, files=files, packages=(torch, *PACKAGES[1:]))


def test_missing_gpu_code_in_nvidias_libraries_is_a_warning():
    image = opened("nvidia/cublas/lib", "libcublas.so.12", (80,), "nvidia-cublas-cu12")
    check(image, "warn architectures | nvidia-cublas-cu12", gpus=["V100"])


@pytest.mark.parametrize(
    ("folder", "library", "owner"),
    [
        ("torch/lib", "libcusparseLt-f80c68d1.so.0", "torch"),  # torch 2.3.1's own
        ("nvidia/cusparselt/lib", "libcusparseLt.so.0", "nvidia-cusparselt-cu12"),
    ],
)
def test_missing_gpu_code_in_a_feature_library_is_a_note(folder, library, owner):
    image = opened(folder, library, (80, 86, 89), owner)
    for gpu in ("V100", "H100"):
        check(image, f"note architectures | {owner} | has no code for {gpu}", gpus=[gpu])
        assert "sparsity" in audit.judge(image, [gpu]).findings[0].breaks
    check(image, gpus=["A100"])
    fixes = [audit.judge(image, [gpu]).findings[0].fix for gpu in ("V100", "H100")]
    assert fixes == ["", "another torch: ./build.py explain --gpu h100"]  # there is none for V100


def test_missing_gpu_code_in_magma_is_a_note_on_linear_algebra():
    image = opened("torch/lib", "libtorch_cuda_linalg.so", (80, 86, 90), "torch")  # of torch 2.12.1 for CUDA 13.0
    check(image, "note architectures | torch | has no code for T4 (sm_75)", gpus=["T4"])
    (note,) = audit.judge(image, ["T4"]).findings
    assert ("MAGMA" in note.breaks, "TORCH_LINALG_PREFER_CUSOLVER=1" in note.fix) == (True, True)
    verdict = audit.by_capability(image)["7.5"]
    assert (verdict.status, [one for one in verdict.lost if "MAGMA" in one] != []) == ("native", True)


def test_missing_gpu_code_in_cublas_of_torchs_wheel_is_a_warning():
    image = opened("torch/lib", "libcublas-f6c022dc.so.11", (80,), "torch")
    check(image, "warn architectures | torch | libcublas", gpus=["V100"])
    assert audit.by_capability(image)["7.0"].status == "native"


def test_fat_binary_with_nvccs_default_only_has_no_finding():
    for architecture in (52, 75):
        check(opened("nvidia/cufft/lib", "libcufft.so.11", (architecture,), "nvidia-cufft-cu12"), gpus=["A100"])
    old = opened("nvidia/cufft/lib", "libcufft.so.10", (52, 70, 80), "nvidia-cufft-cu11")
    check(old, "warn architectures | nvidia-cufft-cu11", gpus=["H100"])


def test_torch_with_gpu_code_in_few_parts_fails():
    library = f"{SITE}/torch/lib/libtorch_cuda.so"
    image = stack(files={library: {**TORCH[library], "fatbin": FEW}})
    check(image, "fail architectures | torch | in few of its parts", gpus=["H100"])


def test_by_capability_has_a_verdict_for_each_listed_gpu():
    verdicts = audit.by_capability(stack({**GOOD, "fatbin": CODE}))
    assert set(verdicts) == set(gpu_table.gpus().values())
    told = {"6.0": "fails", "7.0": "native", "7.5": "native", "8.6": "native", "9.0": "jit", "12.0": "jit"}
    assert {capability: verdicts[capability].status for capability in told} == told
    assert verdicts["6.0"].why.startswith("torch-scatter torch_scatter/_scatter_cuda.so: has no code for P100")
    assert {one.status for one in audit.by_capability(contents({**PYTHON, **TORCH})).values()} == {"native"}
    of_cpu = {path: fields for path, fields in TORCH.items() if "cuda" not in path}
    assert {one.status for one in audit.by_capability(contents({**PYTHON, **of_cpu})).values()} == {"fails"}
    damaged = {**GOOD, "fatbin": CODE[:4] + b"\x02" + CODE[5:]}
    assert {one.status for one in audit.by_capability(stack(damaged)).values()} == {"unknown"}


def test_second_copy_of_libcudart_is_a_note_or_a_warning():
    copy = f"{SITE}/torch/lib/libcudart-d0da41ae.so.11.0"
    files = {copy: {"soname": "libcudart-d0da41ae.so.11.0"}}
    what = "is a second copy of nvidia/cuda_runtime/lib/libcudart.so.11.0 (nvidia-cuda-runtime-cu11)"
    check(stack(files=files), f"note copies | torch | {what}")  # its own wheel both has it and requires it
    packages = (package("torch", "2.0.1", PACKAGES[0].files), *PACKAGES[1:])
    check(stack(files=files, packages=packages), f"warn copies | torch | {what}")


def test_unused_library_is_a_note():
    files = {f"{SITE}/nvidia/npp/lib/{name}": {"soname": name} for name in ("libnppif.so.11", "libnppig.so.11")}
    image = stack(files={**files, f"{SITE}/other/libplug.so": {"relocatable": b"\0libnppig.so.11\0"}})
    image.binaries.update({path: msgspec.structs.replace(image.binaries[path], size=5_000_000) for path in files})
    check(image, "note unused | nvidia/npp/lib/libnppif.so.11 | 5.0 MB")


def test_toolkit_beside_cuda_wheels_is_a_warning():
    toolkit = {"/usr/local/cuda-11.8": 4_000_000_000}
    check(stack(toolkit=toolkit), "warn toolkit | base /usr/local/cuda-11.8 | 4.00 GB")
    check(stack(toolkit=toolkit, meant=True))


def needing(*requires, name="a", version="1.0", **fields):
    return package(name, version, requires=requires, **fields)


CUBLAS = package("nvidia-cublas-cu12", "12.4")
GONE = "warn metadata | a : requires gone, which is not installed"


@pytest.mark.parametrize(
    ("packages", "told"),
    [
        ([needing("torch>=2.0,<2.1", "numpy; python_version < '3.9'", "extra; extra == 'x'", "?broken")], None),
        ([needing("torch==2.0.0")], "warn metadata | a : requires torch==2.0.0; 2.0.1 is installed"),
        ([needing("gone>=1")], "warn metadata | a : requires gone>=1, which is not installed"),
        ([needing(python=">=3.7,<3.10")], "warn metadata | a : needs Python >=3.7,<3.10; the image has 3.11"),
        ([needing(python="soon")], None),
        ([package("torch", "2.0.0")], "warn metadata | torch : is installed twice: 2.0.1 and 2.0.0"),
        # markers that nobody can evaluate
        ([needing("torch>=2; os_name ~= 'x y'", "gone")], GONE),
        ([needing('torch>=2; platform_release >= "4.0"', "gone")], GONE),
        ([needing('torch>=2; python_version >= "3.x"', "gone")], GONE),
        # within a major version NVIDIA's libraries keep their ABI
        ([needing(f"{CUBLAS.name}==12.1,!=12.1.3"), CUBLAS], "note metadata | !=12.1.3,==12.1; 12.4 is installed"),
        ([needing(f"{CUBLAS.name}==12.5"), CUBLAS], "warn metadata | ==12.5; 12.4 is installed"),
        ([needing(f"{CUBLAS.name}==11.*"), CUBLAS], "warn metadata | ==11.*; 12.4 is installed"),
        ([needing(f"{CUBLAS.name}===12"), CUBLAS], "warn metadata | ===12; 12.4 is installed"),
        ([needing(f"{CUBLAS.name}==12.*"), CUBLAS], None),
        # what packages need and do not say
        ([needing("torch", name="torchrl", version="0.6.0"), package("setuptools", "70")], None),
        ([needing("torch", name="torchrl", version="0.9.0")], None),
        ([needing("torch", name="torchrl", version="0.6.0")], "fail metadata | torchrl : | distutils"),
        ([package("graphlearn-torch", "0.2.2")], "fail metadata | graphlearn-torch : | torch_sparse"),
    ],
)
def test_unmet_requirement_of_a_package_is_a_finding(packages, told):
    check(stack(GOOD, *packages), *[told] * bool(told))


def _on_debian(*debians, python="3.9", others=()):
    """An image with pip in a virtual environment of Debian's Python, and these packages of Debian's besides."""
    paths = (f"/usr/bin/python{python}", *others)
    site = f"/opt/venv/lib/python{python}/site-packages"
    pip = msgspec.structs.replace(package("pip", "26.0.1"), folder=site)
    status = "\n\n".join(
        f"Package: {name}\nVersion: 1\nStatus: install ok installed" for name in ("python3-minimal", *debians)
    )
    files = dict.fromkeys(paths, PYTHON["/usr/bin/python3.11"])
    texts = {"/var/lib/dpkg/status": status.encode()}
    return contents(files, pip, python=python, texts=texts)


def _of_pip(image):
    return [one for one in audit.judge(image).findings if one.package == "pip"]


def test_pip_without_debians_distutils_fails():
    """It did not start in glt for CUDA 11.6 and 11.7: No module named 'distutils.cmd'."""
    (finding,) = _of_pip(_on_debian())
    assert (finding.severity, finding.check, finding.packages) == ("fail", "metadata", ("python3-distutils",))
    assert "Debian has in python3-distutils" in finding.what
    assert "pip does not start" in finding.breaks


def test_pip_fails_nowhere_that_distutils_is_there_or_not_needed():
    assert not _of_pip(_on_debian("python3-distutils"))
    assert not _of_pip(_on_debian(python="3.11"))
    assert not _of_pip(_on_debian(others=("/usr/local/bin/python3.9",)))  # whose Python it is, nothing says
    assert not _of_pip(msgspec.structs.replace(_on_debian(), texts={}))


def test_local_version_of_torch_meets_its_public_pin():
    torch = msgspec.structs.replace(PACKAGES[0], version="2.0.1+cu118")
    check(stack(packages=(torch, *PACKAGES[1:], needing("torch==2.0.1"))))


def test_extension_that_requires_another_torch_minor_fails():
    for severity, wants in {"warn": ("==2.0.0",), "fail": ("==2.1.0", "==1.13.1", "!=2.3.0,==2.3.*")}.items():
        for versions in wants:
            packages = (*PACKAGES[:2], package("torch-scatter", "2.1.2", [MODULE], [f"torch{versions}"]))
            check(stack(packages=packages), f"{severity} metadata | torch-scatter")
    check(stack(packages=(*PACKAGES[:2], package("torch-scatter", "2.1.2", [MODULE], ["torch==2.0.1"]))))
    in_silence = stack(packages=(*PACKAGES[:2], package("torch-scatter", "2.1.2", [MODULE])))
    check(in_silence, "note metadata | torch-scatter")


def test_unknown_fat_binary_version_is_a_warning():
    code, library = fat_binary(entry(SASS, 70)), f"{SITE}/torch/lib/libc10.so"
    image = stack(files={library: {**TORCH[library], "fatbin": code[:4] + b"\x02" + code[5:]}})
    check(image, "warn architectures | torch torch/lib/libc10.so | a fat binary of version 2")
    assert audit.judge(image).broken == ()


def test_cpu_torch_for_a_gpu_fails():
    image = contents({**PYTHON, **{path: fields for path, fields in TORCH.items() if "cuda" not in path}})
    for gpus, told in (["V100"], [("fail", "torch")]), ([], []):
        judged = [one for one in audit.judge(image, gpus).findings if one.check == "architectures"]
        assert [(one.severity, one.package) for one in judged if "PyTorch for the CPU" in one.what] == told
        assert len(judged) == len(told)


def test_optional_library_has_a_reason_by_package_and_file():
    assert package_facts.reason("torchaudio", "torio/lib/libtorio_ffmpeg6.so")
    assert package_facts.reason("torchaudio", "torchaudio/_torchaudio_ffmpeg.so")  # of 0.13 and 2.0
    assert package_facts.reason("torchaudio", "torchaudio/lib/libtorchaudio.so") is None
    addon = "torch_c_dlpack_ext/libtorch_c_dlpack_addon_torch{}-cuda.so"
    assert package_facts.reason("torch-c-dlpack-ext", addon.format("24"), "2.9.1")
    for torch, built_for in (("2.9.1+cu128", "29"), ("2.10.0", "210")):
        assert package_facts.reason("torch-c-dlpack-ext", addon.format(built_for), torch) is None
