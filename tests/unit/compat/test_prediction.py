"""`explain` before a download, contracts of the image and its audit agree.

The audit's side is its own judgement of machine code that was measured in the wheels of the committed locks
(`python -m tools.locked_code`), with extensions compiled as the recipe or GPU= says.
"""

import functools

import msgspec
import pytest

from graphcrate.checks.audit import run as audit
from graphcrate.checks.contracts import gpu as contracts
from graphcrate.checks.contracts import run as contracts_run
from graphcrate.compat.facts import facts, gpu_code, gpu_table, toolkits
from graphcrate.compat.plan import planning
from graphcrate.compat.variants import explain
from graphcrate.compat.variants.choice import select_variant
from graphcrate.compat.variants.request import BuildRequest
from graphcrate.compat.variants.targets import MachineRequest, Target
from graphcrate.host.context import Context
from graphcrate.model.audit import Contents, InstalledDistribution
from graphcrate.model.contract import Host, ImageView, Settings
from graphcrate.model.errors import UsageError
from graphcrate.model.lock import decode_lock
from graphcrate.model.plan import ConfigStep, site_packages
from tests import ROOT
from tests.made import RECIPES, refused
from tools import locked_code
from treeaudit.values import Binary, GpuCode

LOCKS = sorted(path.relative_to(ROOT / "images") for path in (ROOT / "images").glob("*/*/*.lock.json"))
CAPABILITIES = {capability: models[0] for capability, models in gpu_table.models_by_capability().items()}


@functools.cache
def opened(path):
    lock = decode_lock((ROOT / "images" / path).read_bytes())
    variant = RECIPES[lock.recipe].variant(lock.cuda)
    return lock, variant, next(one for one in variant.candidates if one.name == lock.candidate)


@functools.cache
def measured():
    return locked_code.known()


def compiled(architectures):
    """The code that nvcc makes for TORCH_CUDA_ARCH_LIST."""
    sass = tuple(name.removesuffix("+PTX") for name in architectures)
    return GpuCode(sass=sass, ptx=tuple(name.removesuffix("+PTX") for name in architectures if name.endswith("+PTX")))


def contents(lock, architectures):
    """The libraries of a lock's image that have GPU code, in their packages."""
    site = site_packages(lock.python)
    binaries, distributions = {}, []
    for package in lock.packages:
        wheel = measured().get(package.file.name)
        libraries = dict(wheel.libraries) if wheel else {}
        if package.compiled:
            name = package.name.replace("-", "_")
            libraries = {f"{name}/_{name}_cuda.so": locked_code.Library(code=compiled(architectures))}
        paths = {f"{site}/{path}": one for path, one in libraries.items()}
        for path, one in paths.items():
            binaries[path] = Binary(size=1, soname=one.soname, code=one.code, mentions=one.names)
        distributions.append(
            InstalledDistribution(name=package.name, version=package.version, folder=site, files=frozenset(paths))
        )
    return Contents(name="", form="layout", binaries=binaries, distributions=tuple(distributions), python=lock.python)


def view(lock, variant, candidate, architectures):
    """The view of a lock's image for contracts."""
    if lock.compilation:
        compilation = msgspec.structs.replace(lock.compilation, architectures=architectures)
        lock = msgspec.structs.replace(lock, compilation=compilation)
    plan = planning.make_plan(RECIPES[lock.recipe], lock, candidate, examples={})
    (config,) = plan.of(ConfigStep)
    return ImageView(
        name="",
        form="layout",
        settings=Settings(labels=config.labels),
        distributions={package.name: package.version for package in lock.packages},
        torch=lock.package("torch").version,
        cuda=lock.torch_cuda,
    )


def said(verdicts):
    return {capability: verdict.status for capability, verdict in verdicts.items()}


def test_the_wheels_of_every_committed_lock_are_measured():
    wanted = {name: file.sha256 for name, (_, file) in locked_code.locked().items()}
    assert {name: one.sha256 for name, one in measured().items()} == wanted, "python -m tools.locked_code"
    assert locked_code.MEASURED.read_bytes() == locked_code.written(measured())


@pytest.mark.parametrize("path", LOCKS, ids=str)
def test_predicted_gpus_of_published_images_agree_with_audit_and_contracts(path):
    lock, variant, candidate = opened(path)
    predicted = explain.by_capability(RECIPES[lock.recipe], variant, candidate)
    found = audit.by_capability(contents(lock, variant.architectures))
    assert said(predicted) == said(found), {name: one.why for name, one in found.items()}
    assert said(predicted) == said(contracts.by_capability(view(lock, variant, candidate, variant.architectures)))
    for capability, verdict in predicted.items():
        assert verdict.status == "fails" or set(verdict.lost) == set(found[capability].lost), capability


@pytest.mark.parametrize("path", LOCKS, ids=str)
def test_predicted_gpus_of_images_for_a_named_gpu_agree_with_audit(path):
    lock, variant, candidate = opened(path)
    predicted = explain.by_capability(RECIPES[lock.recipe], variant, candidate, named=True)
    for capability, verdict in predicted.items():
        architectures = variant.architectures
        try:
            if variant.extensions:
                nvcc = toolkits.options(lock.torch_cuda)[0].version
                architectures = toolkits.to_compile((capability,), nvcc)[0]
        except UsageError:  # nvcc does not know the GPU: nothing is built
            assert verdict.status == "fails", capability
            continue
        found = audit.by_capability(contents(lock, architectures))[capability]
        seen = contracts.by_capability(view(lock, variant, candidate, architectures))[capability]
        assert verdict.status == found.status == seen.status, (capability, verdict, found, seen)
        assert verdict.status == "fails" or verdict.lost == seen.lost == found.lost, capability


@pytest.mark.parametrize("path", LOCKS, ids=str)
def test_torch_facts_equal_the_gpu_code_of_its_libraries(path):
    lock, _, _ = opened(path)
    build = facts.torch_build(lock.package("torch").version, lock.torch_cuda)
    libraries = measured()[lock.package("torch").file.name].libraries
    code = gpu_code.together("torch", {name: one.code for name, one in libraries.items()})
    assert (build.sm, build.ptx, build.some) == (code.sass, code.ptx, code.some)
    ours = gpu_code.deciding("torch", {name: one.code for name, one in libraries.items()}).values()
    for capability in CAPABILITIES:
        runs = facts.torch_runs_on(build.torch, build.cuda, capability)
        assert runs == (gpu_code.all_serve(ours, capability) == "native"), capability


CTX = Context(root=ROOT, environment={})


@pytest.mark.parametrize("path", LOCKS, ids=str)
def test_explain_refuses_gpus_without_code_before_the_download(path):
    lock, variant, candidate = opened(path)
    for model in CAPABILITIES.values():
        words = MachineRequest(gpu=model.lower())
        found = explain.explain(RECIPES[lock.recipe], Target(gpus=(model,)), words)
        row = next(one for one in found.rows if (one.cuda, one.candidate) == (lock.cuda, candidate.name))
        promised = said(explain.by_capability(RECIPES[lock.recipe], variant, candidate, named=True))
        assert row.verdict.accepted == (promised[gpu_table.compute_capability(model)] != "fails")
        if not any(one.verdict.accepted for one in found.rows if one.cuda == lock.cuda):
            with refused(UsageError, f"CUDA {lock.cuda} of {lock.recipe} does not run on"):
                select_variant(BuildRequest(name=lock.recipe, cuda=lock.cuda, machine=words), CTX)


@pytest.mark.parametrize(
    ("path", "gpu", "feature"),
    [("pyg/cu130/pypi.lock.json", "T4", "MAGMA"), ("torch/cu121/pypi.lock.json", "H100", "cuSPARSELt")],
)
def test_feature_without_code_for_a_gpu_is_a_note_of_explain(path, gpu, feature):
    lock, variant, candidate = opened(path)
    found = explain.explain(RECIPES[lock.recipe], Target(gpus=(gpu,)), MachineRequest(gpu=gpu.lower()))
    row = next(one for one in found.rows if one.cuda == lock.cuda)
    assert [one for one in row.verdict.lost if feature in one and gpu in one]
    host = Host(gpus=(gpu,))
    judged = contracts_run.judge(view(lock, variant, candidate, variant.architectures), host, ("docker",))
    (seen,) = (one for one in judged if one.check == "gpu")
    assert (seen.status, feature in seen.seen) == ("pass", True)
    notes = [
        one
        for one in audit.judge(contents(lock, variant.architectures), [gpu]).findings
        if one.check == "architectures"
    ]
    assert [one.severity for one in notes if feature in one.breaks] == ["note"]
