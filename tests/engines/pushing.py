"""Parts that tests of pushing share: a login of canaries, an image of random bytes, a push without pauses, a check."""

import random

import pytest

from graphcrate.host.net import Client
from graphcrate.host.progress import Progress
from graphcrate.oci import push, reference
from graphcrate.oci.registry import Repository
from ocilayout import spec
from ociregistry import upload
from ociregistry.credentials import Credential
from ociregistry.push import put_manifest
from tests.unit import small_layouts, tars

MIB = 1 << 20
LOGIN = Credential(user="canary-user", password="canary-password")
GRANTED = {"team/bearer", "team/sister", "team/moved"}  #: what tokens are given for
SIZES = (20 * MIB, 12 * MIB, MIB, 1000)


def random_layout(folder, sizes=SIZES, seed=0):
    """An image of layers of so many random bytes."""
    layers = [[tars.file(f"{size}", random.Random(seed + size).randbytes(size))] for size in sizes]
    return small_layouts.layout(folder, *layers, types=(spec.LAYER_TAR,))


def send(address, layout, name, *, form="oci", login=None, environment=None, pauses=None, chunk=2 * MIB, **more):
    """Push with chunks of 2 MiB, unless `chunk` says how many bytes; pauses are noted and not made."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(upload, "SMALLEST", chunk)
        patched.setattr(upload, "LARGEST", chunk)
        client = Client(environment or {}, sleep=(pauses if pauses is not None else []).append)
        where = reference.parse(f"{address}/{name}")
        target = Repository(client, where, lambda: login, writes=True, **more)
        pushed = push.push_layout(target, layout, form, Progress())
        put_manifest(target, where.tag, push.manifest_of(layout, form)[0], pushed.media_type)
        return pushed


def opened(address, name, login=None, **more):
    """The repository, to read from."""
    client = Client({}, sleep=lambda _: None)
    return Repository(client, reference.parse(f"{address}/{name}"), lambda: login, **more)


def check(address, name, layout, pushed, login=None):
    """Read back what the tag names, and each blob by its digest."""
    repository = opened(address, name, login)
    assert repository.manifest(reference.parse(f"{address}/{name}").tag).digest == pushed.digest
    for one in (*layout.layers, layout.manifest.config):
        assert repository.config(one) == layout.blob(one.digest).read_bytes()


def blob_bytes(layout):
    return sum(one.size for one in (*layout.layers, layout.manifest.config))
