"""Small layouts for tests, of layers written with `tarfile`."""

from graphcrate.model.plan import ConfigStep
from graphcrate.model.platform import DEFAULT
from graphcrate.model.report import Artifact, BuildReport
from graphcrate.oci.image import make_image
from graphcrate.oci.layout import write_layout
from ocilayout import spec
from tests.unit import tars

CREATED = 1_700_000_000


def layout(folder, *layers, tag="1.0", types=(spec.LAYER_GZIP,), platform=DEFAULT, **config):
    """A layout at `folder/oci` of these layers, lowest first, `types` in turn. `config`: of the `ConfigStep`."""
    cache = folder / "blobs"
    cache.mkdir(parents=True)
    records = [
        tars.record(cache, f"layer {number}", entries, types[number % len(types)])
        for number, entries in enumerate(layers)
    ]
    step = ConfigStep(**{"environment": {}, "labels": {}, "command": ("sh",), **config})
    image = make_image(records, step, CREATED, platform=platform)
    return write_layout(folder / "oci", image, lambda digest: cache / digest.removeprefix("sha256:"), tag)


def report(layout, **fields):
    """The report of a build that made this layout, with other values where `fields` has them."""
    digest, path = layout.digest, str(layout.path)
    artifact = Artifact(engine="embedded", kind="layout", reference=path, digest=digest, bytes=1)
    values = {"name": "torch", "tag": layout.tag, "digest": digest, "artifact": artifact, "layout": path, "bytes": 1}
    stack = {"candidate": "pypi", "torch": "2.0.1", "torch_cuda": "11.7", "cuda": "11.7", "python": "3.11"}
    return BuildReport(**{**values, **stack, "packages": (), "smoke": None, "seconds": 1.0, **fields})
