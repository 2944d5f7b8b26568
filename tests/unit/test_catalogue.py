"""What there is for which GPUs, and variants that are refused."""

import io

import msgspec
import pytest
from rich.console import Console

from graphcrate.artifacts import locate
from graphcrate.cli import tables
from graphcrate.compat import catalog, facts, recipes
from graphcrate.host.context import Context
from graphcrate.model.errors import ResolutionError, UsageError
from tests import ROOT
from tests.unit import small_layouts, tars

PYG = recipes.load(ROOT / "recipes" / "pyg.toml")


@pytest.mark.parametrize(
    ("gpus", "architectures"),
    [("v100", ("7.0",)), ("a100,V100", ("7.0", "8.0")), ("b200,h100,h200,rtx-5090", ("9.0", "10.0", "12.0"))],
)
def test_architectures_of_gpus(gpus, architectures):
    assert facts.architectures_for(gpus) == architectures


@pytest.mark.parametrize(("gpus", "words"), [("v100,a1000", "unknown GPU 'a1000'"), (" , ", "names no GPU")])
def test_lists_that_name_no_gpu(gpus, words):
    with pytest.raises(UsageError, match=words):
        facts.architectures_for(gpus)


def test_a_refused_variant_says_why_and_what_to_do_instead():
    with pytest.raises(ResolutionError) as caught:
        catalog.find_variant(Context(root=ROOT, environment={}), "glt", "cpu")
    assert "CUDA" in caught.value.cause
    assert caught.value.next_step.startswith("make image STACK=glt CUDA=")


def test_a_refused_variant_stands_in_the_list_but_not_among_what_can_be_built():
    glt = recipes.load(ROOT / "recipes" / "glt.toml")
    assert [entry["cuda"] for entry in catalog.describe([glt], set())] == ["11.6", "11.6", "11.7", "12.1"]
    shown = io.StringIO()
    Console(width=400, file=shown).print(tables.variants_table([glt], set()))
    assert "not available: " in shown.getvalue()


def test_every_gpu_that_torch_runs_on_runs_what_is_compiled_by_default():
    """A GPU that torch has code for must not meet extensions without any."""
    for path in sorted((ROOT / "recipes").glob("*.toml")):
        for variant in recipes.load(path).variants:
            for gpu, capability in facts.gpus().items():
                served = [facts.runs_on(candidate, capability) for candidate in variant.candidates]
                if variant.architectures and tuple(map(int, capability.split("."))) >= (7, 0) and any(served):
                    assert any(covers(entry, capability) for entry in variant.architectures), (variant.cuda, gpu)


def covers(architecture, capability):
    number, plus, _ = architecture.partition("+")
    fake = msgspec.structs.replace(PYG.variants[0].candidates[0], torch="0", torch_cuda="0")
    assert facts.runs_on(fake, capability) is None
    major, minor = map(int, number.split("."))
    wanted = tuple(map(int, capability.split(".")))
    return (wanted[0] == major and wanted[1] >= minor) or (bool(plus) and wanted >= (major, minor))


def test_a_digest_that_is_named_is_that_of_the_image(tmp_path):
    folder = tmp_path / "pyg/1.0"
    folder.mkdir(parents=True)
    layout = small_layouts.layout(folder, [tars.file("a")])
    for ref in ("pyg:1.0", f"pyg:1.0@{layout.digest}", str(layout.path)):
        assert locate.find_image(ref, tmp_path)[0].digest == layout.digest
    with pytest.raises(UsageError, match=rf"pyg:1\.0 is {layout.digest} now, and sha256:0+ was asked for") as caught:
        locate.find_image(f"pyg:1.0@sha256:{'0' * 64}", tmp_path)
    assert caught.value.next_step.endswith(f" pyg:1.0@{layout.digest}")
