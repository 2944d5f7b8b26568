"""The linters that come with requirements-dev.txt, called one by one, and the parts of texts that they are given."""

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

BIN = Path(sys.executable).parent
#: https://apptainer.org/docs/user/latest/definition_files.html
SECTIONS = {"environment", "files", "help", "labels", "post", "runscript", "setup", "test"}
SHELL_SECTIONS = SECTIONS - {"files", "help", "labels"}


def findings(program, *arguments, text=None):
    """Return a linter's findings. One that fails without output has a finding too.

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


def hadolint(*paths):
    """Findings of a hadolint that heeds no pragma: no configuration, no finding too small."""
    return findings("hadolint", "--no-color", "--disable-ignore-pragma", *paths)


def shellcheck(text):
    return findings("shellcheck", "--norc", "--color=never", "--format=gcc", "--shell=bash", "-", text=text)


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
            found.append((number, rest.lstrip()))
    return found


@dataclass
class Stage:
    """One `Bootstrap:` and what follows it. `files`: (stage it comes from or "", its lines)."""

    header: dict[str, str]
    sections: dict[str, str]
    files: list[tuple[str, list[str]]]

    @property
    def name(self):
        return self.header.get("Stage", "")


def stages(definition):
    """Read a definition file: what stands before a section of a stage, and each section once."""
    found = []
    for text in re.split(r"^(?=Bootstrap: )", definition, flags=re.MULTILINE)[1:]:
        head, *parts = re.split(r"^%(\w+) ?(.*)\n", text, flags=re.MULTILINE)
        stage = Stage(dict(re.findall(r"^(Bootstrap|From|Stage): (\S+)$", head, re.MULTILINE)), {}, [])
        for name, rest, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            assert name in SECTIONS - set(stage.sections), name
            if name == "files":
                lines = [line.strip() for line in body.splitlines() if line.strip(" #")]
                stage.files.append((rest.removeprefix("from "), lines))
            else:
                assert not rest, (name, rest)
                stage.sections[name] = body
        found.append(stage)
    return found


def scripts(stage):
    """(section, shell text) of a stage."""
    for name in sorted(SHELL_SECTIONS & set(stage.sections)):
        yield name, stage.sections[name]
