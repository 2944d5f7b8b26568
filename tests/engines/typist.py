"""Pages of the documentation, typed as they are written: the commands below a heading, and who types them."""

import os
import re
import subprocess
import sys

from tests.engines.workplace import pyg_stack

#: `make sif` with this Python, in a folder that needs no preparing (on its command line, make takes settings alone)
MAKE_SIF = f"graphcrate='{sys.executable} -E -s -m graphcrate.cli.main' make -e -o .venv/ready-run sif"
#: what is typed of a page is what lies in blocks of this language; what commands print lies in blocks without one
LANGUAGE = "sh"
_HEREDOC = re.compile(r"<<-?\s*'?(\w+)'?")


def blocks(page, heading):
    """The commands below a heading of a page, up to the next one; each block is a list of commands.

    A command is a line, with those that a backslash at its end or a here-document adds to it.
    """
    text = page.read_text(encoding="utf-8")
    section = re.search(rf"^##+ {re.escape(heading)}$(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)[1]
    found = re.findall(rf"^```{LANGUAGE}\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return [list(_commands(block.strip().splitlines())) for block in found]


def _commands(lines):
    rest = iter(lines)
    for line in rest:
        command = [line]
        while command[-1].endswith("\\"):
            command.append(next(rest))
        if begin := _HEREDOC.search("\n".join(command)):
            while command[-1] != begin[1]:
                command.append(next(rest))
        yield "\n".join(command)


def untyped(page, module):
    """Headings of a page with commands that no test of a module (its path) takes the blocks of, in these words:
    `blocks(<page>, "<heading>")`.
    """
    source = module.read_text(encoding="utf-8")
    taken = re.findall(r"""blocks\(\s*\w+,\s*"([^"]+)",?\s*\)""", source)
    headings = re.findall(r"^##+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return [heading for heading in headings if heading not in taken and blocks(page, heading)]


def make_pyg_sif(extensions="none"):
    """`make sif` for the PyG image that this machine can have, to be typed where a page has `make sif CUDA=...`."""
    _, *options = pyg_stack(extensions)
    pairs = zip(options[::2], options[1::2], strict=True)
    return " ".join([MAKE_SIF, *(f"{name.removeprefix('--').upper()}='{value}'" for name, value in pairs)])


def in_project(workplace, image, environment, changes=(), anew=()):
    """Types in the project's folder. `anew`: patterns of what is removed first, as no command writes over it."""
    for path in (path for pattern in anew for path in workplace.folder.glob(pattern)):
        path.unlink(missing_ok=True)  # the folder has a second name
    surroundings = {"GRAPHCRATE_CACHE": str(workplace.cache), **workplace.environment, **environment}
    return Typist(workplace.folder, surroundings, [*changes, ("<tag>", image.report["tag"])])


class Typist:
    """Types commands in a folder.

    `environment` goes over this process's own. `changes`: (before, after) pairs for what this machine and image ask to
    be typed otherwise, applied in turn to each command; `./build.py` is always this Python's.
    """

    def __init__(self, folder, environment=None, changes=()):
        self.folder, self.changes = folder, tuple(changes)
        self.environment = {**os.environ, **(environment or {})}

    def type(self, command, *changes, code=0, timeout=1500):
        """Type one command, with further changes that go before the others; what it prints on stdout."""
        return self.typed(command, *changes, code=code, timeout=timeout).stdout

    def typed(self, command, *changes, code=0, timeout=1500):
        """The same; the whole of what became of it."""
        program = ("./build.py", f"{sys.executable} -E -s -m graphcrate.cli.main")
        for before, after in (*changes, *self.changes, program):
            command = command.replace(before, after)
        done = subprocess.run(
            ["bash", "-euc", command],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=timeout,
            check=False,
        )
        assert done.returncode == code, f"{command}\n{done.stdout}{done.stderr}"
        return done

    def submit(self, command, *changes):
        """Type an sbatch, wait for the job, and return what it printed on stdout and stderr."""
        number = self.type(command, ("sbatch ", "sbatch --parsable --wait "), *changes).strip()
        return tuple((self.folder / f"{number}.{end}").read_text() for end in ("out", "err"))
