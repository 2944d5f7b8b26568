"""What Singularity and Apptainer want to find in a root file system, for the configuration of an OCI image. Pure.

Paths, links and modes as `apptainer build` 1.4 makes them of the same image (`internal/pkg/build/sources` there);
the scripts are ours. Releases before 3.6 carry out the scripts in `actions`, newer ones read `env` and do the rest
by themselves; so each says what the image's configuration says, in both.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence

from graphcrate.artifacts.formats.merged import Addition
from graphcrate.model.plan import VENV
from graphcrate.oci.spec import ImageConfig, RunConfig

HOME = ".singularity.d"
#: mount points: a kernel without overlayfs cannot make them in an image
FOLDERS = ("dev", "etc", "home", "proc", "root", "sys", "tmp", "var/tmp")
LINKS = {
    "singularity": f"{HOME}/runscript",
    "environment": f"{HOME}/env/90-environment.sh",
    ".exec": f"{HOME}/actions/exec",
    ".run": f"{HOME}/actions/run",
    ".shell": f"{HOME}/actions/shell",
    ".test": f"{HOME}/actions/test",
}
_SH = "#!/bin/sh\n"
_ENVIRONMENT = """for script in /.singularity.d/env/*.sh; do
    if [ -f "$script" ]; then
        . "$script"
    fi
done
"""
#: an engine before 3.6 has PID 1 wait for this signal
_START = """kill -CONT 1
%s
if [ -x /.singularity.d/startscript ]; then
    exec /.singularity.d/startscript
fi
"""
_TEST = """if [ -x /.singularity.d/test ]; then
    exec /.singularity.d/test "$@"
fi
echo "this image has no test"
"""
_SHELL = """if [ -x "${SINGULARITY_SHELL:-}" ]; then
    exec "$SINGULARITY_SHELL" "$@"
elif [ -x /bin/bash ]; then
    export SHELL=/bin/bash
    exec /bin/bash --norc "$@"
fi
export SHELL=/bin/sh
exec /bin/sh "$@"
"""
_ACTIONS = {
    "exec": f'{_SH}{_ENVIRONMENT}\nexec "$@"\n',
    "run": f'{_SH}{_ENVIRONMENT}\nexec /.singularity.d/runscript "$@"\n',
    "shell": f"{_SH}{_ENVIRONMENT}\n{_SHELL}",
    "start": f"{_SH}{_START % _ENVIRONMENT}",
    "test": f"{_SH}{_ENVIRONMENT}\n{_TEST}",
}
#: libraries that the engine brings from the host (`--nv`) come after the image's own; it tells by the name 99-base
_BASE = f"""{_SH}LD_LIBRARY_PATH="${{LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}}/.singularity.d/libs"
if [ -z "${{PS1:-}}" ]; then
    if [ -n "${{APPTAINER_CONTAINER:-}}" ]; then PS1="Apptainer> "; else PS1="Singularity> "; fi
fi
export LD_LIBRARY_PATH PS1
"""
#: what a user asked for by SINGULARITYENV_PATH, …_PREPEND_PATH and …_APPEND_PATH
_RUNTIME = f"""{_SH}PATH="${{SING_USER_DEFINED_PREPEND_PATH:+$SING_USER_DEFINED_PREPEND_PATH:}}$PATH"
PATH="$PATH${{SING_USER_DEFINED_APPEND_PATH:+:$SING_USER_DEFINED_APPEND_PATH}}"
PATH="${{SING_USER_DEFINED_PATH:-$PATH}}"
unset SING_USER_DEFINED_PREPEND_PATH SING_USER_DEFINED_APPEND_PATH SING_USER_DEFINED_PATH
export PATH
"""


def additions(config: ImageConfig, definition: str) -> Iterator[Addition]:
    """The entries, folders before what is in them. `definition` is what `inspect --deffile` shows."""
    run = config.run
    for folder in (HOME, *(f"{HOME}/{name}" for name in ("actions", "env", "libs")), *FOLDERS):
        yield Addition(folder)
    # Empty, as in Apptainer's own images: the host's are bound there.
    for name in ("etc/hosts", "etc/resolv.conf"):
        yield Addition(name, 0o644, b"")
    scripts = {f"actions/{name}": text for name, text in _ACTIONS.items()}
    scripts |= {
        "env/01-base.sh": _SH,
        "env/10-docker2singularity.sh": environment_script(run),
        "env/90-environment.sh": _SH,
        "env/99-base.sh": _BASE,
        "env/99-runtimevars.sh": _RUNTIME,
        "runscript": run_script(run),
        "startscript": _SH,
    }
    if check := test_command(run.labels or {}):
        scripts["test"] = f'{_SH}exec {check} "$@"\n'
    for name, text in scripts.items():
        yield Addition(f"{HOME}/{name}", 0o755, text.encode("utf-8", "surrogateescape"))
    yield Addition(f"{HOME}/Singularity", 0o644, definition.encode())
    yield Addition(f"{HOME}/labels.json", 0o644, json.dumps(labels(config), indent="\t", sort_keys=True).encode())
    for name, target in LINKS.items():
        yield Addition(name, 0o777, link=target)


def definition(config: ImageConfig, reference: str) -> str:
    """The definition file of an image that was made from a layout: where it comes from."""
    title = (config.run.labels or {}).get("org.opencontainers.image.description", "")
    told = f"# {title}\n" if title and "\n" not in title else ""
    return f"{told}Bootstrap: oci\nFrom: {reference}\n"


def labels(config: ImageConfig) -> dict[str, str]:
    """The image's labels, and those by which `inspect` tells what it is."""
    return {
        **(config.run.labels or {}),
        "org.label-schema.schema-version": "1.0",
        "org.label-schema.build-arch": config.architecture,
        "org.label-schema.build-date": config.created or "",
    }


def environment_script(run: RunConfig) -> str:
    """The image's variables. Engines before 3.6 let the host's in, which win there, but for PATH and empty ones."""
    lines = [_SH]
    for name, value in variables(run.env or ()):
        if name == "PATH":
            lines.append(f"export PATH={quoted(value)}\n")
        else:
            lines.append(f'[ -n "${{{name}:-}}" ] || {name}={quoted(value)}\nexport {name}\n')
    return "".join(lines)


def run_script(run: RunConfig) -> str:
    """Entry point and command; arguments take the command's place, as in other engines."""
    entry = [*(run.entrypoint or ())]
    command = [*(run.cmd or ())] or ([] if entry else ["/bin/sh"])
    default = f"if [ $# -eq 0 ]; then\n    set -- {words(command)}\nfi\n" if command else ""
    before = f"{words(entry)} " if entry else ""
    return f'{_SH}{default}exec {before}"$@"\n'


def test_command(known: dict[str, str]) -> str:
    """What `apptainer test` does in an image of ours: the same as the rendered definition's %test."""
    if "graphcrate.torch" not in known:
        return ""
    return words((f"{VENV}/bin/python", "-c", "import torch; print(torch.__version__)"))


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def quoted(text: str) -> str:
    """One word of a POSIX shell, whatever is in it.

    A single quote in double ones: Apptainer's own interpreter keeps the backslash of `\\'` where it is assigned.
    """
    return "'" + text.replace("'", "'\"'\"'") + "'"


def words(arguments: Iterable[str]) -> str:
    """A command line of a POSIX shell."""
    return " ".join(map(quoted, arguments))


def variables(env: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Names and values of a configuration's `Env`; without what no shell can name."""
    for entry in env:
        name, _, value = entry.partition("=")
        if _NAME.fullmatch(name):
            yield name, value
