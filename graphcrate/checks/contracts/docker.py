"""Requirements of Docker, of those who run Docker or containerd below (PAI's nodes), and of PAI itself."""

from graphcrate.checks.contracts.check import absent, check, failed, passed, since, unknown, warned
from graphcrate.compat.facts.facts import is_older
from graphcrate.model.command import setting
from graphcrate.model.contract import CheckVerdict, Host, ImageView
from graphcrate.model.words import number_of
from ocilayout import spec

_MOST_LAYERS = 125  #: of the engine's own making: 127 would be overlay2's end, and two go to the container
_CLONE3_GLIBC, _CLONE3_DOCKER = "2.34", "20.10.10"
_ZSTD_DOCKER = "23.0"
_SERVERS = ("jupyterlab", "notebook", "jupyter-server")
_NOTEBOOKS = ("jupyter", "jupyter-lab", "jupyter-notebook")
#: what `docker run` gives by default, and what loaders of samples fill soon
_DEFAULT_SHM, _ENOUGH_SHM = 64 << 20, 1 << 30


@check("an image of layers", "docker", "pai")
def layered(view: ImageView, host: Host) -> CheckVerdict:
    """Docker and registries take images of layers; a SIF, a squashfs or a folder has no layers.
    Source: OCI image specification 1.1
    """
    if view.form in ("sif", "squashfs", "folder"):
        return failed(f"a {view.form}", "give the image that it was made of, or `docker import` its files")
    return passed(number_of(len(view.layers), "layer") if view.layers else "layers")


@check("not too many layers", "docker", "pai")
def layer_count(view: ImageView, host: Host) -> CheckVerdict:
    """Docker takes an image of 125 layers at most: `max depth exceeded` when the image is pulled or started.
    Source: moby (layer/layer_store.go, maxLayerDepth); docker/for-linux #414; moby/buildkit #3067
    """
    seen = f"{len(view.layers) or 'no'} layers"
    return failed(seen, "join RUN lines, or squash the image") if len(view.layers) > _MOST_LAYERS else passed(seen)


@check("layers that Docker reads", "docker", "pai")
def docker_layer_types(view: ImageView, host: Host) -> CheckVerdict:
    """zstd layers can be pulled from Docker 23.0 on, foreign layers from nowhere but their maker.
    Source: Docker Engine 23.0 release notes (moby #41759)
    """
    kinds = {layer.media_type for layer in view.layers if layer.media_type}
    if not kinds:
        return passed("no layers" if not view.layers else "as Docker saved them")
    if strange := sorted(kinds - set(spec.LAYER_TYPES)):
        return failed(strange[0], "build it again with layers of type tar+gzip")
    if not any(spec.LAYER_TYPES[kind] == spec.LAYER_ZSTD for kind in kinds):
        return passed(", ".join(sorted(kind.rpartition(".")[2] for kind in kinds)))
    unsure = warned(f"zstd layers, which Docker before {_ZSTD_DOCKER} refuses", "layers of type tar+gzip")
    fix = f"layers of type tar+gzip, or Docker {_ZSTD_DOCKER}"
    return since("zstd layers", "Docker", host.versions.get("docker", ""), _ZSTD_DOCKER, fix, unsure)


@check("Docker's seccomp filter knows clone3", "docker")
def clone3(view: ImageView, host: Host) -> CheckVerdict:
    """glibc from 2.34 on starts threads by clone3, which the filter of Docker before 20.10.10 answers with EPERM:
    `can't start new thread`, `pthread_create failed`.
    Source: moby #42680, #42681
    """
    library = view.c_library
    if library is None or library.name != "glibc":
        return absent(view, passed("no glibc"))
    if not library.version:
        return unknown("glibc of an unknown version")
    if is_older(library.version, _CLONE3_GLIBC):
        return passed(f"glibc {library.version} does without clone3")
    unsure = unknown(f"glibc {library.version} needs Docker {_CLONE3_DOCKER}", "--runtime docker --runtime-version …")
    fix = "update Docker, or --security-opt seccomp=unconfined"
    return since(f"glibc {library.version}", "Docker", host.versions.get("docker", ""), _CLONE3_DOCKER, fix, unsure)


@check("shared memory for loaders", "docker", "pai")
def shm(view: ImageView, host: Host) -> CheckVerdict:
    """Workers of a DataLoader and GraphLearn hand samples over in /dev/shm, which has 64 MB under Docker: `bus error`
    as soon as it is full.
    Source: graphlearn-torch's FAQ; Docker's reference on --shm-size
    """
    if not view.torch and view.cuda in ("", "cpu"):
        return absent(view, passed("no torch in the image"))
    if host.shm is None:
        return unknown("the host decides", "docker run --shm-size=8g    (--ipc=host for several processes)")
    seen = f"{host.shm / (1 << 20):.0f} MB of /dev/shm"
    if host.shm <= _DEFAULT_SHM:
        return failed(seen, "docker run --shm-size=8g")
    return passed(seen) if host.shm >= _ENOUGH_SHM else warned(seen, "docker run --shm-size=8g")


@check("a notebook server", "pai", programs=_NOTEBOOKS)
def notebook(view: ImageView, host: Host) -> CheckVerdict:
    """Users of PAI DSW open the image as a notebook; DLC jobs do without.
    Source: PAI DSW on custom images; what it requires is nowhere written down
    """
    servers = [f"{name} {view.distributions[name]}" for name in _SERVERS if name in view.distributions]
    servers += [view.programs[name] for name in _NOTEBOOKS if name in view.programs]
    if servers:
        return passed(servers[0])
    return absent(view, warned("none in the image", f"{setting(flavour='jupyter')}, where it shall open in DSW"))
