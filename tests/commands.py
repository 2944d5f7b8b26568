"""Commands that pages name, in blocks and in sentences, and what can be said of one without running it.

A block of `sh` is typed for real by a test of tests/engines; one of `bash` is not, and its commands are held here:
taken by the program's own parser, or by a row of `ELSEWHERE`, which says why they cannot run where the tests run.
"""

import argparse
import ast
import importlib
import re
import shlex
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import typer

from doctor.__main__ import arguments as doctor_arguments
from graphcrate.cli.main import app
from graphcrate.model.command import is_upkeeps
from tests import ROOT
from tests.engines.typist import COMMAND
from tools import generate
from upkeep.cli import app as upkeep

OURS = ("./build.py", "graphcrate")
#: where programs of ours are in an image
INSIDE = "/opt/graphcrate/"
#: programs that pages name and no unit test can run → why
ELSEWHERE = {
    **dict.fromkeys(("singularity", "apptainer"), "a container engine: blocks are typed with Apptainer"),
    **dict.fromkeys(("docker", "podman"), "a container engine: blocks are typed with a Docker daemon"),
    **dict.fromkeys(("runc", "~/pyg/run"), "a container engine, which a test of tests/engines starts"),
    **dict.fromkeys(("srun", "sbatch", "salloc", "scancel", "squeue"), "a cluster: blocks are typed under Slurm"),
    **dict.fromkeys(("enroot", "module", "reframe"), "a site's own set-up"),
    **dict.fromkeys(("ssh", "ssh-keygen", "ssh-keyscan", "rsync"), "a second machine"),
    **dict.fromkeys(
        ("sshd", "service", "pg_createcluster", "dbus-uuidgen", "openssl", "nvme"), "in a running container"
    ),
    **dict.fromkeys(("make-ssl-cert", "dpkg-reconfigure"), "in a running container"),
    **dict.fromkeys(("cosign", "oras", "curl", "gh"), "a registry that others run"),
    **dict.fromkeys(("apt-get", "dnf", "sysctl", "install"), "root, and changes the machine"),
    **dict.fromkeys(("trivy", "grype", "syft", "pip-audit", "jq"), "scanners of others, and what reads their files"),
    "aliyun": "a person's account with Alibaba Cloud",
    "cuobjdump": "NVIDIA's, beside which ours is measured",
    **dict.fromkeys(("uv", "uvx", "pip"), "another tool, which changes the person's own set-up"),
    **dict.fromkeys(("git", "tar", "dpkg-deb", "sha256sum", "unshare", "ulimit"), "another program of the machine's"),
    "torchrun": "a program of images: what it starts is looked at",
}
#: the shell's own, and what only goes with a command
SHELL = {"cd", "echo", "export", "cat", "tee", "cp", "mkdir", "chmod", "sh", "tail", "kill", "uname", "ln", "sed"}
#: programs of the project that change or measure it: developers' own, some hours long
DEVELOPERS = re.compile(r"tools\.\w+|bench\.\w+|bench/\w+\.py|tools/[\w-]+|\.ci/\w+")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"``\s?(.+?)\s?``|`([^`\n]+)`")
PYTHON = re.compile(r"(?:.*/)?python3?$")
ERRORS = "dist/docs/errors.md"
FRAGMENT = re.compile(r"(?:\./build\.py|make (?=image|sif|list|doctor)) ?(?:(?! {2}|, )[^;`()|\n])*[^;`()|\n ,]")
#: what a reader puts in → a word; and the words that end a shell's command
PLACEHOLDERS = ((re.compile(r"<(\w+)>"), r"\1"), (re.compile("…"), "ETC"))
OPERATORS = re.compile(r"[|&;<>()]+$")


@dataclass(frozen=True)
class Command:
    """A command as a page has it. `language`: of its block; empty in a sentence."""

    page: str
    text: str
    language: str = ""

    def __str__(self):
        return f"{self.page}: {self.text}"


def written(page):
    """Return the text of a page; one of dist/docs is made here, as `make generate` would."""
    made = {str(path.relative_to(ROOT)): text for path, text in generate.pages()} if page.startswith("dist/") else {}
    return made[page] if made else (ROOT / page).read_text(encoding="utf-8")


def commands(page):
    """All that a page (its path from the root) asks to type."""
    text = written(page)
    found = []
    for language, block in BLOCK.findall(text):
        if language in ("sh", "bash"):
            found += [Command(page, one[0], language) for one in COMMAND.finditer(block.strip())]
        elif not language:  # what programs print, with what was typed before it
            found += [Command(page, line.removeprefix("$ "), "bash") for line in block.splitlines() if line[:2] == "$ "]
    if page == ERRORS:  # sentences of the doctor, with commands in them
        return found + [Command(page, one) for one in FRAGMENT.findall(text)]
    spans = [(one or other).replace("\\|", "|") for one, other in SPAN.findall(BLOCK.sub("", text))]
    return found + [Command(page, span) for span in spans if is_command(span)]


def is_command(span):
    """Return whether the text between backquotes is to be typed: it begins with a program, more follows."""
    first, *more = [word for word in span.split() if not is_assignment(word)] or [""]
    known = first in OURS or first in ELSEWHERE or first == "make" or PYTHON.match(first) or DEVELOPERS.fullmatch(first)
    looks = re.fullmatch(r"[a-z][a-z0-9-]+", first) and more and more[0].startswith("-")
    return bool(more and (known or looks or first.startswith("./")))


def is_assignment(word):
    """NAME=value before a command."""
    return re.match(r"[A-Za-z_]+=", word) is not None


def parts(text):
    """The commands of a line: lists of words without redirections and assignments, those of $(…) too."""
    text = re.sub(r"\s+#\s.*$", "", text.partition("\n")[0] if "<<" in text else text, flags=re.MULTILINE)
    for pattern, word in PLACEHOLDERS:
        text = pattern.sub(word, text)
    while inner := re.search(r"\$\(([^()]*)\)", text):
        yield from parts(inner[1])
        text = text.replace(inner[0], "ETC")
    lexer = shlex.shlex(text.replace("\\\n", " "), posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split, lexer.commenters = True, ""
    words, into_file = [], False
    for word in [*lexer, ";"]:
        if OPERATORS.fullmatch(word):
            into_file = "<" in word or ">" in word
            if not into_file and words:
                yield words
                words = []
        elif into_file:
            into_file = False
        elif words or not is_assignment(word):
            words.append(word)


def objection(words, is_mention=False):
    """Say what is wrong with a command; empty if its program's parser takes it, or it cannot run here.

    `is_mention`: it stands in a sentence, which may leave arguments out, and `./build.py` too.
    """
    program, *rest = words
    if program in OURS:
        return ours(rest, is_mention) or started_by_ours(rest)
    if is_mention and (program in command_line() or is_upkeeps(words)):
        return ours(words, is_mention)
    if program == "make":
        return make(rest)
    if PYTHON.match(program):
        return python(rest)
    if program in ELSEWHERE:  # what it starts is ours again, perhaps
        inner = next((at for at, word in enumerate(rest) if PYTHON.match(word) or word == "torchrun"), None)
        started = [] if inner is None else rest[inner:]
        if program == "torchrun":
            started = ["python", *rest[next((at for at, word in enumerate(rest) if word.endswith(".py")), len(rest)) :]]
        return objection(started, is_mention) if started else ""
    if program in SHELL or DEVELOPERS.fullmatch(program):
        return ""
    return f"no test knows {program!r}: type it in a test of tests/engines, or add a row to tests/commands.py"


def objections(made):
    """Yield what is wrong with a command as a value (`model.command`), in each of its written forms."""
    by_make = made.by_make()
    forms = [*[by_make] * bool(by_make), made.by("./build.py"), made.by("graphcrate")]
    return [said for form in forms for words in parts(form) if (said := objection(words, is_mention=True))]


def started_by_ours(words):
    """Say what is wrong with a program that `run … --` or `job --command` starts."""
    if "--" in words:
        return objection_inside(words[words.index("--") + 1 :])
    if "--command" in words:
        return "".join(objection_inside(inner) for inner in parts(words[words.index("--command") + 1]))
    return ""


def objection_inside(words):
    """Say what is wrong with a command inside an image, where all programs may be."""
    return objection(words) if words and PYTHON.match(words[0]) else ""


@cache
def command_line():
    """Our commands by their names."""
    return typer.main.get_command(app).commands


@cache
def upkeeps():
    """Commands of upkeep by their names."""
    return typer.main.get_command(upkeep).commands


def ours(words, is_mention):
    """Return the objection of the command line's own parser."""
    if not words or words[0] == "ETC" or words[0].startswith("-"):
        return ""
    if is_upkeeps(words):  # handed over in a checkout
        return taken(upkeeps()[words[0]], words, is_mention)
    if (command := command_line().get(words[0])) is None:
        return f"there is no command {words[0]!r}"
    if words[0] == "doctor":
        return "" if is_mention and words[-1] == "--explain" else refused(doctor_arguments, words[1:])
    return taken(command, words, is_mention)


def taken(command, words, is_mention):
    """Return the objection of a command's own parser."""
    if words[1:] == ["--help"]:
        return ""
    try:
        command.make_context(words[0], words[1:])
    except Exception as error:  # typer's own copy of click raises its own kinds
        said = getattr(error, "format_message", error.__str__)()
        left_out = is_mention and re.search("^Missing|requires an argument", said)
        return "" if left_out or "unexpected extra argument(s) (ETC)" in said else said
    return ""


def refused(parse, words):
    """Return the objection of an argparse parser."""
    said = []
    error, argparse.ArgumentParser.error = argparse.ArgumentParser.error, lambda _, message: said.append(message)
    try:
        parse([re.sub(r"\$\w+", "1", word) for word in words])
    except (SystemExit, argparse.ArgumentError, AttributeError, TypeError) as ended:
        said.append(str(ended))
    finally:
        argparse.ArgumentParser.error = error
    return "; ".join(said)


@cache
def makefile():
    """(targets, settings) of make."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    settings = re.search(r"^# Settings: (.*)$", text, re.MULTILINE)[1]
    return set(re.findall(r"^([a-z][\w.-]*):", text, re.MULTILINE)), set(re.findall(r"\b([A-Z_]+)=", settings))


def make(words):
    """Return the words that make would not know. (Their effect is in tests/lint/test_makefile.py.)"""
    targets, settings = makefile()
    for word in words:
        name, given, _ = word.partition("=")
        if given and name not in settings | {"PYTHON", "FAULTS", "FUZZ", "RACES"}:
            return f"make has no setting {name}"
        if not given and word not in targets | {"ETC"} and not word.isupper():
            return f"make has no target {word}"
    return ""


def python(words):
    """Say what is wrong with a program that Python is to run: ours by its own parser, a user's own is taken."""
    while words and words[0] in ("-u", "-E", "-s", "-P", "-X"):
        words = words[2:] if words[0] == "-X" else words[1:]
    if not words or words[0].startswith("-"):
        if words[:1] == ["-m"] and DEVELOPERS.fullmatch(words[1]):
            return "" if (ROOT / f"{words[1].replace('.', '/')}.py").is_file() else f"there is no {words[1]}"
        return ""
    path, *rest = words
    name = path.removeprefix(INSIDE)
    if Path(name).name == "doctor.py":
        return refused(doctor_arguments, rest)
    if path == name and not (ROOT / "examples" / name).is_file():
        return ""  # a person's own
    name = name if path != name else f"examples/{name}"
    return refused(parser(name), rest) if (ROOT / name).is_file() else f"images have no {path}"


@cache
def parser(name):
    """Return the parser of a program of examples/ or suites/. Most need torch; their parsers do not."""
    text = (ROOT / name).read_text(encoding="utf-8")
    tree = ast.parse(text)
    if any(isinstance(node, ast.FunctionDef) and node.name == "arguments" for node in tree.body):
        module = name.removeprefix("examples/").removeprefix("suites/").removesuffix(".py").replace("/", ".")
        return importlib.import_module(module).arguments
    tree.body = [node for node in tree.body if re.match(r"parser( =|\.)", ast.unparse(node))]
    scope = {"argparse": argparse}
    exec(compile(tree, name, "exec"), scope)
    return scope.get("parser", argparse.ArgumentParser()).parse_args
