"""For which GPUs a lock's sources are compiled."""

from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock, call

import msgspec
import pytest

from graphcrate.build import extensions
from graphcrate.compat import planning
from graphcrate.compat.request import SourceOptions
from graphcrate.host.context import Context
from graphcrate.inputs import toolkits
from graphcrate.inputs.bases import BaseDriftError
from graphcrate.model.errors import ResolutionError, UsageError
from tests.made import refused
from tests.unit.compiled_plans import TOOLKITS, lock, plain_lock

COMPILED = lock(TOOLKITS["pypi"])
NEWER = "nvcc 12.4.131 makes no code for 10.0: extensions bring PTX of 9.0, which the driver translates"


def compiled_by(nvcc):
    return lock(msgspec.structs.replace(TOOLKITS["pypi"], version=nvcc))


@pytest.mark.parametrize(
    ("gpus", "toolkit", "architectures", "note"),
    [
        ("v100", "11.8.89", ("7.0",), ""),
        ("v100,a100", "11.8.89", ("7.0", "8.0"), ""),
        ("v100,b200", "12.4.131", ("7.0", "9.0+PTX"), NEWER),
        ("h100,b200", "12.4.131", ("9.0+PTX",), NEWER),  # not machine code beside PTX of the same architecture
    ],
)
def test_models_give_their_architectures_and_nothing_else(gpus, toolkit, architectures, note):
    made = extensions.for_gpus(compiled_by(toolkit), gpus)
    assert made.compilation.architectures == architectures
    assert "".join(made.notes).startswith(note)
    assert bool(made.notes) == bool(note)


def test_what_cannot_be_compiled_for_is_refused():
    with refused(UsageError, "7.0 was dropped after CUDA 12"):
        extensions.for_gpus(compiled_by("13.0.88"), "v100")
    with refused(UsageError, "unknown GPU 'v1000'"):
        extensions.for_gpus(compiled_by("11.8.89"), "v1000")


@pytest.mark.parametrize(("value", "gpus"), [(COMPILED, None), (plain_lock(), "v100"), (lock(None), "v100")])
def test_without_a_model_or_a_toolkit_the_lock_stays_as_it_is(value, gpus):
    assert extensions.for_gpus(value, gpus) is value


def test_a_toolkit_whose_packages_are_replaced_is_no_drift_of_the_base(tmp_path, monkeypatch):
    drift = BaseDriftError("the lock's Debian bookworm CUDA toolkit 11.8.89 is out of date", cause="Replaced.")
    monkeypatch.setattr(toolkits, "prepare", Mock(side_effect=drift))
    monkeypatch.setattr(extensions.Compiling, "files", lambda _: {})
    ctx = Context(root=tmp_path, environment={"GRAPHCRATE_CACHE": str(tmp_path / "cache")})
    compiling = extensions.Compiling(None, COMPILED, SourceOptions(toolkit="debian"), ctx)
    with refused(ResolutionError, "CUDA toolkit", "./build.py lock small --cuda 11.7 --toolkit debian") as caught:
        compiling._toolkit(COMPILED.compilation.toolkit, SimpleNamespace(rootfs=Path("/nowhere")))
    assert not isinstance(caught.value, BaseDriftError)


@pytest.mark.parametrize("there", [False, True])
def test_the_base_with_the_compiler_is_made_beforehand_where_something_is_compiled(monkeypatch, there):
    build = Mock(side_effect=BaseDriftError("the lock's Debian bookworm base is out of date"))
    (step,) = planning.compile_steps(COMPILED)
    monkeypatch.setattr(extensions.Compiling, "_build_base", build)
    monkeypatch.setattr(extensions, "built", lambda *_: [one.file.sha256 for one in step.packages] if there else [])
    extensions.Compiling(SimpleNamespace(steps=(step,)), COMPILED, None, None).prepare()  # reported when it is wanted
    extensions.Compiling(SimpleNamespace(steps=()), plain_lock(), None, None).prepare()
    assert build.call_args_list == ([] if there else [call(step)])
