"""A small Debian to build from, as registries give it, made from the archives that this machine's apt knows."""

import hashlib
import json
import shutil
import subprocess

from tests.conftest import program

SUITE = "bookworm"


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
    """An OCI layout with this tar as its only layer, by hand: nothing of the project has a part in it."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def keep(kind, content):
        digest = hashlib.sha256(content).hexdigest()
        (blobs / digest).write_bytes(content)
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(content)}

    with tar.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    shutil.copyfile(tar, blobs / digest)
    layer = {"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": f"sha256:{digest}"}
    layer["size"] = tar.stat().st_size
    path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    config = {"architecture": "amd64", "os": "linux", "config": {"Env": [path], "Cmd": ["bash"]}}
    config["rootfs"] = {"type": "layers", "diff_ids": [layer["digest"]]}
    config["history"] = [{"created_by": "mmdebstrap"}]  # buildah counts layers by it
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "layers": [layer]}
    manifest["config"] = keep("config.v1+json", json.dumps(config).encode())
    entry = keep("manifest.v1+json", json.dumps(manifest).encode())
    entry["annotations"] = {"org.opencontainers.image.ref.name": f"{SUITE}-slim"}
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return folder
