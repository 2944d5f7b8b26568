"""Another processor: what registers an emulator, where it comes from, what there is for the platform, what is said."""

import json
import os
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from graphcrate.assembly import pipeline
from graphcrate.cli import options, requests
from graphcrate.compat.facts import facts
from graphcrate.compat.facts.emulators import emulator_package
from graphcrate.compat.facts.torch_compile import note
from graphcrate.compat.plan.planning import make_plan
from graphcrate.compat.variants import catalog, explain, ported
from graphcrate.compat.variants.choice import select_variant
from graphcrate.compat.variants.request import BuildRequest
from graphcrate.compat.variants.targets import MachineRequest, Target
from graphcrate.engines import run_suites
from graphcrate.engines.backend import RuntimeVersion
from graphcrate.engines.embedded import run as running
from graphcrate.engines.trials import artifact
from graphcrate.host.sandbox import emulation, sandbox
from graphcrate.host.sandbox.emulation import Emulator
from graphcrate.host.sandbox.sandbox import Exec
from graphcrate.inputs import emulators
from graphcrate.model.command import command
from graphcrate.model.errors import HostError, IntegrityError, UsageError
from graphcrate.model.lock import decode_lock
from graphcrate.model.platform import AMD64, ARM64, DEFAULT, PLATFORMS, asked_for
from graphcrate.model.recipe import Additions
from graphcrate.model.report import Artifact
from graphcrate.model.trial import TrialOrder
from graphcrate.publish import policy
from graphcrate.resolve.stack import base as bases
from graphcrate.smoke import emulated
from graphcrate.smoke.suites import Ran
from nsbox import binfmt, box, namespaces
from nsbox.errors import Failure
from tests import ROOT
from tests.made import RECIPES, build_request, place, refused

HERE = next(row for row in PLATFORMS if row.machine == os.uname().machine)
OTHER = next(row for row in PLATFORMS if row != HERE)
#: as Linux 6.18 shows what the sandbox registers
SHOWN = """enabled
interpreter /usr/bin/qemu-aarch64
flags: {flags}
offset 0
magic 7f454c460201010000000000000000000200b700
mask ffffffffffffff00fffffffffffffffffeffffff
"""


# -- registering


def test_what_is_registered_is_the_magic_of_the_platforms_programs():
    orders = Emulator(ARM64, Path("/a/b")).boxed.orders
    magic, mask = orders["before"].removeprefix(":qemu-aarch64:M::").rstrip(":").split(":")
    assert bytes.fromhex(magic.replace("\\x", "")) == bytes.fromhex("7f454c46020101" + "00" * 9 + "0200b700")
    assert bytes.fromhex(mask.replace("\\x", "")) == bytes.fromhex("ff" * 7 + "00" + "ff" * 8 + "feffffff")
    assert (orders["program"], orders["behind"]) == ("/a/b", ":F")
    assert Emulator(ARM64).boxed is None, "the host's kernel knows one"


@pytest.mark.parametrize(
    ("text", "platform", "serves"),
    [
        (SHOWN.format(flags="F"), ARM64, True),
        (SHOWN.format(flags="POCF"), ARM64, True),
        (SHOWN.format(flags="F"), AMD64, False),
        (SHOWN.format(flags=""), ARM64, False),
        (SHOWN.format(flags="F").replace("enabled", "disabled"), ARM64, False),
        (SHOWN.format(flags="F").replace("magic 7f45", "magic xy"), ARM64, False),
        ("enabled\ninterpreter /usr/bin/cli\nflags: F\nextension .exe\n", ARM64, False),
        ("", ARM64, False),
    ],
)
def test_a_registration_of_the_host_serves_only_with_flag_f_and_for_its_platform(tmp_path, text, platform, serves):
    (tmp_path / "qemu").write_text(text)
    (tmp_path / "status").write_text(SHOWN.format(flags="F"))
    assert binfmt.is_registered(platform.elf_number, tmp_path) is serves
    assert not binfmt.is_registered(platform.elf_number, tmp_path / "none")


def test_register_writes_a_descriptor_of_the_emulator_and_nothing_for_the_whole_host(tmp_path, monkeypatch):
    folder = tmp_path / "proc/sys/fs/binfmt_misc"
    folder.mkdir(parents=True)
    (folder / "register").touch()
    (tmp_path / "a:b").write_bytes(b"emulator")
    mounted = []
    monkeypatch.setattr(namespaces, "mount", lambda *told: mounted.append(told[:3]))
    orders = Emulator(ARM64, tmp_path / "a:b").boxed.orders
    namespaces.register(str(tmp_path), orders, "user")
    assert mounted == [("binfmt_misc", str(folder), "binfmt_misc")]
    written = (folder / "register").read_text()
    path = written.removeprefix(orders["before"]).removesuffix(orders["behind"])
    assert path.removeprefix("/proc/self/fd/").isdigit()
    with pytest.raises(PermissionError):
        namespaces.register(str(tmp_path), orders, "mount")
    assert len(mounted) == 1


def test_a_kernel_without_a_registry_for_namespaces_is_told_of(tmp_path, monkeypatch):
    def start(orders, run):
        assert orders["emulator"]["program"] == "/q"
        return None, Failure(namespaces.EMULATOR, 1, "Operation not permitted")

    (tmp_path / "proc").mkdir()
    monkeypatch.setattr(box, "start_one", start)
    with refused(
        HostError, f"no program for {OTHER.title} can be run", "Linux 6.7", "qemu-user-static", "not permitted"
    ):
        sandbox.run_in(tmp_path, Exec(["true"], emulator=Emulator(OTHER, Path("/q"))))


# -- the emulator's package


def test_each_other_platform_has_an_emulator_of_debian_by_hash_on_x86_64():
    for row in PLATFORMS:
        known = emulator_package(AMD64.name, row.name)
        if row == AMD64:
            assert known is None
            continue
        assert known.program.rpartition("/")[2] == row.qemu
        assert known.package.architecture == AMD64.debian
        assert known.package.path.endswith(known.package.file.name)


def test_no_emulator_is_wanted_for_the_machines_own_processor():
    assert emulators.prepare_emulator(HERE, place(None)) is None
    assert emulators.stored_emulator(HERE, None) is None


def test_a_registered_emulator_of_the_host_is_taken(monkeypatch):
    monkeypatch.setattr(emulators, "is_registered", lambda _: True)
    assert emulators.prepare_emulator(OTHER, place(None)) == Emulator(OTHER)


@pytest.mark.skipif(HERE != AMD64, reason="an emulator is known for x86-64 machines")
def test_the_emulator_is_fetched_once_and_may_be_executed(cache, monkeypatch):
    fetched = []

    def fetch(packages, suite, ctx, *, listed, what):
        fetched.append((packages[0].name, suite, listed, what))
        return [Path("a.deb")]

    def extract(deb, begin, root, only):
        path = root / only
        path.parent.mkdir(parents=True)
        path.write_bytes(b"static")

    monkeypatch.setattr(emulators, "is_registered", lambda _: False)
    monkeypatch.setattr(emulators, "fetch_debs", fetch)
    monkeypatch.setattr(emulators, "inflate_member", lambda deb, target: 0)
    monkeypatch.setattr(emulators, "extract", extract)
    with refused(HostError, "is gone from the cache", "run the same command again"):
        emulators.stored_emulator(OTHER, cache)
    ours = emulators.prepare_emulator(OTHER, place(cache))
    assert emulators.prepare_emulator(OTHER, place(cache)) == emulators.stored_emulator(OTHER, cache) == ours
    assert os.access(ours.program, os.X_OK)
    known = emulator_package(HERE.name, OTHER.name)
    assert fetched == [(known.package.name, known.suite, known.listed, "emulator")]


@pytest.mark.skipif(HERE != AMD64, reason="an emulator is known for x86-64 machines")
def test_a_package_without_the_emulator_is_an_integrity_error(cache, monkeypatch):
    monkeypatch.setattr(emulators, "is_registered", lambda _: False)
    monkeypatch.setattr(emulators, "fetch_debs", lambda *_, **__: [Path("a.deb")])
    monkeypatch.setattr(emulators, "inflate_member", lambda deb, target: 0)
    monkeypatch.setattr(emulators, "extract", lambda *_, **__: {})
    with refused(IntegrityError, "a.deb has no program "):
        emulators.prepare_emulator(OTHER, place(cache))


def test_a_machine_without_a_known_emulator_is_told_of(monkeypatch):
    monkeypatch.setattr(emulators, "emulator_package", lambda *_: None)
    monkeypatch.setattr(emulators, "is_registered", lambda _: False)
    with refused(HostError, f"programs for {OTHER.title} cannot be run on ", "build on a machine"):
        emulators.prepare_emulator(OTHER, place(None))


# -- what is typed, and what there is


def test_a_platform_is_named_in_several_ways():
    for text in ("arm64", "linux/arm64", "aarch64", " ARM64 "):
        assert asked_for(text) is ARM64, text
        assert options.platform_name(text) == "linux/arm64"
    assert asked_for("x86-64") is asked_for("amd64") is AMD64
    assert options.platform_name("") == ""
    with refused(UsageError, "'riscv64' is not a platform of images, which are made for linux/amd64 and linux/arm64"):
        options.platform_name("riscv64")


def test_the_platform_stands_in_the_command_as_make_has_it():
    request = build_request(name="torch", cuda="13.0", platform="linux/arm64")
    assert str(request.command()) == "make image STACK=torch CUDA=13.0 ARCH=arm64"
    assert request.command().by("./build.py") == "./build.py image torch --cuda 13.0 --platform linux/arm64"
    assert "ARCH" not in str(build_request().command())
    lock = command("lock", "torch", cuda="13.0", platform="linux/arm64")
    assert str(lock) == "./build.py lock torch --cuda 13.0 --platform linux/arm64"


#: CUDA → torch of the variants that Grace has, the newest last; an update of recipes changes them
OF_GRACE = {
    variant.cuda: way.torch
    for variant in sorted(RECIPES["torch"].variants, key=lambda each: facts.numbers(each.cuda))
    for way in variant.candidates
    if facts.torch_build(way.torch, way.torch_cuda, ARM64)
}
NEWEST = [*OF_GRACE][-1]


def chosen(ctx=None, **asked):
    request = build_request(**{"name": "torch", "cuda": "13.0", "platform": "linux/arm64", **asked})
    return select_variant(request, ctx or SimpleNamespace(root=ROOT, progress=None, environment={}))


def test_a_variant_for_arm64_has_its_base_and_the_candidates_with_a_known_torch():
    choice = chosen()
    assert choice.variant.base.runs_on is ARM64
    assert [facts.torch_build(each.torch, each.torch_cuda, ARM64).cuda for each in choice.usable] == ["13.0"]
    for platform in ("", DEFAULT.name):
        assert chosen(platform=platform).variant == RECIPES["torch"].variant("13.0")


def test_gpus_of_grace_are_built_for_arm64_without_saying_so():
    for platform in ("", ARM64.name):
        choice = chosen(platform=platform, gpu="gh200,gb200")
        assert (choice.variant.base.runs_on, choice.gpu) == (ARM64, "gh200,gb200")
    told = []
    ctx = SimpleNamespace(root=ROOT, progress=SimpleNamespace(note=told.append))
    newest = chosen(ctx, platform="", cuda=None, gpu="gh200")
    assert (newest.variant.cuda, newest.variant.base.runs_on) == (NEWEST, ARM64)
    assert told[0].startswith(f"CUDA {NEWEST} for GH200 (sm_90): the newest of torch that runs there")
    assert chosen(platform="", gpu="sm_90").variant.base.runs_on is DEFAULT
    assert chosen(gpu="sm_90").variant.base.runs_on is ARM64


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (
            {"gpu": "a100"},
            (
                "no image is for A100 and for linux/arm64",
                "A100: linux/amd64",
                "make image STACK=torch CUDA=13.0 GPU=a100",
            ),
        ),
        ({"gpu": "gh200", "platform": DEFAULT.name}, ("no image is for GH200 and for linux/amd64",)),
        (
            {"gpu": "gh200,h100", "platform": ""},
            (
                "no image is for GH200 and H100: machines with them",
                "GPU=gh200; then make image STACK=torch CUDA=13.0 GPU=h100",
            ),
        ),
        ({"gpu": "gh200", "platform": "", "cuda": "12.8"}, ("CUDA 12.8 of torch does not run on GH200", "ARCH=arm64")),
        (
            {"gpu": "gh200", "platform": "", "name": "pyg", "cuda": "12.8"},
            ("CUDA 12.8 of pyg does not run on GH200", "no build of torch 2.10.0", "ARCH=arm64"),
        ),
    ],
)
def test_gpus_of_another_platform_or_of_two_are_refused(asked, words):
    with refused(UsageError, *words):
        chosen(**asked)


def test_explain_judges_grace_by_torchs_build_for_arm64():
    machine = MachineRequest(gpu="gh200")
    found = explain.explain(RECIPES["torch"], Target(gpus=("GH200",)), machine)
    accepted = [row for row in found.rows if row.verdict.accepted]
    assert [(row.torch, row.verdict.status, row.chosen) for row in accepted] == [
        (torch, "native", cuda == NEWEST) for cuda, torch in reversed(OF_GRACE.items())
    ]
    assert accepted[0].command == f"make image STACK=torch CUDA={NEWEST} ARCH=arm64 GPU=gh200"
    assert not any("SLIM" in detail for line in explain.answer(found).sections[0].entries for detail in line.details)
    rejected = next(row for row in found.rows if row.cuda == "12.8").verdict.reasons[0]
    assert (rejected.rule, "torch 2.10.0 for CUDA 12.8 and arm64" in rejected.what) == ("platform", True)
    with_extensions = explain.explain(RECIPES["pyg"], Target(gpus=("GB200",)), MachineRequest(gpu="gb200")).rows
    accepted = [row for row in with_extensions if row.verdict.accepted]
    assert [(row.cuda, row.verdict.status) for row in accepted] == [("13.2", "native"), ("13.0", "native")]
    assert accepted[0].command == f"make image CUDA={NEWEST} ARCH=arm64 GPU=gb200"


def test_torch_compile_of_arm64_names_no_setting_that_is_refused_there():
    assert note("2.12.1", "3.11", ["bash"]).endswith("or FLAVOUR=devel")
    ours = note("2.12.1", "3.11", ["bash"], ARM64)
    assert ours.endswith("and Python's headers, which images for arm64 are made without")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"cuda": "12.8"}, ("CUDA 12.8 of torch is not made for arm64", "from torch 2.11", "CUDA=13.0 ARCH=arm64")),
        ({"devel": True}, ("made without compiler and toolkit", "CUDA=13.0 ARCH=arm64")),
        ({"slim": "all"}, ("made without SLIM=yes",)),
        ({"engine": "docker"}, ("made without docker", "our own builder")),
    ],
)
def test_what_is_not_made_for_arm64_is_refused_with_what_is(asked, words):
    with refused(UsageError, *words):
        chosen(**asked)


@pytest.mark.parametrize(
    "asked", [{}, {"extensions": "none"}, {"extensions": "source"}, {"additions": Additions(packages=("einops",))}]
)
def test_pyg_is_made_for_arm64_with_and_without_extensions_and_with_packages_of_ones_own(asked):
    choice = chosen(name="pyg", **asked)
    assert (choice.variant.base.runs_on, [each.torch for each in choice.usable]) == (ARM64, [OF_GRACE["13.0"]])


def test_a_recipe_of_which_nothing_is_ported_says_so():
    recipe = RECIPES["glt"]
    variant = msgspec.structs.replace(recipe.variants[0], extensions=())
    request = build_request(name="glt", cuda=variant.cuda, platform=ARM64.name)
    with refused(UsageError, "nothing of glt is made for arm64"):
        ported.port(recipe, variant, variant.candidates, ARM64, request)


def test_locks_and_tags_of_arm64_lie_beside_those_of_the_default_platform():
    choice = chosen()
    (candidate,) = choice.usable
    ctx = SimpleNamespace(root=ROOT)
    path = catalog.lock_path(ctx, choice.recipe, choice.variant, candidate)
    assert path == ROOT / "images/torch/cu130/arm64/pypi.lock.json"
    assert str(catalog.renewal_of(ctx, path)).startswith("./build.py lock torch --cuda cu130 --platform linux/arm64")
    renewal = catalog.renewal(choice.recipe, choice.variant, candidate)
    assert str(renewal) == "./build.py lock torch --cuda 13.0 --platform linux/arm64 --channel pypi"
    lock = decode_lock((ROOT / "images/torch/cu130/pypi.lock.json").read_bytes())
    plan = make_plan(choice.recipe, lock, candidate, examples={})
    packages = tuple(
        package if package.architecture == "all" else msgspec.structs.replace(package, architecture="arm64")
        for package in lock.base.packages
    )
    ours = msgspec.structs.replace(lock, base=msgspec.structs.replace(lock.base, packages=packages))
    arm = make_plan(choice.recipe, ours, candidate, examples={})
    assert (arm.platform, arm.tag) == (ARM64, f"{plan.tag}-arm64")


# -- bytecode


def twin_of(emulator, monkeypatch, version, today="3.11.2"):
    made = []
    debian = SimpleNamespace(
        python_version=lambda base: version if base != "today" else today,
        lock=lambda *_: made.append("asked") or "today",
    )
    monkeypatch.setattr(bases, "provider", lambda _: debian)
    monkeypatch.setattr(bases, "prepare_base", lambda ctx, base: base)
    monkeypatch.setattr(bases, "DebianBase", object)
    lock = SimpleNamespace(recipe="torch", cuda="13.0", candidate="pypi", python="3.11")
    lock.base = SimpleNamespace(suite="bookworm")
    notes = []
    ctx = SimpleNamespace(root=ROOT, progress=SimpleNamespace(note=notes.append))
    base = SimpleNamespace(emulator=emulator, python_version="3.11.2")
    return bases.native_twin(ctx, lock, base), made, notes


def test_bytecode_is_made_by_the_same_python_of_this_machines_processor(monkeypatch):
    assert twin_of(None, monkeypatch, "3.11.2") == (None, [], [])
    committed, asked, _ = twin_of(Emulator(OTHER), monkeypatch, "3.11.2")
    assert asked == []
    assert committed == decode_lock((ROOT / "images/torch/cu130/pypi.lock.json").read_bytes()).base
    assert twin_of(Emulator(OTHER), monkeypatch, "3.11.1")[:2] == ("today", ["asked"])
    twin, _, notes = twin_of(Emulator(OTHER), monkeypatch, "3.11.1", today="3.11.3")
    assert twin is None
    assert notes == [f"no base for {HERE.title} has Python 3.11.2: the emulated one compiles bytecode"]


# -- the test


def verdict(**more):
    line = {"suite": "emulated", "status": "passed", "device": "cpu", "metrics": {}, "versions": {}, **more}
    return ["Phase: training (torch)", json.dumps(line)]


def test_the_emulated_program_imports_pyg_only_where_the_image_has_it():
    assert emulated.program(OTHER, ["torch"]).argv[-1] == emulated._STEPS
    assert emulated.program(OTHER, ["torch", "torch-geometric"]).argv[-1] == "torch_geometric"
    with_extensions = emulated.program(OTHER, ["torch-geometric", "torch-sparse", "torch", "torch-scatter"]).argv
    assert with_extensions[-3:] == ("torch_scatter", "torch_sparse", "torch_geometric"), "PyG hides a failed import"
    compile(emulated._STEPS, "steps", "exec")


@pytest.mark.parametrize(
    ("ran", "status", "reason"),
    [
        (Ran(verdict(), 0, 100.0), "passed", ""),
        (Ran(verdict(device="cuda:0"), 0, 100.0), "failed", "it says that it ran on cuda:0, and it was given no GPU"),
        (Ran(verdict(), 139, 100.0), "failed", "torch: it said passed, then it was ended by SIGSEGV"),
        (Ran(["Phase: importing torch (torch)"], 1, 9.0), "failed", "torch: it ended with exit code 1"),
        (
            Ran(["Phase: importing torch (torch)"], 0, 9.0, "no end"),
            "failed",
            "machine: no end (while importing torch)",
        ),
    ],
)
def test_an_emulated_run_is_judged_by_its_verdict_and_never_on_a_gpu(ran, status, reason):
    program = emulated.program(OTHER, [])
    report = program.judge(program, ran, True)
    assert (report.suite, report.status) == ("emulated", status)
    assert report.reason.startswith(reason)
    marked = msgspec.structs.replace(report, device=emulated.marked(report.device, OTHER))
    assert marked.device == f"cpu (emulating {OTHER.title})"
    assert not policy._is_gpu(marked)


def order_for(platform, tmp_path, device="auto"):
    layout = Artifact(engine="embedded", kind="layout", reference=str(tmp_path), digest=f"sha256:{'7' * 64}", bytes=1)
    return TrialOrder(
        artifact=layout,
        suites=("torch",),
        device=device,
        folder=str(tmp_path / "out"),
        passes=str(tmp_path / "passes"),
        platform=platform.name,
    )


def test_an_image_for_another_processor_is_tried_by_an_emulator_alone(tmp_path, monkeypatch):
    prepared = []
    runner = SimpleNamespace(runtime=lambda _: RuntimeVersion("graphcrate", "1"), opened=lambda *_, **__: _Opened())
    monkeypatch.setattr(run_suites.table, "runner", lambda _: runner)
    monkeypatch.setattr(run_suites, "prepare_emulator", lambda platform, ctx: prepared.append(platform))
    monkeypatch.setattr(run_suites.smoke, "runs_on_gpu", lambda device: True)
    monkeypatch.setattr(
        run_suites.smoke,
        "run",
        lambda program, *_, on_gpu, **__: program.judge(program, Ran(verdict(), 0, 9.0), on_gpu),
    )
    ctx = place(None)
    (result,) = run_suites.run_suites(order_for(OTHER, tmp_path), ctx, print).suites
    assert (result.suite, result.device, prepared) == ("emulated", f"cpu (emulating {OTHER.title})", [OTHER])
    (kept,) = (tmp_path / "passes").iterdir()
    assert json.loads(kept.read_bytes())["claim"]["device"] == result.device
    (again,) = run_suites.run_suites(order_for(OTHER, tmp_path), ctx, print).suites
    assert again.remembered, "it is a pass of its own kind of machine"
    assert [test.program.name for test in run_suites._tests(order_for(HERE, tmp_path), ctx)] == ["torch"]
    with refused(UsageError, f"for {OTHER.title}, which an emulator runs here, and that has no GPU"):
        run_suites.run_suites(order_for(OTHER, tmp_path, device="cuda"), ctx, print)


class _Opened:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


def test_a_suite_that_is_named_is_refused_where_an_emulator_would_run_it():
    with refused(UsageError, f"no suite runs here in an image for {OTHER.title}", "--suite torch --runner slurm"):
        artifact._refuse_emulated(["torch"], OTHER, "embedded")
    for allowed in (((), OTHER, "embedded"), (["torch"], HERE, "embedded"), (["torch"], OTHER, "slurm")):
        assert artifact._refuse_emulated(*allowed) is None


def test_no_other_engine_builds_for_another_platform_where_the_embedded_builder_cannot(monkeypatch):
    def build(job, ctx):
        raise HostError("no program for arm64 can be run on this machine")

    monkeypatch.setattr(pipeline, "_build_and_test", build)
    monkeypatch.setattr(pipeline.with_engine, "first_that_answers", lambda ctx: pytest.fail("asked for an engine"))
    request = build_request(name="torch", cuda="13.0", platform=ARM64.name)
    with refused(HostError, "no program for arm64"):
        pipeline.build_image(request, SimpleNamespace(root=ROOT, progress=None, environment={}))


def test_the_provenance_of_an_image_asks_for_its_platform_again():
    request = build_request(name="torch", cuda="13.0", platform=ARM64.name)
    parameters = request.parameters("pypi")
    assert BuildRequest.again(parameters).platform == ARM64.name
    default = build_request(platform=DEFAULT.name).parameters("pypi")
    assert b"platform" not in msgspec.json.encode(default)
    assert BuildRequest.again(default).platform == ""


def test_run_says_that_an_emulator_runs_the_image():
    assert running.emulated(ARM64) == "the image is for arm64, which an emulator runs here: slowly, and without GPUs"


# -- machines for arm64 themselves


@pytest.mark.parametrize(
    ("here", "asked", "platform"),
    [
        (ARM64, {}, "linux/arm64"),
        (ARM64, {"platform": "linux/amd64"}, "linux/amd64"),
        (ARM64, {"machine": MachineRequest(gpu="a100")}, ""),  # those machines decide
        (ARM64, {"machine": MachineRequest(target="dgx2")}, ""),
        (AMD64, {}, ""),
        (AMD64, {"platform": "linux/arm64"}, "linux/arm64"),
    ],
)
def test_image_is_for_the_machine_that_builds_it_where_nothing_else_is_asked(monkeypatch, here, asked, platform):
    monkeypatch.setattr(requests, "this_machine", lambda: here)
    assert requests.build_request("image", "torch", "13.2", **asked).platform == platform


def test_texts_are_rendered_alike_on_every_machine(monkeypatch):
    monkeypatch.setattr(requests, "this_machine", lambda: ARM64)
    assert requests.build_request("render", "torch", "13.2").platform == ""


@pytest.mark.parametrize(
    ("machine", "platform"), [("aarch64", ARM64), ("x86_64", AMD64), ("riscv64", DEFAULT), ("ppc64le", DEFAULT)]
)
def test_this_machines_platform_is_by_uname(monkeypatch, machine, platform):
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine=machine, release="6.8"))
    assert emulation.this_machine() == platform
    assert emulation.is_native(platform) == (platform.machine == machine)


def test_arm64_machine_runs_arm64_itself_and_says_that_it_does_not_run_x86_64(monkeypatch, cache):
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine="aarch64", release="6.8"))
    monkeypatch.setattr(emulators, "is_registered", lambda _: False)
    assert emulators.prepare_emulator(ARM64, place(cache)) is None
    with refused(HostError, "programs for x86-64 cannot be run on aarch64", "build on a machine for x86-64"):
        emulators.prepare_emulator(AMD64, place(cache))
