"""wheelhouse.check: a good extension passes; each way in which one cannot work is found and said."""

import pytest

from graphcrate.audit.names import demangled
from graphcrate.errors import IntegrityError
from graphcrate.model.lock import Compilation, DebianBase
from graphcrate.model.plan import CompileStep
from graphcrate.wheelhouse.check import asked_code, check_wheel
from tests.unit.elfmaker import PTX, SASS, entry, fat_binary, make_elf
from tests.unit.wheelmaker import make_wheel

CODE = fat_binary(entry(SASS, 70), entry(SASS, 80), entry(PTX, 80))
FAIL = "_ZN3c106detail14torchCheckFailEPKcS2_jRKSs"
NEW_FAIL = "_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
NEEDED = ("libc10.so", "libtorch_cpu.so", "libtorch_cuda.so", "libcudart.so.11.0", "libstdc++.so.6", "libc.so.6")
GOOD = {
    "needed": NEEDED,
    "defined": ("PyInit__scatter",),
    "undefined": (
        FAIL,
        "cudaLaunchKernel@libcudart.so.11.0",
        "PyErr_SetString",
        "memcpy@GLIBC_2.14",
        "?__gmon_start__",
    ),
    "needs": {"libc.so.6": ("GLIBC_2.14",), "libcudart.so.11.0": ("libcudart.so.11.0",)},
    "fatbin": CODE,
}


def put(path, **fields):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(make_elf(**fields))


def make_site(folder, check_fail=FAIL):
    """torch's libraries as far as they matter."""
    packages = folder / "lib/python3.11/site-packages"
    lib = packages / "torch/lib"
    put(lib / "libc10.so", defined=(check_fail, "_ZN3c105ErrorC1ESs"))
    cuda = "$ORIGIN/../../nvidia/cuda_runtime/lib"
    put(lib / "libc10_cuda.so", needed=("libcudart.so.11.0",), runpath=cuda, defined=("_ZN3c104cuda9SetDeviceEa",))
    put(lib / "libtorch_cpu.so", needed=("libc10.so",), defined=("_ZN2at4onesE",))
    put(lib / "libtorch_cuda.so", needed=("libc10_cuda.so", "libfar.so.1"), runpath="$ORIGIN/../../far/lib")
    put(lib / "libtorch_python.so", needed=("libtorch_cuda.so", "libtorch_cpu.so"), defined=("THPVariableClass",))
    put(packages / "torch/_C.cpython-311-x86_64-linux-gnu.so", needed=("libtorch_python.so",), runpath="$ORIGIN/lib")
    put(lib / "libtorch_global_deps.so", needed=("libgomp-a34b3233.so.1",))
    put(
        lib / "libgomp-a34b3233.so.1",
        soname="libgomp.so.1",
        defined=("GOMP_parallel@GOMP_4.0",),
        versions=("GOMP_4.0",),
    )
    put(packages / "far/lib/libfar.so.1", defined=("far_away",))
    put(
        packages / "nvidia/cuda_runtime/lib/libcudart.so.11.0",
        defined=("cudaLaunchKernel@libcudart.so.11.0",),
        versions=("libcudart.so.11.0",),
    )
    return folder


def make_base(folder):
    """Debian's libraries below /usr/lib, reached through /lib as Debian has it, with absolute links on the way."""
    system = folder / "usr/lib/x86_64-linux-gnu"
    put(system / "libc.so.6", defined=("memcpy@GLIBC_2.14",), versions=("GLIBC_2.14", "GLIBC_2.31"))
    put(system / "libstdc++.so.6.0.28", defined=("_ZSt4cout@GLIBCXX_3.4",), versions=("GLIBCXX_3.4",))
    (folder / "lib").symlink_to("usr/lib")
    (system / "libstdc++.so.6").symlink_to("/lib/x86_64-linux-gnu/libstdc++.so.6.0.28")
    put(folder / "usr/bin/python3.11", needed=("libc.so.6",), defined=("PyErr_SetString",), kind=2)
    return folder


@pytest.fixture
def judge(tmp_path):
    """Findings about a wheel with these files; an ELF library is given by its fields."""

    def judged(files, architectures=("7.0", "8.0+PTX"), site=None, base=None):
        content = {name: make_elf(**data) if isinstance(data, dict) else data for name, data in files.items()}
        tag = "cp311-cp311-linux_x86_64"
        wheel = make_wheel(tmp_path, "torch_scatter", "2.1.1", content, tag=tag, purelib=False)
        step = CompileStep(
            title="",
            python="3.11",
            packages=(),
            against=(),
            compilation=Compilation(
                architectures=architectures,
                compiler="g++-11",
                base=DebianBase(suite="bookworm", packages=()),
                tools=(),
            ),
        )
        return check_wheel(wheel, step=step, site=site or own_site, rootfs=base or own_base)

    own_site, own_base = make_site(tmp_path / "site"), make_base(tmp_path / "base")
    return judged


def scatter(**changes):
    return {"torch_scatter/_scatter_cuda.so": {**GOOD, **changes}}


def test_a_good_wheel(judge):
    assert judge(scatter()) == ()


def test_nothing_was_compiled(judge):
    (finding,) = judge({"torch_scatter/__init__.py": b""})
    assert finding.endswith("has no extension module: nothing was compiled.")


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"a/_a.so": b"not a library"}, "a/_a.so is not an ELF file."),
        (scatter(fatbin=CODE[:-4]), "GPU code, byte 0: a fat binary reaches out of its section."),
        (scatter(machine=183), "is no x86-64 library: EM_AARCH64, ET_DYN."),
        (scatter(kind=1), "is no x86-64 library: EM_X86_64, ET_REL."),
        ({"a/_a.cpython-39-x86_64-linux-gnu.so": GOOD}, "is for Python 3.9; the image has 3.11."),
        (scatter(needed=(*NEEDED, "libmetis.so.5")), "needs libmetis.so.5, which nothing in the image has."),
        (scatter(needed=(*NEEDED, "libcuda.so.1")), "libcuda.so.1, which only a machine with NVIDIA's driver has."),
        (
            scatter(needs={**GOOD["needs"], "libc.so.6": ("GLIBC_2.14", "GLIBC_2.34", "GLIBC_2.9")}),
            "needs GLIBC_2.9 and GLIBC_2.34 of libc.so.6; the image's goes up to GLIBC_2.31.",
        ),
        (
            scatter(needs={**GOOD["needs"], "libc.so.6": ("GLIBC_2.14", "MUSL_1")}),
            "MUSL_1 of libc.so.6; the image's has no such version.",
        ),
        (
            scatter(undefined=(FAIL, "_ZN3c104cuda20CUDACachingAllocator9allocatorE")),
            "refers to a symbol that nothing it is loaded with defines: c10::cuda::CUDACachingAllocator::allocator.",
        ),
        (
            scatter(undefined=(FAIL, *(f"missing_{number}" for number in range(6)))),
            "6 symbols that nothing it is loaded with defines: missing_0, missing_1, missing_2, missing_3 and 2",
        ),
        (
            scatter(fatbin=fat_binary(entry(SASS, 70))),
            "has GPU code for 7.0; asked for was 7.0, 8.0 and 8.0 (PTX).",
        ),
        (
            scatter(fatbin=CODE + fat_binary(entry(SASS, 90, flags=0x100011)) + fat_binary()),
            "has GPU code for 7.0, 8.0, 9.0a and 8.0 (PTX); asked for was 7.0, 8.0 and 8.0 (PTX).",
        ),
        (
            scatter(fatbin=CODE + fat_binary(entry(SASS, 80)) + fat_binary()),
            "has GPU code for 8.0 only in 1 of its 2 parts; asked for was 7.0, 8.0 and 8.0 (PTX).",
        ),
        (scatter(fatbin=None), "no library has GPU code; asked for was 7.0, 8.0 and 8.0 (PTX). It was compiled for"),
    ],
)  # fmt: skip
def test_each_way_to_fail_is_found_alone(judge, files, said):
    (finding,) = judge(files)
    assert said in finding


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("torch_scatter/libhelper.so", {"machine": 183}, "is no x86-64 library: EM_AARCH64, ET_DYN."),
        ("torch_scatter/_other.so", {"kind": 2}, "is no x86-64 library: EM_X86_64, ET_EXEC."),
        ("torch_scatter/_scatter_cuda.cpython-39-x86_64-linux-gnu.so", {}, "is for Python 3.9; the image has 3.11."),
        ("torch_scatter/_video.so", {"needed": ("libnvcuvid.so.1",)}, "which only a machine with NVIDIA's driver has."),
    ],
)
def test_what_an_audit_lets_pass_is_not_kept(judge, name, changes, said):
    """In somebody's image such a file may lie idle; nobody compiles one on purpose."""
    ours = scatter()
    ours["torch_scatter/_scatter_cuda.cpython-311-x86_64-linux-gnu.so"] = ours.pop("torch_scatter/_scatter_cuda.so")
    plain = {"needed": ("libc.so.6",), "undefined": ("PyErr_SetString",)}
    (finding,) = judge({**ours, name: {**plain, **changes}})
    assert finding.startswith(name)
    assert said in finding


def test_what_the_linker_of_nvcc_adds_has_no_ptx(judge):
    assert judge(scatter(fatbin=fat_binary(entry(SASS, 70), entry(SASS, 80)) + CODE)) == ()


def test_a_build_for_the_cpu_has_no_gpu_code(judge):
    assert judge(scatter(fatbin=None), architectures=()) == ()
    (finding,) = judge(scatter(), architectures=())
    assert finding.endswith("has GPU code for 7.0, 8.0 and 8.0 (PTX); asked for was no GPU.")


def test_libraries_without_torch_need_no_gpu_code(judge):
    assert judge(scatter(needed=("libc.so.6",), undefined=("PyErr_SetString",), needs={}, fatbin=None)) == ()


def test_symbols_come_through_libraries_that_its_libraries_need(judge):
    undefined = ("_ZN3c104cuda9SetDeviceEa", "far_away", "GOMP_parallel@GOMP_4.0")
    assert judge(scatter(undefined=undefined, needs={"libgomp-a34b3233.so.1": ("GOMP_4.0",)})) == ()


def test_libraries_that_torch_brings_under_another_name_are_found_by_their_soname(judge):
    files = scatter(needed=(*NEEDED, "libgomp.so.1"), undefined=("GOMP_parallel@GOMP_4.0",))
    files["torch_scatter/_scatter_cuda.so"]["needs"] = {"libgomp.so.1": ("GOMP_4.0",)}
    assert judge(files) == ()


def test_torch_s_libraries_are_seen_by_those_alone_that_need_them(judge):
    """dlopen without RTLD_GLOBAL: that another module brought the library helps nobody."""
    (finding,) = judge(scatter(undefined=("THPVariableClass",)))
    assert "defines: THPVariableClass." in finding
    assert judge(scatter(undefined=("THPVariableClass",), needed=(*NEEDED, "libtorch_python.so"))) == ()


def test_a_symbol_of_another_version_does_not_do(judge):
    (finding,) = judge(scatter(undefined=("memcpy@GLIBC_2.15",), needs={"libc.so.6": ("GLIBC_2.15?",)}))
    assert "defines: memcpy." in finding


def test_libraries_that_the_wheel_brings(judge):
    files = scatter(needed=(*NEEDED, "libmetis.so.5"), undefined=("METIS_PartGraph",))
    files["torch_scatter.libs/libmetis-1.so"] = {"soname": "libmetis.so.5", "defined": ("METIS_PartGraph",)}
    assert judge(files) == ()


def test_strings_of_another_abi(judge, tmp_path):
    """Compiled with new strings where torch has old ones: said as the cause, beside the symbols it costs."""
    string = "_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE9_M_createERmm"
    symbols, abi = judge(scatter(undefined=(NEW_FAIL, string)))
    assert "is compiled with _GLIBCXX_USE_CXX11_ABI=1, torch with 0" in abi
    assert "2 symbols" in symbols
    old = scatter(undefined=("_ZNSs4_Rep20_S_empty_rep_storageE",))
    _, abi = judge(old, site=make_site(tmp_path / "new", NEW_FAIL))
    assert "is compiled with _GLIBCXX_USE_CXX11_ABI=0, torch with 1" in abi


def test_a_base_without_its_python_is_no_finding_but_an_error(judge, tmp_path):
    base = make_base(tmp_path / "bare")
    (base / "usr/bin/python3.11").unlink()
    with pytest.raises(IntegrityError, match=r"no Python 3\.11 in the base"):
        judge(scatter(), base=base)


def test_what_torch_s_list_of_architectures_asks_for():
    code = asked_code(("7.0", "8.0+PTX", "9.0a"))
    assert (code.sass, code.ptx) == ({"7.0", "8.0", "9.0a"}, {"8.0"})


def test_names_that_no_demangler_knows_stay():
    assert demangled("_ZN3c104cuda9SetDeviceEa") == "c10::cuda::SetDevice(signed char)"
    for name in ("cudaMalloc", "_Z", "_ZN", "_ZZZZ", "_Z1fDT_E", ""):
        assert demangled(name) == name
