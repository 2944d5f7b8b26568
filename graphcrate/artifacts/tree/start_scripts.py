"""How containers start, read from the files that Apptainer and enroot leave in what they make of an image. Pure."""

import json
import re
import shlex
from collections.abc import Callable

from graphcrate.model.contract import Settings

#: A small file's text; empty where it is not there.
Text = Callable[[str], str]

SIF_SCRIPT = "/.singularity.d/runscript"
ENROOT_SCRIPT, ENROOT_VARIABLES = "/etc/rc", "/etc/environment"
_SIF_VARIABLES = ("/.singularity.d/env/10-docker2singularity.sh", "/.singularity.d/env/90-environment.sh")
#: `export A=b`, and `A=b` or `[ … ] || A=b` of what is exported elsewhere
_ASSIGNMENT = re.compile(r"^\s*(export\s+|\[[^\n]*\]\s*\|\|\s*)?([A-Za-z_]\w*)=(.*)$", re.MULTILINE)
_EXPORTED = re.compile(r"^\s*export\s+((?:[A-Za-z_]\w*\s*)+)$", re.MULTILINE)
_DEFAULT = re.compile(r'"?\$\{(\w+):-"?(.*?)"?\}"?', re.DOTALL)
_ESCAPED = re.compile(r"""\\(["$`\\])""")
_EXEC = re.compile(r"""^\s*exec\s+(.*?)\s*"\$@"\s*$""", re.MULTILINE)


def of_sif(text: Text) -> Settings:
    """What `/.singularity.d` says. Apptainer writes `export A="${A:-"value"}"`, we `[ -n "${A:-}" ] || A='value'`."""
    variables: dict[str, str] = {}
    for path in _SIF_VARIABLES:
        script = text(path)
        exported = {name for names in _EXPORTED.findall(script) for name in names.split()}
        for before, name, value in _ASSIGNMENT.findall(script):
            if before.startswith("export") or name in exported:
                variables[name] = _value(value.strip())
    try:
        said = json.loads(text("/.singularity.d/labels.json") or "{}")
    except ValueError:
        said = {}
    labels = {str(name): str(value) for name, value in said.items()} if isinstance(said, dict) else {}
    environment = tuple(f"{name}={value}" for name, value in variables.items())
    return Settings(platform="", environment=environment, entrypoint=(SIF_SCRIPT,), labels=labels)


def _value(written: str) -> str:
    """The value of a shell's assignment, as far as it stands there."""
    if found := _DEFAULT.fullmatch(written):
        return _ESCAPED.sub(r"\1", found[2])
    if "'" in written and not written.startswith('"'):
        try:
            return "".join(shlex.split(written)[:1])
        except ValueError:  # a quote that a later line closes
            return written.strip("'")
    return _ESCAPED.sub(r"\1", written.strip('"'))


def of_enroot(text: Text) -> Settings:
    """What `enroot import` wrote into /etc/rc and /etc/environment."""
    lines = tuple(line for line in text(ENROOT_VARIABLES).splitlines() if "=" in line and not line.startswith("#"))
    found = _EXEC.search(text(ENROOT_SCRIPT))
    try:
        entrypoint = tuple(shlex.split(found[1])) if found else ()
    except ValueError:
        entrypoint = ()
    return Settings(platform="", environment=lines, entrypoint=entrypoint)
