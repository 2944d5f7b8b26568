"""From a lock to a plan: which packages share a layer, what files and environment the image gets. Pure."""

from collections.abc import Iterable, Mapping

from graphcrate import __version__
from graphcrate.model.lock import Lock, LockedPackage
from graphcrate.model.plan import VENV, BaseStep, ConfigStep, FilesStep, Plan, PlannedFile, Step, WheelsStep
from graphcrate.model.recipe import Candidate, Recipe

#: A wheel of at least this many bytes is a layer of its own (docs/design: it is pulled and cached alone).
OWN_LAYER = 30_000_000
#: Docker's overlay2 stops at 127 layers and old engines at less; far below it.
MOST_LAYERS = 60

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
EXAMPLES = "/opt/graphcrate/examples"

_PYG = {
    "torch-geometric", "pyg-lib", "torch-scatter", "torch-sparse", "torch-cluster", "torch-spline-conv",
    "ogb", "torchmetrics", "lightning-utilities", "littleutils", "outdated",
}  # fmt: skip
_CUDA = ("nvidia-", "cuda-", "triton", "pytorch-triton")
_TOOLS = {"pip", "setuptools", "wheel", "cmake", "lit", "tqdm"}
_GROUPS = ("CUDA libraries", "torch and libraries", "tools", "PyG family")


def tag(recipe: Recipe, lock: Lock, candidate: Candidate) -> str:
    """The image's tag: `2.3.1-torch2.0.1-cu118-py311`, for plain torch `2.0.1-cu118-py311`."""
    torch = _version(lock, "torch").partition("+")[0]
    geometric = _version(lock, "torch-geometric")
    stack = f"{geometric}-torch{torch}" if geometric else torch
    return f"{stack}-{cuda_label(lock.cuda)}-py{lock.python.replace('.', '')}{candidate.suffix}"


def cuda_label(cuda: str) -> str:
    """`cu118` for "11.8", `cpu` for "cpu"."""
    return cuda if cuda == "cpu" else "cu" + cuda.replace(".", "")


def make_plan(
    recipe: Recipe, lock: Lock, candidate: Candidate, *, examples: Mapping[str, str], created: int | None = None
) -> Plan:
    """Order the lock's contents into layers, those that change least first.

    `examples`: name → text of the programs that ship in the image. `created` in Unix seconds, the lock's by default.
    """
    name = tag(recipe, lock, candidate)
    steps: list[Step] = [
        BaseStep(base=lock.base),
        FilesStep(title="virtual environment", files=_venv(lock.python, lock.interpreter)),
    ]
    steps += [
        WheelsStep(title=title, python=lock.python, packages=packages) for title, packages in _layers(lock.packages)
    ]
    steps.append(FilesStep(title="examples", files=_examples(examples)))
    steps.append(
        ConfigStep(
            environment=_environment(lock),
            labels=_labels(recipe, lock, candidate, name),
            command=("/bin/bash",),
        )
    )
    return Plan(name=recipe.name, tag=name, created=lock.created if created is None else created, steps=tuple(steps))


def _version(lock: Lock, name: str) -> str:
    package = lock.package(name)
    return package.version if package else ""


def _layers(packages: Iterable[LockedPackage]) -> list[tuple[str, tuple[LockedPackage, ...]]]:
    groups: dict[str, list[LockedPackage]] = {group: [] for group in _GROUPS}
    for package in sorted(packages, key=lambda package: package.name):
        groups[_group(package.name)].append(package)
    large = [package for members in groups.values() for package in members if package.file.size >= OWN_LAYER]
    # Beyond the limit the smallest of the large wheels join their group.
    large = sorted(large, key=lambda package: -package.file.size)[: MOST_LAYERS - 10]
    layers: list[tuple[str, tuple[LockedPackage, ...]]] = []
    for group, members in groups.items():
        layers += [(f"{package.name} {package.version}", (package,)) for package in members if package in large]
        if small := tuple(package for package in members if package not in large):
            layers.append((group, small))
    return layers


def _group(name: str) -> str:
    if name.startswith(_CUDA):
        return _GROUPS[0]
    if name in _PYG:
        return _GROUPS[3]
    return _GROUPS[2] if name in _TOOLS else _GROUPS[1]


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
        PlannedFile(path=f"{VENV}/lib/python{python}/site-packages", folder=True, mode=0o755),
        PlannedFile(path=f"{VENV}/lib64", link="lib"),
        PlannedFile(path=f"{VENV}/pyvenv.cfg", content=config),
        PlannedFile(path="/etc/profile.d/graphcrate.sh", content=profile),
    )


def _examples(examples: Mapping[str, str]) -> tuple[PlannedFile, ...]:
    return tuple(
        PlannedFile(path=f"{EXAMPLES}/{name}", content=text, mode=0o755 if text.startswith("#!") else 0o644)
        for name, text in sorted(examples.items())
    )


def _environment(lock: Lock) -> dict[str, str]:
    environment = {
        "PATH": f"{VENV}/bin:{SYSTEM_PATH}",
        "LANG": "C.UTF-8",
        # ~/.local of the host, which Apptainer binds, must not shadow the image's packages.
        "PYTHONNOUSERSITE": "1",
        # enroot's Slurm hook sets MASTER_ADDR, RANK and the rest only for images that have this.
        "PYTORCH_VERSION": _version(lock, "torch"),
    }
    if lock.cuda != "cpu":
        # Unset means no GPU under enroot; capabilities default to `utility` alone there.
        environment["NVIDIA_VISIBLE_DEVICES"] = "all"
        environment["NVIDIA_DRIVER_CAPABILITIES"] = "compute,utility"
        # Minor-version compatibility: any driver of the same major CUDA version will do.
        environment["NVIDIA_REQUIRE_CUDA"] = f"cuda>={lock.cuda.split('.')[0]}.0"
    return environment


def _labels(recipe: Recipe, lock: Lock, candidate: Candidate, name: str) -> dict[str, str]:
    labels = {
        "org.opencontainers.image.title": recipe.name,
        "org.opencontainers.image.description": recipe.description,
        "org.opencontainers.image.version": name,
        "graphcrate.version": __version__,
        "graphcrate.recipe": recipe.name,
        "graphcrate.candidate": candidate.name,
        "graphcrate.lock.sha256": lock.sha256,
        "graphcrate.cuda": lock.cuda,
        "graphcrate.python": lock.python,
        "graphcrate.torch": _version(lock, "torch"),
        "graphcrate.torch.cuda": lock.torch_cuda,
    }
    if geometric := _version(lock, "torch-geometric"):
        labels["graphcrate.torch_geometric"] = geometric
    if lock.missing:
        labels["graphcrate.missing"] = ",".join(missing.name for missing in lock.missing)
    return labels
