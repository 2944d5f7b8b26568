"""Configuration of an image: its virtual environment, the variables of its programs, its labels. Pure."""

from collections.abc import Sequence

from graphcrate import __version__
from graphcrate.compat.facts import compilers, suites
from graphcrate.compat.plan.base_lines import drifted
from graphcrate.model import plan as steps
from graphcrate.model.lock import Compilation, Lock
from graphcrate.model.plan import CUDA_HOME, VENV, Step, site_packages

PROGRAMS = "/opt/graphcrate"  #: what ships in the image: examples/ to copy, suites/ that prove it
EXAMPLES = f"{PROGRAMS}/examples"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SHELL = ("/bin/bash",)  #: the command of an image for which nothing says another


def virtual_environment(python: str, executable: str) -> tuple[steps.PlannedFile, ...]:
    """Return the files that make VENV an environment of an interpreter (PEP 405), and a profile for login shells."""
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


def environment_of(stack: steps.Stack, compilation: Compilation | None) -> dict[str, str]:
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


def labels_of(
    name: str, stack: steps.Stack, tag: str, lock: Lock | None, installs: Sequence[Step], expression: str
) -> dict[str, str]:
    """Return the labels of a plan's image. `expression`: its licences (SPDX). Empty ones are left out."""
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
