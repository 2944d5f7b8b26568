"""Small locks, and plans that compile something: one for each kind of CUDA toolkit, and their devel images."""

import msgspec

from graphcrate.compat.facts import libraries
from graphcrate.compat.plan import planning
from graphcrate.model.lock import Compilation, DebianToolkit, ImageToolkit, Lock, WheelToolkit
from graphcrate.model.recipe import BaseSpec, Candidate, Channel, Recipe, Variant
from tests.made import bookworm, deb, sdist, wheel

VARIANT = Variant(
    cuda="11.7",
    python="3.11",
    architectures=("7.0", "8.0"),
    base=BaseSpec(suite="bookworm"),
    candidates=(Candidate(name="only", channels=(Channel.PYPI,), torch="2.0.1", torch_cuda="11.7"),),
)
CPU = msgspec.structs.replace(VARIANT, cuda="cpu", architectures=())
RECIPE = Recipe(name="small", description="A small stack", smoke=("torch",), variants=(VARIANT, CPU))


HEADERS = (wheel("nvidia-cuda-runtime-cu11", "11.8.89"), wheel("nvidia-cublas-cu11", "11.11.3.6"))
DEBS = (deb("nvidia-cuda-toolkit", "11.8.89~11.8.0-5~deb12u1"), deb("libthrust-dev", "1:2.0.1-1"))
TOOLKITS = {
    "debian": DebianToolkit(version="11.8.89", suite="bookworm", packages=DEBS, wheels=HEADERS),
    "pypi": WheelToolkit(version="13.0.88", wheels=(wheel("nvidia-cuda-nvcc", "13.0.88"), *HEADERS)),
    "image": ImageToolkit(version="11.8.89", reference="nvidia/cuda", digest="sha256:" + "d" * 64),
    "cpu": None,
}
COMPILER_BASE = bookworm(deb("g++-11", "11.3.0-12"))
TOOLS = (wheel("pip", "26.3"), wheel("setuptools", "69.5.1"), wheel("wheel", "0.48.0"), wheel("ninja", "1.13.2"))
PACKAGES = (
    wheel("numpy", "1.26.4"),
    wheel("nvidia-cublas-cu11", "11.11.3.6"),
    wheel("pip", "26.3"),
    wheel("torch", "2.0.1"),
    wheel("torch-geometric", "2.3.1"),
    sdist("torch-scatter", "2.1.2"),
    sdist("torch-sparse", "0.6.18"),
)


def lock(toolkit, packages=PACKAGES, architectures=("7.0", "8.0+PTX")):
    """A lock that compiles with this toolkit, on a base with a compiler that is another than the image's."""
    return Lock(
        recipe="small",
        cuda="11.7" if toolkit else "cpu",
        candidate="only",
        torch_cuda="11.7" if toolkit else "cpu",
        python="3.11",
        created=1_700_000_000,
        request_sha256="",
        base=bookworm(),
        packages=packages,
        compilation=Compilation(
            architectures=architectures if toolkit else (),
            compiler="g++-11",
            base=COMPILER_BASE,
            tools=TOOLS,
            toolkit=toolkit,
        ),
    )


def plain_lock(*more):
    """A lock without compiler: torch, PyG and these packages."""
    packages = (wheel("torch", "2.0.1", size=619_000_000), wheel("torch-geometric", "2.3.1"), *more)
    made = lock(TOOLKITS["debian"], tuple(sorted(packages, key=lambda package: package.name)))
    return msgspec.structs.replace(made, compilation=None)


def plan(toolkit, *, packages=PACKAGES, **options):
    examples = {"hello.py": "print(1)\n"}
    return planning.make_plan(RECIPE, lock(toolkit, packages), VARIANT.candidates[0], examples=examples, **options)


PLANS = {name: plan(toolkit) for name, toolkit in TOOLKITS.items()}
#: torch_sparse with METIS
LINKED = msgspec.structs.replace(
    lock(TOOLKITS["debian"]),
    compilation=libraries.with_libraries(lock(TOOLKITS["debian"]).compilation, ["torch-sparse"]),
)
PLANS["linked"] = planning.make_plan(RECIPE, LINKED, VARIANT.candidates[0], examples={"hello.py": "print(1)\n"})
PLANS |= {f"{name}-devel": plan(toolkit, devel=True) for name, toolkit in TOOLKITS.items()}
