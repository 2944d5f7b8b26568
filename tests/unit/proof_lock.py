"""A made-up lock with one thing of each kind that a lock can name."""

import hashlib

import msgspec

from graphcrate.model.lock import MissingPackage, RegistryBase
from graphcrate.model.recipe import Channel
from graphcrate.publish.predicates import Subject
from tests.made import bookworm, deb, sdist, wheel
from tests.unit.compiled_plans import DEBS, HEADERS, TOOLKITS, lock

DIGEST = "sha256:" + hashlib.sha256(b"the image").hexdigest()
SUBJECT = Subject(name="pyg", tag="torch2.0-cu118-py311", digest=DIGEST)
BASE = (deb("adduser", "3.134", architecture="all"), deb("libc6", "2.36-9+deb12u10"), deb("zlib1g", "1:1.2.13.dfsg-1"))
BACK_END = (wheel("setuptools", "69.5.1"), wheel("wheel", "0.48.0"))
PACKAGES = (
    wheel("my-model", "0.3", Channel.LOCAL),
    wheel("numpy", "1.26.4"),
    wheel("setuptools", "69.5.1"),
    wheel("torch", "2.0.1+cu118", Channel.PYTORCH),
    sdist("torch-geometric", "2.3.1", compiled=False, build=BACK_END),
    wheel("torch-scatter", "2.1.2+pt20cu118", Channel.PYG),
    sdist("torch-sparse", "0.6.18"),
)
COMPILATION = msgspec.structs.replace(
    lock(TOOLKITS["debian"]).compilation,
    base=bookworm(*BASE, deb("g++-11", "11.3.0-12")),
    tools=(wheel("ninja", "1.13.2"), wheel("setuptools", "69.5.1")),
    toolkit=msgspec.structs.replace(TOOLKITS["debian"], packages=DEBS[:1], wheels=HEADERS[1:]),
)
LOCK = msgspec.structs.replace(
    lock(TOOLKITS["debian"]),
    recipe="pyg",
    cuda="11.8",
    candidate="pytorch",
    torch_cuda="11.8",
    base=bookworm(*BASE),
    packages=PACKAGES,
    compilation=COMPILATION,
    missing=(MissingPackage(name="pyg-lib", reason="mirror.inside.example did not answer"),),
    notes=("found in /home/alice/wheels",),
)
ON_REGISTRY = RegistryBase(
    reference="registry.inside.example:5000/team/python",
    digest="sha256:" + "b" * 64,
    interpreter="/usr/local/bin/python3.11",
)
