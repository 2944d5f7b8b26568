"""Platforms of images: one row each, with what OCI, Debian, wheels, ELF, the kernel and the engines call it. Pure.

A new platform is a row here and one of `SUPPORTED`, uv's wheel in `render/uv.toml`, and what `compat/data`
knows of torch's wheels for it. A test keeps these names out of every other module.
"""

import posixpath
from collections.abc import Mapping

import msgspec


class Platform(msgspec.Struct, frozen=True, kw_only=True):
    """A Linux on one kind of processor."""

    architecture: str  #: as OCI and Go have it: "amd64"
    variants: tuple[str, ...]  #: of the architecture in an index of images, all of which mean it: "", "v8"
    debian: str  #: dpkg's name, in names of packages and of lists: "amd64"
    machine: str  #: uname(1)'s, in the tags of wheels and in uv's names: "x86_64"
    title: str  #: in texts: "x86-64"
    elf: str  #: e_machine, as in elf.h: "EM_X86_64"
    elf_number: int  #: the same in the header of a file
    triplet: str  #: Debian's folder of libraries below /usr/lib (multiarch): "x86_64-linux-gnu"
    loader: str  #: glibc's: "/lib64/ld-linux-x86-64.so.2"
    musl: str  #: musl's: "/lib/ld-musl-x86_64.so.1"
    ldconfig: str  #: in the output of `ldconfig -p`: "x86-64"
    oldest_glibc: int  #: minor version of the first glibc 2 that manylinux has for it (PEP 513, PEP 599)
    qemu: str  #: QEMU's program that runs its programs elsewhere: "qemu-x86_64"

    @property
    def name(self) -> str:
        """Operating system and processor as OCI has them: "linux/amd64"."""
        return f"{OS}/{self.architecture}"

    @property
    def suffix(self) -> str:
        """End of tags of its images, so that those of several platforms are side by side: "-arm64"."""
        return "" if self == DEFAULT else f"-{self.architecture}"

    @property
    def loader_name(self) -> str:
        """File name of glibc's loader, which programs and libraries ask for."""
        return posixpath.basename(self.loader)

    @property
    def loader_folder(self) -> str:
        """Folder in / of glibc's loader: "lib64"."""
        return self.loader.split("/")[1]

    @property
    def cross(self) -> str:
        """Return the end of the names of Debian's packages with cross-compilers for it: "aarch64-linux-gnu"."""
        return self.triplet.replace("_", "-")

    @property
    def wheel_tag(self) -> str:
        """Of wheels that were built on some Linux and are for no other (PEP 425): "linux_x86_64"."""
        return f"{OS}_{self.machine}"

    def manylinux(self, minor: int) -> tuple[str, ...]:
        """The tags of wheels for glibc 2.`minor`, the best first: by PEP 600, then by the older name, if any."""
        old = _OLD_MANYLINUX.get(minor)
        return (f"manylinux_2_{minor}_{self.machine}", *([f"{old}_{self.machine}"] if old else []))

    def uv_name(self, minor: int) -> str:
        """Return uv's name for it with glibc 2.`minor` (--python-platform)."""
        return f"{self.machine}-manylinux_2_{minor}"

    def fits(self, os: str, architecture: str, variant: str = "") -> bool:
        """Return whether an entry of an index, or an image's configuration, is for this platform."""
        return (os, architecture) == (OS, self.architecture) and variant in self.variants


OS = "linux"
_OLD_MANYLINUX: Mapping[int, str] = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}

AMD64 = Platform(
    architecture="amd64",
    variants=("", "v1"),
    debian="amd64",
    machine="x86_64",
    title="x86-64",
    elf="EM_X86_64",
    elf_number=62,
    triplet="x86_64-linux-gnu",
    loader="/lib64/ld-linux-x86-64.so.2",
    musl="/lib/ld-musl-x86_64.so.1",
    ldconfig="x86-64",
    oldest_glibc=5,
    qemu="qemu-x86_64",
)
#: what Grace machines have (GH200, GB200); elsewhere its images are made by an emulator
ARM64 = Platform(
    architecture="arm64",
    variants=("", "v8"),
    debian="arm64",
    machine="aarch64",
    title="arm64",
    elf="EM_AARCH64",
    elf_number=183,
    triplet="aarch64-linux-gnu",
    loader="/lib/ld-linux-aarch64.so.1",
    musl="/lib/ld-musl-aarch64.so.1",
    ldconfig="AArch64",
    oldest_glibc=17,
    qemu="qemu-aarch64",
)
PLATFORMS = (AMD64, ARM64)
SUPPORTED = (AMD64, ARM64)  #: those that images are made for
DEFAULT = AMD64  #: of an image where nothing else is asked for


def platform_named(name: str) -> Platform:
    """The platform of this OCI name ("linux/amd64"), which has a row."""
    return next(row for row in PLATFORMS if row.name == name)


def supported(name: str) -> Platform:
    """The platform of this OCI name where images are made for it; else the default one, which it is judged by."""
    return next((row for row in SUPPORTED if row.name == name), DEFAULT)


def asked_for(text: str) -> Platform | None:
    """Find the platform of images that the user means: "arm64", "linux/arm64", "aarch64"; None for no such one."""
    word = text.strip().lower().removeprefix(f"{OS}/").replace("-", "_")
    return next((row for row in SUPPORTED if word in (row.architecture, row.machine)), None)


def of_machine(machine: str) -> Platform | None:
    """The platform of a machine as uname(1) names it ("x86_64"); None where there is no row for it."""
    return next((row for row in PLATFORMS if row.machine == machine), None)
