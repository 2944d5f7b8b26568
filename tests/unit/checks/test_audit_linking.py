"""audit: what the loader would refuse is found and said, and nothing else."""

import struct
import time

import pytest

from graphcrate.checks.audit import run as audit
from graphcrate.checks.audit.linking import demangled
from tests.unit.audited import (
    FAIL,
    GOOD,
    MODULE,
    NEW_FAIL,
    PACKAGES,
    PYTHON,
    SITE,
    SYSTEM,
    TORCH,
    check,
    contents,
    found,
    package,
    stack,
)
from tests.unit.elfmaker import make_elf

FILE = "torch_scatter/_scatter_cuda.so"


def changed(**fields):
    return {**GOOD, "needs": {}, **fields}


def asking(*needed, **fields):
    """torch_scatter's module with these libraries, found beside it."""
    return changed(needed=needed, **{"undefined": ("help",), "runpath": "$ORIGIN", **fields})


def test_symbol_of_another_torch_is_the_only_finding():
    judged = audit.judge(stack())
    assert (judged.findings, judged.broken) == ((), ())
    assert (judged.python, judged.glibc, judged.glibcxx) == ("3.11", "2.14", "")
    assert judged.binaries == len(PYTHON) + len(TORCH) + 1
    image = stack(changed(undefined=("_ZN3c104cuda9SetDeviceEa", "PyErr_SetString")))
    symbol = "c10::cuda::SetDevice(signed char)"
    what = f"refers to a symbol that nothing it is loaded with defines: {symbol}"
    check(image, f"fail symbols | torch-scatter {FILE}: {what}")
    judged = audit.judge(image)
    assert (judged.findings[0].fix, judged.broken) == ("a build of torch-scatter for torch 2.0.1", (FILE,))


APPEND = "_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE6appendEPKc"
HELP = {"defined": ("help",)}
MACHINES = (("aarch64", 183), ("x86-64", 62))
BESIDE = f"{SITE}/torch_scatter/libhelp.so"
#: as sstrip leaves it: the loader takes it, and nothing says where its tables are; with PT_DYNAMIC
STRIPPED = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 1, 0, 0, 0)
STRIPPED += struct.pack("<IIQQQQQQ", 2, 6, 64, 0, 0, 16, 16, 8)
FAR = {f"{SITE}/torch_scatter/lib/libone.so": {"needed": ("libtwo.so",)}, f"{SITE}/far/libtwo.so": HELP}
TOO_NEW = {"libc.so.6": ("GLIBC_2.14", "GLIBC_2.38"), "libstdc++.so.6": ("GLIBCXX_3.4.32",)}
GOMP = {f"GOMP_{number}": ("GOMP_parallel@GOMP_" + number,) for number in ("4.0", "9.9")}
REAL = {f"{SYSTEM}/libreal.so.1.2": {"defined": ("real",)}}
NEEDS_REAL = changed(needed=("libreal.so.1",), undefined=("real",))
TAGGED = "{}.cpython-{}-x86_64-linux-gnu.so"
OF_32 = b"\x7fELF\x01\x01\x01" + bytes(57)
LOADER = "/lib64/ld-linux-x86-64.so.2"
PROGRAM = {"/usr/bin/tool": make_elf(interpreter=LOADER)}
STRINGS = "_GLIBCXX_USE_CXX11_ABI=1, torch with 0"


def other(**files):
    """Modules of a package `other`."""
    return GOOD, {f"{SITE}/other/{name}": what for name, what in files.items()}


@pytest.mark.parametrize(
    ("module", "files", "told"),
    [
        # torch's libraries are opened without RTLD_GLOBAL
        (changed(needed=("libtorch_cpu.so",), undefined=("THPVariableClass",)), {}, ["fail symbols"]),
        # what torch shows to everybody
        (changed(undefined=GOMP["GOMP_4.0"], needs={"libgomp.so.1": ("GOMP_4.0",)}), {}, []),
        (
            changed(undefined=GOMP["GOMP_9.9"], needs={"libgomp.so.1": ("GOMP_9.9",)}),
            {},
            ["fail versions", "fail symbols"],
        ),
        (changed(undefined=(NEW_FAIL,)), {}, ["fail symbols", f"fail strings | {STRINGS}"]),
        # strings of the other form that are handed to nobody
        (
            changed(undefined=(APPEND,), needed=(*GOOD["needed"], "libmine.so")),
            {f"{SYSTEM}/libmine.so": {"defined": (APPEND,)}},
            [f"warn strings | {STRINGS}"],
        ),
        # the driver's come from the host
        (changed(needed=("libcuda.so.1", "libnvidia-ml.so.1"), undefined=("cuInit",)), {}, []),
        (changed(needed=("libcuda.so.1",), undefined=("cuInit", "_ZN3c10newE")), {}, ["fail symbols"]),
        # what manylinux counts on is not in every image
        (changed(needed=("libGL.so.1",), undefined=()), {}, ["fail libraries | needs libGL.so.1, which nothing"]),
        # weak ones may be absent
        (changed(undefined=("?gone",), needs={"libc.so.6": ("GLIBC_9.9?",)}), {}, []),
        # what a package has elsewhere counts as opened before; of another machine, it hides none of ours
        (
            asking("libhelp.so"),
            {f"{SITE}/torch_scatter/{arch}/libhelp.so": {**HELP, "machine": number} for arch, number in MACHINES},
            [],
        ),
        # what no loader takes serves nobody: cut short, or of another machine
        (asking("libhelp.so"), {BESIDE: make_elf(**HELP)[:200]}, ["fail libraries", "warn files"]),
        (asking("libhelp.so"), {BESIDE: {**HELP, "machine": 183}}, ["fail libraries"]),
        # without section headers it may define anything
        (asking("libhelp.so"), {BESIDE: STRIPPED, f"{SITE}/other/mine.so": STRIPPED}, ["warn files"] * 2),
        # a run path of the old kind holds for what is loaded on its behalf
        (asking("libone.so", runpath=None, rpath="$ORIGIN/lib:$ORIGIN/../far"), FAR, []),
        (asking("libone.so", runpath="$ORIGIN/lib:$ORIGIN/../far"), FAR, ["fail libraries"] * 2),
        # a library that is nowhere is said of whom it is named by, and breaks the rest
        (
            asking("libhelp.so", undefined=()),
            {BESIDE: {"needed": ("libgone.so.3",)}},
            [
                f"fail libraries | {FILE}: needs torch_scatter/libhelp.so, which cannot be loaded",
                "fail libraries | libhelp.so: needs libgone.so.3, which nothing in the image has",
            ],
        ),
        # what another package has, where no loader looks for it (cupy, and the wheels of CUDA's libraries)
        (
            asking("libtwo.so", undefined=()),
            {f"{SITE}/nvidia/two/lib/libtwo.so": HELP},
            ["fail libraries | needs libtwo.so, which the image has in nvidia/two/lib alone: no loader looks there"],
        ),
        # a base that is too old
        (
            changed(undefined=("memcpy@GLIBC_2.14",), needs=TOO_NEW),
            {},
            [
                "fail versions | needs GLIBC_2.38 of libc.so.6; the image's goes up to GLIBC_2.34",
                "fail versions | needs GLIBCXX_3.4.32 of libstdc++.so.6; the image's goes up to GLIBCXX_3.4.30",
            ],
        ),
        # links lead to libraries, but for a circle of them
        (NEEDS_REAL, {**REAL, "links": {f"{SYSTEM}/libreal.so.1": "libreal.so.1.2", "/lib": "usr/lib"}}, []),
        (NEEDS_REAL, {**REAL, "links": {f"{SYSTEM}/libreal.so.1": "libreal.so.1"}}, ["fail libraries"]),
        # a program whose loader is not there
        (GOOD, PROGRAM, [f"fail libraries | base /usr/bin/tool: names the loader {LOADER}, which is not in the image"]),
        (GOOD, {**PROGRAM, f"/usr{LOADER}": {}, "links": {"/lib64": "usr/lib64"}}, []),
        # files that Python cannot import
        (*other(**{TAGGED.format("a", 39): GOOD}), ["fail files | other | is for Python 3.9; the image has 3.11"]),
        (
            *other(**{TAGGED.format("a", 311): {**GOOD, "machine": 183}}),
            ["fail files | is made for AARCH64, not for x86-64"],
        ),
        (*other(**{TAGGED.format("a", 39): {}, TAGGED.format("a", 311): {}}), []),  # beside ours it is idle
        # torchao 0.18: one for 3.10 in a wheel of the stable ABI, which works with 3.11
        (
            *other(**{"_C.abi3.so": {}, TAGGED.format("_C_mx", 310): {}}),
            ["warn files | is for Python 3.10; the image has 3.11"],
        ),
        (*other(**{"a.so": make_elf()[:100]}), ["fail files | is not a whole ELF file"]),
        (*other(**{TAGGED.format("_C", 311): OF_32}), ["fail files | 32 bits"]),
        # debugpy has one for processes of 32 bits
        (*other(**{"attach_linux_x86.so": OF_32, "libb.so": OF_32}), ["warn files | 32 bits"] * 2),
    ],
)
def test_library_findings_follow_the_loader(module, files, told):
    files = dict(files)
    links = files.pop("links", None)
    check(stack({name: what for name, what in module.items() if what is not None}, files=files, links=links), *told)


def test_image_of_another_machine_is_a_failure():
    of_arm = make_elf(machine=183, kind=2, interpreter="/lib/ld-linux-aarch64.so.1")
    image = contents({"/usr/bin/python3.11": of_arm, "/usr/lib/libc.so.6": {"machine": 183}})
    check(image, "fail files | base : is made for AARCH64: of its 1 programs none is for x86-64")
    ours = {"/usr/bin/tool": {"interpreter": "/lib/ld.so"}, "/lib/ld.so": {}}
    check(contents({"/opt/nsight/target-arm/nsys": of_arm, **ours}))  # CUDA's tools have such


def test_mangled_name_that_expands_without_end_is_shown_unchanged():
    """Each argument list refers twice to the one before: 18 of them would be six megabytes of text."""
    refers = "".join(f"S0_IS{at}_S{at}_E" for at in "123456789ABCDEFGHI")
    evil = f"_Z1f1B1AIS_S_E{refers}"
    long = "_Z1f" + "1AI" * 40_000 + "i" + "E" * 40_000
    began = time.process_time()
    told = found(stack(changed(undefined=(evil, long, *(f"{evil}{number}x" for number in range(3000))), needs={})))
    assert time.process_time() - began < 5
    assert "define" in told[0][4]
    assert evil in told[0][4]
    assert told[0][4].endswith(" and 2998 more")


def test_optional_plugin_without_its_library_is_a_note():
    names = {"_torchaudio_sox.so": "libtorchaudio_sox.so", "libtorchaudio_sox.so": "libsox.so"}
    files = {f"{SITE}/torchaudio/lib/{name}": {"needed": (needs,)} for name, needs in names.items()}
    image = stack(GOOD, package("torchaudio", files=files), files=files)
    assert [(each[0], each[3]) for each in found(image) if each[1] == "libraries"] == [
        ("note", f"torchaudio/lib/{name}") for name in names
    ]
    assert audit.judge(image).broken == tuple(f"torchaudio/lib/{name}" for name in names)


def test_library_that_needs_an_optional_plugin_and_another_broken_one_fails():
    """An optional library excuses its own absence alone."""
    place = f"{SITE}/torchaudio/lib"
    files = {
        f"{place}/libtorchaudio_sox.so": {"needed": ("libsox.so",)},
        f"{place}/libreal.so": {"needed": ("libabsent.so",)},
        f"{place}/_torchaudio.so": {"needed": ("libtorchaudio_sox.so", "libreal.so"), "runpath": "$ORIGIN"},
    }
    told = {
        each[3].rpartition("/")[2]: each[0]
        for each in found(stack(GOOD, package("torchaudio", files=files), files=files))
        if each[1] == "libraries"
    }
    assert told == {"libtorchaudio_sox.so": "note", "libreal.so": "fail", "_torchaudio.so": "fail"}


def test_missing_library_of_any_file_is_found():
    """Each file of the image in turn needs what nothing has."""
    files = {**PYTHON, **TORCH, MODULE: GOOD}
    for path, fields in files.items():
        broken = {**fields, "needed": (*fields.get("needed", ()), "libabsent.so.9")}
        told = found(contents({**files, path: broken}, *PACKAGES))
        assert [each[3] for each in told if "libabsent.so.9, which nothing" in each[4]] == [
            path.removeprefix(f"{SITE}/").lstrip("/") if path.startswith(SITE) else path
        ], path


@pytest.mark.parametrize(("there", "told"), [({}, ["fail", "note", "note"]), ({f"{SYSTEM}/libav.so.5": {}}, ["note"])])
def test_torchcodec_needs_one_loadable_library(there, told):
    files = {f"{SITE}/torchcodec/libtorchcodec{number}.so": {"needed": (f"libav.so.{number}",)} for number in (4, 5)}
    findings = found(stack(GOOD, package("torchcodec", files=files), files={**files, **there}))
    assert [each[0] for each in findings if each[1:3] == ("libraries", "torchcodec")] == told


MPI = {
    f"{SITE}/mpi4py/MPI.{name}.cpython-311-x86_64-linux-gnu.so": {"needed": (f"libmpi.so.{number}",)}
    for name, number in (("mpich", 12), ("openmpi", 40))
}


@pytest.mark.parametrize("base", [TORCH, {}])
def test_mpi4py_needs_one_mpi_and_names_the_libraries_of_each(base):
    """No wheel of it can have all of its modules loaded, and it needs no torch."""

    def told(there):
        owners = (*(PACKAGES if base else ()), package("mpi4py", "4.1.2", MPI))
        findings = audit.judge(contents({**PYTHON, **base, **MPI, **there}, *owners)).findings
        return [(one.severity, one.file[7:17], one.missing) for one in findings if one.package == "mpi4py"]

    closed = [("note", "MPI.mpich.", (("libmpi.so.12",),)), ("note", "MPI.openmp", (("libmpi.so.40",),))]
    assert told({}) == [("fail", "", (("libmpi.so.12",), ("libmpi.so.40",))), *closed]
    assert told({f"{SYSTEM}/libmpi.so.40": {}}) == closed[:1]


@pytest.mark.parametrize(("folder", "closed"), [("/opt/venv/lib", ["MPI.openmp"]), ("/opt/other/lib", [""] * 3)])
def test_mpi4py_finds_an_mpi_in_the_lib_folder_of_its_environment(folder, closed):
    """mpi4py/_mpiabi.py opens it by its path: the wheel `mpich` has it there."""
    image = contents({**PYTHON, **MPI, f"{folder}/libmpi.so.12": {}}, package("mpi4py", "4.1.2", MPI))
    told = [one for one in audit.judge(image).findings if one.package == "mpi4py"]
    assert len(told) == len(closed), told
    assert closed == [""] * 3 or [one.file[7:17] for one in told] == closed


@pytest.mark.parametrize("where", [SYSTEM, "/opt/site/lib"])
def test_python_magic_without_libmagic_is_a_finding(where):
    def told(files):
        image = contents({**PYTHON, **files}, package("python-magic", "0.4.27"), preferred=("/opt/site/lib",))
        return [(one.severity, one.package, one.missing) for one in audit.judge(image).findings]

    assert told({}) == [("fail", "python-magic", (("libmagic.so.1",),))]
    assert told({f"{where}/libmagic.so.1": {}}) == []


def test_finding_lists_all_missing_libraries_except_torchs():
    """However many the sentence shows; not torch's, which no package of the system brings."""
    names = tuple(f"lib{letter}.so.1" for letter in "abcdefg")
    needed = (*names, "libc10_hip.so", "libc.so.6")
    path = f"{SITE}/torch_scatter/_more.so"
    findings = audit.judge(stack(files={path: {"needed": needed}})).findings
    assert [one.missing for one in findings if one.file.endswith("_more.so")] == [(names,)]


def test_dgl_sparse_library_of_the_torch_version_is_judged():
    def libraries(*versions):
        files = {
            f"{SITE}/dgl/dgl_sparse/libdgl_sparse_pytorch_{version}.so": changed(undefined=(symbol,))
            for version, symbol in versions
        }
        told = found(stack(GOOD, package("dgl", "1.1.3", files), files=files))
        return [(each[0], each[3][-8:]) for each in told if each[2] == "dgl" and each[1] in ("symbols", "libraries")]

    assert libraries(("2.0.1", FAIL), ("2.1.0", "_ZN3c10newE")) == [("note", "2.1.0.so")]
    assert libraries(("2.0.1", "_ZN3c10oldE")) == [("fail", "2.0.1.so"), ("warn", "")]
    assert libraries(("2.1.0", "_ZN3c10newE")) == [("warn", ""), ("note", "2.1.0.so")]


def test_unused_libgfortran_without_libquadmath_is_a_note():
    """torch 2.15 brings libgfortran.so.5 without libquadmath, and nothing needs either."""
    left = f"{SITE}/torch/lib/libgfortran.so.5"
    packages = (package("torch", "2.0.1", [*PACKAGES[0].files, left]), *PACKAGES[1:])
    files = {left: {"needed": ("libquadmath.so.0",)}}
    user = {f"{SITE}/torch/lib/libuser.so": {"needed": ("libgfortran.so.5",), "runpath": "$ORIGIN"}}
    for there, severities in ((files, ["note"]), ({**files, **user}, ["fail", "fail"])):
        told = found(stack(files=there, packages=packages))
        assert [each[0] for each in told if each[1] == "libraries"] == severities


def test_audit_of_wheels_alone_ignores_libraries_of_the_base():
    without = contents({MODULE: GOOD}, PACKAGES[2], base=False, python="")
    assert [(one.check, one.fix) for one in audit.judge(without).findings] == [("libraries", "name torch's wheel too")]
    # C++'s own symbols need no version; torch 1.13.1 refers to some of libstdc++'s without one
    cache = "_ZNSt9basic_iosIwSt11char_traitsIwEE15_M_cache_localeERKSt6locale"
    own = (cache, "_ZTISt9exception", "_ZTVN10__cxxabiv120__si_class_type_infoE", "_ZNSs6appendEPKc", "_Znwm", "qsort")
    own = (*own, "_ZTIb", "_ZTIl", "_ZTIPKc", "_ZTIDn")  # as cuDNN 9.24 for arm64 does
    for module, told in (
        (GOOD, []),
        (changed(undefined=own), []),
        (changed(undefined=("_ZN5boost5startEv",)), ["symbols"]),
        (changed(undefined=("_ZTIN5boost3anyE",)), ["symbols"]),
    ):
        alone = contents({**TORCH, MODULE: module}, *PACKAGES, base=False, python="")
        assert [each[1] for each in found(alone)] == told


def test_unknown_mangled_name_is_unchanged():
    assert demangled("_ZN3c104cuda9SetDeviceEa") == "c10::cuda::SetDevice(signed char)"
    for name in ("cudaMalloc", "_Z", "_ZN", "_ZZZZ", "_Z1fDT_E", ""):
        assert demangled(name) == name
