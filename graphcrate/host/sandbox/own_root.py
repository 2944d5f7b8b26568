"""A root file system out of this machine's own system folders and its Python: for what is built by that Python.

Nothing else of the machine is in it: no home, no cache, no keys, none of /etc but what programs need to start.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from nsbox.box import Bind

#: of a Linux by FHS, by merged /usr, NixOS and Guix
SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "nix/store", "gnu/store")
ETC = (
    *("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "nsswitch.conf", "passwd", "group"),
    *("ssl/openssl.cnf", "mime.types", "protocols", "services", "debian_version", "os-release", "redhat-release"),
)
#: of a Python's folder: where that is a user's home, nothing else of it
OF_PYTHON = ("bin", "lib", "lib64", "include", "pyvenv.cfg")


def make(folder: Path, environment: Mapping[str, str]) -> list[Bind]:
    """Make the empty `folder` such a root, and say what has to be bound into it; `environment` names libraries.

    System folders that are links, as /bin is, stay links.
    """
    (folder / "tmp").mkdir()
    binds = []
    for name in SYSTEM:
        path = Path("/", name)
        if path.is_symlink():
            (folder / name).symlink_to(path.readlink())
        elif path.is_dir():
            binds.append(Bind(path, f"/{name}"))
    binds += [Bind(Path("/etc", name), f"/etc/{name}") for name in ETC if Path("/etc", name).exists()]
    return [*binds, *_outside_of_usr(environment)]


def _outside_of_usr(environment: Mapping[str, str]) -> Iterator[Bind]:
    """The Python's own folders, and the libraries that a module of a cluster brings, where they are elsewhere."""
    own = Path(os.path.realpath(sys.executable)).parent.parent
    folders = [Path(home, name) for home in (own, sys.base_prefix, sys.prefix) for name in OF_PYTHON]
    folders += [Path(folder) for folder in environment.get("LD_LIBRARY_PATH", "").split(":") if folder.startswith("/")]
    for folder in dict.fromkeys(folders):
        if folder.exists() and not any(folder.is_relative_to(Path("/", name)) for name in SYSTEM):
            yield Bind(folder, str(folder))
