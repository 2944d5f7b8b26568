"""The user's request for a build, as the values that its stages take: the same for all commands that build.

Imported where a command builds: it loads what reads requirements.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from graphcrate.cli.options import config
from graphcrate.compat.requirements import mpi, own, own_packages, own_typed
from graphcrate.compat.variants.request import BuildRequest, SourceOptions, Verb
from graphcrate.compat.variants.targets import MachineRequest
from graphcrate.host.sandbox.emulation import this_machine
from graphcrate.model.errors import UsageError
from graphcrate.model.platform import DEFAULT


def build_request(
    verb: Verb,
    name: str,
    cuda: str | None,
    *,
    platform: str = "",
    machine: MachineRequest | None = None,
    sources: SourceOptions | None = None,
    packages: Sequence[str] = (),
    requirements: Sequence[Path] = (),
    apt: Sequence[str] = (),
    flavour: str = "",
    build_apt: Sequence[str] = (),
    build_env: Sequence[str] = (),
    trust_paths: bool = False,
) -> BuildRequest:
    """Make the request of a stack by its NAME, or of the FILE of a recipe of the user's own, which names its stack.

    What the command line adds comes beside what the file does. The mirror is the configured one where none is named.
    Raises RecipeError and UsageError for the file, and for what file and command line refer to.
    """
    sources = sources or SourceOptions()
    if sources.walled and trust_paths:
        raise UsageError("--walled and --trust-paths contradict each other", next_step="leave one of them out")
    typed = own_typed.given(packages, requirements, apt, flavour, build_apt, build_env, walled=sources.walled)
    stack = own.find_stack(name, cuda, trusts_paths=trust_paths)
    machine = machine or MachineRequest()
    return BuildRequest(
        name=stack.name,
        cuda=stack.cuda,
        platform=platform or ("" if verb == "render" else _native(machine)),
        machine=machine,
        sources=msgspec.structs.replace(sources, mirror=sources.mirror or config().mirror or None),
        additions=mpi.with_library(own_packages.merge_additions(stack.additions, typed)),
        recipe=stack.file,
        verb=verb,
        requirements=tuple(requirements),
        words=tuple(packages),
        trust_paths=trust_paths,
    )


def _native(machine: MachineRequest) -> str:
    """Return the platform of an image where nothing says: this machine's; empty for the default one.

    A machine that is named decides by its GPUs.
    """
    native = this_machine()
    return "" if machine.gpu or machine.target or native == DEFAULT else native.name
