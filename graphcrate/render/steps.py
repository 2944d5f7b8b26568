"""From a plan to the stages that its texts consist of. What they run is in `templates/steps`.

Both forms lay out the same steps, so that a Dockerfile and a definition end with the same files. What is compiled has
the toolkit, paths and variables of the embedded build (`inputs.toolkits`, `inputs.extensions`): the same compiler gives
the same binaries. Compilers stay in stages that are left behind; a devel image takes the toolkit from its stage.
"""

import importlib.resources
import shlex
import tomllib
from collections.abc import Iterable, Iterator

import msgspec

from graphcrate.compat.facts import addresses, back_ends, build_environment, compilers, identities, libraries, suites
from graphcrate.compat.facts.suites import Distribution
from graphcrate.compat.facts.toolkits import COMPONENTS, PACKAGES, assembly
from graphcrate.compat.plan.compile_steps import ADDED_SOURCES
from graphcrate.compat.plan.image_config import SYSTEM_PATH
from graphcrate.compat.plan.layering import FAMILIES, GROUPS, group
from graphcrate.compat.plan.planning import ADDED_FILES_TITLE, EXAMPLES_TITLE
from graphcrate.model.lock import DebianBase, DebianSource, DebianToolkit, ImageToolkit, LockedPackage, Toolkit
from graphcrate.model.plan import (
    BUILD,
    CUDA_HOME,
    LAYER_MTIME,
    VENV,
    CompileStep,
    FilesStep,
    Plan,
    PlannedFile,
    RequirementsStep,
    ToolkitStep,
    WheelsStep,
)
from graphcrate.model.recipe import CHANNELS, Channel
from graphcrate.render.layout import BUILD_TOOLS, COMPILED, TOOLS, shell, written

TOOLKIT_STAGE, COMPILE_STAGE, EXTENSIONS_STAGE = "toolkit", "compile", "extensions"
ADDED = "packages that were added"
STAGES = {**dict(zip(GROUPS, ("cuda", "torch", "tools", *FAMILIES), strict=True)), ADDED: "added"}
#: the same in the embedded build (`inputs.extensions.compile.environment`)
FIXED = {"SOURCE_DATE_EPOCH": str(LAYER_MTIME), "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
#: uv's `version`, and by platform the `sha256` of its wheel
UV = tomllib.loads((importlib.resources.files(__package__) / "uv.toml").read_text(encoding="utf-8"))


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """One stage of a Dockerfile, and one paragraph of a definition. `title` is for people."""

    name: str
    title: str
    runs: str
    origin: str = "build"  #: what the stage starts from
    preparations: str = ""  #: what comes before the copies: it changes less
    copies: tuple[tuple[str, str], ...] = ()  #: (earlier stage, path) that the steps need
    environment: dict[str, str] = {}  #: what the steps need to be set, for this `reason`
    reason: str = ""
    result: str = VENV  #: what the image takes from it, with bytecode if it is this; empty: nothing

    @property
    def is_image(self) -> bool:
        """Return whether the stage is an image as it is pulled. Names of stages have neither tag nor digest."""
        return "@" in self.origin or ":" in self.origin

    def uses(self, text: str) -> bool:
        """Return whether the stage's steps have this in them."""
        return text in self.preparations + self.runs


def base(plan: Plan, *, environment: bool = True) -> str:
    """Write what a stage starts with: packages that the base lacks, and small files, on demand those of the venv."""
    names = plan.base.image.packages
    after = identities.after_install(_installed(plan))
    runs = shell("base_packages", " ".join(names), after, archive_of(plan)) if names else ""
    for files in plan.of(FilesStep):
        if files.title in (EXAMPLES_TITLE, ADDED_FILES_TITLE):
            continue
        inside = [file for file in files.files if f"{file.path}/".startswith(f"{VENV}/")]
        others = [file for file in files.files if file not in inside]
        if inside and environment:
            runs += "# The virtual environment, as `python3 -m venv` would make it, without its activation scripts.\n"
            runs += _planned(inside)
        if others:
            runs += "# Login shells, which enroot starts, set PATH again."
            later = any("$" in file.content for file in others)
            runs += " Variables are for them, not for this command.\n#: SC2016\n" if later else "\n"
            runs += _planned(others)
    return runs


def _installed(plan: Plan) -> set[str]:
    """Names of Debian's packages in the base, with those that others need as far as a lock knows."""
    locked = plan.base.base.packages if isinstance(plan.base.base, DebianBase) else ()
    return {*plan.base.image.packages, *(package.name for package in locked)}


def added_files(plan: Plan) -> str:
    """Write the user's own files, the last thing that an image gets: they change most."""
    files = [file for step in plan.of(FilesStep) if step.title == ADDED_FILES_TITLE for file in step.files]
    if not files:
        return ""
    folders = sorted({file.path.rpartition("/")[0] for file in files} - {""})
    parents = f"mkdir -p {' '.join(map(shlex.quote, folders))}\n" if folders else ""
    return f"# Files of one's own.\n#: SC2016\n{parents}{_planned(files)}"


def _planned(files: list[PlannedFile]) -> str:
    """Write planned files with the shell."""
    folders = [file.path for file in files if file.folder]
    deepest = [path for path in folders if not any(f"{path}/" in other for other in folders)]
    commands = [" ".join(["mkdir -p", *map(shlex.quote, deepest)])] if folders else []
    for file in files:
        if file.link:
            commands.append(f"ln -s {file.link} {file.path}")
        elif not file.folder:
            commands.append(written(file.content.removesuffix("\n").split("\n"), file.path))
        if not file.link and file.mode != (0o755 if file.folder else 0o644):
            commands.append(f"chmod {file.mode:o} {shlex.quote(file.path)}")
    return "\n".join(commands) + "\n\n"


def stages(plan: Plan) -> tuple[Stage, ...]:
    """Return what is installed and compiled."""
    return (*_packages(plan), *_opened(plan), *_toolkit(plan), *_extensions(plan))


def _packages(plan: Plan) -> Iterator[Stage]:
    """Group locked packages that change together."""
    locked = [package for wheels in plan.of(WheelsStep) for package in wheels.packages]
    for title in (*GROUPS, ADDED):
        members = [package for package in locked if _group(plan, package) == title]
        if members:
            wheels = _by_channel(package for package in members if not package.is_sdist)
            runs = "".join(shell("wheels", channel, packages) for channel, packages in wheels.items())
            runs += "".join(shell("source", package) for package in members if package.is_sdist)
            yield Stage(name=STAGES[title], title=title, runs=runs)


def _group(plan: Plan, package: LockedPackage) -> str:
    """The stage of `STAGES` that installs a package; "" where it is not in the image."""
    if package.name in (plan.added or ()):
        return ADDED
    installed = any(package in step.packages for step in plan.of(WheelsStep))
    return group(package.name) if installed else ""


def _by_channel(packages: Iterable[LockedPackage]) -> dict[Channel, list[LockedPackage]]:
    channels: dict[Channel, list[LockedPackage]] = {}
    for package in packages:
        channels.setdefault(package.channel, []).append(package)
    return channels


def _opened(plan: Plan) -> Iterator[Stage]:
    """Open requirements share one stage: they depend on each other."""
    if runs := "".join(shell("open", opened) for opened in plan.of(RequirementsStep)):
        yield Stage(name="packages", title="torch, PyG and tools", runs=runs)


def toolkit_stays(plan: Plan) -> bool:
    """Return whether the toolkit stays in the image."""
    return bool(plan.of(ToolkitStep))


def archive_of(plan: Plan) -> Distribution:
    """The distribution whose archive the base's packages come from; Debian where nothing tells."""
    base, image = plan.base.base, plan.base.image
    return suites.distribution_of(base.suite if isinstance(base, DebianBase) else suites.named_in(image.reference))


def _has_mirror(plan: Plan) -> bool:
    """Return whether `tools` has put the user's mirror into apt's settings."""
    return not plan.base.image.brings_python


def _toolkit(plan: Plan) -> Iterator[Stage]:
    toolkits: list[Toolkit | None] = [made.toolkit for made in plan.of(ToolkitStep)]
    toolkits += [made.compilation.toolkit for made in plan.of(CompileStep)]
    toolkit, origin = next((toolkit for toolkit in toolkits if toolkit), None), "build"
    if toolkit is None:
        return
    if isinstance(toolkit, ImageToolkit):
        origin = f"{toolkit.reference}@{toolkit.digest}" if toolkit.digest else toolkit.reference
        runs = shell("slimmed")
    else:
        runs = _debs(plan, toolkit) if isinstance(toolkit, DebianToolkit) else ""
        if toolkit.wheels:
            runs += shell("toolkit_wheels", _by_channel(toolkit.wheels), bool(runs))
        runs += shell("toolkit_assembly", assembly(toolkit))
    yield Stage(
        name=TOOLKIT_STAGE,
        title=f"CUDA {toolkit.version}: nvcc, headers and libraries to link with",
        runs=runs,
        origin=origin,
        result=CUDA_HOME if toolkit_stays(plan) else "",
    )


def _debs(plan: Plan, toolkit: DebianToolkit) -> str:
    base = plan.base.base
    edits = f"s/\\bmain\\b/main {' '.join(COMPONENTS)}/"
    if isinstance(base, DebianBase) and base.suite != toolkit.suite:
        edits = f"s/\\b{base.suite}\\b/{toolkit.suite}/; {edits}"
    debs = [f"{deb.name}={deb.version}" for deb in toolkit.packages]
    # `apt-get download` writes the epoch into a file's name, which the archive's own name lacks
    hashes = [
        f"{deb.file.sha256}  {PACKAGES}/debs/{deb.name}_{deb.version.replace(':', '%3a')}_{deb.architecture}.deb"
        for deb in toolkit.packages
    ]
    return shell("toolkit_debs", toolkit.suite, edits, debs, hashes, _has_mirror(plan), archive_of(plan))


def _extensions(plan: Plan) -> Iterator[Stage]:
    """Compile in a stage for each package, so that an engine which can makes them side by side; install in one."""
    for compiled in plan.of(CompileStep):
        suffix = "-added" if compiled.title == ADDED_SOURCES else ""
        yield _compile(plan, compiled, COMPILE_STAGE + suffix)
        for source in compiled.compilation.linked:
            yield _library(plan, source, COMPILE_STAGE + suffix)
        packages = sorted(compiled.packages, key=lambda package: package.name)
        for package in packages:
            linked = [library for library, _ in libraries.linked(package.name, compiled.compilation)]
            given = back_ends.of_setup(package, compiled.compilation)
            place = compilers.folder_for(package.name)
            yield Stage(
                name=package.name,
                title=f"{package.name} {package.version}",
                runs=shell("made", package, place, package is packages[0], linked, given),
                origin=COMPILE_STAGE + suffix,
                copies=tuple((f"lib{library.name}", f"{BUILD}/{library.name}") for library in linked),
                result="",
            )
        yield Stage(
            name=EXTENSIONS_STAGE + suffix,
            title=compiled.title,
            runs=shell("extensions", [f"{package.name}=={package.version}" for package in packages]),
            copies=tuple((package.name, COMPILED) for package in packages),
        )


def _library(plan: Plan, source: DebianSource, origin: str) -> Stage:
    """Make a library that packages are linked to, beside them."""
    how = libraries.library_of(source)
    users = " and ".join(package.replace("-", "_") for package in how.packages)
    runs = shell("library", how, source, source.suite, _has_mirror(plan), archive_of(plan))
    title = f"{how.title}, which {users} is linked to"
    return Stage(name=f"lib{how.name}", title=title, runs=runs, origin=origin, result="")


def _compile(plan: Plan, compiled: CompileStep, name: str) -> Stage:
    used, image = compiled.compilation, plan.base.image
    # Debian's packages that the base lacks; other Pythons than Debian's have their headers
    skipped = {*image.packages, *([compilers.PYTHON_HEADERS] if image.brings_python else [])}
    besides = compilers.besides(compiled.packages, used.base.suite, used.besides)
    finder = [compilers.FINDER] if besides else []
    lacking = [name for name in (*compilers.packages(used.compiler), *besides, *finder) if name not in skipped]
    compiler = shell("compiler", used.toolkit, lacking, _has_mirror(plan), archive_of(plan)) if lacking else ""
    small = any(compilers.folder_for(package.name) for package in compiled.packages)
    needed = {_group(plan, package) for package in compiled.against}
    beside = [package for package in compiled.against if not _group(plan, package)]
    there = {tool.name for tool in used.tools}  # one environment for all, where our own builder gives each its own
    isolated = [package for package in compiled.packages if package.isolated]
    for_them = (item for package in isolated for item in package.build)
    beside += {item.name: item for item in for_them if item.name not in there}.values()
    copies = [(TOOLKIT_STAGE, CUDA_HOME)] if used.toolkit else []
    cuda, asked, gpus = "", "Code for the CPU alone is asked for", ", for CPUs"
    if used.toolkit:
        cuda = f"{CUDA_HOME}/bin:"
        asked = "No GPU is there to look at while an image is built: CUDA code is asked for, and for which GPUs"
    if used.architectures:
        gpus = f", for GPUs of compute capability {', '.join(used.architectures)}"
    path = f"{BUILD_TOOLS}/bin:{cuda}{TOOLS}/bin:{SYSTEM_PATH}"
    given = {**compilers.variables(used), **FIXED}
    seen = build_environment.of_step(given, isolated, used, requirements=BUILD_TOOLS)
    return Stage(
        name=name,
        title=f"Extensions, compiled from source against this torch{gpus}",
        preparations=compiler + shell("build_tools", [*used.tools, *beside], compilers.STAND_INS if small else {}),
        copies=(*copies, *((stage, VENV) for title, stage in STAGES.items() if title in needed)),
        environment={"PATH": path, **seen},
        reason=f"{asked}, and what would differ with time and place is fixed.",
        runs=shell("sources", _by_channel(compiled.packages)),
        result="",
    )


def address(plan: Plan, channel: Channel) -> str:
    """Return where a channel is for this plan's torch."""
    return addresses.channel_address(channel, plan.stack.torch, plan.stack.torch_cuda)


def arguments(plan: Plan, stage: Stage) -> dict[str, str]:
    """Return the build arguments that a stage's steps use, with their defaults."""
    return {
        row.variable: address(plan, channel) for channel, row in CHANNELS.items() if stage.uses(f"${{{row.variable}}}")
    }
