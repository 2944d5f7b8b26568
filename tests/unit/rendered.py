"""What a rendered text must say of its plan, found by looking for it."""

from graphcrate.compat.planning import EXAMPLES, EXAMPLES_TITLE, PROGRAMS
from graphcrate.engines.render.layout import double
from graphcrate.model.lock import ImageToolkit, WheelToolkit
from graphcrate.model.plan import (
    CUDA_HOME,
    BaseStep,
    CompileStep,
    ConfigStep,
    FilesStep,
    RequirementsStep,
    ToolkitStep,
    WheelsStep,
)
from graphcrate.model.recipe import Channel


def lacking(plan, text, only=object, elsewise=()):
    """Words of the plan's steps of these kinds that are missing in the text, less those it expresses in another way."""
    wanted = [word for step in plan.steps if isinstance(step, only) for word in words(step)]
    return [word for word in wanted if word not in text and word not in elsewise]


def words(step):
    match step:
        case BaseStep():
            return [step.image.reference, *step.image.packages]
        case FilesStep() if step.title == EXAMPLES_TITLE:
            return [EXAMPLES, f"{PROGRAMS}/suites"] if step.files else []
        case FilesStep():
            return [file.path for file in step.files]
        case WheelsStep():
            from_pytorch = any(package.channel is Channel.PYTORCH for package in step.packages)
            return [*pinned(step.packages), *(["PYTORCH_INDEX"] if from_pytorch else [])]
        case CompileStep():
            used = step.compilation
            lists = ["FORCE_CUDA", f'"{";".join(used.architectures)}"'] if used.toolkit else ["FORCE_ONLY_CPU"]
            return [*pinned((*step.packages, *used.tools)), used.compiler, *lists, *of_toolkit(used.toolkit)]
        case ToolkitStep():
            return [CUDA_HOME, *of_toolkit(step.toolkit)]
        case RequirementsStep():
            return list(step.requirements)
        case ConfigStep():
            pairs = {**step.environment, **step.labels}
            values = [double(value)[1:-1] for value in pairs.values()]
            return [*pairs, *values, *step.command, *step.entrypoint]
    raise AssertionError(step)


def pinned(packages):
    return [word for one in packages for word in (f"{one.name}=={one.version}", one.file.sha256)]


def of_toolkit(toolkit):
    match toolkit:
        case None:
            return []
        case ImageToolkit():
            return [toolkit.reference, toolkit.digest]
        case WheelToolkit():
            return pinned(toolkit.wheels)
    found = [word for one in toolkit.packages for word in (f"{one.name}={one.version}", one.file.sha256)]
    return [*found, *pinned(toolkit.wheels)]
