"""From a lock to a plan: which packages share a layer, what files and environment the image gets. Pure.

A variant that nobody could lock yet gets an open plan, for engines on networks that reach its channels.
"""

from collections.abc import Iterable, Mapping, Sequence

from graphcrate import __version__
from graphcrate.compat.base_images import compiler_image, locked_image, wanted_image
from graphcrate.model.errors import ResolutionError
from graphcrate.model.lock import Compilation, DebianBase, Lock, LockedPackage
from graphcrate.model.plan import (
    CUDA_HOME,
    VENV,
    BaseImage,
    BaseStep,
    CompileStep,
    ConfigStep,
    FilesStep,
    Plan,
    PlannedFile,
    RequirementsStep,
    Stack,
    Step,
    ToolkitStep,
    WheelsStep,
    site_packages,
)
from graphcrate.model.recipe import Candidate, Channel, Recipe, Variant

#: A wheel of at least this many bytes is a layer of its own (docs/design: it is pulled and cached alone).
OWN_LAYER = 30_000_000
#: Docker stops at 125 layers and old engines at less; far below it.
MOST_LAYERS = 60

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PROGRAMS = "/opt/graphcrate"  #: what ships in the image: examples/ to copy, suites/ that prove it
EXAMPLES = f"{PROGRAMS}/examples"
VENV_TITLE, EXAMPLES_TITLE = "virtual environment", "examples"  #: of the two steps that write files
COMPILED_TITLE = "compiled extensions"

_PYG = {
    "torch-geometric", "pyg-lib", "torch-scatter", "torch-sparse", "torch-cluster", "torch-spline-conv",
    "ogb", "torchmetrics", "lightning-utilities", "littleutils", "outdated",
}  # fmt: skip
_CUDA = ("nvidia-", "cuda-", "triton", "pytorch-triton")
_TOOLS = {"pip", "setuptools", "wheel", "cmake", "lit", "tqdm"}
#: what `import torch`, its build tools and the extensions' own imports want besides CUDA libraries
_TORCH_NEEDS = {
    "torch", "typing-extensions", "filelock", "sympy", "mpmath", "networkx", "jinja2", "markupsafe", "fsspec", "numpy",
    "scipy",
}  # fmt: skip
#: Debian's suites by their numbers, as published tags have them
DEBIAN_RELEASES = {"bullseye": "11", "bookworm": "12", "trixie": "13"}
GROUPS = ("CUDA libraries", "torch and libraries", "tools", "PyG family")


def _tag(stack: Stack, suffix: str) -> str:
    """The image's tag: `2.3.1-torch2.0.1-cu118-py311`, for plain torch `2.0.1-cu118-py311`."""
    torch = stack.torch.partition("+")[0]
    versions = f"{stack.torch_geometric}-torch{torch}" if stack.torch_geometric else torch
    return f"{versions}-{cuda_label(stack.cuda)}-py{stack.python.replace('.', '')}{suffix}"


def cuda_label(cuda: str) -> str:
    """`cu118` for "11.8", `cpu` for "cpu"."""
    return cuda if cuda == "cpu" else "cu" + cuda.replace(".", "")


def aliases(lock: Lock, suffix: str) -> tuple[str, ...]:
    """Further tags, in the scheme that GLT's images are published under: `0.1.0-debian11-py3.9-torch1.13-cuda11.7`."""
    if not isinstance(lock.base, DebianBase) or lock.base.suite not in DEBIAN_RELEASES:
        return ()
    torch = ".".join(_version(lock, "torch").split(".")[:2])
    cuda = "cpu" if lock.cuda == "cpu" else f"cuda{lock.cuda}"
    return (f"{__version__}-debian{DEBIAN_RELEASES[lock.base.suite]}-py{lock.python}-torch{torch}-{cuda}{suffix}",)


def make_plan(
    recipe: Recipe,
    lock: Lock,
    candidate: Candidate,
    *,
    examples: Mapping[str, str],
    created: int | None = None,
    image: BaseImage | None = None,
    devel: bool = False,
) -> Plan:
    """Order the lock's contents into layers, those that change least first.

    `examples`: name below PROGRAMS → text of the programs that ship in the image. `created` in Unix seconds, the
    lock's by default. `image`: another base for engines than the lock's own (see `foundations`). `devel`: keep
    compiler and toolkit, for users who compile in the image. Raises ResolutionError for a devel image of a lock that
    names no compiler.
    """
    stack = Stack(
        description=recipe.description,
        cuda=lock.cuda,
        python=lock.python,
        torch=_version(lock, "torch"),
        torch_cuda=lock.torch_cuda,
        candidate=candidate.name,
        torch_geometric=_version(lock, "torch-geometric"),
        meaning=candidate.meaning,
        missing=lock.missing,
    )
    variant = recipe.variant(lock.cuda)
    packages = variant.base.packages if variant else ()
    base = BaseStep(base=lock.base, image=image or locked_image(lock, packages))
    installs = _installs(lock)
    suffix = candidate.suffix + _for_gpus(lock, variant, devel)
    if devel:
        base, more = _devel(lock, base)
        installs += more
        suffix += "-devel"
    return _plan(
        recipe.name,
        stack,
        base,
        installs,
        examples,
        suffix=suffix,
        lock_sha256=lock.sha256,
        created=lock.created if created is None else created,
        aliases=aliases(lock, suffix),
        compiler=lock.compilation if devel else None,
    )


def _installs(lock: Lock) -> list[Step]:
    """Wheels, then what is compiled against them: nothing else waits for a compiler."""
    wheels = [package for package in lock.packages if not package.compiled]
    steps: list[Step] = [
        WheelsStep(title=title, python=lock.python, packages=packages) for title, packages in _layers(wheels)
    ]
    if step := compile_step(lock):
        steps.append(step)
    return steps


def compile_step(lock: Lock) -> CompileStep | None:
    """What of the lock is compiled, and against what; None where nothing is. Raises as `compilation_of`."""
    compiled = tuple(package for package in lock.packages if package.compiled)
    if not compiled:
        return None
    return CompileStep(
        title=COMPILED_TITLE,
        python=lock.python,
        packages=compiled,
        against=tuple(package for package in lock.packages if not package.compiled and _is_needed_by_torch(package)),
        compilation=compilation_of(lock),
    )


def compilation_of(lock: Lock) -> Compilation:
    """How the lock's sdists are compiled. Raises ResolutionError when it does not say."""
    if lock.compilation is None:
        raise ResolutionError(
            f"the lock of {lock.recipe} CUDA {lock.cuda} names no compiler",
            cause="It was made for an image in which nothing is compiled.",
            next_step=f"./build.py lock {lock.recipe} --cuda {lock.cuda}",
        )
    return lock.compilation


def _is_needed_by_torch(package: LockedPackage) -> bool:
    return package.name in _TORCH_NEEDS or package.name.startswith(("nvidia-", "cuda-"))


def _for_gpus(lock: Lock, variant: Variant | None, devel: bool) -> str:
    """`-sm70` where extensions are compiled, or a devel image compiles, for other GPUs than the recipe says."""
    compilation = lock.compilation
    compiles = devel or any(package.compiled for package in lock.packages)
    if compilation is None or variant is None or not compiles:
        return ""
    if compilation.architectures == variant.architectures:
        return ""
    names = (architecture.replace("+PTX", "ptx") for architecture in compilation.architectures)
    return "".join(f"-sm{name.replace('.', '')}" for name in names)


def _devel(lock: Lock, base: BaseStep) -> tuple[BaseStep, list[Step]]:
    """The base with a compiler, and what else a user needs to compile in the image."""
    compilation = compilation_of(lock)
    known = {package.name for package in lock.packages}
    tools = tuple(package for package in compilation.tools if package.name not in known)
    steps: list[Step] = []
    if tools:
        steps.append(WheelsStep(title="build tools", python=lock.python, packages=tools))
    if compilation.toolkit is not None:
        steps.append(ToolkitStep(title=f"CUDA toolkit {compilation.toolkit.version}", toolkit=compilation.toolkit))
    image = compiler_image(base.image, compilation.compiler)
    return BaseStep(base=compilation.base, image=image), steps


def make_open_plan(
    recipe: Recipe,
    variant: Variant,
    candidate: Candidate,
    *,
    examples: Mapping[str, str],
    image: BaseImage | None = None,
) -> Plan:
    """The plan of a candidate without a lock: its requirements by channel, resolved when an engine builds it."""
    stack = Stack(
        description=recipe.description,
        cuda=variant.cuda,
        python=variant.python,
        torch=candidate.torch,
        torch_cuda=candidate.torch_cuda,
        candidate=candidate.name,
        torch_geometric=variant.torch_geometric,
        meaning=candidate.meaning,
        locked=False,
    )
    others = [*recipe.requirements, *variant.requirements]
    if variant.torch_geometric:
        others.append(f"torch-geometric=={variant.torch_geometric}")
    first = Channel.PYTORCH if Channel.PYTORCH in candidate.channels else Channel.PYPI
    wanted = [
        ("torch and its libraries", first, [f"torch=={candidate.torch}", *candidate.overrides]),
        ("compiled extensions of PyG", Channel.PYG, [name.replace("_", "-") for name in variant.extensions]),
        ("PyG and tools", Channel.PYPI, others),
    ]
    steps = [
        RequirementsStep(title=title, python=variant.python, channel=channel, requirements=tuple(requirements))
        for title, channel, requirements in wanted
        if requirements
    ]
    base = BaseStep(base=None, image=image or wanted_image(variant))
    return _plan(recipe.name, stack, base, steps, examples, suffix=candidate.suffix, lock_sha256="", created=0)


def _plan(
    name: str,
    stack: Stack,
    base: BaseStep,
    installs: Sequence[Step],
    examples: Mapping[str, str],
    *,
    suffix: str,
    lock_sha256: str,
    created: int,
    aliases: tuple[str, ...] = (),
    compiler: Compilation | None = None,
) -> Plan:
    tag = _tag(stack, suffix)
    venv = FilesStep(title=VENV_TITLE, files=_venv(stack.python, base.image.interpreter))
    programs = FilesStep(title=EXAMPLES_TITLE, files=_examples(examples))
    config = ConfigStep(
        environment=_environment(stack) | (_compiler_environment(compiler) if compiler else {}),
        labels=_labels(name, stack, tag, lock_sha256) | _compiled_labels(installs),
        command=("/bin/bash",),
    )
    steps = (base, venv, *installs, programs, config)
    return Plan(name=name, tag=tag, created=created, stack=stack, steps=steps, aliases=aliases)


def _version(lock: Lock, name: str) -> str:
    package = lock.package(name)
    return package.version if package else ""


def _layers(packages: Iterable[LockedPackage]) -> list[tuple[str, tuple[LockedPackage, ...]]]:
    groups: dict[str, list[LockedPackage]] = {name: [] for name in GROUPS}
    for package in sorted(packages, key=lambda package: package.name):
        groups[group(package.name)].append(package)
    large = [package for members in groups.values() for package in members if package.file.size >= OWN_LAYER]
    # Beyond the limit the smallest of the large wheels join their group.
    large = sorted(large, key=lambda package: -package.file.size)[: MOST_LAYERS - 10]
    layers: list[tuple[str, tuple[LockedPackage, ...]]] = []
    for title, members in groups.items():
        layers += [(f"{package.name} {package.version}", (package,)) for package in members if package in large]
        if small := tuple(package for package in members if package not in large):
            layers.append((title, small))
    return layers


def group(name: str) -> str:
    """Which of `GROUPS` a package belongs to: packages of one change together."""
    if name.startswith(_CUDA):
        return GROUPS[0]
    if name in _PYG:
        return GROUPS[3]
    return GROUPS[2] if name in _TOOLS else GROUPS[1]


def _venv(python: str, executable: str) -> tuple[PlannedFile, ...]:
    home = executable.rpartition("/")[0]
    config = f"home = {home}\ninclude-system-site-packages = false\nversion = {python}\nexecutable = {executable}\n"
    profile = (
        "# Debian's /etc/profile sets PATH anew; enroot starts a login shell, so put the environment back in front.\n"
        f'case ":$PATH:" in *:{VENV}/bin:*) ;; *) PATH="{VENV}/bin:$PATH"; export PATH ;; esac\n'
    )
    return (
        PlannedFile(path=VENV, folder=True, mode=0o755),
        PlannedFile(path=f"{VENV}/bin", folder=True, mode=0o755),
        PlannedFile(path=f"{VENV}/bin/python", link=executable),
        PlannedFile(path=f"{VENV}/bin/python3", link="python"),
        PlannedFile(path=f"{VENV}/bin/python{python}", link="python"),
        PlannedFile(path=site_packages(python), folder=True, mode=0o755),
        PlannedFile(path=f"{VENV}/lib64", link="lib"),
        PlannedFile(path=f"{VENV}/pyvenv.cfg", content=config),
        PlannedFile(path="/etc/profile.d/graphcrate.sh", content=profile),
    )


def _examples(examples: Mapping[str, str]) -> tuple[PlannedFile, ...]:
    return tuple(
        PlannedFile(path=f"{PROGRAMS}/{name}", content=text, mode=0o755 if text.startswith("#!") else 0o644)
        for name, text in sorted(examples.items())
    )


def _environment(stack: Stack) -> dict[str, str]:
    environment = {
        "PATH": f"{VENV}/bin:{SYSTEM_PATH}",
        "LANG": "C.UTF-8",
        # ~/.local of the host, which Apptainer binds, must not shadow the image's packages.
        "PYTHONNOUSERSITE": "1",
        # pyxis sets RANK and LOCAL_RANK, and enroot's hook the rest, only for images that have this.
        "PYTORCH_VERSION": stack.torch,
    }
    if stack.cuda != "cpu":
        # Unset means no GPU under enroot; capabilities default to `utility` alone there.
        environment["NVIDIA_VISIBLE_DEVICES"] = "all"
        environment["NVIDIA_DRIVER_CAPABILITIES"] = "compute,utility"
        # Minor-version compatibility: any driver of the same major CUDA version will do.
        environment["NVIDIA_REQUIRE_CUDA"] = f"cuda>={stack.cuda.split('.')[0]}.0"
    return environment


def _compiler_environment(compilation: Compilation) -> dict[str, str]:
    """What torch's build tools go by in a devel image: no GPU may be there while something is compiled."""
    compiler = compilation.compiler
    environment = {"CC": compiler.replace("g++", "gcc"), "CXX": compiler}
    if compilation.toolkit is None:
        return environment
    return environment | {
        "PATH": f"{VENV}/bin:{CUDA_HOME}/bin:{SYSTEM_PATH}",
        "CUDA_HOME": CUDA_HOME,
        # nvcc takes the system's own g++, which may be newer than it can read.
        "NVCC_PREPEND_FLAGS": f"-ccbin {compiler}",
        "FORCE_CUDA": "1",
        "TORCH_CUDA_ARCH_LIST": ";".join(compilation.architectures),
    }


def _compiled_labels(installs: Sequence[Step]) -> dict[str, str]:
    """What was compiled for this image, and for which GPUs."""
    for step in installs:
        if isinstance(step, CompileStep):
            toolkit = step.compilation.toolkit
            labels = {
                "graphcrate.compiled": ",".join(package.name for package in step.packages),
                "graphcrate.architectures": ",".join(step.compilation.architectures),
                "graphcrate.nvcc": toolkit.version if toolkit else "",
            }
            return {key: value for key, value in labels.items() if value}
    return {}


def _labels(name: str, stack: Stack, tag: str, lock_sha256: str) -> dict[str, str]:
    labels = {
        "org.opencontainers.image.title": name,
        "org.opencontainers.image.description": stack.description,
        "org.opencontainers.image.version": tag,
        "graphcrate.version": __version__,
        "graphcrate.recipe": name,
        "graphcrate.candidate": stack.candidate,
        "graphcrate.lock.sha256": lock_sha256,
        "graphcrate.cuda": stack.cuda,
        "graphcrate.python": stack.python,
        "graphcrate.torch": stack.torch,
        "graphcrate.torch.cuda": stack.torch_cuda,
        "graphcrate.torch_geometric": stack.torch_geometric,
        "graphcrate.missing": ",".join(missing.name for missing in stack.missing),
    }
    return {key: value for key, value in labels.items() if value}
