"""For which GPUs a lock's sources are compiled."""

from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from graphcrate.build import extensions
from graphcrate.compat import planning
from graphcrate.compat.request import SourceOptions
from graphcrate.host.context import Context
from graphcrate.inputs import toolkits
from graphcrate.inputs.bases import BaseDriftError
from graphcrate.model.errors import ResolutionError, UsageError
from tests.unit.test_planning_compiled import compiled_lock, lock


def chosen(gpus, toolkit="11.8.89"):
    made = extensions.for_gpus(compiled_lock(toolkit=toolkit), gpus)
    return made.compilation.architectures, made.notes


def test_without_a_model_the_recipe_decides():
    value = compiled_lock()
    assert extensions.for_gpus(value, None) is value


def test_models_give_their_architectures_and_nothing_else():
    assert chosen("v100") == (("7.0",), ())
    assert chosen("v100,a100")[0] == ("7.0", "8.0")


def test_a_gpu_newer_than_the_toolkit_gets_ptx_and_a_note():
    architectures, notes = chosen("v100,b200", toolkit="12.4.131")
    assert architectures == ("7.0", "9.0+PTX")
    assert "nvcc 12.4.131 makes no code for 10.0" in notes[-1]


def test_machine_code_beside_ptx_of_the_same_architecture_is_named_once():
    assert chosen("h100,b200", toolkit="12.4.131")[0] == ("9.0+PTX",)


def test_a_gpu_that_the_toolkit_has_dropped_is_refused():
    with pytest.raises(UsageError, match=r"7\.0 was dropped after CUDA 12"):
        chosen("v100", toolkit="13.0.88")


def test_a_lock_that_compiles_nothing_stays_as_it_is():
    assert extensions.for_gpus(lock(), "v100") == lock()
    cpu = compiled_lock(toolkit="")
    assert extensions.for_gpus(cpu, "v100") is cpu


def test_an_unknown_model_is_refused_with_the_nearest():
    with pytest.raises(UsageError, match="v1000"):
        extensions.for_gpus(msgspec.structs.replace(compiled_lock()), "v1000")


def test_a_toolkit_whose_packages_are_replaced_is_no_drift_of_the_base(tmp_path, monkeypatch):
    def gone(*_):
        raise BaseDriftError("the lock's Debian bookworm CUDA toolkit 11.8.89 is out of date", cause="Replaced.")

    monkeypatch.setattr(toolkits, "prepare", gone)
    monkeypatch.setattr(extensions, "files", lambda *_: {})
    ctx = Context(root=tmp_path, environment={"GRAPHCRATE_CACHE": str(tmp_path / "cache")})
    value, base = compiled_lock(), SimpleNamespace(rootfs=Path("/nowhere"))
    with pytest.raises(ResolutionError, match="CUDA toolkit") as caught:
        extensions._toolkit(value.compilation.toolkit, base, value, SourceOptions(toolkit="debian"), ctx)
    assert not isinstance(caught.value, BaseDriftError)
    assert caught.value.next_step.startswith("./build.py lock pyg --cuda 11.8 --toolkit debian")


@pytest.mark.parametrize("there", [False, True])
def test_the_base_with_the_compiler_is_made_beforehand_where_something_is_compiled(tmp_path, monkeypatch, there):
    def out_of_date(step, _):
        wanted.append(step)
        raise BaseDriftError("the lock's Debian bookworm base is out of date")

    wanted = []
    value = compiled_lock()
    step = planning.compile_step(value)
    monkeypatch.setattr(extensions, "_build_base", out_of_date)
    monkeypatch.setattr(extensions, "built", lambda *_: [one.file.sha256 for one in step.packages] if there else [])
    extensions.prepare(SimpleNamespace(steps=(step,)), value, SimpleNamespace())  # told when it is wanted, not here
    assert wanted == ([] if there else [step])
    extensions.prepare(SimpleNamespace(steps=()), lock(), SimpleNamespace())
