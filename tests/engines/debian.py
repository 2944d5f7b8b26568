"""A small Debian to build from, as registries give it, made from the archives that this machine's apt knows."""

import hashlib
import subprocess

from graphcrate.model.plan import ConfigStep
from graphcrate.model.report import LayerRecord
from graphcrate.oci.image import make_image
from graphcrate.oci.layout import write_layout
from ocilayout import spec
from tests.conftest import program

SUITE = "bookworm"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def make_base(tar):
    """The files of a minimal Debian with apt and its sources, in a tar of this name. About half a minute."""
    left_out = ["/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*"]
    options = [f"--dpkgopt=path-exclude={pattern}" for pattern in left_out]
    options.append("--dpkgopt=force-unsafe-io")  # a busy disk makes dpkg's care for each file take minutes
    command = [program("mmdebstrap"), "--variant=minbase", "--format=tar", *options, SUITE, tar]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return tar


def pack_layout(tar, folder):
    """An OCI layout with this tar as its only layer."""
    with tar.open("rb") as stream:
        digest = f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"
    size = tar.stat().st_size
    sizes = {"size": size, "unpacked_size": size}
    layer = LayerRecord(title="mmdebstrap", digest=digest, diff_id=digest, media_type=spec.LAYER_TAR, **sizes)
    config = ConfigStep(environment={"PATH": PATH}, labels={}, command=("bash",))
    write_layout(folder, make_image((layer,), config, 0), lambda _: tar, f"{SUITE}-slim")
