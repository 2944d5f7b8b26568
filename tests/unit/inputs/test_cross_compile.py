"""Extensions for another platform: which compiler, toolkit and root compile them, and what of that is in a key."""

import io
import json
import tarfile
from types import SimpleNamespace

import msgspec
import pytest
from cyclonedx.model.component import ComponentScope

from graphcrate.compat.facts import compilers, gpu_table, toolkits
from graphcrate.compat.plan.compile_steps import compile_steps
from graphcrate.compat.plan.planning import make_plan
from graphcrate.compat.variants import ported
from graphcrate.compat.variants.explain import judge_target
from graphcrate.compat.variants.request import BuildRequest, SourceOptions
from graphcrate.compat.variants.targets import Target
from graphcrate.host.sandbox.emulation import Emulator
from graphcrate.inputs.extensions import ground, origin, worker
from graphcrate.inputs.extensions.compile import _lay_out, environment
from graphcrate.inputs.extensions.worker import seeded
from graphcrate.model.errors import IntegrityError, ResolutionError, UsageError
from graphcrate.model.lock import Cross, decode_lock, encode
from graphcrate.model.platform import AMD64, ARM64
from graphcrate.publish import bill
from graphcrate.resolve.additions.sdists import Sdists
from graphcrate.resolve.stack.base import compiler_spec
from graphcrate.resolve.stack.extensions import choose_compiler
from nsbox.box import Bind
from tests import ROOT
from tests.made import RECIPES, bookworm, deb, refused, sdist
from tests.unit import compiled_plans
from tests.unit.wheel_server import small_sdist

PYG = RECIPES["pyg"]
NEWEST = PYG.variant("13.2")
CROSS_COMPILER = "g++-12-aarch64-linux-gnu"
HEADERS = msgspec.structs.replace(deb("libpython3.11-dev", "3.11.2-6"), architecture="arm64")
CROSS = Cross(platform="linux/arm64", headers=(HEADERS,))


def lock(**changes):
    """A lock that compiles across."""
    base = bookworm(deb(CROSS_COMPILER, "12.2.0-14cross1"), deb("libc6-dev-arm64-cross", "2.36-8cross1"))
    made = compiled_plans.lock(compiled_plans.TOOLKITS["pypi"], architectures=("9.0", "10.0"))
    values = {"compiler": CROSS_COMPILER, "base": base, "cross": CROSS, **changes}
    return msgspec.structs.replace(made, compilation=msgspec.structs.replace(made.compilation, **values))


def step(**changes):
    (made,) = compile_steps(lock(**changes))
    return made


def test_a_platforms_compiler_is_debians_cross_compiler_with_its_programs():
    assert compilers.compiler_for("bookworm", 15, ARM64) == CROSS_COMPILER
    assert compilers.compiler_for("bookworm", 15, AMD64) == compilers.compiler_for("bookworm", 15) == "g++-12"
    assert (compilers.crosses_to(CROSS_COMPILER), compilers.crosses_to("g++-12")) == (ARM64, None)
    assert compilers.programs(CROSS_COMPILER) == ("aarch64-linux-gnu-gcc-12", "aarch64-linux-gnu-g++-12")
    assert compilers.programs("g++-12") == ("gcc-12", "g++-12")
    assert compilers.packages(CROSS_COMPILER) == (CROSS_COMPILER,)


def test_cross_compiler_nvcc_and_archiver_are_named_to_the_build():
    given = environment(SimpleNamespace(step=step()), 2)
    assert given["NVCC_PREPEND_FLAGS"] == "-ccbin aarch64-linux-gnu-g++-12"
    assert (given["CC"], given["AR"]) == ("aarch64-linux-gnu-gcc-12", "aarch64-linux-gnu-ar")
    assert given["TORCH_CUDA_ARCH_LIST"] == "9.0;10.0"
    assert given["PATH"].endswith(f":/bin:{compilers.CROSS}/usr/bin"), "the image's own programs come first"
    plain = environment(SimpleNamespace(step=compile_steps(compiled_plans.LINKED)[0]), 2)
    assert "AR" not in plain
    assert compilers.CROSS not in plain["PATH"]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (("7.5", "8.0", "9.0", "10.0", "12.0"), ("9.0", "10.0")),
        (("7.0", "8.0", "9.0+PTX"), ("9.0+PTX",)),
        (("9.0", "10.0", "10.3"), ("9.0", "10.0", "10.3")),
        (("7.0", "8.0"), ("7.0", "8.0")),
        ((), ()),
    ],
)
def test_grace_machines_get_code_for_their_gpus_alone_where_the_recipe_has_it(given, kept):
    assert gpu_table.hosted_gpus(ARM64) == ("GH200", "GB200", "GB300")
    assert toolkits.of_machines(given, ARM64) == kept
    assert toolkits.of_machines(given, AMD64) == given


def test_a_toolkit_of_wheels_compiles_across_and_debians_does_not():
    assert [option.provider for option in toolkits.options("13.2", ARM64)] == ["pypi"]
    assert toolkits.options("12.8", ARM64) == ()
    (option,) = toolkits.options("13.2", ARM64)
    assert set(option.programs) < {pin.partition("==")[0] for pin in option.wheels}
    variant = ported.on_platform(NEWEST, ARM64)
    choice = choose_compiler(variant, NEWEST.candidates[0], SourceOptions())
    assert (choice.compiler, choice.architectures) == (CROSS_COMPILER, ("9.0", "10.0"))
    old = PYG.variant("12.8")
    with refused(ResolutionError, "no CUDA toolkit for torch's CUDA 12.8 that compiles for arm64"):
        choose_compiler(ported.on_platform(old, ARM64), old.candidates[0], SourceOptions())
    with refused(UsageError, "no CUDA toolkit 'debian' fits"):
        choose_compiler(variant, NEWEST.candidates[0], SourceOptions(toolkit="debian"))


def test_a_cross_compilers_base_is_of_the_machine_that_compiles():
    variant = ported.on_platform(NEWEST, ARM64)
    assert variant.base.runs_on is ARM64
    spec = compiler_spec(variant, "bookworm", CROSS_COMPILER)
    assert (spec.runs_on, spec.packages) == (AMD64, (CROSS_COMPILER,))
    assert compiler_spec(NEWEST, "bookworm", "g++-12").packages == ("g++-12", compilers.PYTHON_HEADERS)


def test_extensions_of_pyg_are_ported_with_the_recipes_own_tag():
    request = BuildRequest(name="pyg", cuda="13.2", platform=ARM64.name)
    made = ported.port(PYG, NEWEST, NEWEST.candidates, ARM64, request)
    assert (made.variant.extensions, made.usable) == (NEWEST.extensions, NEWEST.candidates)
    committed = decode_lock((ROOT / "images/pyg/cu132/arm64/pypi.lock.json").read_bytes())
    plan = make_plan(PYG, committed, NEWEST.candidates[0], examples={})
    assert plan.tag == "2.8.1-torch2.15.0-cu132-py311-arm64"
    (compiled,) = [each for each in plan.steps if each in compile_steps(committed)]
    assert compiled.compilation.crossed.platform == ARM64.name
    smaller = msgspec.structs.replace(committed.compilation, architectures=("9.0",))
    for_one = msgspec.structs.replace(committed, compilation=smaller)
    assert make_plan(PYG, for_one, NEWEST.candidates[0], examples={}).tag.endswith("-arm64-sm90")


@pytest.mark.parametrize("gpu", ["GH200", "GB200", "GB300"])
def test_pyg_with_extensions_runs_on_grace(gpu):
    target = Target(gpus=(gpu,))
    judged = judge_target(PYG, NEWEST, NEWEST.candidates[0], target, ARM64)
    assert (judged.built.accepted, judged.plain.accepted) == (True, True)


def test_the_key_of_a_wheel_names_platform_compiler_and_headers():
    made = step()
    (package, *_) = made.packages
    other = msgspec.structs.replace(HEADERS, file=msgspec.structs.replace(HEADERS.file, sha256="f" * 64))
    newer = bookworm(deb(CROSS_COMPILER, "12.2.0-15cross1"), deb("libc6-dev-arm64-cross", "2.36-8cross1"))
    unrelated = bookworm(*lock().compilation.base.packages, deb("curl", "8.0"))
    keys = [
        origin(package, each)
        for each in (
            made,
            step(cross=msgspec.UNSET),
            step(cross=Cross(platform="linux/arm64", headers=(other,))),
            step(cross=Cross(platform="linux/amd64", headers=(HEADERS,))),
            step(base=newer),
        )
    ]
    assert len(set(keys)) == len(keys)
    assert origin(package, step(base=unrelated)) == keys[0]


def test_a_lock_without_a_cross_compiler_has_the_bytes_that_it_had():
    plain = compiled_plans.lock(compiled_plans.TOOLKITS["pypi"])
    assert b"cross" not in encode(plain)
    made = msgspec.structs.replace(lock(), request_sha256="a" * 64)
    assert decode_lock(encode(made)).compilation.crossed == CROSS
    assert HEADERS.file.sha256 in lock().files()
    assert HEADERS.file.sha256 not in plain.files()


def test_the_bill_of_materials_lists_the_headers_that_are_compiled_with():
    purl = f"pkg:deb/debian/{HEADERS.name}@{HEADERS.version}?arch=arm64&distro=bookworm"
    scopes = {str(part.purl): part.scope for part in bill.parts(lock())}
    assert scopes[purl] is ComponentScope.EXCLUDED
    assert purl not in {str(part.purl) for part in bill.parts(compiled_plans.lock(compiled_plans.TOOLKITS["pypi"]))}


def package_of_headers(path, files):
    """A .deb with these files."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:xz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"./{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    parts = {"debian-binary": b"2.0\n", "control.tar.xz": b"", "data.tar.xz": data.getvalue()}
    with path.open("wb") as stream:
        stream.write(b"!<arch>\n")
        for name, content in parts.items():
            stream.write(f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode())
            stream.write(content + b"\n" * (len(content) % 2))
    return path


def grounds(tmp_path, files):
    path = package_of_headers(tmp_path / "headers.deb", files)
    emulator = Emulator(ARM64, tmp_path / "qemu")
    base = SimpleNamespace(rootfs=tmp_path / "image", python="/usr/bin/python3.11", emulator=emulator)
    build_base = SimpleNamespace(rootfs=tmp_path / "cross", python="/usr/bin/python3.11")
    given = {HEADERS.file.sha256: path}
    return ground.prepare(lock().compilation, base, build_base, given, tmp_path / "headers"), emulator


def test_the_images_base_is_emulated_with_compilers_loader_and_headers_beside(tmp_path):
    made, emulator = grounds(tmp_path, {"usr/include/python3.11/Python.h": "#define PYTHON\n"})
    assert (made.rootfs, made.emulator) == (tmp_path / "image", emulator)
    here, root = tmp_path / "cross", tmp_path / "headers/root"
    assert (root / "usr/include/python3.11/Python.h").read_text() == "#define PYTHON\n"
    assert [*made.binds] == [
        Bind(here, compilers.CROSS),
        Bind(root / "usr/include", "/usr/include"),
        Bind(here / "lib64", "/lib64"),
        Bind(here / "usr/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu"),
        Bind(here / "usr/aarch64-linux-gnu", "/usr/aarch64-linux-gnu"),
        Bind(here / "usr/lib/gcc-cross", "/usr/lib/gcc-cross"),
    ]


def test_headers_that_are_none_are_an_integrity_error(tmp_path):
    with refused(IntegrityError, "there are no headers in it"):
        grounds(tmp_path, {"usr/share/doc/README": "nothing\n"})


def test_without_a_cross_compiler_the_base_with_the_compiler_is_the_ground(tmp_path):
    build_base = SimpleNamespace(rootfs=tmp_path, python="/usr/bin/python3.11")
    made = ground.prepare(compiled_plans.lock(None).compilation, None, build_base, {}, tmp_path / "headers")
    assert made == ground.Ground(tmp_path, "/usr/bin/python3.11")


def test_each_cuda_file_gets_a_seed_of_its_own_and_other_files_none():
    command = ["/usr/local/cuda/bin/nvcc", "-c", "csrc/cuda/a.cu", "-o", "a.o"]
    assert seeded(command, "csrc/cuda/a.cu") == [command[0], "-frandom-seed=csrc/cuda/a.cu", *command[1:]]
    assert seeded(command, "csrc/cuda/b.cu") != seeded(command, "csrc/cuda/a.cu")
    assert seeded(["g++", "-c", "a.cpp"], "a.cpp") == ["g++", "-c", "a.cpp"]


@pytest.mark.parametrize("seeds", [True, False])
def test_the_compiler_is_started_with_a_seed_where_the_orders_say_so(tmp_path, monkeypatch, seeds):
    started = []
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(worker.subprocess, "call", lambda argv, **_: started.append(argv) or 0)
    command = ["nvcc", "-c", "a.cu", "-o", "a.o"]
    work = worker.Work("small", "a.cu", "a.o", command, str(tmp_path), str(tmp_path / "log"), "", 1.0)
    assert worker.run_compiler(command, work, seeds=seeds) == 0
    assert started == [seeded(command, "a.cu") if seeds else command]
    assert (tmp_path / "log").read_text().startswith("nvcc -frandom-seed=a.cu" if seeds else "nvcc -c")


@pytest.mark.parametrize(("cross", "seeds"), [(CROSS, True), (msgspec.UNSET, False)])
def test_nvcc_gets_seeds_where_it_compiles_for_another_platform(tmp_path, monkeypatch, cross, seeds):
    monkeypatch.setattr("graphcrate.inputs.extensions.compile.used", lambda *_: {})
    _lay_out(SimpleNamespace(step=step(cross=cross), files={}), (), tmp_path, 2)
    assert json.loads((tmp_path / "orders.json").read_text())["seeds"] is seeds


@pytest.mark.parametrize(("platform", "is_refused"), [(ARM64, True), (AMD64, False)])
def test_a_package_with_a_back_end_of_its_own_is_not_compiled_for_another_platform(tmp_path, platform, is_refused):
    name, content = small_sdist("mamba_ssm", "1.0", pyproject="", more={"csrc/scan.cu": ""})
    path = tmp_path / name
    path.write_bytes(content)
    variant = ported.on_platform(NEWEST, platform)
    context = SimpleNamespace(variant=variant, ctx=SimpleNamespace(cache=SimpleNamespace(file=lambda *_: path)))
    request = SimpleNamespace(sources=SimpleNamespace(request=SourceOptions()))
    conflicts = SimpleNamespace(offers=request, staying={})
    made = Sdists(context, lock(), NEWEST.candidates[0], conflicts, tmp_path, [])
    if is_refused:
        with refused(ResolutionError, "mamba-ssm 1.0 is there as source only", "PyG's own extensions are compiled"):
            made._lock(sdist("mamba-ssm"))
    else:
        assert made._obstacle("mamba-ssm", None) == ""
    assert made._obstacle("torch-scatter", None) == "", "one of PyG's"
