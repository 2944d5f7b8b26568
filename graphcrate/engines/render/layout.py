"""What the templates share: jinja2 with delimiters that neither shell nor definition files use, and text filters."""

import functools
import importlib.resources
import shlex
import textwrap
from collections.abc import Mapping, Sequence

import jinja2

import graphcrate.engines.render.commands as commands
from graphcrate.compat.planning import EXAMPLES, EXAMPLES_TITLE, PROGRAMS
from graphcrate.model.errors import BuildError
from graphcrate.model.lock import ImageToolkit, LockedPackage, Toolkit, WheelToolkit
from graphcrate.model.plan import (
    CUDA_HOME,
    BaseStep,
    CompileStep,
    ConfigStep,
    FilesStep,
    Plan,
    RequirementsStep,
    ToolkitStep,
    WheelsStep,
)
from graphcrate.model.recipe import Channel

WIDTH = 118


@functools.cache
def _environment() -> jinja2.Environment:
    folder = importlib.resources.files("graphcrate.engines.render") / "templates"
    names = ("Dockerfile", "definition", "page.md", "job-options", "job-singularity", "job-pyxis", "job-docker")
    environment = jinja2.Environment(
        # Part of the package, as constant as code.
        loader=jinja2.DictLoader({name: (folder / name).read_text(encoding="utf-8") for name in names}),
        block_start_string="<%",
        block_end_string="%>",
        variable_start_string="<<",
        variable_end_string=">>",
        comment_start_string="<#",
        comment_end_string="#>",
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        # shell and Markdown: nothing is to be turned into HTML entities
        autoescape=False,
    )
    environment.filters |= {
        "run": commands.run,
        "script": commands.script,
        "comment": comment,
        "double": double,
        "pairs": pairs,
        "quoted": commands.quoted,
        "word": shlex.quote,
    }
    return environment


def rendered(template: str, values: Mapping[str, object]) -> str:
    """A template with its values. A value that it lacks is an error."""
    return _environment().get_template(template).render(values)


def comment(text: str, indent: str = "") -> str:
    """Lines of a comment."""
    return "\n".join(wrapped(text, WIDTH, f"{indent}# "))


def wrapped(text: str, width: int, start: str = "") -> list[str]:
    """Lines of at most `width` characters, each with this start; names and paths stay whole."""
    return textwrap.wrap(
        text, width, initial_indent=start, subsequent_indent=start, break_on_hyphens=False, break_long_words=False
    )


def double(text: str) -> str:
    """In double quotes, for ENV, LABEL and `export`."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$").replace("`", "\\`")
    return f'"{escaped}"'


def pairs(values: Mapping[str, str], indent: str) -> str:
    """`A="1" \\` and so on, one on each line."""
    return f" \\\n{indent}".join(f"{name}={double(value)}" for name, value in values.items())


def complete(plan: Plan, text: str, what: str, only: tuple[type, ...] = (object,), elsewise: Sequence[str] = ()) -> str:
    """The text itself. Raises BuildError when it lacks anything that the plan says: nothing is dropped in silence.

    `only`: the kinds of step that such a text is about. `elsewise`: what it expresses in other words.
    """
    for step in (step for step in plan.steps if isinstance(step, only)):
        for needed in _traces(step):
            if needed not in text and needed not in elsewise:
                raise BuildError(
                    f"the {what} of {plan.name}:{plan.tag} lacks {needed!r} of the plan's {type(step).__name__}",
                    cause="Its template drops a step that it should express or refuse.",
                    next_step="compare graphcrate/engines/render/templates with graphcrate/model/plan.py",
                )
    return text


def _traces(step: object) -> list[str]:
    """What must stand in a text that expresses this step."""
    match step:
        case BaseStep():
            return [step.image.reference, *step.image.packages]
        case FilesStep() if step.title == EXAMPLES_TITLE:
            return [EXAMPLES, f"{PROGRAMS}/suites"] if step.files else []
        case FilesStep():
            return [file.path for file in step.files]
        case WheelsStep():
            from_pytorch = any(package.channel is Channel.PYTORCH for package in step.packages)
            return [*_pinned(step.packages), *(["PYTORCH_INDEX"] if from_pytorch else [])]
        case CompileStep():
            used = step.compilation
            lists = ["FORCE_CUDA", f'"{";".join(used.architectures)}"'] if used.toolkit else ["FORCE_ONLY_CPU"]
            return [*_pinned((*step.packages, *used.tools)), used.compiler, *lists, *_of_toolkit(used.toolkit)]
        case ToolkitStep():
            return [CUDA_HOME, *_of_toolkit(step.toolkit)]
        case RequirementsStep():
            return list(step.requirements)
        case ConfigStep():
            pairs = {**step.environment, **step.labels}
            return [*pairs, *map(_escaped, pairs.values()), *step.command, *step.entrypoint]
    raise BuildError(f"a text cannot express the step {type(step).__name__}")


def _pinned(packages: Sequence[LockedPackage]) -> list[str]:
    found = [f"{package.name}=={package.version}" for package in packages]
    return found + [package.file.sha256 for package in packages]


def _of_toolkit(toolkit: Toolkit | None) -> list[str]:
    match toolkit:
        case None:
            return []
        case ImageToolkit():
            return [toolkit.reference, toolkit.digest]
        case WheelToolkit():
            return _pinned(toolkit.wheels)
        case _:
            found = [f"{package.name}={package.version}" for package in toolkit.packages]
            return [*found, *(package.file.sha256 for package in toolkit.packages), *_pinned(toolkit.wheels)]


def _escaped(value: str) -> str:
    return double(value)[1:-1]
