"""What a text runs to compile a plan's sources, in the shell's words: CUDA's toolkit, the compiler, the wheels.

The same toolkit, paths and variables as the embedded build has (`toolkits`, `wheelhouse`): the same compiler gives the
same binaries. All of it happens in stages that are left behind; a devel image takes the toolkit from its stage.
"""

from collections.abc import Iterable, Sequence

import graphcrate.engines.render.ideas as ideas
from graphcrate.compat import compilers
from graphcrate.compat.planning import SYSTEM_PATH, group
from graphcrate.compat.toolkits import COMPONENTS, PACKAGES, assembly
from graphcrate.engines.render.commands import Command, Commands, one, quoted, write_lines
from graphcrate.engines.render.layout import WIDTH, wrapped
from graphcrate.model.errors import BuildError
from graphcrate.model.lock import (
    Compilation,
    DebianBase,
    DebianPackage,
    DebianToolkit,
    ImageToolkit,
    Toolkit,
    WheelToolkit,
)
from graphcrate.model.plan import CUDA_HOME, LAYER_MTIME, VENV, CompileStep, Plan, PythonFrom, ToolkitStep

TOOLKIT_STAGE, COMPILE_STAGE, EXTENSIONS_STAGE = "toolkit", "compile", "extensions"
COMPILED = f"{ideas.WORK}/compiled"  #: wheels that were made
#: pip, setuptools and what else compiling wants, apart from the image's own packages
BUILD_TOOLS = "/opt/build-tools"
SOURCES = f"{ideas.WORK}/sources"
BUILD = "/build"
HEADERS = f"{ideas.WORK}/headers"
PIP = f"PYTHONPATH={BUILD_TOOLS} {VENV}/bin/python -m pip"
#: the same in the embedded build (`inputs.extensions.compile.environment`)
FIXED = {"SOURCE_DATE_EPOCH": str(LAYER_MTIME), "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def toolkit_of(plan: Plan) -> Toolkit | None:
    """The toolkit that compiles the plan's sources or stays in the image.

    Raises BuildError for two that differ.
    """
    wanted = [step.compilation.toolkit for step in plan.steps if isinstance(step, CompileStep)]
    wanted += [step.toolkit for step in plan.steps if isinstance(step, ToolkitStep)]
    found = list(dict.fromkeys(toolkit for toolkit in wanted if toolkit is not None))
    if len(found) > 1:
        raise BuildError(f"a text of {plan.name}:{plan.tag} cannot have two CUDA toolkits")
    return found[0] if found else None


def _refuse_foreign(plan: Plan, toolkit: DebianToolkit) -> None:
    """Debian's packages are not in other distributions' archives."""
    if plan.base.image.python_from is PythonFrom.UV:
        raise BuildError(
            f"a text of {plan.name}:{plan.tag} cannot have Debian's nvcc {toolkit.version}: "
            f"{plan.base.image.reference} is no Debian",
            next_step=f"./build.py lock {plan.name} --cuda {plan.stack.cuda} --toolkit image    (or --base debian)",
        )


def in_image(plan: Plan) -> bool:
    """Whether the toolkit stays in the image."""
    return any(isinstance(step, ToolkitStep) for step in plan.steps)


def stages(plan: Plan) -> tuple[ideas.Stage, ...]:
    """Toolkit, compilation, installation; none of them where nothing is compiled and no toolkit stays."""
    toolkit = toolkit_of(plan)
    found = [_toolkit(plan, toolkit)] if toolkit is not None else []
    for step in plan.steps:
        if isinstance(step, CompileStep):
            found += [_compile(plan, step), *_made(step), _install(plan, step)]
    return tuple(found)


def _toolkit(plan: Plan, toolkit: Toolkit) -> ideas.Stage:
    title = f"CUDA {toolkit.version}: nvcc, headers and libraries to link with"
    result = CUDA_HOME if in_image(plan) else ""
    if isinstance(toolkit, ImageToolkit):
        return ideas.Stage(name=TOOLKIT_STAGE, title=title, runs=(_slimmed(),), origin=image_of(toolkit), result=result)
    found: list[Commands] = []
    if isinstance(toolkit, DebianToolkit):
        _refuse_foreign(plan, toolkit)
        found.append(_packages(plan, toolkit))
    if isinstance(toolkit, DebianToolkit | WheelToolkit):
        found += _wheels(toolkit)
        found.append(_assembly(toolkit))
    return ideas.Stage(name=TOOLKIT_STAGE, title=title, runs=tuple(found), result=result)


def image_of(toolkit: ImageToolkit) -> str:
    """What the toolkit is copied from: by digest where one is known."""
    return f"{toolkit.reference}@{toolkit.digest}" if toolkit.digest else toolkit.reference


def _slimmed() -> Commands:
    """As the embedded builder has it (`inputs.toolkits`)."""
    return Commands(
        why="Static libraries are more than half of it. Extensions are linked to shared ones, but for the runtime.",
        commands=((f"find {CUDA_HOME}/ -name 'lib*.a' ! -name 'libcudart*' ! -name 'libcudadevrt*' -delete",),),
    )


def _packages(plan: Plan, toolkit: DebianToolkit) -> Commands:
    etc = f"-o Dir::Etc={ideas.APT}"
    folder = f"{PACKAGES}/debs"
    hashes = [f"{package.file.sha256}  {folder}/{_saved(package)}" for package in toolkit.packages]
    edits = f"s/\\bmain\\b/main {' '.join(COMPONENTS)}/"
    base = plan.base.base
    if isinstance(base, DebianBase) and base.suite != toolkit.suite:
        edits = f"s/\\b{base.suite}\\b/{toolkit.suite}/; {edits}"
    mirrored = [one(f"find {ideas.APT} {ideas.MIRRORED}")] if not ideas.tools_mirrored(plan) else []
    return Commands(
        why=f"Debian's nvcc of {toolkit.suite} (non-free), unpacked and not installed: that would bring 3 GB more.",
        commands=(
            one(f"mkdir -p {folder}"),
            one(f"cp -r /etc/apt {ideas.APT}"),
            *mirrored,
            one(f"find {ideas.APT} -path '*sources.list*' -type f -exec sed -i '{edits}' {{}} +"),
            one(f"apt-get {etc} update"),
            (
                f"env --chdir={folder} apt-get {etc} download",
                *(f"    {quoted(f'{package.name}={package.version}')}" for package in toolkit.packages),
            ),
            one("rm -rf /var/lib/apt/lists/*"),
            write_lines(f"{PACKAGES}/debs.sha256", hashes),
            one(f"sha256sum --check --quiet {PACKAGES}/debs.sha256"),
        ),
    )


def _saved(package: DebianPackage) -> str:
    """Name that `apt-get download` gives a file: with the epoch, which the archive's own name lacks."""
    return f"{package.name}_{package.version.replace(':', '%3a')}_{package.architecture}.deb"


def _wheels(toolkit: DebianToolkit | WheelToolkit) -> Iterable[Commands]:
    """NVIDIA's wheels, as files."""
    if not toolkit.wheels:
        return
    why = "What that lacks" if isinstance(toolkit, DebianToolkit) else "All of it"
    commands: list[Command] = []
    for channel in dict.fromkeys(package.channel for package in toolkit.wheels):
        members = sorted((one for one in toolkit.wheels if one.channel is channel), key=lambda one: one.name)
        commands += [
            write_lines(f"{PACKAGES}/wheels.txt", map(ideas.pin, members)),
            _downloaded(ideas.pip_where(channel), f"{PACKAGES}/wheels", f"{PACKAGES}/wheels.txt"),
        ]
    first = [] if isinstance(toolkit, DebianToolkit) else [one(f"mkdir -p {PACKAGES}")]
    yield Commands(why=f"{why}, from NVIDIA's wheels.", commands=(*first, *commands))


def _downloaded(where: str, folder: str, listed: str) -> Command:
    return (
        f"{ideas.TOOLS}/bin/pip download {where}--no-cache-dir --no-deps --only-binary :all: --require-hashes",
        f"    --dest {folder} --requirement {listed}",
    )


def _assembly(toolkit: DebianToolkit | WheelToolkit) -> Commands:
    return Commands(
        why=f"One folder of them, as an installed toolkit would be: {CUDA_HOME}.",
        commands=tuple(_laid_out(line) for line in assembly(toolkit)),
    )


def _laid_out(line: str) -> Command:
    """A command on several lines where it is long and has no quotes to cut through."""
    if "'" in line or '"' in line:
        return one(line)
    first, *others = wrapped(line, WIDTH - 4)
    return (first, *(f"    {other}" for other in others))


def _compile(plan: Plan, step: CompileStep) -> ideas.Stage:
    compilation = step.compilation
    copies = [(TOOLKIT_STAGE, CUDA_HOME)] if compilation.toolkit is not None else []
    stages = {ideas.STAGES[group(package.name)] for package in step.against}
    copies += [(stage, VENV) for stage in ideas.STAGES.values() if stage in stages]
    missing = _compiler(plan, step)
    compiler = [_compiler_installed(plan, step, missing)] if missing else []
    return ideas.Stage(
        name=COMPILE_STAGE,
        title=f"Extensions, compiled from source against this torch{_for(step)}",
        preparations=(*compiler, _tools_installed(step), _files_in_order(), *_headers(step)),
        copies=tuple(copies),
        environment={"PATH": _path(compilation), **compilers.variables(compilation), **FIXED},
        reason=f"{_asked(compilation)}, and what would differ with time and place is fixed.",
        runs=(_sources(step),),
        result="",
    )


def _path(compilation: Compilation) -> str:
    cuda = f"{CUDA_HOME}/bin:" if compilation.toolkit is not None else ""
    return f"{BUILD_TOOLS}/bin:{cuda}{ideas.TOOLS}/bin:{SYSTEM_PATH}"


def _asked(compilation: Compilation) -> str:
    if compilation.toolkit is None:
        return "Code for the CPU alone is asked for"
    return "No GPU is there to look at while an image is built: CUDA code is asked for, and for which GPUs"


def _for(step: CompileStep) -> str:
    architectures = step.compilation.architectures
    return f", for GPUs of compute capability {', '.join(architectures)}" if architectures else ", for CPUs"


def _compiler(plan: Plan, step: CompileStep) -> tuple[str, ...]:
    """Debian's packages that compiling wants and the base lacks. Other Pythons than Debian's have their headers."""
    image = plan.base.image
    wanted = compilers.packages(step.compilation.compiler)
    if image.python_from is not PythonFrom.DEBIAN:
        wanted = tuple(name for name in wanted if name != compilers.PYTHON_HEADERS)
    return tuple(name for name in wanted if name not in image.packages)


def _compiler_installed(plan: Plan, step: CompileStep, names: Sequence[str]) -> Commands:
    toolkit = step.compilation.toolkit
    fits = f"The newest compiler here that CUDA {toolkit.version} takes" if toolkit else "A compiler"
    headers = ", and Python's headers" if compilers.PYTHON_HEADERS in names else ""
    mirrored = [one(f"find /etc/apt {ideas.MIRRORED}")] if not ideas.tools_mirrored(plan) else []
    return Commands(
        why=f"{fits}{headers}. Unpinned, as above.",
        allowed="DL3008",
        commands=(
            *mirrored,
            one("apt-get update"),
            one("DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends", *names),
            one("rm -rf /var/lib/apt/lists/*"),
        ),
    )


def _tools_installed(step: CompileStep) -> Commands:
    tools = sorted(step.compilation.tools, key=lambda package: package.name)
    return Commands(
        why="What builds wheels, apart from the image's own packages.",
        cached=True,
        commands=(
            write_lines(f"{ideas.WORK}/build-tools.txt", map(ideas.pin, tools)),
            (
                f"uv pip install --no-deps --no-build --require-hashes --target {BUILD_TOOLS}",
                f"    --requirement {ideas.WORK}/build-tools.txt",
            ),
        ),
    )


def _files_in_order() -> Commands:
    """As the embedded build has it (`inputs.extensions.worker`). Python imports a module of this name when it
    starts."""
    return Commands(
        why="setup.py finds its files as the disk has them, and they are linked in that order: always the same here.",
        commands=(
            write_lines(
                f"{BUILD_TOOLS}/sitecustomize.py",
                (
                    "import glob",
                    "as_found = glob.glob",
                    "glob.glob = lambda *arguments, **options: sorted(as_found(*arguments, **options))",
                ),
            ),
        ),
    )


def _headers(step: CompileStep) -> Iterable[Commands]:
    """As the embedded build has them (`inputs.extensions.compile.add_headers`)."""
    if any(compilers.folder_for(package.name) for package in step.packages):
        parents = sorted({f"{HEADERS}/{path.rpartition('/')[0]}" for path in compilers.STAND_INS})
        yield Commands(
            why="In place of torch's whole headers, which take most of the time for what is not used.",
            commands=(
                one("mkdir -p", *parents),
                *(write_lines(f"{HEADERS}/{path}", lines) for path, lines in compilers.STAND_INS.items()),
            ),
        )


def _wheel_made(package: str, source: str) -> Iterable[Command]:
    """With the small headers where the package has a place for them, else and after a failure with torch's own."""
    made = (f"{PIP} wheel --no-cache-dir --no-deps --no-build-isolation", f"    --wheel-dir {COMPILED} {source}")
    folder = compilers.folder_for(package)
    if folder is None:
        yield made
        return
    yield one(f"cp -R {HEADERS}/. {source}/{folder}")
    first, last = made
    yield (
        f"{{ {first}",
        last,
        f"    || {{ echo 'compiling {package} again, with the whole of torch' && rm -r {source}/{folder}/torch",
        f"    && {first}",
        f"{last}; }}; }}",
    )


def _sources(step: CompileStep) -> Commands:
    commands: list[Command] = []
    for channel in dict.fromkeys(package.channel for package in step.packages):
        members = sorted((one for one in step.packages if one.channel is channel), key=lambda one: one.name)
        commands += [
            write_lines(f"{ideas.WORK}/sources.txt", map(ideas.pin, members)),
            (
                f"{PIP} download {ideas.pip_where(channel)}--no-cache-dir --no-deps --no-build-isolation",
                f"    --require-hashes --dest {SOURCES} --requirement {ideas.WORK}/sources.txt",
            ),
        ]
    return Commands(why="The sources. pip asks each what it is, and needs torch to be told.", commands=tuple(commands))


def _made(step: CompileStep) -> Iterable[ideas.Stage]:
    """A stage for each package, so that an engine which can makes them side by side."""
    for number, package in enumerate(sorted(step.packages, key=lambda one: one.name)):
        folder = f"{BUILD}/{package.name}-{package.version}"
        commands = Commands(
            why="Always in the same folder, whose name gets into the binaries." if not number else "",
            commands=(
                one(f"mkdir -p {folder}"),
                one(f"tar -xf {SOURCES}/{package.file.name} --strip-components=1 --directory={folder}"),
                *_wheel_made(package.name, folder),
            ),
        )
        title = f"{package.name} {package.version}"
        yield ideas.Stage(name=package.name, title=title, runs=(commands,), origin=COMPILE_STAGE, result="")


def _install(plan: Plan, step: CompileStep) -> ideas.Stage:
    wanted = [f"{package.name}=={package.version}" for package in sorted(step.packages, key=lambda one: one.name)]
    installed = Commands(
        why="",
        commands=(
            (f"uv pip install --no-deps --no-index --find-links {COMPILED}", *(f"    {name}" for name in wanted)),
            one(f"rm {VENV}/.lock"),
        ),
    )
    return ideas.Stage(
        name=EXTENSIONS_STAGE,
        title=step.title,
        runs=(installed,),
        copies=tuple((package.name, COMPILED) for package in sorted(step.packages, key=lambda one: one.name)),
        bytecode=(ideas.bytecode(plan, again=True),),
    )
