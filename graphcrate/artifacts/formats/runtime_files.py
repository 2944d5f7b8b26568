"""The files by which Singularity, Apptainer and enroot start an image: made of its configuration, and read back. Pure.

Singularity: paths, links and modes as `apptainer build` 1.4 makes them of the same image (`internal/pkg/build/sources`
there); the scripts are ours. Releases before 3.6 carry out the scripts in `actions`, newer ones read `env` and do the
rest by themselves; so each says what the image's configuration says, in both.
enroot: as `docker::configure` and `docker::_prepare_layers` in src/docker.sh of 4.1.2 (see also its
doc/image-format.md); the words of the files are an interface, so they are the same.
"""

import json
import re
import shlex
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from graphcrate.artifacts.formats.merged import Addition
from graphcrate.model import codec
from graphcrate.model.command import INSTALLED_PROGRAM, command
from graphcrate.model.contract import Settings
from graphcrate.model.errors import UNREADABLE, UsageError
from graphcrate.model.plan import VENV
from ocilayout.spec import ImageConfig, RunConfig
from sifsquash.values import Inode

#: A small file's text; empty where it is not there.
Text = Callable[[str], str]

_HOME = ".singularity.d"
SIF_SCRIPT = f"/{_HOME}/runscript"
_ENROOT_SCRIPT = "/etc/rc"
#: mount points: a kernel without overlayfs cannot make them in an image
_FOLDERS = ("dev", "etc", "home", "proc", "root", "sys", "tmp", "var/tmp")
_LINKS = {
    "singularity": f"{_HOME}/runscript",
    "environment": f"{_HOME}/env/90-environment.sh",
    **{f".{name}": f"{_HOME}/actions/{name}" for name in ("exec", "run", "shell", "test")},
}
_SH = "#!/bin/sh\n"
#: Files of `_HOME` that every image has. An engine before 3.6 has PID 1 of `start` wait for a signal; `99-base.sh` puts
#: libraries that the engine brings from the host (`--nv`) behind the image's own; `99-runtimevars.sh` carries out what
#: a user asked for by SINGULARITYENV_PATH, …_PREPEND_PATH and …_APPEND_PATH.
_SCRIPTS = Path(__file__).with_name("singularity")
_RC_LOCAL = """# This file is sourced by /etc/rc when the container starts.
# It can be used to manipulate the entrypoint or the command of the container.
"""
_SIF_VARIABLES = ("/.singularity.d/env/10-docker2singularity.sh", "/.singularity.d/env/90-environment.sh")
#: `export A=b`, and `A=b` or `[ … ] || A=b` of what is exported elsewhere
_ASSIGNMENT = re.compile(r"^\s*(export\s+|\[[^\n]*\]\s*\|\|\s*)?([A-Za-z_]\w*)=(.*)$", re.MULTILINE)
_EXPORTED = re.compile(r"^\s*export\s+((?:[A-Za-z_]\w*\s*)+)$", re.MULTILINE)
_DEFAULT = re.compile(r'"?\$\{(\w+):-"?(.*?)"?\}"?', re.DOTALL)
_ESCAPED = re.compile(r"""\\(["$`\\])""")
_EXEC = re.compile(r"""^\s*exec\s+(.*?)\s*"\$@"\s*$""", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def singularity_additions(config: ImageConfig, definition: str, digest: str) -> Iterator[Addition]:
    """Yield the files that Singularity needs, folders before their contents.

    `definition`: shown by `inspect --deffile`; `digest`: of the layout.
    """
    run = config.run
    for folder in (_HOME, *(f"{_HOME}/{name}" for name in ("actions", "env", "layouts", "libs")), *_FOLDERS):
        yield Addition(folder)
    # Empty, as in Apptainer's own images: the host's are bound there.
    for name in ("etc/hosts", "etc/resolv.conf"):
        yield Addition(name, 0o644, b"")
    labels = run.labels or {}
    scripts = {
        **{path.relative_to(_SCRIPTS).as_posix(): path.read_text() for path in _SCRIPTS.rglob("*") if path.is_file()},
        **dict.fromkeys(("env/01-base.sh", "env/90-environment.sh", "startscript"), _SH),
        "env/10-docker2singularity.sh": environment_script(run),
        "runscript": run_script(run),
    }
    if "graphcrate.torch" in labels:  # the same as the rendered definition's %test
        check = words((f"{VENV}/bin/python", "-c", "import torch; print(torch.__version__)"))
        scripts["test"] = f'{_SH}exec {check} "$@"\n'
    if title := labels.get("org.opencontainers.image.description", ""):
        scripts["runscript.help"] = f"{title}\nRun a program in it: singularity run --nv FILE.sif python train.py\n"
    for name, text in scripts.items():
        yield Addition(f"{_HOME}/{name}", 0o755, text.encode("utf-8", "surrogateescape"))
    # The image's labels, and those by which `inspect` tells what it is.
    labels = {
        **labels,
        "org.label-schema.schema-version": "1.0",
        "org.label-schema.build-arch": config.architecture,
        "org.label-schema.build-date": config.created or "",
    }
    yield Addition(f"{_HOME}/Singularity", 0o644, definition.encode())
    yield Addition(layout_mark(digest), 0o644, b"")
    yield Addition(f"{_HOME}/labels.json", 0o644, json.dumps(labels, indent="\t", sort_keys=True).encode())
    for name, target in _LINKS.items():
        yield Addition(name, 0o777, link=target)


def layout_mark(digest: str) -> str:
    """Return the path of the empty file that a SIF made of this layout has."""
    return f"{_HOME}/layouts/{digest.partition(':')[2]}"


def over_additions(below: str, digest: str) -> Iterator[Addition]:
    """Yield what a delta has of its own: the title of the image below, and a script that ends over another one.

    Every Singularity reads the variables' scripts before it starts a program.
    """
    yield Addition(f"{_HOME}/over", 0o644, f"{below}\n".encode())
    made = command("convert", below, to="sif").by(INSTALLED_PROGRAM)
    lines = (
        f"if [ ! -e /{layout_mark(digest)} ]; then",
        f"    echo {_quoted(f'this delta goes over {below}, and the SIF is of another image')} >&2",
        f"    echo {_quoted(f'next:  {made}')} >&2",
        f"    exit {UsageError.exit_code}",
        "fi",
    )
    yield Addition(f"{_HOME}/env/00-over.sh", 0o755, "\n".join([_SH.rstrip(), *lines, ""]).encode())


def definition(config: ImageConfig, reference: str) -> str:
    """The definition file of an image that was made from a layout: where it comes from."""
    title = (config.run.labels or {}).get("org.opencontainers.image.description", "")
    comment = f"# {title}\n" if title and "\n" not in title else ""
    return f"{comment}Bootstrap: oci\nFrom: {reference}\n"


def environment_script(run: RunConfig) -> str:
    """The image's variables. Engines before 3.6 let the host's in, which win there, but for PATH and empty ones."""
    lines = [_SH]
    for name, value in variables(run.env or ()):
        if name == "PATH":
            lines.append(f"export PATH={_quoted(value)}\n")
        else:
            lines.append(f'[ -n "${{{name}:-}}" ] || {name}={_quoted(value)}\nexport {name}\n')
    return "".join(lines)


def run_script(run: RunConfig) -> str:
    """Entry point and command; arguments take the command's place, as in other engines.

    What the image itself asks for begins in its working folder; what a user asks for, where the user is.
    """
    entry, command = _started(run)
    folder = (run.working_dir or "").strip("/") if run.entrypoint or run.cmd else ""
    lines = [f"cd {words([f'/{folder}'])}"] if folder else []
    lines += [f"set -- {words(command)}"] if command else []
    default = "".join(["if [ $# -eq 0 ]; then\n", *(f"    {line}\n" for line in lines), "fi\n"]) if lines else ""
    before = f"{words(entry)} " if entry else ""
    return f'{_SH}{default}exec {before}"$@"\n'


def variables(env: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Names and values of a configuration's `Env`; without what no shell can name."""
    for entry in env:
        name, _, value = entry.partition("=")
        if _NAME.fullmatch(name):
            yield name, value


def words(arguments: Iterable[str]) -> str:
    """A command line of a POSIX shell."""
    return " ".join(map(_quoted, arguments))


def _quoted(text: str) -> str:
    """One word of a POSIX shell, of any characters.

    A single quote in double ones: Apptainer's own interpreter keeps the backslash of `\\'` where it is assigned.
    """
    return "'" + text.replace("'", "'\"'\"'") + "'"


def _started(run: RunConfig) -> tuple[list[str], list[str]]:
    """Entry point and command; a shell where the image has neither."""
    entry = [*(run.entrypoint or ())]
    return entry, [*(run.cmd or ())] or ([] if entry else ["/bin/sh"])


def enroot_additions(config: ImageConfig, reference: str) -> Iterator[Addition]:
    """The entries that enroot's import adds."""
    run = config.run
    if folder := (run.working_dir or "").strip("/"):
        yield Addition(folder)
    mount = "${{ENROOT_ROOTFS}}{0} {0} none x-create=dir,bind,rw,nosuid,nodev\n"
    files = {
        "rc": enroot_rc(config, reference),
        "rc.local": _RC_LOCAL,
        "fstab": "".join(map(mount.format, sorted(run.volumes or ()))),
        "environment": "".join(f"{entry}\n" for entry in run.env or ()),
    }
    for name, text in files.items():
        yield Addition(f"etc/{name}", 0o644, text.encode("utf-8", "surrogateescape"))


def enroot_rc(config: ImageConfig, reference: str) -> str:
    """The script that a container starts by: working folder, entry point, and arguments or else the command."""
    run = config.run
    entry, command = _started(run)
    labels = "".join(f"# {name} {' '.join(text.split(chr(10)))}\n" for name, text in (run.labels or {}).items())
    folder = run.working_dir or "/"
    start = f"exec {words(entry)}".rstrip()
    return f"""# enroot-provenance: {reference}
{labels}
mkdir -p "{folder}" 2> /dev/null
cd "{folder}" && unset OLDPWD || exit 1

if [ -s /etc/rc.local ]; then
    . /etc/rc.local
fi

if [ $# -gt 0 ]; then
    {start} "$@"
else
    {f"{start} {words(command)}".rstrip()}
fi
"""


def enroot_imported(image: Mapping[str, Inode]) -> dict[str, Inode]:
    """The files as the import unpacks and packs them: root's, without devices, readable and folders writable to it."""
    changed: dict[int, Inode] = {}
    return {
        path: changed.setdefault(id(inode), _imported(inode))
        for path, inode in image.items()
        if not path.startswith("dev/")
    }


def _imported(inode: Inode) -> Inode:
    mode = inode.mode
    if inode.is_folder:
        mode |= 0o700
    elif inode.is_file:
        mode |= 0o400 | (0o100 if mode & 0o111 else 0)
    return msgspec.structs.replace(inode, mode=mode, uid=0, gid=0, xattrs=())


def read_settings(paths: Container[str], text: Text) -> Settings | None:
    """The settings of a tree with these paths, by what Apptainer or enroot wrote; None where neither did."""
    if SIF_SCRIPT in paths:
        return _read_singularity(text)
    return _read_enroot(text) if _ENROOT_SCRIPT in paths else None


def _read_singularity(text: Text) -> Settings:
    """Read `/.singularity.d`. Apptainer writes `export A="${A:-"value"}"`, we `[ -n "${A:-}" ] || A='value'`."""
    variables: dict[str, str] = {}
    for path in _SIF_VARIABLES:
        script = text(path)
        exported = {name for names in _EXPORTED.findall(script) for name in names.split()}
        for before, name, value in _ASSIGNMENT.findall(script):
            if before.startswith("export") or name in exported:
                variables[name] = _value(value.strip())
    try:
        stated = codec.decode(text("/.singularity.d/labels.json"), dict[str, object])
    except UNREADABLE:
        stated = {}
    labels = {name: str(value) for name, value in stated.items()}
    environment = tuple(f"{name}={value}" for name, value in variables.items())
    return Settings(platform="", environment=environment, entrypoint=(SIF_SCRIPT,), labels=labels)


def _value(written: str) -> str:
    """The value of a shell's assignment, as far as it stands there."""
    if match := _DEFAULT.fullmatch(written):
        return _ESCAPED.sub(r"\1", match[2])
    if "'" in written and not written.startswith('"'):
        try:
            return "".join(shlex.split(written)[:1])
        except ValueError:  # a quote that a later line closes
            return written.strip("'")
    return _ESCAPED.sub(r"\1", written.strip('"'))


def _read_enroot(text: Text) -> Settings:
    """Read the settings that `enroot import` wrote into /etc/rc and /etc/environment."""
    lines = tuple(line for line in text("/etc/environment").splitlines() if "=" in line and not line.startswith("#"))
    match = _EXEC.search(text(_ENROOT_SCRIPT))
    try:
        entrypoint = tuple(shlex.split(match[1])) if match else ()
    except ValueError:
        entrypoint = ()
    return Settings(platform="", environment=lines, entrypoint=entrypoint)
