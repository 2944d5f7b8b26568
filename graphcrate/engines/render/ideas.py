"""From a plan to the stages and commands that its texts consist of: what to run and why.

Both templates lay out the same commands, so that a Dockerfile and a definition end with the same files.
"""

import functools
import importlib.resources
from collections.abc import Iterable, Sequence

import msgspec

from graphcrate.compat import addresses
from graphcrate.compat.planning import EXAMPLES_TITLE, GROUPS, group
from graphcrate.engines.render.commands import Command, Commands, one, quoted, write_lines
from graphcrate.model.errors import BuildError
from graphcrate.model.lock import DebianToolkit, LockedPackage, Toolkit, WheelToolkit
from graphcrate.model.plan import (
    VENV,
    BaseStep,
    CompileStep,
    ConfigStep,
    FilesStep,
    Plan,
    PlannedFile,
    PythonFrom,
    RequirementsStep,
    ToolkitStep,
    WheelsStep,
)
from graphcrate.model.recipe import Channel

CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
TOOLS = "/opt/tools"  #: pip and uv, in stages that are left behind
CONTEXT = "/context"  #: what lay beside the text, in stages that are left behind
#: For files on the way. Not /tmp, which is the host's own while Apptainer builds.
WORK = "/root"
#: A copy of apt's settings, removed again. Not below /root, where apt's own user cannot look.
APT = "/opt/apt"
STAGES = dict(zip(GROUPS, ("cuda", "torch", "tools", "pyg"), strict=True))

_PINS = (
    "Debian's archive keeps one version of a package: a pinned one is gone with the next update.",
    "DL3008",
)
#: apt's sources with another mirror; `&`, what was found, where none is given
MIRRORED = "-path '*sources.list*' -type f -exec sed -i \"s|http[^ ]*/debian|${DEBIAN_MIRROR:-&}|\" {} +"


_KNOWN = BaseStep | FilesStep | WheelsStep | CompileStep | ToolkitStep | RequirementsStep | ConfigStep


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """What one stage of a Dockerfile does, and one paragraph of a definition. `title` is for people."""

    name: str  #: of the stage
    title: str
    runs: tuple[Commands, ...]
    origin: str = "build"  #: what the stage starts from
    preparations: tuple[Commands, ...] = ()  #: what comes before the copies: it changes less
    copies: tuple[tuple[str, str], ...] = ()  #: (earlier stage, path) that the commands need
    environment: dict[str, str] = {}  #: what the commands need to be set, for this `reason`
    reason: str = ""
    bytecode: tuple[Commands, ...] = ()  #: once for all where a definition does them in one
    result: str = VENV  #: what the image takes from it; empty: nothing


def refuse_unknown(plan: Plan, what: str) -> None:
    """Raises BuildError for a step that the text cannot express."""
    for step in plan.steps:
        if not isinstance(step, _KNOWN):
            raise BuildError(f"a {what} cannot express the step {type(step).__name__} of {plan.name}:{plan.tag}")


def base(plan: Plan, *, environment: bool = True) -> tuple[Commands, ...]:
    """What a stage starts with: Debian's packages, where the base lacks them, and the small files.

    `environment` false: without those of the virtual environment, which come from another stage.
    """
    names = plan.base.image.packages
    runs = [_base_packages(names)] if names else []
    for step in plan.steps:
        if isinstance(step, FilesStep) and step.title != EXAMPLES_TITLE:
            runs += files(step, environment=environment)
    return tuple(runs)


def _base_packages(names: Sequence[str]) -> Commands:
    etc = f"-o Dir::Etc={APT}"
    listed = " ".join(names)
    return Commands(
        why="Only what the base lacks; a mirror is for this command alone. " + _PINS[0],
        allowed=_PINS[1],
        commands=(
            (
                f"if ! dpkg --status {listed} > /dev/null 2>&1; then",
                f"    cp -r /etc/apt {APT}",
                f" && find {APT} {MIRRORED}",
                f" && apt-get {etc} update",
                f" && DEBIAN_FRONTEND=noninteractive apt-get {etc} install --yes --no-install-recommends {listed}",
                f" && rm -rf {APT} /var/lib/apt/lists/*;",
                "fi",
            ),
        ),
    )


def files(step: FilesStep, *, environment: bool) -> list[Commands]:
    """A step's files, written by the shell: those of the virtual environment, then the others."""
    inside = [file for file in step.files if f"{file.path}/".startswith(f"{VENV}/")]
    others = [file for file in step.files if file not in inside]
    runs = []
    if inside and environment:
        why = "The virtual environment, as `python3 -m venv` would make it, without its activation scripts."
        runs.append(Commands(why=why, commands=tuple(_written(inside))))
    if others:
        why = "Login shells, which enroot starts, set PATH anew."
        later = any("$" in file.content for file in others)
        if later:
            why += " Variables are for them, not for this command."
        runs.append(Commands(why=why, commands=tuple(_written(others)), allowed="SC2016" if later else ""))
    return runs


def _written(planned: Sequence[PlannedFile]) -> Iterable[Command]:
    if folders := [file.path for file in planned if file.folder]:
        yield one("mkdir -p", *(path for path in folders if not any(f"{path}/" in other for other in folders)))
    for file in planned:
        if file.folder:
            if file.mode != 0o755:
                yield one("chmod", f"{file.mode:o}", file.path)
        elif file.link:
            yield one("ln -s", file.link, file.path)
        else:
            yield write_lines(file.path, file.content.removesuffix("\n").split("\n"))
            if file.mode != 0o644:
                yield one("chmod", f"{file.mode:o}", file.path)


def tools_mirrored(plan: Plan) -> bool:
    """Whether `tools` has put the user's mirror into apt's settings."""
    return plan.base.image.python_from is not PythonFrom.IMAGE


def tools(plan: Plan) -> tuple[Commands, ...]:
    """pip and uv, in stages that are left behind. Their index is the user's where one is given."""
    runs = []
    if tools_mirrored(plan):
        runs.append(
            Commands(
                why="pip, to fetch uv with.",
                allowed=_PINS[1],
                commands=(
                    one(f"find /etc/apt {MIRRORED}"),
                    one("apt-get update"),
                    one("DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends python3-venv"),
                    one("rm -rf /var/lib/apt/lists/*"),
                ),
            )
        )
    runs.append(
        Commands(
            why="A package index of your own, for pip and uv.",
            commands=(
                (
                    'if [ -n "${PACKAGE_INDEX}" ]; then',
                    "    mkdir -p /etc/uv",
                    " && printf '[global]\\nindex-url = %s\\n' \"${PACKAGE_INDEX}\" > /etc/pip.conf",
                    ' && printf \'[[index]]\\nurl = "%s"\\ndefault = true\\n\' "${PACKAGE_INDEX}" > /etc/uv/uv.toml;',
                    "fi",
                ),
            ),
        )
    )
    runs.append(
        Commands(
            why="uv installs; it stays in this stage.",
            commands=(
                one(f"python3 -m venv {TOOLS}"),
                write_lines(f"{WORK}/uv.txt", [f"uv=={UV.version} --hash=sha256:{UV.sha256}"]),
                one(f"{TOOLS}/bin/pip install --no-cache-dir --no-deps --require-hashes --requirement {WORK}/uv.txt"),
            ),
        )
    )
    if plan.base.image.python_from is PythonFrom.UV:
        runs.append(_stand_alone_python(plan))
    return tuple(runs)


def _stand_alone_python(plan: Plan) -> Commands:
    return Commands(
        why=f"The base's distribution has another Python than {plan.stack.python}; uv brings one that runs on any.",
        commands=(one(f"uv python install --no-bin --install-dir /opt/python {plan.stack.python}"),),
    )


def stages(plan: Plan) -> tuple[Stage, ...]:
    """What is installed, in groups that change together. Open requirements share one: they depend on each other."""
    grouped: dict[str, list[LockedPackage]] = {name: [] for name in GROUPS}
    for step in plan.steps:
        if isinstance(step, WheelsStep):
            for package in step.packages:
                grouped[group(package.name)].append(package)
    found = [
        Stage(name=STAGES[title], title=title, runs=tuple(_locked(members)), bytecode=(bytecode(plan),))
        for title, members in grouped.items()
        if members
    ]
    found[1:] = [msgspec.structs.replace(stage, bytecode=(bytecode(plan, again=True),)) for stage in found[1:]]
    if opened := [step for step in plan.steps if isinstance(step, RequirementsStep)]:
        runs = tuple(_open(step) for step in opened)
        found.append(Stage(name="packages", title="torch, PyG and tools", runs=runs, bytecode=(bytecode(plan),)))
    return tuple(found)


def pin(package: LockedPackage) -> str:
    """A requirement that only one file satisfies."""
    return f"{package.name}=={package.version} --hash=sha256:{package.file.sha256}"


def _locked(packages: Sequence[LockedPackage]) -> Iterable[Commands]:
    wheels = [package for package in packages if not package.is_sdist]
    for channel in dict.fromkeys(package.channel for package in wheels):
        members = sorted((package for package in wheels if package.channel is channel), key=lambda one: one.name)
        yield Commands(
            why="" if channel is Channel.PYPI else _origin(channel),
            cached=True,
            commands=(
                write_lines(f"{WORK}/requirements.txt", map(pin, members)),
                _install(channel, f"--no-deps --no-build --require-hashes --requirement {WORK}/requirements.txt"),
                one(f"rm {VENV}/.lock"),
            ),
        )
    for package in packages:
        if package.is_sdist:
            yield from _source(package)


def _source(package: LockedPackage) -> Iterable[Commands]:
    """pip makes the wheel: uv checks no hashes of a build's own requirements."""
    pip = f"{TOOLS}/bin/pip"
    yield Commands(
        why=f"{package.name} {package.version} is there as source only: what builds it, checked like the rest.",
        commands=(
            write_lines(f"{WORK}/backend.txt", map(pin, sorted(package.build, key=lambda one: one.name))),
            one(f"{pip} install --no-cache-dir --no-deps --require-hashes --requirement {WORK}/backend.txt"),
        ),
    )
    yield Commands(
        why="Built with nothing but that, then installed.",
        commands=(
            write_lines(f"{WORK}/source.txt", [pin(package)]),
            (
                f"{pip} wheel --no-cache-dir --no-deps --no-build-isolation --require-hashes",
                f"    --wheel-dir {WORK}/wheels --requirement {WORK}/source.txt",
            ),
            one(f"uv pip install --no-deps --no-index --find-links {WORK}/wheels {package.name}=={package.version}"),
            one(f"rm {VENV}/.lock"),
        ),
    )


def _open(step: RequirementsStep) -> Commands:
    alone = "--no-deps " if step.channel is Channel.PYG else ""
    why = f"{step.title[:1].upper()}{step.title[1:]}, whatever fits on the day of the build: no lock names the files."
    return Commands(
        why=why,
        cached=True,
        commands=(
            (
                *_install(step.channel, alone.strip()),
                *(f"    {quoted(requirement)}" for requirement in step.requirements),
            ),
            one(f"rm {VENV}/.lock"),
        ),
    )


def pip_where(channel: Channel) -> str:
    """Options of pip that tell it where this channel is."""
    match channel:
        case Channel.PYPI:
            return ""
        case Channel.PYTORCH:
            return '--index-url "${PYTORCH_INDEX}" '
        case Channel.PYG:
            return '--no-index --find-links "${PYG_LINKS}" '
        case Channel.LOCAL:
            return f"--no-index --find-links {CONTEXT}/wheels "


def _install(channel: Channel, options: str) -> Command:
    """uv, told where this channel is."""
    match channel:
        case Channel.PYPI:
            where = ""
        case Channel.PYTORCH:
            where = '--default-index "${PYTORCH_INDEX}" '
        case Channel.PYG:
            where = '--no-index --find-links "${PYG_LINKS}" '
        case Channel.LOCAL:
            where = f"--no-index --find-links {CONTEXT}/wheels "
    return one(f"uv pip install {where}{options}".rstrip())


def _origin(channel: Channel) -> str:
    places = {
        Channel.PYTORCH: "PyTorch's own index.",
        Channel.PYG: "PyG's page of wheels for this torch.",
        Channel.LOCAL: "From the folder of wheels beside this file.",
    }
    return places[channel]


def bytecode(plan: Plan, *, again: bool = False) -> Commands:
    """As the embedded builder has it (`inputs.wheels.bytecode`). `again`: the reason has been given."""
    why = (
        "A SIF and a squashfs are read-only and would compile at each start. Some packages hold templates that are "
        "no Python: those stay as they are. Test suites are left out."
    )
    return Commands(
        why="" if again else why,
        commands=(
            (
                f"PYTHONHASHSEED=0 {VENV}/bin/python -B -S -m compileall -f -q -j 0 --invalidation-mode unchecked-hash",
                f"    -x '/tests?/' {VENV}/lib/python{plan.stack.python}/site-packages || true",
            ),
        ),
    )


def fetched(plan: Plan) -> tuple[LockedPackage, ...]:
    """Every Python package that the plan fetches, those of its compiler and toolkit among them."""
    found: list[LockedPackage] = []
    for step in plan.steps:
        toolkit: Toolkit | None = None
        if isinstance(step, WheelsStep | CompileStep):
            found += step.packages
        if isinstance(step, CompileStep):
            found += step.compilation.tools
            toolkit = step.compilation.toolkit
        if isinstance(step, ToolkitStep):
            toolkit = step.toolkit
        if isinstance(toolkit, DebianToolkit | WheelToolkit):
            found += toolkit.wheels
    return tuple(dict.fromkeys(found))


def channels(plan: Plan) -> set[Channel]:
    """Where the plan's packages come from."""
    locked = {package.channel for package in fetched(plan)}
    return locked | {step.channel for step in plan.steps if isinstance(step, RequirementsStep)}


def address(plan: Plan, channel: Channel) -> str:
    """Where a channel of PyTorch's or PyG's is for this plan's torch."""
    find = addresses.pytorch_index if channel is Channel.PYTORCH else addresses.pyg_links
    return find(plan.stack.torch, plan.stack.torch_cuda)


def arguments(plan: Plan, stage: Stage) -> dict[str, str]:
    """Build arguments that a stage's commands use, with their defaults."""
    places = {"PYTORCH_INDEX": Channel.PYTORCH, "PYG_LINKS": Channel.PYG}
    return {name: address(plan, channel) for name, channel in places.items() if uses(stage, f"${{{name}}}")}


def uses(stage: Stage, text: str) -> bool:
    """Whether a stage's commands have this in them."""
    known = (*stage.preparations, *stage.runs)
    return any(text in line for commands in known for command in commands.commands for line in command)


class Pinned(msgspec.Struct, frozen=True):
    """A wheel: its version, and the sha256 of its file for x86-64."""

    version: str
    sha256: str


@functools.cache
def _read() -> Pinned:
    # Part of the package, as constant as code.
    return msgspec.toml.decode(
        (importlib.resources.files("graphcrate.engines.render") / "uv.toml").read_bytes(), type=Pinned
    )


UV = _read()
