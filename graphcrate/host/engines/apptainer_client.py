"""Apptainer, SingularityCE and Singularity: which of them is here, and its commands, through spython's client."""

import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from graphcrate.host import arguments, process, settings
from graphcrate.host.process import Completed
from graphcrate.host.sandbox import attach, gpu
from graphcrate.host.sandbox.sandbox import Exec, check_binds
from graphcrate.model.command import for_shell
from graphcrate.model.errors import BuildError, HostError

if TYPE_CHECKING:
    from graphcrate.host.engines.spython_client import SpythonClient

NAMES = ("apptainer", "singularity")
#: what the engine needs of the environment besides what all children get: its settings and logins to registries
_VARIABLES = ("CONFIGDIR", "DOCKER_USERNAME", "DOCKER_PASSWORD", "KEYSDIR", "CONFIG_FILE", "MKSQUASHFS_ARGS")
#: "apptainer version 1.4.5-1.el9", "singularity-ce version 4.1.5+ds4", "singularity version 3.5.3-1.el7", "2.6.1-dist"
_VERSION = re.compile(
    r"(?:(apptainer|singularity(?:-ce|-?pro)?) version )?v?(\d+)\.(\d+)(?:\.(\d+))?\S*", re.IGNORECASE
)
OLDEST_SINGULARITY = (3, 5, 3)


class ApptainerClient(msgspec.Struct, frozen=True, kw_only=True):
    """An engine that answers. `name` as it calls itself, `version` as a tuple, `text` as it prints it ("1.4.5-1")."""

    program: str
    name: str
    version: tuple[int, ...]
    text: str

    @property
    def builds_stages(self) -> bool:
        """Return whether it builds a definition in stages; before 3.5.3 a copy between them followed links."""
        return self._since((0,), singularity=OLDEST_SINGULARITY)

    @property
    def takes_literal_values(self) -> bool:
        """Return whether it has variables that no shell evaluates (`--no-eval`)."""
        return self._since((1, 1), singularity=(3, 10))

    def _since(self, apptainer: tuple[int, ...], singularity: tuple[int, ...]) -> bool:
        """By CHANGELOG.md of github.com/apptainer/apptainer and github.com/sylabs/singularity."""
        return self.version >= (apptainer if self.name == "apptainer" else singularity)

    def environment(self, given: Mapping[str, str], inside: Mapping[str, str], **own: str) -> dict[str, str]:
        """Build the engine's environment: `given` as children get it, `inside` for the image, its `own` settings."""
        prefix = "APPTAINER" if self.name == "apptainer" else "SINGULARITY"
        chosen = settings.select_for_child(given, tuple(f"{prefix}_{name}" for name in _VARIABLES))
        chosen |= {f"{prefix}_{name.upper()}": value for name, value in own.items()}
        return chosen | {f"{prefix}ENV_{name}": value for name, value in inside.items()}

    def build(
        self,
        definition: str,
        image: Path,
        options: Sequence[str] = (),
        *,
        environment: Mapping[str, str],
        cwd: Path,
        on_line: Callable[[str], None],
    ) -> Completed:
        """Build a SIF from the definition of this name in `cwd`, in place of any that is there."""
        client = self._client(environment=environment, cwd=cwd, on_line=on_line)
        client.build(definition, str(image.absolute()), force=True, sudo=False, options=[*options], quiet=True)
        return client.completed

    def execute(
        self,
        image: Path,
        command: Exec,
        options: Sequence[str] = (),
        *,
        environment: Mapping[str, str],
        prefix: Sequence[str] = (),
    ) -> Completed:
        """Run a command in an image. Raises HostError for what cannot be bound, else what `process.run` raises.

        `prefix`: words before the engine's own, such as those of srun.
        """
        check_binds(command.binds, separators=":,")  # for a source that is not there spython would end this program
        binds = [f"{bind.source.resolve()}:{bind.target}:{'ro' if bind.read_only else 'rw'}" for bind in command.binds]
        if command.attached:
            client = self._attached(environment, command.ends)
        else:
            client = self._client(prefix, environment=environment, on_line=command.on_line, timeout=command.timeout)
        client.execute(
            arguments.operand(str(image)),
            [*command.argv],
            bind=binds,
            nv=command.gpu and bool(gpu.detect().devices),
            options=[*options],
            # Silent, because messages of the engine and output of the command come in one stream.
            singularity_options=["--silent", "--nocolor"],
        )
        return client.completed

    def labels(self, image: Path) -> dict[str, str]:
        """The labels of an image, by `inspect`. Raises BuildError where the engine cannot read it."""
        try:
            return dict(self._client().inspect(arguments.operand(str(image)))["attributes"]["labels"])
        except (ValueError, LookupError, TypeError) as error:
            raise BuildError(
                f"{self.name} inspect prints no labels of {image}",
                next_step=f"{self.program} inspect --json {for_shell(image)}    shows what it prints",
            ) from error

    def _attached(self, environment: Mapping[str, str], ends: Callable[[], bool] | None) -> "SpythonClient":
        """Return spython's client, whose commands get this process's terminal."""
        from graphcrate.host.engines.spython_client import SpythonClient

        def run(words: Sequence[str]) -> Completed:
            return Completed(attach.run(arguments.line(*words), environment=environment, ends=ends), ())

        return SpythonClient(self.program, run)

    def _client(self, prefix: Sequence[str] = (), **options: Any) -> "SpythonClient":  # noqa: ANN401
        """spython's client, whose commands get these words before them, and these options of `process.run`."""
        from graphcrate.host.engines.spython_client import (
            SpythonClient,  # takes as long to load as a command without it
        )

        return SpythonClient(self.program, lambda words: process.run(arguments.line(*prefix, *words), **options))


def parse_version(program: str, output: str) -> ApptainerClient | None:
    """Read what `--version` of a program says; None if it is none of these engines."""
    match = _VERSION.fullmatch(output.strip())
    if match is None:
        return None
    version = tuple(int(number or 0) for number in match.groups()[1:])
    name = (match[1] or "singularity").lower()
    return ApptainerClient(program=program, name=name, version=version, text=output.strip().split()[-1])


def find(environment: Mapping[str, str]) -> ApptainerClient:
    """The engine in this environment's PATH, Apptainer before Singularity. Raises HostError when there is none."""
    variables = settings.select_for_child(environment)
    complaints = []
    for name in NAMES:
        program = shutil.which(name, path=variables["PATH"])
        if program is None:
            continue
        done = process.run(arguments.line(program, "--version"), environment=variables, timeout=60)
        engines = [engine for line in done.lines if (engine := parse_version(program, line))]
        if engines and not done.returncode:
            return engines[-1]
        complaints.append(f"{program} --version ends with code {done.returncode}: {' '.join(done.lines[-3:])}")
    if complaints:
        raise HostError(
            complaints[0],
            cause="It is broken, or another program of that name.",
            next_step="module load apptainer    (on a cluster)",
        )
    raise HostError(
        "neither apptainer nor singularity is installed",
        cause="Neither was found in PATH or in the system's folders.",
        next_step="module load apptainer    (on a cluster; else https://apptainer.org/docs/admin/main/)",
    )
