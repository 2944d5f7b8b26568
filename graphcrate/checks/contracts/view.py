"""Make the view that contracts ask from an image's tree. Pure: the caller reads the tree and its contents."""

import hashlib
import re
import struct
from collections.abc import Callable, Iterable, Mapping

import msgspec
from packaging.utils import canonicalize_name

from graphcrate.artifacts.formats.runtime_files import SIF_SCRIPT, read_settings
from graphcrate.artifacts.tree.binaries import RELEASES
from graphcrate.artifacts.tree.reader import OpenedTree
from graphcrate.checks.contracts.paths import find_program, named_paths, resolve_path
from graphcrate.compat.plan.image_config import SYSTEM_PATH
from graphcrate.model.contract import Below, CLibrary, FileFact, ImageView, LayerFact, Settings
from graphcrate.model.platform import PLATFORMS
from graphcrate.model.tree import Entry, Form
from layertar.entries import HARMLESS_DEVICES
from ocilayout import spec

#: The content of a path, or None where it was not kept.
Read = Callable[[str], bytes | None]

#: folders that Apptainer binds from the host, or that enroot covers with an empty file system
_HIDDEN = ("/root", "/home", "/tmp", "/run", "/var/lock")
_TRIPLETS = [platform.triplet for platform in PLATFORMS]
_C_LIBRARIES = (
    *(f"{folder}/{triplet}/libc.so.6" for triplet in _TRIPLETS for folder in ("/lib", "/usr/lib")),
    *("/lib64/libc.so.6", "/usr/lib64/libc.so.6", "/usr/lib/libc.so.6", "/lib/libc.so.6"),
)
_LIBRARY = re.compile(rf"(?:/usr)?/lib(?:32|64)?/(?:(?:{'|'.join(_TRIPLETS)})/)?libc(?:-2\.\d+)?\.so(?:\.6)?")
_LARGEST_LIBRARY = 8 << 20
LARGEST_TEXT = 1 << 16  #: a larger file is not taken for a script
_SCRIPT_FOLDERS = ("/bin/", "/sbin/", "/etc/profile.d/", "/.singularity.d/")
_TORCH_VERSION = re.compile(r".*/(?:site|dist)-packages/torch/version\.py")
_VERSION_LINE = re.compile(r"^(__version__|cuda)\s*(?::[^=]*)?=\s*'([^']*)'", re.MULTILINE)
_TORCH_WITHOUT_CUDA = re.compile(r"^cuda\s*(?::[^=]*)?=\s*None", re.MULTILINE)
_RELEASE = re.compile(rb"GNU C Library [^\n]{0,80}?release version (\d+\.\d+)")
#: ELF note NT_GNU_ABI_TAG: sizes, type, owner, "Linux", then the oldest kernel (elf.h; System V gABI)
_ABI_NOTE = re.compile(re.escape(struct.pack("<III4sI", 4, 16, 1, b"GNU\0", 0)) + rb"(.{12})", re.DOTALL)
_DIST_INFO = re.compile(r"(.*/(?:site|dist)-packages)/([^/]+)-([^-/]+)\.(?:dist-info|egg-info)")
_CONDA = re.compile(r"(.*/conda-meta)/([^/]+)-([^-/]+)-[^-/]+\.json")
#: what useradd copies into a new home, and package managers leave there; what engines put into /run
_SKELETON = re.compile(r"/(?:root|home/[^/]+)/\.[^/]+(?:/.*)?|/run/(?:systemd/container|\.containerenv)")
_BOOTSTRAPPED = HARMLESS_DEVICES | {"c 5:1", "c 5:2"}  #: console and ptmx too: bootstrap programs leave them in /dev


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The checks' questions to an image, all together: a reader keeps small files of it with their text."""

    files: frozenset[str]
    matching: str
    programs: tuple[str, ...]

    def has(self, path: str) -> bool:
        """Return whether a check looks at this path."""
        return path in self.files or re.fullmatch(self.matching, path) is not None

    def keeps(self, path: str, size: int) -> bool:
        """Return whether a reader keeps this file's content: a check reads it, or the view is made of it."""
        if _LIBRARY.fullmatch(path):
            return size <= _LARGEST_LIBRARY
        if size > LARGEST_TEXT:
            return False
        if path in self.files or path.endswith(".sh") or path.count("/") <= 2 or "entrypoint" in path:
            return True
        return any(folder in path for folder in _SCRIPT_FOLDERS) or _TORCH_VERSION.fullmatch(path) is not None

    @property
    def name(self) -> str:
        """Another one for other paths: what a reader remembers of a layer has the content of these alone."""
        return hashlib.sha256("\0".join((*sorted(self.files), self.matching)).encode()).hexdigest()[:12]


def view_of(name: str, opened: OpenedTree, asked: Asked) -> ImageView:
    """The view of an artifact, from its tree and its documents; of its files what checks declare (`asked`)."""
    entries = opened.entries

    def read(path: str) -> bytes | None:
        if path not in entries or not asked.keeps(path, entries[path].size):
            return None
        try:
            return opened.read(path)
        except (KeyError, OSError):  # not kept; or in a folder of another user
            return None

    stated = _settings(opened, read)
    settings = stated or Settings()
    packages = _distributions(entries)
    named = {package: version for versions in packages.values() for package, version in versions.items()}
    path = (settings.variables.get("PATH") or SYSTEM_PATH).split(":")
    torch, cuda = _torch(entries, read, named, settings)
    paths = {"/", *asked.files, *(path for path in entries if asked.has(path))}
    paths |= named_paths(settings, _script(opened.form, _fact(entries, SIF_SCRIPT, read)))
    return ImageView(
        name=name,
        form=opened.form,
        settings=stated,
        # of a manifest without a type: what the user may have to name
        manifest_type=(opened.manifest.media_type or spec.MANIFEST) if opened.manifest else "",
        layers=_layers(opened),
        without_platform=sum(entry.platform is None for entry in opened.index),
        unread=(*opened.unread, *opened.left),
        broken=opened.broken.what if opened.broken else "",
        compression=opened.compression,
        files={_readable(file_path): fact for file_path in paths if (fact := _fact(entries, file_path, read))},
        programs={
            program: file_path for program in asked.programs if (file_path := find_program(entries, program, path))
        },
        hidden=_hidden(entries),
        packages=tuple(sorted(packages)),
        distributions=named,
        torch=torch,
        cuda=cuda,
        c_library=_c_library(entries, read),
        unpacked=sum(entry.size for entry in entries.values()),
        devices=_devices(entries),
    )


def _layers(opened: OpenedTree) -> tuple[LayerFact, ...]:
    """Return the facts on layers of a manifest, or of a config without one, which has their number alone."""
    if opened.manifest is not None:
        return tuple(LayerFact(media_type=layer.media_type, size=layer.size) for layer in opened.manifest.layers)
    count = len(opened.config.rootfs.diff_ids) if opened.config else 0
    return (LayerFact(media_type="", size=0),) * count


def _settings(opened: OpenedTree, read: Read) -> Settings | None:
    """Return what the image states, or what its files do; its platform by its C library where neither says."""
    settings = opened.settings
    if not settings:
        settings = read_settings(opened.entries, lambda path: (read(path) or b"").decode("utf-8", "replace"))
    if settings and not settings.platform:
        return msgspec.structs.replace(settings, platform=_platform_of(opened.entries))
    return settings


def _devices(entries: Mapping[str, Entry]) -> tuple[str, ...]:
    """List devices but those that bootstrap programs leave, each with its numbers."""
    return tuple(
        f"{_readable(path)} ({entry.link})"
        for path, entry in entries.items()
        if entry.kind == "device" and entry.link not in _BOOTSTRAPPED
    )


def _fact(entries: Mapping[str, Entry], path: str, read: Read) -> FileFact | None:
    """Return the fact about a path; None for nothing."""
    folder, _, name = path.rpartition("/")
    own = entries.get(f"{resolve_path(entries, folder).rstrip('/')}/{name}") if name else entries.get("/")
    if own is None:
        return None
    target, link, text = resolve_path(entries, path), _readable(own.link), None
    real = entries.get(target)
    if real is None:
        return FileFact(kind=own.kind, link=link, real=None, mode=own.mode)
    if real.kind == "file" and real.size <= LARGEST_TEXT and (data := read(target)) is not None:
        text = data.decode("utf-8", "replace") if b"\0" not in data else ""
    return FileFact(kind=own.kind, link=link, real=real.kind, mode=real.mode, size=real.size, text=text)


def _readable(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _distributions(entries: Iterable[str]) -> dict[str, dict[str, str]]:
    """Folder → name → version, of Python's and conda's installed packages."""
    folders: dict[str, dict[str, str]] = {}
    for path in entries:
        if not path.endswith((".dist-info", ".egg-info", ".json")):  # most of an image's paths
            continue
        if match := _DIST_INFO.fullmatch(path) or _CONDA.fullmatch(path):
            name = _readable(canonicalize_name(match[2]))
            folders.setdefault(_readable(match[1]), {})[name] = _readable(match[3])
    return folders


def _hidden(entries: Mapping[str, Entry]) -> dict[str, Below]:
    """List what is in folders that runtimes hide."""
    hidden: dict[str, list[str]] = {}
    for path, entry in entries.items():
        folder = next((folder for folder in _HIDDEN if path.startswith(f"{folder}/")), "")
        if folder and entry.kind in ("file", "symlink") and not _SKELETON.fullmatch(path):
            hidden.setdefault(folder, []).append(path)
    examples = {folder: _readable(min(paths, key=len)) for folder, paths in sorted(hidden.items())}
    return {folder: Below(files=len(hidden[folder]), example=example) for folder, example in examples.items()}


def _torch(entries: Mapping[str, Entry], read: Read, named: Mapping[str, str], settings: Settings) -> tuple[str, str]:
    """(version, CUDA) of the image's torch; of an image without one, the CUDA toolkit that it says it has."""
    for path in sorted(path for path in entries if path.endswith("/torch/version.py")):
        text = (read(path) or b"").decode("utf-8", "replace")
        lines = dict(_VERSION_LINE.findall(text))
        if "__version__" in lines and _TORCH_VERSION.fullmatch(path):
            return lines["__version__"], lines.get("cuda") or ("cpu" if _TORCH_WITHOUT_CUDA.search(text) else "")
    torch = settings.labels.get("graphcrate.torch") or named.get("torch", "")
    cuda = settings.labels.get("graphcrate.torch.cuda", "")
    if not cuda and (local := re.fullmatch(r"[^+]*\+(?:cu(\d+)(\d)|(cpu))", torch)):
        cuda = local[3] or f"{local[1]}.{local[2]}"
    runtimes = (version for name, version in named.items() if name.startswith("nvidia-cuda-runtime"))
    toolkit = settings.variables.get("CUDA_VERSION") or next(runtimes, "")
    return torch, cuda or ".".join(toolkit.split(".")[:2])


def _platform_of(entries: Mapping[str, Entry]) -> str:
    """The platform of a tree that does not say: that of its C library's loader; empty where it has none, or several."""
    there = [
        platform.name
        for platform in PLATFORMS
        if any(resolve_path(entries, loader) in entries for loader in (platform.loader, platform.musl))
    ]
    return there[0] if len(there) == 1 else ""


def _c_library(entries: Mapping[str, Entry], read: Read) -> CLibrary | None:
    for path in (resolve_path(entries, library) for library in _C_LIBRARIES):
        if (entry := entries.get(path)) and entry.kind == "file":
            data = read(path) or b""
            release = _RELEASE.search(data) or re.search(rb"libc-(2\.\d+)\.so$", path.encode(errors="replace"))
            needs = _ABI_NOTE.search(data)
            kernel = ".".join(map(str, struct.unpack("<III", needs[1]))) if needs else ""
            return CLibrary(name="glibc", version=release[1].decode() if release else "", kernel=kernel)
    is_musl = any(resolve_path(entries, platform.musl) in entries for platform in PLATFORMS)
    return CLibrary(name="musl") if is_musl else None


def start_script(view: ImageView) -> str:
    """The script by which Apptainer starts a SIF; empty for an image without one."""
    return _script(view.form, view.files.get(SIF_SCRIPT))


def _script(form: Form, fact: FileFact | None) -> str:
    return (fact.text or "") if fact and form in ("sif", "squashfs", "folder") else ""


def text_of(view: ImageView, path: str) -> str:
    """A small file's content; empty where it is not there or was not read."""
    file = view.files.get(path)
    return (file.text or "") if file else ""


def distribution(view: ImageView) -> dict[str, str]:
    """Return the image's own name of its distribution, as in os-release(5): ID, VERSION_CODENAME and the rest."""
    text = next(filter(None, (text_of(view, path) for path in RELEASES)), "")
    return {name: value.strip("\"'") for name, value in re.findall(r"^(\w+)=(.*?)\s*$", text, re.MULTILINE)}


def is_file(view: ImageView, path: str) -> bool:
    """Return whether something is there and, links followed, a file."""
    file = view.files.get(path)
    return file is not None and file.real == "file"
