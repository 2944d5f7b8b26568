"""Contents for audits, made of small libraries: what an image, or wheels alone, would have."""

from graphcrate.artifacts.tree.binaries import read_binary
from graphcrate.checks.audit import run as audit
from graphcrate.model.audit import Contents, InstalledDistribution
from tests.unit.elfmaker import make_elf

SITE = "/opt/venv/lib/python3.11/site-packages"
SYSTEM = "/usr/lib/x86_64-linux-gnu"
PYTHON = {
    "/usr/bin/python3.11": {"needed": ("libc.so.6",), "defined": ("PyErr_SetString", "PyLong_FromLong")},
    f"{SYSTEM}/libc.so.6": {
        "defined": ("memcpy@GLIBC_2.14", "printf@GLIBC_2.2.5", "pthread_create@GLIBC_2.34"),
        "versions": ("GLIBC_2.2.5", "GLIBC_2.14", "GLIBC_2.34"),
    },
    f"{SYSTEM}/libstdc++.so.6": {
        "defined": ("_ZSt4endl@GLIBCXX_3.4",),
        "versions": ("GLIBCXX_3.4", "GLIBCXX_3.4.29", "GLIBCXX_3.4.30"),
    },
}
FAIL = "_ZN3c106detail14torchCheckFailEPKcS2_jRKSs"
NEW_FAIL = "_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
TORCH = {
    f"{SITE}/torch/_C.cpython-311-x86_64-linux-gnu.so": {
        "needed": ("libtorch_python.so",),
        "runpath": "$ORIGIN/lib",
        "defined": ("PyInit__C",),
    },
    f"{SITE}/torch/lib/libtorch_python.so": {
        "needed": ("libtorch_cpu.so", "libtorch_cuda.so"),
        "runpath": "$ORIGIN",
        "defined": ("THPVariableClass",),
    },
    f"{SITE}/torch/lib/libtorch_cpu.so": {"needed": ("libc10.so",), "runpath": "$ORIGIN", "defined": ("_ZN2at4onesE",)},
    f"{SITE}/torch/lib/libtorch_cuda.so": {
        "needed": ("libc10.so", "libcudart.so.11.0"),
        "runpath": "$ORIGIN:$ORIGIN/../../nvidia/cuda_runtime/lib",
        "defined": ("_ZN2at4cudaE",),
    },
    f"{SITE}/torch/lib/libc10.so": {"defined": (FAIL, "_ZN3c105ErrorC1ESs")},
    f"{SITE}/torch/lib/libtorch_global_deps.so": {"needed": ("libgomp-a34b3233.so.1",), "runpath": "$ORIGIN"},
    f"{SITE}/torch/lib/libgomp-a34b3233.so.1": {
        "soname": "libgomp.so.1",
        "defined": ("GOMP_parallel@GOMP_4.0",),
        "versions": ("GOMP_4.0",),
    },
    f"{SITE}/nvidia/cuda_runtime/lib/libcudart.so.11.0": {
        "soname": "libcudart.so.11.0",
        "defined": ("cudaLaunchKernel@libcudart.so.11.0",),
        "versions": ("libcudart.so.11.0",),
    },
}
MODULE = f"{SITE}/torch_scatter/_scatter_cuda.so"
GOOD = {
    "needed": ("libc10.so", "libtorch_cpu.so", "libtorch_cuda.so", "libcudart.so.11.0", "libstdc++.so.6", "libc.so.6"),
    "defined": ("PyInit__scatter",),
    "undefined": (
        FAIL,
        "cudaLaunchKernel@libcudart.so.11.0",
        "PyErr_SetString",
        "memcpy@GLIBC_2.14",
        "?__gmon_start__",
    ),
    "needs": {"libc.so.6": ("GLIBC_2.14",), "libcudart.so.11.0": ("libcudart.so.11.0",)},
}


def package(name, version="1.0", files=(), requires=(), **fields):
    """An installed package. `files`: paths of its own."""
    mine = {"files": frozenset(files), "requires": tuple(requires), **fields}
    return InstalledDistribution(name=name, version=version, folder=SITE, **mine)


PACKAGES = (
    package(
        "torch", "2.0.1", files=[path for path in TORCH if "/torch/" in path], requires=["nvidia-cuda-runtime-cu11"]
    ),
    package("nvidia-cuda-runtime-cu11", "11.7.99", [path for path in TORCH if "/nvidia/" in path]),
    package("torch-scatter", "2.1.2", [MODULE], ["torch"]),
)


def contents(files, *packages, base=True, python="3.11", links=None, **fields):
    """`files`: path → fields of `make_elf`, or the bytes of a file."""
    binaries = {}
    for path, what in files.items():
        data = what if isinstance(what, bytes) else make_elf(**what)
        found = read_binary([data], path)
        if found is not None:
            binaries[path] = found
    return Contents(
        name="image",
        form="layout",
        binaries=binaries,
        links=links or {},
        distributions=packages,
        python=python,
        base=base,
        folders=(SYSTEM,),
        **fields,
    )


def stack(module=GOOD, *more, **fields):
    """The usual image with this as torch_scatter's module."""
    extra = fields.pop("files", {})
    files = {**PYTHON, **TORCH, MODULE: module, **extra}
    return contents(files, *(fields.pop("packages", PACKAGES)), *more, **fields)


def found(what, *gpus):
    """(severity, check, package, file, what) of every finding."""
    judged = audit.judge(what, gpus)
    return [(one.severity, one.check, one.package, one.file, one.what) for one in judged.findings]


def check(image, *expected, gpus=()):
    """Assert that these are the findings, in order: each is "severity check | words | more words"."""
    findings = found(image, *gpus)
    assert len(findings) == len(expected), findings
    for one, told in zip(findings, expected, strict=True):
        kind, *words = told.split(" | ")
        assert " ".join(one[:2]) == kind, findings
        assert all(each in f"{one[2]} {one[3]}: {one[4]}" for each in words), findings
