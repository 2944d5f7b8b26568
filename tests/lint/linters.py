"""The linters that come with requirements-dev.txt, called one by one, and the parts of texts that they are given."""

import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

BIN = Path(sys.executable).parent
_SECTION = re.compile(r"%(?P<name>\w+)(?P<rest>.*)")
_HEADER = re.compile(r"(?P<key>\w+): (?P<value>\S.*)")
#: https://apptainer.org/docs/user/latest/definition_files.html; of the header, what we have a use for
SECTIONS = {"environment", "files", "help", "labels", "post", "runscript", "setup", "test"}
HEADERS = {"bootstrap", "from", "stage"}
SHELL_SECTIONS = {"environment", "post", "runscript", "setup", "test"}


def findings(program, *arguments, text=None):
    """What a linter says, empty when it is content. A linter that fails in silence has something to say too.

    Neither this machine's configuration nor a person's variables have a say.
    """
    done = subprocess.run(
        [str(BIN / program), *map(str, arguments)],
        input=text,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd="/",
        env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
    )
    said = (done.stdout + done.stderr).strip()
    return said if said or not done.returncode else f"{program} ended with {done.returncode}"


def hadolint(*arguments, text=None):
    """What a stranger's hadolint says: no configuration, no finding too small."""
    source = ["-"] if text is not None else []
    return findings("hadolint", "--no-color", *arguments, *source, text=text)


def shellcheck(text, shell="sh"):
    return findings("shellcheck", "--norc", "--color=never", "--format=gcc", f"--shell={shell}", "-", text=text)


def run_instructions(dockerfile):
    """(line, shell text) of every RUN in a Dockerfile without here-documents and escape directives."""
    lines, found = dockerfile.split("\n"), []
    numbered = iter([(number, line) for number, line in enumerate(lines, 1) if not line.lstrip().startswith("#")])
    for number, line in numbered:
        whole = line
        while whole.endswith("\\"):
            whole += "\n" + next(numbered, (0, ""))[1]
        word, _, rest = whole.strip().partition(" ")
        if word.upper() == "RUN":
            found.append((number, re.sub(r"\A(\s*--\w+=\S+)+", "", rest).lstrip()))
    return found


class DefinitionError(ValueError):
    """A definition file that no engine should be given."""


@dataclass
class Stage:
    """One `Bootstrap:` and what follows it. `files`: (stage it comes from or "", its lines)."""

    header: dict[str, str] = field(default_factory=dict)
    sections: dict[str, str] = field(default_factory=dict)
    files: list[tuple[str, list[str]]] = field(default_factory=list)

    @property
    def name(self):
        return self.header.get("stage", "")


def stages(definition):
    """Reads a definition file, more strictly than any engine does. Raises DefinitionError."""
    found, section = [], None
    for number, line in enumerate(definition.split("\n"), 1):
        header, start = _HEADER.fullmatch(line), _SECTION.fullmatch(line)
        if header and header["key"].lower() == "bootstrap" and section != "help":
            found.append(Stage())
            section = None
        if start:
            if not found:
                raise DefinitionError(f"line {number}: {line} before any Bootstrap")
            section = _begin(found[-1], start, number, [stage.name for stage in found[:-1]])
        elif section == "files":
            if line.strip() and not line.lstrip().startswith("#"):
                found[-1].files[-1][1].append(line.strip())
        elif section:
            found[-1].sections[section] += line + "\n"
        elif header and found and header["key"].lower() in HEADERS - set(found[-1].header):
            found[-1].header[header["key"].lower()] = header["value"]
        elif line and not line.startswith("#"):
            raise DefinitionError(f"line {number}: cannot be read: {line!r}")
    _check(found)
    return found


def _begin(stage, start, number, earlier):
    """A section's name. `%files from x` may come more than once, everything else once in a stage."""
    name, rest = start["name"], start["rest"].strip()
    if name not in SECTIONS:
        raise DefinitionError(f"line {number}: there is no section %{name}")
    if name == "files":
        source = re.fullmatch(r"(from (\w+))?", rest)
        if source is None or (source[2] and source[2] not in earlier):
            raise DefinitionError(f"line {number}: no stage above is meant by %files {rest}")
        stage.files.append((source[2] or "", []))
        return name
    if rest or name in stage.sections:
        raise DefinitionError(f"line {number}: %{name} a second time, or followed by {rest!r}")
    stage.sections[name] = ""
    return name


def _check(found):
    if not found:
        raise DefinitionError("no Bootstrap line")
    names = [stage.name for stage in found]
    if len(found) > 1 and (len(set(names)) < len(names) or not all(names[:-1])):
        raise DefinitionError(f"stages want names of their own: {names}")
    for stage in found:
        if not {"bootstrap", "from"} <= set(stage.header):
            raise DefinitionError(f"stage {stage.name!r} has no From")
        if "{{" in "".join([*stage.header.values(), *stage.sections.values()]):
            raise DefinitionError(f"stage {stage.name!r} uses arguments, which old engines do not know")


def scripts(stage):
    """(section, shell text) of a stage."""
    for name in sorted(SHELL_SECTIONS & set(stage.sections)):
        yield name, stage.sections[name]
