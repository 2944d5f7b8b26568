"""Shared parts of templates: jinja2 with delimiters of its own, names, text filters."""

import functools
import json
import re
import shlex
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from graphcrate.compat.facts import compilers
from graphcrate.compat.facts.libraries import Library
from graphcrate.compat.facts.toolkits import PACKAGES
from graphcrate.compat.plan.image_config import EXAMPLES, PROGRAMS, SYSTEM_PATH
from graphcrate.model.lock import LockedPackage
from graphcrate.model.plan import BUILD, CUDA_HOME, VENV
from graphcrate.model.recipe import CHANNELS, Channel

if TYPE_CHECKING:
    import jinja2

WIDTH = 118
CONTEXT = "/context"  #: what lay beside the text, in stages that are left behind
TOOLS = "/opt/tools"  #: pip and uv, in stages that are left behind
#: For files on the way. Not /tmp, which is the host's own while Apptainer builds.
WORK = "/root"
#: pip, setuptools and what else compiling needs, apart from the image's own packages
BUILD_TOOLS = "/opt/build-tools"
COMPILED = f"{WORK}/compiled"  #: wheels that were made
_NAMES = {
    "APT": "/opt/apt",  # a copy of apt's settings, removed again; not below /root, where apt's own user cannot look
    "BUILD_TOOLS": BUILD_TOOLS,
    "CERTIFICATES": "/etc/ssl/certs/ca-certificates.crt",
    "COMPILED": COMPILED,
    "CONTEXT": CONTEXT,
    "CUDA_HOME": CUDA_HOME,
    "EXAMPLES": EXAMPLES,
    "HEADERS": f"{WORK}/headers",
    "PIP": f"PYTHONPATH={BUILD_TOOLS} {VENV}/bin/python -m pip",
    "PROGRAMS": PROGRAMS,
    "PYTHON_HEADERS": compilers.PYTHON_HEADERS,
    "SYSTEM_PATH": SYSTEM_PATH,
    "TOOLKIT": PACKAGES,
    "TOOLS": TOOLS,
    "VENV": VENV,
    "WORK": WORK,
}


@functools.cache
def _environment() -> "jinja2.Environment":
    import jinja2  # an image that is there unchanged needs no text

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("graphcrate.render"),
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
    environment.globals |= _NAMES
    functions = (
        *(below, broken, comment, double, for_setup, listed, pairs, pins, quoted),
        *(run_instructions, script, searched, settings, where, written),
    )
    environment.filters |= {function.__name__: function for function in functions}
    environment.filters |= {"json": json.dumps, "word": shlex.quote}
    return environment


def render_template(template: str, values: Mapping[str, object]) -> str:
    """Fill a template. A value that it lacks is an error."""
    return _environment().get_template(template).render(values)


def shell(name: str, *values: object) -> str:
    """Write what a stage runs, by the macro of this name in `templates/steps`."""
    return str(getattr(_environment().get_template("steps").module, name)(*values)).strip() + "\n\n"


def _runs(text: str) -> Iterator[tuple[str, set[str], list[str]]]:
    """Split steps into what is run together: why, its notes, its lines; `templates/steps` says how that is written."""
    for block in filter(None, text.strip().split("\n\n")):
        lines = [re.sub(r"\s+\\$", r" \\", line) for line in block.split("\n")]
        why = [line[2:] for line in lines if line.startswith("# ")]
        notes = {line[3:] for line in lines if line.startswith("#: ")}
        yield " ".join(why), notes, lines[len(why) + len(notes) :]


def run_instructions(text: str, cache: str = "") -> str:
    """Write steps for a Dockerfile; what downloads packages gets a mount of BuildKit's as this `cache`."""
    instructions = []
    for why, notes, lines in _runs(text):
        instructions += [comment(why)] if why else []
        instructions += [f"# hadolint ignore={note}" for note in notes - {"cached"}]
        mount = f"--mount=type=cache,target={cache},sharing=locked " if cache and "cached" in notes else ""
        starts = [f"RUN {mount}", *("    " if line.endswith("\\") else " && " for line in lines)]
        bare = (start + line.removesuffix(" \\") for start, line in zip(starts, lines, strict=False))
        instructions.append(" \\\n".join(bare))
    return "\n".join(instructions)


def script(text: str) -> str:
    """Write steps for a definition's section, which ends at the first command that fails (`sh -e`)."""
    section = []
    for why, notes, lines in _runs(text):
        section += [comment(why, "    ")] if why else []
        section += [f"    # shellcheck disable={note}" for note in notes if note.startswith("SC")]
        section += [f"    {line}" for line in lines]
    return "\n".join(section)


def quoted(text: str) -> str:
    """Quote for a POSIX shell, always in single quotes."""
    return "'" + text.replace("'", "'\\''") + "'"


def double(text: str) -> str:
    """Quote in double quotes, for ENV, LABEL and `export`."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$").replace("`", "\\`")
    return f'"{escaped}"'


def listed(words: Iterable[str]) -> str:
    """Continue a command with words, each on a line of its own."""
    return "".join(f" \\\n    {word}" for word in words)


def written(lines: Iterable[str], path: str) -> str:
    """Write a text file. printf, because here-documents are not for every engine's Dockerfile."""
    return f"printf '%s\\n' > {shlex.quote(path)}" + listed(map(quoted, lines))


def pins(packages: Iterable[LockedPackage]) -> list[str]:
    """Write requirements that only one file each satisfies."""
    ordered = sorted(packages, key=lambda package: package.name)
    return [f"{package.name}=={package.version} --hash=sha256:{package.file.sha256}" for package in ordered]


def below(path: str, folder: str) -> str:
    """Write the path of a library's file, whose names are plain."""
    return f"{folder}/{path}"


def searched(folder: str) -> str:
    """Write the option by which a compiler searches a folder."""
    return f"-I{folder}"


def settings(linked: Sequence[Library]) -> str:
    """Write what a command is preceded by, so that a setup.py takes these libraries; nothing where there are none."""
    if not linked:
        return ""
    values = {name: value for library in linked for name, value in library.variables.items()}
    values["CPATH"] = ":".join(f"{BUILD}/{library.name}/{path}" for library in linked for path in library.include)
    values["LIBRARY_PATH"] = ":".join(f"{BUILD}/{library.name}" for library in linked)
    return "".join(f"{name}={value} " for name, value in values.items())


def for_setup(options: Sequence[str]) -> str:
    """Write the option of pip that a setup.py gets these by; nothing where there are none."""
    return f"{quoted(f'--config-settings={setup_options(options)}')} " if options else ""


def setup_options(options: Sequence[str]) -> str:
    """Write options of a setup.py as setuptools takes them from front ends of PEP 517."""
    return f"--global-option={' '.join(options)}"


def where(channel: Channel, index: str = "--index-url") -> str:
    """Write the options of pip, or with its name for an `index` of uv, that say where a channel is."""
    if channel is Channel.PYPI:
        return ""
    if channel is Channel.LOCAL:
        return f"--no-index --find-links {CONTEXT}/wheels "
    row = CHANNELS[channel]
    return f'{index if row.is_index else "--no-index --find-links"} "${{{row.variable}}}" '


def comment(text: str, indent: str = "") -> str:
    """Write lines of a comment."""
    return "\n".join(wrapped(text, WIDTH, f"{indent}# "))


def broken(line: str) -> str:
    """Break a command into several lines where it is long and has no quotes to cut through."""
    if "'" in line or '"' in line:
        return line
    return " \\\n    ".join(wrapped(line, WIDTH - 4))


def wrapped(text: str, width: int, start: str = "") -> list[str]:
    """Wrap into lines of at most `width` characters, each with this start; names and paths stay whole."""
    return textwrap.wrap(
        text, width, initial_indent=start, subsequent_indent=start, break_on_hyphens=False, break_long_words=False
    )


def pairs(values: Mapping[str, str], indent: str) -> str:
    """Write `A="1" \\` and so on, one on each line."""
    return f" \\\n{indent}".join(f"{name}={double(value)}" for name, value in values.items())
