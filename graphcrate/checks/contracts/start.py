"""Contracts about what starts: entry point, command, shell, user, and variables that every runtime hands on."""

import re
import shlex
from posixpath import basename

from graphcrate.artifacts.formats.runtime_files import SIF_SCRIPT
from graphcrate.checks.contracts.check import absent, check, failed, is_root, passed, settings_check, unknown, warned
from graphcrate.checks.contracts.paths import entry_words, program_paths
from graphcrate.checks.contracts.view import LARGEST_TEXT, is_file, start_script, text_of
from graphcrate.model.contract import CheckVerdict, Host, ImageView, Settings
from graphcrate.model.runtime import AS_THE_USER, RUNTIMES

#: programs that run what follows them
_PASSING = ("tini", "dumb-init", "catatonit", "env", "nice", "setarch", "docker-init", "tini-static")
_RUNS_THE_REST = re.compile(r"""\bexec\s+(?:[^\n;&|]*\s)?"?\$(?:@|\{@\}|\*)"?""")
_PLAIN_REST = re.compile(r"""^\s*(?:[\w./-]+\s+)*"?\$(?:@|\{@\})"?\s*$""", re.MULTILINE)
_NETWORK = re.compile(
    r"\b(?:pip3?|uv|conda|mamba)\b[^\n;&|]*\binstall\b|\b(?:apt|apt-get|yum|dnf|apk)\b[^\n;&|]*\b(?:install|update|add)\b"
    r"|\b(?:curl|wget)\b\s[^\n]*\b(?:https?|ftp)://|\bgit\s+clone\b"
)
_RANK = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK", "NODE_RANK")


def _program_path(view: ImageView, word: str) -> str:
    """The path of a word that names a program; empty where it is not in the image."""
    return next((path for path in program_paths(view.settings or Settings(), word) if is_file(view, path)), "")


@settings_check("entry point runs the command", "docker", "apptainer", "pai", files=(SIF_SCRIPT,))
def entrypoint(view: ImageView, host: Host, settings: Settings) -> CheckVerdict:
    """The entry point gets what users type after the image's name, so it has to end in `exec "$@"`, or
    `singularity run image python train.py` and `docker run image python train.py` run something else.
    Source: Docker's reference on ENTRYPOINT; Apptainer's user guide on OCI images
    """
    words = entry_words(settings, start_script(view))
    if not words:
        return passed("none: the command runs as it is")
    first, shown = basename(words[0]), shlex.join(words)
    fix = 'end the script in `exec "$@"`, or leave ENTRYPOINT out and name the program in CMD'
    if first in _PASSING:
        return passed(f"{shown} runs the command")
    path = _program_path(view, words[0])
    if not path:
        return absent(view, failed(f"{shown}: {words[0]} is not in the image", "correct ENTRYPOINT"))
    if first in ("sh", "bash", "dash", "ash") and len(words) > 1:
        if words[1] not in ("-c", "-lc", "-ic"):
            script = text_of(view, words[1])
        elif len(words) > 3:
            script = words[2]
        else:  # the first word of the command becomes $0
            return failed(f"{shown} takes the command for its own arguments", fix)
    elif view.files[path].text is None and view.files[path].size <= LARGEST_TEXT:
        return unknown(f"{shown}: its content was not read")
    else:
        script = text_of(view, path)
    if not script.startswith("#!") and "\n" not in script:
        return failed(f"{shown} is a program that takes the command for its arguments", fix)
    if _RUNS_THE_REST.search(script):
        return passed(f"{shown} ends in exec")
    if _PLAIN_REST.search(script):
        return warned(f"{shown} runs the command as a child: signals, such as a job's end, do not reach it", fix)
    return failed(f'{shown} never runs "$@"', fix)


@settings_check("default command is there", "docker", "apptainer", "pai")
def command(view: ImageView, host: Host, settings: Settings) -> CheckVerdict:
    """An image that is started without a command runs CMD; where that is missing the start fails.
    Source: Docker's reference on CMD
    """
    if view.form == "sif":
        return passed("a SIF has its run script")
    if not settings.command:
        if settings.entrypoint:
            return passed("none; the entry point needs none")
        return warned("neither ENTRYPOINT nor CMD: `docker run image` has nothing to run", 'CMD ["bash"]')
    words = settings.command
    if settings.entrypoint or _program_path(view, words[0]):
        return passed(shlex.join(words))
    return absent(view, failed(f"{words[0]} is not in the image", "correct CMD, or install the program"))


@check("a shell at /bin/sh", *AS_THE_USER, "pai", files=("/bin/sh",))
def shell(view: ImageView, host: Host) -> CheckVerdict:
    """Apptainer's and enroot's start scripts, and PAI's jobs, are run by the image's /bin/sh.
    Source: enroot 4.1.2 (switchroot and /etc/rc); apptainer /.singularity.d/actions; PAI on custom images
    """
    file = view.files.get("/bin/sh")
    if file is None or file.real is None:
        return absent(view, failed("there is no /bin/sh", "install dash, bash or busybox"))
    if file.real != "file" or not file.mode & 0o111:
        return failed(f"/bin/sh is a {file.real} with mode {file.mode:04o}", "make it a program that may be run")
    return passed(f"/bin/sh{f' → {file.link}' if file.link else ''}")


@settings_check("the user is known", "docker", "pai", files=("/etc/passwd",))
def user_known(view: ImageView, host: Host, settings: Settings) -> CheckVerdict:
    """Docker looks a named USER up in the image's /etc/passwd, and refuses to start without it.
    Source: Docker's reference on USER
    """
    name = settings.user.partition(":")[0]
    if is_root(settings.user) or name.isdecimal():
        return passed(f"USER {settings.user}" if settings.user else "root")
    users = {line.partition(":")[0] for line in text_of(view, "/etc/passwd").splitlines()}
    if name in users:
        return passed(f"USER {settings.user} is in /etc/passwd")
    return absent(view, failed(f"USER {name} is not in /etc/passwd", f"RUN useradd {name}, or leave USER out"))


@settings_check("no ranks of its own", *RUNTIMES)
def ranks(view: ImageView, host: Host, settings: Settings) -> CheckVerdict:
    """Slurm's hooks, PAI and torchrun set MASTER_ADDR, RANK and the rest for each job; values of the image get in their
    way, and all processes take themselves for the same one.
    Source: enroot 4.1.2, hook 50-slurm-pytorch.sh; PAI DLC on environment variables
    """
    names = ", ".join(name for name in _RANK if name in settings.variables)
    return warned(f"the image sets {names}", "leave them to the job") if names else passed("none is set")


@settings_check("no network at the start", "docker", "pai", files=(SIF_SCRIPT,))
def offline_start(view: ImageView, host: Host, settings: Settings) -> CheckVerdict:
    """Nodes of clusters and PAI's jobs often reach no package index; a `pip install` at the start takes what is newest
    that day, which need not fit the image's torch.
    Source: PAI's GLT tutorial, whose `pip install graphlearn-torch` now gets a build for another torch
    """
    commands = (entry_words(settings, start_script(view)), settings.command)
    words = [word for command in commands for word in command]
    started = [_program_path(view, command[0]) for command in commands if command]
    started += [word for command in commands for word in command[1:] if is_file(view, word)]
    texts = [*words, *(text_of(view, path) for path in started if path)]
    if match := next(filter(None, map(_NETWORK.search, texts)), None):
        return warned(f"the start runs `{match[0].strip()[:80]}`", "install it when the image is built")
    verdict = passed("nothing is fetched by entry point or command")
    return absent(view, verdict) if words else verdict


@settings_check("Python looks in the image alone", *AS_THE_USER, programs=("python3",))
def user_site(view: ImageView, host: Host, settings: Settings) -> CheckVerdict:
    """The host's home is there inside, and packages in its ~/.local come before those of the image: users meet other
    versions than the image has.
    Source: mriqc #775, fmriprep #1103; Python's documentation of PYTHONNOUSERSITE
    """
    value = settings.variables.get("PYTHONNOUSERSITE", "")
    if value:
        return passed(f"PYTHONNOUSERSITE={value}")
    if not view.packages and not view.distributions and "python3" not in view.programs:
        return absent(view, passed("no Python in the image"))
    return warned("PYTHONNOUSERSITE is not set", "ENV PYTHONNOUSERSITE=1")


@settings_check("no PYTHONPATH or PYTHONHOME", *AS_THE_USER)
def python_path(view: ImageView, host: Host, settings: Settings) -> CheckVerdict:
    """Under Singularity before 3.6 the host's value wins: what needs the image's breaks on a host that sets one. Under
    Apptainer the image's wins: the user's is lost. Install into site-packages, or add a .pth file.
    Source: Apptainer's user guide on environment; seen with Apptainer 1.4.5 and pyxis 0.24
    """
    values = {name: settings.variables.get(name) for name in ("PYTHONPATH", "PYTHONHOME")}
    seen = ", ".join(f"{name}={value}" for name, value in values.items() if value)
    fix = "install the packages instead, and leave the variable out"
    return warned(seen, fix) if seen else passed("neither is set")


@settings_check("no LD_LIBRARY_PATH", *RUNTIMES)
def library_path(view: ImageView, host: Host, settings: Settings) -> CheckVerdict:
    """It comes before what programs were linked to: torch then loads another cuBLAS or nvJitLink than it was built
    with. Apptainer appends the driver's libraries to it, so those of the image win.
    Source: apptainer --nv; pyg and torch issues about mixed nvJitLink; NVIDIA's stubs are for linking alone
    """
    value = settings.variables.get("LD_LIBRARY_PATH", "")
    folders = [folder for folder in value.split(":") if folder]
    if not folders:
        return passed("not set")
    fix = "leave it out: name the folders in /etc/ld.so.conf.d and run ldconfig"
    if any(basename(folder.rstrip("/")) == "stubs" for folder in folders):
        return failed(f"{value} has a folder of stubs, whose libcuda does nothing", fix)
    if not view.unread and not any(folder in view.files for folder in folders):
        return passed(f"{value}: none of it is in the image")
    return warned(value, fix)
