"""Runs commands in a SIF with Apptainer, SingularityCE or Singularity, as whoever asks: root or a plain user.

The image gets nothing of the host but what it is given: neither environment nor home, /tmp, devices or network.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from graphcrate.engines import apptainer
from graphcrate.engines.apptainer import Engine
from graphcrate.engines.runners import Runtime
from graphcrate.host import gpu as gpus
from graphcrate.host import process, settings
from graphcrate.host.cache import Cache
from graphcrate.host.process import Completed
from graphcrate.host.progress import Progress
from graphcrate.host.sandbox import Bind, Exec, check_binds
from graphcrate.model.errors import HostError
from graphcrate.model.report import Artifact

#: A PID namespace: all that a command starts ends with it.
ISOLATED = ["--cleanenv", "--contain", "--pid"]
NO_NETWORK = ["--net", "--network", "none"]
SECONDS_TO_TRY = 300


@dataclass(frozen=True)
class Image:
    """An image that the engine can run here. Nothing that runs in it can change it."""

    engine: Engine
    image: Path
    cache: Cache
    rights: Sequence[str]  #: options with which the engine runs anything at all for this user
    network_off: Sequence[str]  #: options that keep the network out; none where this machine does not allow that

    def run(self, command: Exec) -> Completed:
        """See `host.sandbox.Inside.run`. Of the host it sees binds alone, and the network if asked to."""
        options = [*ISOLATED, *self.rights, *(() if command.network else self.network_off)]
        options += ["--no-eval"] if self.engine.takes_literal_values else []
        options += ["--nv"] if command.gpu and gpus.detect().devices else []
        options += ["--pwd", command.cwd or "/", *bound(command.binds)]
        variables = self.engine.environment(
            settings.environment(), command.environment, cachedir=str(self.cache.path("apptainer", "layers"))
        )
        # /tmp and the home lie on the cache's disk: in memory they would be limited to 64 MB.
        with self.cache.folder() as scratch:
            options += ["--workdir", str(scratch), str(self.image)]
            # Silent, because what the engine says and what the command says come in one stream.
            words = [self.engine.program, "--silent", "--nocolor", "exec", *options, *command.argv]
            return process.run(words, environment=variables, on_line=command.on_line, timeout=command.timeout)


def runtime(environment: Mapping[str, str]) -> Runtime:
    """The engine that is found here. Raises HostError when there is none."""
    engine = apptainer.find(environment)
    return Runtime(engine.name, engine.text)


def exists(artifact: Artifact, environment: Mapping[str, str]) -> bool:
    """Whether the file is there with all its bytes. Its hash is not computed: that takes as long as a smoke test."""
    path = Path(artifact.reference)
    return path.is_file() and path.stat().st_size == artifact.bytes


@contextlib.contextmanager
def opened(artifact: Artifact, *, cache: Cache, progress: Progress) -> Iterator[Image]:
    """The image, once the engine has run something in it. Raises HostError when it cannot."""
    image = Path(artifact.reference).absolute()
    if not image.is_file():
        raise HostError(
            f"{image} does not exist", next_step="make image … ENGINE=apptainer    (builds it; it was moved or removed)"
        )
    engine = apptainer.find(settings.environment())
    said: list[str] = []
    # Root that lacks some capability, as in a container, can only run with none at all.
    for rights in ([], ["--no-privs"], ["--userns"]) if apptainer.is_root() else ([], ["--userns"]):
        for network_off in (NO_NETWORK, []):
            inside = Image(engine, image, cache, rights, network_off)
            tried = inside.run(Exec(["/bin/sh", "-c", ":"], timeout=SECONDS_TO_TRY))
            if not tried.returncode:
                if not network_off:
                    progress.note(f"{engine.name} cannot shut the network off here: the image's programs may see it")
                yield inside
                return
            said += tried.lines
    raise apptainer.explain(engine, said) or HostError(
        f"{engine.name} cannot run {image}",
        cause=apptainer.last_word(said),
        next_step=f"{engine.program} exec {image} true    shows the same",
    )


def bound(binds: Sequence[Bind]) -> list[str]:
    """Options for binds. Raises HostError for a source that is not there or that the engine would misread."""
    check_binds(binds)
    options = []
    for bind in binds:
        source = str(bind.source.resolve())
        if any(letter in f"{source}{bind.target}" for letter in ":,"):
            raise HostError(
                f"{source} cannot be bound into an image",
                cause="Apptainer takes colons and commas in a path for the ends of its parts.",
                next_step="move it to a path without them, or set TMPDIR to one",
            )
        options += ["--bind", f"{source}:{bind.target}:{'ro' if bind.read_only else 'rw'}"]
    return options
