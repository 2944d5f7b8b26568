"""A Debian system from .debs, by `debroot`: in our sandbox, with our limits, and without what no two machines share."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from debroot import install as installing
from debroot.deb import FileOwner
from debroot.distributions import Layout
from debroot.install import Ended, Hands, Machine, Program
from graphcrate.compat.facts import identities, suites
from graphcrate.host.disk import trees
from graphcrate.host.sandbox.emulation import Emulator, is_native
from graphcrate.host.sandbox.sandbox import Exec, run_in
from graphcrate.host.sandbox.steps import Step
from graphcrate.inputs.bases.deb import package_pieces, tar_members
from graphcrate.inputs.bases.debroot_errors import REGISTRY_INSTEAD, translated
from graphcrate.model.errors import HostError
from graphcrate.model.plan import LAYER_MTIME
from graphcrate.model.platform import DEFAULT, Platform
from nsbox.box import Bind

TIMEOUT = 1800.0
EMULATED_TIMEOUT = 6 * TIMEOUT  #: an emulator takes ten times as long, on a busy machine more


def install(
    debs: Sequence[Path],
    root: Path,
    suite: str,
    advance: Callable[[int], None],
    platform: Platform = DEFAULT,
    emulator: Emulator | None = None,
    on_extracted: Callable[[Path], None] = lambda _: None,
) -> dict[str, FileOwner]:
    """Make a system of these packages in the new folder `root`. Return the owners of paths that are not root's.

    Call `advance` with bytes of the packages as they are unpacked and set up: half of a package's size for each.
    `emulator`: what runs the packages' programs where this machine is another one than the platform's. `on_extracted`
    gets `root` when all files of the packages are there, and none is set up.
    Raises BuildError where one cannot be installed, HostError where this machine cannot run them, or has no user
    namespaces.
    """
    if emulator is None and not is_native(platform):
        machine = os.uname().machine
        raise HostError(f"a base for {platform.title} cannot be made on {machine}", next_step=REGISTRY_INSTEAD)
    facts = suites.base_of(suite)
    with trees.folder_in(root.parent) as work, translated(suite, root):
        return installing.install(
            debs,
            root,
            work,
            hands(emulator),
            layout=Layout(links_usr=facts.links_usr, compiles_again=facts.compiles_again),
            epoch=LAYER_MTIME,
            machine=Machine(platform.debian, platform.loader_folder),
            after=identities.after_install({path.name.partition("_")[0] for path in debs}),
            advance=advance,
            on_extracted=on_extracted,
        )


def install_more(
    debs: Sequence[Path], root: Path, advance: Callable[[int], None], emulator: Emulator | None = None
) -> None:
    """Install more packages into a system of `install`, by the dpkg that it has. `advance`, errors: as there.

    Owners are not kept: for a tree that programs run in and that becomes no layer.
    """
    with trees.folder_in(root.parent) as work, translated(root=root):
        installing.install_more(debs, root, work, hands(emulator), epoch=LAYER_MTIME, advance=advance)


def hands(emulator: Emulator | None) -> Hands:
    """Return our sandbox and our readers, as `debroot` takes them."""

    def run(program: Program) -> Ended:
        done = run_in(
            program.root,
            Exec(
                program.argv,
                program.environment,
                [Bind(source, target, read_only=is_read) for source, target, is_read in program.binds],
                on_line=program.on_line,
                timeout=TIMEOUT if emulator is None else EMULATED_TIMEOUT,
                step=Step.INSTALL,
                emulator=emulator,
            ),
        )
        return Ended(done.returncode, done.lines)

    return Hands(run, package_pieces, tar_members)
