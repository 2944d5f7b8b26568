"""Make a plan from a lock: which packages share a layer, what files and environment the image gets. Pure.

A variant without a lock gets an open plan, for engines on networks that reach its channels.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from graphcrate import __version__
from graphcrate.compat.facts import allowances, compilers, licences, reserved, suites, toolkits
from graphcrate.compat.facts import slim as slimming
from graphcrate.compat.facts.addresses import cuda_label
from graphcrate.compat.facts.cutoff import cutoff_of
from graphcrate.compat.plan.base_images import locked_image, wanted_image
from graphcrate.compat.plan.compile_steps import ADDED_SOURCES, compile_steps
from graphcrate.compat.plan.image_config import PROGRAMS, SHELL, environment_of, labels_of, virtual_environment
from graphcrate.compat.plan.layering import FAMILIES, added_layers, stack_layers
from graphcrate.compat.requirements import own_packages
from graphcrate.model import plan as steps
from graphcrate.model.lock import DebianBase, Lock
from graphcrate.model.plan import Plan, Slim, Step, site_packages
from graphcrate.model.recipe import CHANNELS, Additions, Candidate, Channel, Recipe, Variant

#: The form of layers, for keys. Raise it whenever the same plan would give other bytes: places of files, RECORD,
#: bytecode, or the tar and gzip stream (`ocilayout.layer` has a number of its own, which base layers share).
LAYER_FORMAT = 1
EXAMPLES_TITLE, ADDED_FILES_TITLE = "examples", "added files"  #: of the steps that write them


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
    base = steps.BaseStep(base=lock.base, image=locked_image(lock, packages))
    # Wheels, then what is compiled against them: nothing else waits for a compiler.
    added = lock.additions.packages
    wheels = stack_layers([package for package in lock.packages if not package.compiled and package.name not in added])
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
    layers = added_layers(packages)
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
    base = steps.BaseStep(base=None, image=wanted_image(variant))
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
        environment=environment_of(stack, lock.compilation if lock and devel else None),
        labels=labels_of(name, stack, tag, lock, installs, licences.of_lock(lock, devel=devel) if lock else ""),
        command=SHELL,
    )
    return Plan(
        name=name,
        tag=tag,
        created=lock.created if lock else 0,
        stack=stack,
        steps=(
            base,
            steps.FilesStep(
                title="virtual environment", files=virtual_environment(stack.python, base.image.interpreter)
            ),
            *installs,
            steps.FilesStep(title=EXAMPLES_TITLE, files=programs),
            config,
        ),
        aliases=aliases,
    )
