"""What enroot makes of an image: the same files, all of them the user's, and those that its container starts by. Pure.

After `docker::configure` and `docker::_prepare_layers` in src/docker.sh of enroot 4.1.2 (see also its
doc/image-format.md); the words of the files are an interface, so they are the same.
"""

from collections.abc import Iterator, Mapping

import msgspec

from graphcrate.artifacts.formats.merged import Addition, Inode
from graphcrate.artifacts.formats.singularity import words
from graphcrate.oci.spec import ImageConfig

_RC_LOCAL = """# This file is sourced by /etc/rc when the container starts.
# It can be used to manipulate the entrypoint or the command of the container.
"""


def additions(config: ImageConfig, reference: str) -> Iterator[Addition]:
    """The entries that its import adds."""
    run = config.run
    environment = "".join(f"{entry}\n" for entry in run.env or ())
    mounts = "".join(
        f"${{ENROOT_ROOTFS}}{volume} {volume} none x-create=dir,bind,rw,nosuid,nodev\n"
        for volume in sorted(run.volumes or ())
    )
    if folder := (run.working_dir or "").strip("/"):
        yield Addition(folder)
    files = {"rc": rc(config, reference), "rc.local": _RC_LOCAL, "fstab": mounts, "environment": environment}
    for name, text in files.items():
        yield Addition(f"etc/{name}", 0o644, text.encode("utf-8", "surrogateescape"))


def rc(config: ImageConfig, reference: str) -> str:
    """The script that a container starts by: working folder, entry point, and arguments or else the command."""
    run = config.run
    entry = [*(run.entrypoint or ())]
    command = [*(run.cmd or ())] or ([] if entry else ["/bin/sh"])
    told = "".join(f"# {name} {' '.join(text.split(chr(10)))}\n" for name, text in (run.labels or {}).items())
    folder = run.working_dir or "/"
    start = f"exec {words(entry)}".rstrip()
    return f"""# enroot-provenance: {reference}
{told}
mkdir -p "{folder}" 2> /dev/null
cd "{folder}" && unset OLDPWD || exit 1

if [ -s /etc/rc.local ]; then
    . /etc/rc.local
fi

if [ $# -gt 0 ]; then
    {start} "$@"
else
    {f"{start} {words(command)}".rstrip()}
fi
"""


def imported(image: Mapping[str, Inode]) -> dict[str, Inode]:
    """The files as the import unpacks and packs them: root's, without devices, readable and folders writable to it."""
    changed: dict[int, Inode] = {}
    return {
        path: changed.setdefault(id(inode), _imported(inode))
        for path, inode in image.items()
        if not path.startswith("dev/")
    }


def _imported(inode: Inode) -> Inode:
    mode = inode.mode
    if inode.is_folder:
        mode |= 0o700
    elif inode.is_file:
        mode |= 0o400 | (0o100 if mode & 0o111 else 0)
    return msgspec.structs.replace(inode, mode=mode, uid=0, gid=0, xattrs=())
