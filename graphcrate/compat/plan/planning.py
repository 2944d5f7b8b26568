"""Make a plan from a lock: which packages share a layer, what files and environment the image gets. Pure.

A variant without a lock gets an open plan, for engines on networks that reach its channels.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from graphcrate import __version__
from graphcrate.compat.facts import allowances, compilers, libraries, licences, reserved, suites, toolkits
from graphcrate.compat.facts import slim as slimming
from graphcrate.compat.facts.addresses import cuda_label
from graphcrate.compat.facts.cutoff import cutoff_of
from graphcrate.compat.requirements import own_packages
from graphcrate.model import plan as steps
from graphcrate.model.command import setting
from graphcrate.model.lock import Compilation, DebianBase, Drift, Lock, LockedPackage
from graphcrate.model.plan import CUDA_HOME, VENV, BaseImage, Plan, Slim, Step, site_packages
from graphcrate.model.recipe import CHANNELS, Additions, Candidate, Channel, Recipe, Variant
from graphcrate.model.words import joined, listed

#: The form of layers, for keys. Raise it whenever the same plan would give other bytes: places of files, RECORD,
#: bytecode, or the tar and gzip stream (`ocilayout.layer` has a number of its own, which base layers share).
LAYER_FORMAT = 1
#: A wheel of at least this many bytes is a layer of its own: it is pulled and cached alone.
_OWN_LAYER = 30_000_000
#: Docker stops at 125 layers and old engines at less; far below it.
MOST_LAYERS = 60

#: apt: images are extended with it. libgomp1: PyG's extensions are linked to it and bring none. procps: `kill`, `ps`,
#: which job scripts need. passwd: `useradd` in images made from this one. ca-certificates: downloads of data sets.
DEBIAN_PACKAGES = ("apt", "ca-certificates", "libgomp1", "libstdc++6", "passwd", "procps", "python3", "tzdata")
#: What any Debian image has.
_ALWAYS_THERE = ("apt", "passwd")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PROGRAMS = "/opt/graphcrate"  #: what ships in the image: examples/ to copy, suites/ that prove it
EXAMPLES = f"{PROGRAMS}/examples"
SHELL = ("/bin/bash",)  #: the command of an image for which nothing says another
EXAMPLES_TITLE, ADDED_FILES_TITLE = "examples", "added files"  #: of the steps that write them

_CUDA = ("nvidia-", "cuda-", "triton", "pytorch-triton")
_TOOLS = {"pip", "setuptools", "wheel", "cmake", "lit", "tqdm"}
#: what `import torch`, its build tools and the extensions' own imports need besides CUDA libraries
_TORCH_NEEDS = {
    "torch", "typing-extensions", "filelock", "sympy", "mpmath", "networkx", "jinja2", "markupsafe", "fsspec", "numpy",
    "scipy",
}  # fmt: skip
ADDED_SOURCES = "added packages, compiled"  #: title of a step
MOST_ADDED = 20  #: layers of the user's own large packages
_Layer = tuple[str, tuple[LockedPackage, ...]]  #: title and packages
#: channel → title of the layer with its libraries and those that change together with them
FAMILIES = {channel: f"{row.owner} family" for channel, row in CHANNELS.items() if row.libraries}
GROUPS = ("CUDA libraries", "torch and libraries", "tools", *FAMILIES.values())


def build_key(plan: Plan) -> str:
    """Hash what the image of our own builder depends on: the plan and the form of the layers."""
    form = f"{LAYER_FORMAT}.{slimming.SLIM_FORMAT}" if slimming.LABEL in plan.config.labels else f"{LAYER_FORMAT}"
    return f"{steps.content_id(plan)}-{form}"


def make_plan(
    recipe: Recipe,
    lock: Lock,
    candidate: Candidate,
    *,
    examples: Mapping[str, str],
    created: int | None = None,
    devel: bool = False,
    additions: Additions | None = None,
    slim: Slim | None = None,
) -> Plan:
    """Order the lock's contents into layers, those that change least first.

    `examples`: name below PROGRAMS → text. `created`: Unix seconds, else the lock's.
    `devel`: keep compiler and toolkit. `additions`: the user's own, on top. `slim`: cut to some GPUs.
    """
    versions = {package.name: package.version for package in lock.packages}
    stack = steps.Stack(
        description=recipe.description,
        cuda=lock.cuda,
        python=lock.python,
        torch=versions.get("torch", ""),
        torch_cuda=lock.torch_cuda,
        candidate=candidate.name,
        torch_geometric=versions.get("torch-geometric", ""),
        meaning=candidate.meaning,
        missing=lock.missing,
    )
    variant = recipe.variant(lock.cuda)
    packages = (*(variant.base.packages if variant else ()), *(additions.apt if additions else ()))
    base = steps.BaseStep(base=lock.base, image=_locked_image(lock, packages))
    # Wheels, then what is compiled against them: nothing else waits for a compiler.
    added = lock.additions.packages
    wheels = _layers([package for package in lock.packages if not package.compiled and package.name not in added])
    installs: list[Step] = [steps.WheelsStep(title=name, python=lock.python, packages=ones) for name, ones in wheels]
    installs += [step for step in compile_steps(lock) if step.title != ADDED_SOURCES]
    suffix = candidate.suffix + lock.platform.suffix + _for_gpus(lock, variant, devel)
    if devel:
        compilation = lock.compilation
        assert compilation is not None, "a devel image is planned of a lock with a compiler"
        image = base.image
        with_compiler = tuple(sorted({*image.packages, *compilers.packages(compilation.compiler)}))
        base = steps.BaseStep(base=compilation.base, image=msgspec.structs.replace(image, packages=with_compiler))
        if tools := tuple(package for package in compilation.tools if package.name not in versions):
            installs.append(steps.WheelsStep(title="build tools", python=lock.python, packages=tools))
        if toolkit := compilation.toolkit:
            installs.append(steps.ToolkitStep(title=f"CUDA toolkit {toolkit.version}", toolkit=toolkit))
        suffix += "-devel"
    if slim:
        suffix += slimming.suffix(slim, named="-sm" in suffix)
    plan = _plan(recipe.name, stack, base, installs, examples, suffix, lock, devel=devel)
    if slim:
        plan = _cut(plan, slim)
    if additions:
        plan = _with_additions(plan, lock, additions, slim)
    return plan if created is None else msgspec.structs.replace(plan, created=created)


def _cut(plan: Plan, slim: Slim) -> Plan:
    """The plan with its libraries cut, what Python says on another GPU, and a label."""
    made: list[Step] = []
    for step in _cut_wheels(plan.steps, slim):
        if isinstance(step, steps.ConfigStep):
            guard = f"{site_packages(plan.stack.python)}/sitecustomize.py"
            made.append(
                steps.FilesStep(title="GPU guard", files=(steps.PlannedFile(path=guard, content=slimming.guard(slim)),))
            )
            step = msgspec.structs.replace(step, labels={**step.labels, slimming.LABEL: ",".join(slim.capabilities)})
        made.append(step)
    return msgspec.structs.replace(plan, steps=tuple(made))


def _cut_wheels(given: Iterable[Step], slim: Slim | None) -> Iterator[Step]:
    for step in given:
        is_cut = slim and isinstance(step, steps.WheelsStep) and slimming.applies(step.packages, slim)
        yield msgspec.structs.replace(step, slim=slim) if is_cut else step


def _with_additions(plan: Plan, lock: Lock, additions: Additions, slim: Slim | None) -> Plan:
    """The plan with the user's own packages and files, in layers above all others, and their variables."""
    names = lock.additions.packages
    packages = [package for package in lock.packages if package.name in names and not package.compiled]
    large = [package for package in packages if package.file.size >= _OWN_LAYER][:MOST_ADDED]
    layers = _own_layers(packages, large, "added packages")
    more: list[Step] = [steps.WheelsStep(title=title, python=lock.python, packages=ones) for title, ones in layers]
    more += [step for step in compile_steps(lock) if step.title == ADDED_SOURCES]
    if files := tuple(_added_files(additions)):
        more.append(steps.FilesStep(title=ADDED_FILES_TITLE, files=files))
    more = [*_cut_wheels(more, slim)]
    name, tag = additions.name or plan.name, plan.tag + own_packages.suffix(additions, names)
    labels = {"org.opencontainers.image.title": name, "org.opencontainers.image.version": tag}
    labels |= {allowances.LABEL: allowances.label(additions.allow)} if additions.allow else {}
    config = msgspec.structs.replace(
        plan.config,
        environment=plan.config.environment
        | reserved.with_own_path(additions.environment, plan.config.environment["PATH"]),
        labels=plan.config.labels | additions.labels | labels,
        command=additions.command or plan.config.command,
        working_folder=additions.workdir or plan.config.working_folder,
    )
    return msgspec.structs.replace(
        plan, name=name, tag=tag, steps=(*plan.steps[:-1], *more, config), aliases=(), added=names
    )


def _added_files(additions: Additions) -> Iterator[steps.PlannedFile]:
    """The user's own folders, with that which programs start in, and files."""
    folders = {additions.workdir: 0o755} if additions.workdir else {}
    for path, mode in sorted((folders | additions.directories).items()):
        yield steps.PlannedFile(path=path, folder=True, mode=mode)
    for path, text in sorted(additions.files.items()):
        yield steps.PlannedFile(path=path, content=text, mode=0o755 if path in additions.programs else 0o644)


def short_name(plan: Plan, candidate: Candidate) -> str:
    """Shorten a tag to what tells a recipe's images apart, without versions: `cu118`, `cu118-sm70-einops`.

    Whether another candidate of the variant was taken is not in it.
    """
    label = cuda_label(plan.stack.cuda)
    rest = plan.tag.partition(f"-{label}-py{plan.stack.python.replace('.', '')}")[2]
    return label + rest.removeprefix(candidate.suffix)


def compile_steps(lock: Lock) -> tuple[steps.CompileStep, ...]:
    """List what is compiled, and against what: the stack's extensions, then what the user added (`ADDED_SOURCES`)."""
    added = lock.additions.packages
    compiled = [package for package in lock.packages if package.compiled]
    torch = [
        package
        for package in lock.packages
        if not package.compiled and (package.name in _TORCH_NEEDS or package.name.startswith(("nvidia-", "cuda-")))
    ]
    made = []
    for title, is_added in (("compiled extensions", False), (ADDED_SOURCES, True)):
        if packages := tuple(package for package in compiled if (package.name in added) is is_added):
            assert lock.compilation is not None, "whoever locks a source locks its compiler"
            names = [package.name for package in packages]
            beside = (item for package in packages if not package.isolated for item in package.build)
            made.append(
                steps.CompileStep(
                    title=title,
                    python=lock.python,
                    packages=packages,
                    against=tuple(dict.fromkeys([*torch, *beside])),
                    compilation=libraries.without_others(lock.compilation, names),
                    base=lock.base if lock.compilation.crossed else msgspec.UNSET,
                )
            )
    return tuple(made)


def _for_gpus(lock: Lock, variant: Variant | None, devel: bool) -> str:
    """`-sm70` where extensions are compiled, or a devel image compiles, for other GPUs than the recipe says."""
    compilation = lock.compilation
    if compilation is None or variant is None:
        return ""
    if compilation.architectures == toolkits.of_machines(variant.architectures, lock.platform):
        return ""
    if not devel and not any(package.compiled for package in lock.packages):
        return ""
    return "".join(f"-sm{name.replace('+PTX', 'ptx').replace('.', '')}" for name in compilation.architectures)


def make_open_plan(recipe: Recipe, variant: Variant, candidate: Candidate, *, examples: Mapping[str, str]) -> Plan:
    """The plan of a candidate without a lock: its requirements by channel, resolved when an engine builds it."""
    stack = steps.Stack(
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
    extending = next((channel for channel in candidate.channels if channel in FAMILIES), Channel.PYG)
    first = Channel.PYTORCH if Channel.PYTORCH in candidate.channels else Channel.PYPI
    groups = [
        ("torch and its libraries", first, [f"torch=={candidate.torch}", *candidate.overrides]),
        (
            f"compiled extensions of {CHANNELS[extending].owner}",
            extending,
            [name.replace("_", "-") for name in variant.extensions],
        ),
        ("PyG and tools", Channel.PYPI, others),
    ]
    cutoff = cutoff_of(recipe, variant, [line for _, _, lines in groups for line in lines])
    installs = [
        steps.RequirementsStep(
            title=title,
            python=variant.python,
            channel=channel,
            requirements=tuple(requirements),
            options=tuple(cutoff.options) if cutoff and channel is Channel.PYPI else (),
        )
        for title, channel, requirements in groups
        if requirements
    ]
    base = steps.BaseStep(base=None, image=_wanted_image(variant))
    return _plan(recipe.name, stack, base, installs, examples, candidate.suffix)


def _plan(
    name: str,
    stack: steps.Stack,
    base: steps.BaseStep,
    installs: Sequence[Step],
    examples: Mapping[str, str],
    suffix: str,
    lock: Lock | None = None,
    *,
    devel: bool = False,
) -> Plan:
    """The plan of a stack, tagged `2.3.1-torch2.0.1-cu118-py311` or, for plain torch, `2.0.1-cu118-py311`."""
    torch = stack.torch.partition("+")[0]
    versions = f"{stack.torch_geometric}-torch{torch}" if stack.torch_geometric else torch
    tag = f"{versions}-{cuda_label(stack.cuda)}-py{stack.python.replace('.', '')}{suffix}"
    aliases: tuple[str, ...] = ()
    if lock and isinstance(lock.base, DebianBase) and (row := suites.known().get(lock.base.suite)):
        # The scheme that GLT's images are published under: 0.1.0-debian11-py3.9-torch1.13-cuda11.7
        series, cuda = ".".join(torch.split(".")[:2]), "cpu" if lock.cuda == "cpu" else f"cuda{lock.cuda}"
        aliases = (f"{__version__}-{row.distribution}{row.release}-py{lock.python}-torch{series}-{cuda}{suffix}",)
    programs = tuple(
        steps.PlannedFile(path=f"{PROGRAMS}/{name}", content=text, mode=0o755 if text.startswith("#!") else 0o644)
        for name, text in sorted(examples.items())
    )
    config = steps.ConfigStep(
        environment=_environment(stack, lock.compilation if lock and devel else None),
        labels=_labels(name, stack, tag, lock, installs, licences.of_lock(lock, devel=devel) if lock else ""),
        command=SHELL,
    )
    return Plan(
        name=name,
        tag=tag,
        created=lock.created if lock else 0,
        stack=stack,
        steps=(
            base,
            steps.FilesStep(title="virtual environment", files=_venv(stack.python, base.image.interpreter)),
            *installs,
            steps.FilesStep(title=EXAMPLES_TITLE, files=programs),
            config,
        ),
        aliases=aliases,
    )


def _layers(packages: Iterable[LockedPackage]) -> list[_Layer]:
    """Titles and packages of layers: each large wheel alone, before the small ones of its group."""
    packages = sorted(packages, key=lambda package: package.name)
    large = [package for package in packages if package.file.size >= _OWN_LAYER]
    # Beyond the limit the smallest of the large wheels join their group.
    large = sorted(large, key=lambda package: -package.file.size)[: MOST_LAYERS - 10]
    layers: list[_Layer] = []
    for title in GROUPS:
        layers += _own_layers([package for package in packages if group(package.name) == title], large, title)
    return layers


def _own_layers(members: Sequence[LockedPackage], large: Sequence[LockedPackage], title: str) -> list[_Layer]:
    """Each of the large ones alone, then all others as `title`."""
    layers: list[_Layer] = [(f"{member.name} {member.version}", (member,)) for member in members if member in large]
    small = tuple(member for member in members if member not in large)
    return [*layers, (title, small)] if small else layers


def group(name: str) -> str:
    """Return the group of `GROUPS` that a package belongs to: packages of one change together."""
    if name.startswith(_CUDA):
        return GROUPS[0]
    for channel, title in FAMILIES.items():
        if name in CHANNELS[channel].libraries | CHANNELS[channel].companions:
            return title
    return GROUPS[2] if name in _TOOLS else GROUPS[1]


def _venv(python: str, executable: str) -> tuple[steps.PlannedFile, ...]:
    home = executable.rpartition("/")[0]
    config = f"home = {home}\ninclude-system-site-packages = false\nversion = {python}\nexecutable = {executable}\n"
    profile = (
        "# Debian's /etc/profile sets PATH again; enroot starts a login shell, so put the environment back in front.\n"
        f'case ":$PATH:" in *:{VENV}/bin:*) ;; *) PATH="{VENV}/bin:$PATH"; export PATH ;; esac\n'
    )
    return (
        steps.PlannedFile(path=VENV, folder=True, mode=0o755),
        steps.PlannedFile(path=f"{VENV}/bin", folder=True, mode=0o755),
        steps.PlannedFile(path=f"{VENV}/bin/python", link=executable),
        steps.PlannedFile(path=f"{VENV}/bin/python3", link="python"),
        steps.PlannedFile(path=f"{VENV}/bin/python{python}", link="python"),
        steps.PlannedFile(path=site_packages(python), folder=True, mode=0o755),
        steps.PlannedFile(path=f"{VENV}/lib64", link="lib"),
        steps.PlannedFile(path=f"{VENV}/pyvenv.cfg", content=config),
        steps.PlannedFile(path="/etc/profile.d/graphcrate.sh", content=profile),
    )


def _environment(stack: steps.Stack, compilation: Compilation | None) -> dict[str, str]:
    """Return the environment of programs in the image; in a devel image with a compiler's, for torch's build tools."""
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
    if compilation is not None:
        if compilation.toolkit is not None:
            environment["PATH"] = f"{VENV}/bin:{CUDA_HOME}/bin:{SYSTEM_PATH}"
        # No GPU may be there while something is compiled.
        names = ("CC", "CXX", "CUDA_HOME", "NVCC_PREPEND_FLAGS", "FORCE_CUDA", "TORCH_CUDA_ARCH_LIST")
        variables = compilers.variables(compilation)
        environment |= {name: variables[name] for name in names if name in variables}
    return environment


def _labels(
    name: str, stack: steps.Stack, tag: str, lock: Lock | None, installs: Sequence[Step], expression: str
) -> dict[str, str]:
    labels = {
        "org.opencontainers.image.title": name,
        "org.opencontainers.image.description": stack.description,
        "org.opencontainers.image.version": tag,
        "org.opencontainers.image.licenses": expression,
        "graphcrate.version": __version__,
        "graphcrate.recipe": name,
        "graphcrate.candidate": stack.candidate,
        "graphcrate.lock.sha256": lock.sha256 if lock else "",
        "graphcrate.cuda": stack.cuda,
        "graphcrate.python": stack.python,
        "graphcrate.torch": stack.torch,
        "graphcrate.torch.cuda": stack.torch_cuda,
        "graphcrate.torch_geometric": stack.torch_geometric,
        "graphcrate.missing": ",".join(missing.name for missing in stack.missing),
        "graphcrate.drift": ", ".join(drifted(lock.drifted)) if lock else "",
        "graphcrate.without-security": ", ".join(map(suites.titled, lock.unfixed)) if lock else "",
    }
    for step in installs:
        if isinstance(step, steps.CompileStep):
            toolkit = step.compilation.toolkit
            labels["graphcrate.compiled"] = ",".join(package.name for package in step.packages)
            labels["graphcrate.architectures"] = ",".join(step.compilation.architectures)
            labels["graphcrate.nvcc"] = toolkit.version if toolkit else ""
    return {key: value for key, value in labels.items() if value}


def drifted(drift: Sequence[Drift]) -> list[str]:
    """List what is not what was locked: "bash 5.2-1 → 5.2-2", "liba 1 (new)", "libb 1 (gone)"."""
    return list(
        dict.fromkeys(
            f"{package.name} {package.locked} → {package.taken}"
            if package.locked and package.taken
            else f"{package.name} {package.taken} (new)"
            if package.taken
            else f"{package.name} {package.locked} (gone)"
            for package in drift
        )
    )


def drift_line(drift: Sequence[Drift]) -> str:
    """Say what of Debian is of today and not the lock's; a report and a label have all of it."""
    where = listed(
        sorted({"the base with the compiler" if package.of == "compiler" else "the base" for package in drift})
    )
    changes = drifted(drift)
    return f"no place has all that was locked of {where}; of today are {joined(changes)}"


def unfixed_line(unfixed: Sequence[str]) -> str:
    """Say of which suites the lock was made without the list of their security updates."""
    option = setting(without_security=True)
    return f"none of the security updates of {listed(map(suites.titled, unfixed))}, which no mirror gave ({option})"


def _locked_image(lock: Lock, packages: tuple[str, ...]) -> BaseImage:
    """Return the image that an engine pulls for this lock's base.

    `packages`: what recipe and person add to a Debian.
    """
    if isinstance(lock.base, DebianBase):
        return _debian(lock.base.suite, lock.python, packages)
    digest = f"@{lock.base.digest}" if lock.base.digest else ""
    return _with_python(f"{lock.base.reference}{digest}", lock.base.interpreter)


def _wanted_image(variant: Variant) -> BaseImage:
    """Return the image that an engine pulls for this variant's base, as its recipe has it."""
    if variant.base.provider != "registry":
        return _debian(variant.base.suite, variant.python, variant.base.packages)
    return _with_python(variant.base.reference, f"/usr/local/bin/python{variant.python}")


def base_packages(suite: str) -> tuple[str, ...]:
    """List this suite's packages in images. Raises ResolutionError for a suite that no base is made of."""
    return (*DEBIAN_PACKAGES, *suites.base_of(suite).fabric)


def _debian(suite: str, python: str, more: tuple[str, ...]) -> BaseImage:
    image = suites.distribution_of(suite).image.format(suite=suite)
    packages = tuple(sorted({*base_packages(suite), *more} - {*_ALWAYS_THERE}))
    return BaseImage(reference=image, interpreter=f"/usr/bin/python{python}", packages=packages)


def _with_python(reference: str, interpreter: str) -> BaseImage:
    return BaseImage(reference=reference, interpreter=interpreter, brings_python=True)
