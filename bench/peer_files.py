"""Inputs of the peers of bench/peers.py: a Debian, uv, requirements, a Dockerfile and a definition.

And the settings of this machine, which a build sees and its image does not keep.
"""

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphcrate.host.disk.hashing import file_digest
from graphcrate.model.plan import ConfigStep
from graphcrate.model.report import LayerRecord
from graphcrate.oci.image import make_image
from graphcrate.oci.layout import write_layout
from ocilayout import spec
from tools.prepare import quiet, uv_settings

AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
#: where a build sees the context's files and this machine's settings: folders that Debian has, and leaves empty
FILES, SECRETS = "/mnt", "/srv"
NO_DOCUMENTATION = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*")
#: what compiles CUDA on Debian; in another stage than the image
COMPILER = ("g++-11", "libpython3-dev", "nvidia-cuda-toolkit")
#: Bytecode as our images have it: a SIF is read-only. uv links from its temporary cache what is on the same disk;
#: Apptainer shows a build the host's /tmp.
INSTALL = f"""\
. {SECRETS}/machine
export TMPDIR=/opt
{FILES}/uv venv --quiet --python /usr/bin/python3 /opt/venv
{FILES}/uv pip install --no-cache --no-deps --compile-bytecode --python /opt/venv/bin/python \
--requirement {FILES}/requirements.txt"""
PATH = "/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def wheels(lock: Mapping[str, Any]) -> list[str]:
    """Requirements of what the lock has, without what is compiled for a GPU."""
    return [f"{each['name']}=={each['version']}" for each in lock["packages"] if not each.get("compiled")]


def sdists(lock: Mapping[str, Any]) -> list[str]:
    """Requirements of what is compiled for GPUs."""
    return [f"{each['name']}=={each['version']}" for each in lock["packages"] if each.get("compiled")]


def base_packages(lock: Mapping[str, Any]) -> list[str]:
    """Names of the base's packages."""
    return [each["name"] for each in lock["base"]["packages"]]


@dataclass(frozen=True)
class BuildContext:
    """Folders that all peers build from. `bases`: names of the Debians that they need."""

    folder: Path
    bases: tuple[str, ...]

    @property
    def files(self) -> Path:
        """Write what a build sees at FILES; the Dockerfile and the definition are in it."""
        return self.folder / "files"

    @property
    def secrets(self) -> Path:
        """Write what it sees at SECRETS."""
        return self.folder / "secrets"

    def base(self, name: str) -> Path:
        """An OCI layout of a Debian: `base`, or `compiler`. Its only layer is `tar(name)`."""
        return self.folder / name

    def tar(self, name: str) -> Path:
        """The files of that Debian."""
        return self.folder / f"{name}.tar"


def write(folder: Path, lock: Mapping[str, Any], requirements: Sequence[str], *, compiling: bool) -> BuildContext:
    """Write all but the bases."""
    made = BuildContext(folder, ("base", "compiler") if compiling else ("base",))
    for each in (made.files, made.secrets):
        each.mkdir(parents=True)
    shutil.copy(Path(sys.prefix) / "bin" / "uv", made.files)
    (made.files / "requirements.txt").write_text("".join(f"{each}\n" for each in requirements))
    (made.files / "install.sh").write_text(f"set -e\n{INSTALL}\n{compile_commands(lock) if compiling else ''}")
    (made.files / "Dockerfile").write_text(dockerfile(compiling=compiling))
    (made.files / "peer.def").write_text(definition(made, compiling=compiling))
    index = uv_settings(quiet([sys.executable, "-m", "pip", "config", "list"]).stdout) or {}
    (made.secrets / "machine").write_text(machine_settings({**index, **os.environ}))
    authorities = os.environ.get("SSL_CERT_FILE") or os.environ.get("PIP_CERT") or AUTHORITIES
    shutil.copy(authorities, made.secrets / "authorities")
    return made


def debian(made: BuildContext, name: str, lock: Mapping[str, Any]) -> float:
    """Make `base` or `compiler`; the seconds that mmdebstrap took. Ends the bench where it fails."""
    suite, tar = lock["base"]["suite"], made.tar(name)
    packages = [*base_packages(lock), *(COMPILER if name == "compiler" else ())]
    components = "main,contrib,non-free" if name == "compiler" else "main"
    left_out = [f"--dpkgopt=path-exclude={pattern}" for pattern in NO_DOCUMENTATION]
    # devices: a user namespace cannot make them. dpkg's care for each file takes minutes on a busy disk.
    command = [
        "mmdebstrap",
        "--quiet",
        "--variant=minbase",
        "--skip=output/dev",
        "--dpkgopt=force-unsafe-io",
        *left_out,
    ]
    command += [f"--include={','.join(packages)}", f"--components={components}", suite, str(tar)]
    if mirror := os.environ.get("DEBIAN_MIRROR"):
        command.append(mirror)
    begin = time.monotonic()
    if subprocess.run(command, stdout=sys.stderr, check=False).returncode:
        sys.exit(f"mmdebstrap {suite} failed; its last lines say why")
    seconds = time.monotonic() - begin
    digest, size = file_digest(tar), tar.stat().st_size
    layer = LayerRecord(
        title=name, digest=digest, diff_id=digest, media_type=spec.LAYER_TAR, size=size, unpacked_size=size
    )
    config = ConfigStep(environment={"PATH": PATH.partition(":")[2]}, labels={}, command=("bash",))
    write_layout(made.base(name), make_image((layer,), config, 0), lambda _: tar, "latest")
    return seconds


def machine_settings(environment: Mapping[str, str]) -> str:
    """A shell's exports: proxies and index of this machine, its authorities as a build sees them."""
    named = ("http_proxy", "https_proxy", "no_proxy", "UV_DEFAULT_INDEX", "PIP_INDEX_URL")
    settings = {name: environment[name] for name in named if environment.get(name)}
    if index := settings.get("PIP_INDEX_URL") or settings.get("UV_DEFAULT_INDEX"):
        settings |= {"UV_DEFAULT_INDEX": index, "PIP_INDEX_URL": index}
    settings |= dict.fromkeys(("SSL_CERT_FILE", "PIP_CERT"), f"{SECRETS}/authorities")
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(settings.items()))


def compile_commands(lock: Mapping[str, Any]) -> str:
    """Compile the lock's extensions by pip and Debian's nvcc, for the lock's GPUs, with ninja on all cores."""
    compilation = lock["compilation"]
    variables = {
        "CC": "gcc-11",
        "CXX": "g++-11",
        "CUDA_HOME": "/usr",
        "NVCC_PREPEND_FLAGS": "'-ccbin g++-11'",
        "FORCE_CUDA": "1",
        "TORCH_CUDA_ARCH_LIST": f"'{';'.join(compilation['architectures'])}'",
        "MAX_JOBS": "$(nproc)",
        "PYTHONPATH": "/opt/ninja",
        "PATH": f"/opt/ninja/bin:{PATH}",
    }
    settings = " ".join(f"{name}={value}" for name, value in variables.items())
    options = "--no-cache-dir --no-deps --no-build-isolation --no-binary :all:"
    return (
        f"{FILES}/uv pip install --no-cache --python /opt/venv/bin/python --target /opt/ninja ninja\n"
        f"{settings} /opt/venv/bin/python -m pip install {options} {' '.join(sdists(lock))}\n"
    )


def dockerfile(*, compiling: bool) -> str:
    """For docker and buildah, which know a base as `localhost/NAME`."""
    mounts = f"--mount=type=bind,target={FILES}"
    mounts += "".join(f" --mount=type=secret,id={name},target={SECRETS}/{name}" for name in ("machine", "authorities"))
    run = f"RUN {mounts} sh {FILES}/install.sh\n"
    environment = f"ENV PATH={PATH}\n"
    if not compiling:
        return f"FROM localhost/base\n{run}{environment}"
    copied = "FROM localhost/base\nCOPY --from=compile /opt/venv /opt/venv\n"
    return f"FROM localhost/compiler AS compile\n{run}{copied}{environment}"


def definition(made: BuildContext, *, compiling: bool) -> str:
    """For Apptainer."""
    post = f"%post\n    sh {FILES}/install.sh\n\n"
    environment = f"%environment\n    export PATH={PATH}\n"
    stages = {name: f"Bootstrap: oci\nFrom: {made.base(name)}\nStage: {name}\n\n" for name in ("base", "compiler")}
    if not compiling:
        return f"{stages['base']}{post}{environment}"
    copied = "%files from compiler\n    /opt/venv /opt/venv\n\n"
    return f"{stages['compiler']}{post}{stages['base']}{copied}{environment}"
