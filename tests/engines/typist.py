"""Pages of the documentation, typed as they are written: the commands below a heading, and who types them."""

import os
import re
import subprocess
import sys

from tests.engines.workplace import PARTS, pyg_stack, until

#: make with this Python, in a folder that needs no preparing (on its command line, make takes settings alone)
MAKE = f"graphcrate='{sys.executable} -E -s -m graphcrate.cli.main' make -e -o .venv/ready-run"
#: what users have in their working directory as train.py, and what it prints
TRAINING, TRAINED = "import torch\nprint('trained', torch.ones(2).sum().item())\n", "trained 2.0\n"
#: what is typed of a page is what is in blocks of this language; what commands print is in blocks without one
LANGUAGE = "sh"
#: a line, with those that a backslash at its end or a here-document adds to it
COMMAND = re.compile(r"(?:.*\\\n)*.*?<<-?\s*'?(\w+)'?(?:.*\n)+?\1$|(?:.*\\\n)*.+", re.MULTILINE)


def blocks(page, heading):
    """The commands below a heading of a page, up to the next one; each block is a list of commands."""
    text = page.read_text(encoding="utf-8")
    section = re.search(rf"^##* {re.escape(heading)}$(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)[1]
    found = re.findall(rf"^```{LANGUAGE}\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return [[command[0] for command in COMMAND.finditer(block.strip())] for block in found]


def untyped(page, module):
    """Headings of a page with commands that no test of a module (its path) takes the blocks of, in these words:
    `blocks(<page>, "<heading>")`, or `types`.
    """
    taken = re.findall(r"""(?:blocks|types)\(\s*\w+,\s*"([^"]+)\"""", module.read_text(encoding="utf-8"))
    headings = re.findall(r"^##* (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return [heading for heading in headings if heading not in taken and blocks(page, heading)]


def settings(stack):
    """A stack's name, or a recipe's file, and options as make takes them."""
    name, *options = stack
    pairs = zip(options[::2], options[1::2], strict=True)
    first = f"RECIPE={name}" if name.endswith(".toml") else f"STACK={name}"
    return " ".join([first, *(f"{key.removeprefix('--').upper()}='{value}'" for key, value in pairs)])


def make_pyg_sif(extensions="none"):
    """`make sif` for the PyG image that this machine can have, to be typed where a page has `make sif CUDA=...`."""
    return f"{MAKE} sif {settings(pyg_stack(extensions))}"


def in_project(workplace, image, environment, changes=(), removed=()):
    """Types in the project's folder. `removed`: patterns of files that go first, as no command writes over them."""
    for path in (path for pattern in removed for path in workplace.folder.glob(pattern)):
        path.unlink(missing_ok=True)  # the folder has a second name
    variables = {"GRAPHCRATE_CACHE": str(workplace.cache), **workplace.environment, **dict(environment)}
    return Typist(workplace.folder, variables, [*changes, ("<tag>", image.report["tag"])])


def in_new_clone(workplace, image, folder, environment=(), changes=()):
    """Types in an empty folder that gets what a clone has, beside the images that are made, with an empty home."""
    for name in (*PARTS, "dist"):
        (folder / name).symlink_to(workplace.folder / name)
    (home := folder / "home").mkdir()
    variables = {"GRAPHCRATE_CACHE": str(workplace.cache), **workplace.environment, "HOME": str(home)}
    return Typist(folder, variables | dict(environment), [*changes, ("<tag>", image.report["tag"])])


class Typist:
    """Types commands in a folder.

    `environment` goes over this process's own. `changes`: (before, after) pairs for what this machine and image ask to
    be typed otherwise, applied in turn to each command; `./build.py` is always this Python's.
    """

    def __init__(self, folder, environment=None, changes=()):
        self.folder, self.changes = folder, tuple(changes)
        self.environment = {**os.environ, **(environment or {})}

    def type(self, command, *changes, code=0):
        """Type one command, with further changes that go before the others; what it prints on stdout."""
        return self.typed(command, *changes, code=code).stdout

    def typed(self, command, *changes, code=0):
        """The same; the whole of what became of it. `code`: its exit code, None for any."""
        programs = [("./build.py", f"{sys.executable} -E -s -m graphcrate.cli.main")]
        for words in ("update", "catalog"):  # build.py hands them over
            programs.insert(0, (f"./build.py {words}", f"{sys.executable} -E -s -m upkeep {words}"))
        for before, after in (*changes, *self.changes, *programs):
            command = command.replace(before, after)
        done = subprocess.run(
            ["bash", "-euc", command],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=1500,
            check=False,
        )
        assert code in (None, done.returncode), f"{command}\n{done.stdout}{done.stderr}"
        return done

    def types(self, page, heading, *expected, changes=()):
        """Type all that a page has below a heading; `expected` is in what each command prints."""
        commands = [command for block in blocks(page, heading) for command in block]
        for command, text in zip(commands, expected, strict=True):
            assert text in self.type(command, *changes), command

    def submit(self, command, *changes):
        """Type an sbatch, wait for the job, and return what it printed on stdout and stderr."""
        number = self.type(command, ("sbatch ", "sbatch --parsable "), *changes).strip()
        # `sbatch --wait` looks each half minute
        until(lambda: not self.type(f"squeue --noheader --jobs={number}"), 1500)
        assert "ExitCode=0:0" in self.type(f"scontrol show job {number}"), number
        return tuple((self.folder / f"{number}.{end}").read_text() for end in ("out", "err"))
