"""Types of what is read from elsewhere: hashes, names that become paths, sizes, versions that become commands.

msgspec holds every document to them when it is decoded; `expected` says in words what a text of such a field is.
`\\Z`, since `$` also fits before a final newline.
"""

import re
from typing import Annotated

import msgspec

from graphcrate.model.platform import SUPPORTED
from ocilayout.spec import ForeignDigest

#: beginning of the project's own type names. It has no address on the web that it could promise to keep.
OURS = "urn:graphcrate:"
_HEX = "[0-9a-f]{64}"
_CONTROL = "\\x00-\\x1f\\x7f-\\x9f"
_PART = rf"[^/{_CONTROL}]{{1,255}}"  #: between slashes
_VERSION = "[0-9A-Za-z][0-9A-Za-z.+!~:_-]*"
_PACKAGE = "[a-z0-9]+(-[a-z0-9]+)*"
_PLATFORM = f"({'|'.join(re.escape(platform.name) for platform in SUPPORTED)})"
_DEBIAN = "[a-z0-9][a-z0-9+.-]*"
_SEMVER = r"[0-9]{1,9}(\.[0-9]{1,9}){2}(-[0-9A-Za-z.-]{1,64})?(\+[0-9A-Za-z.-]{1,64})?"


def _form(pattern: str) -> msgspec.Meta:
    return msgspec.Meta(pattern=rf"^{pattern}\Z")


Sha256 = Annotated[str, _form(_HEX)]
AnySha256 = Annotated[str, _form(f"({_HEX})?")]  #: or empty
#: a name of `sha256:` and hex, of a manifest, image, layer or file
Digest = Annotated[str, _form(f"sha256:{_HEX}")]
AnyDigest = Annotated[str, _form(f"(sha256:{_HEX})?")]  #: or empty

#: one part of a path, which stays in its folder
FileName = Annotated[str, _form(rf"(?!\.{{1,2}}\Z){_PART}")]
ImageName = Annotated[str, _form(rf"[^ {_CONTROL}]*")]  #: a digest, or where a registry has an image
AnyFileName = Annotated[str, _form(rf"((?!\.{{1,2}}\Z){_PART})?")]  #: or empty
#: below a folder or an address, which it does not leave
BelowPath = Annotated[str, _form(rf"((?!\.{{1,2}}(/|\Z)){_PART}(/(?!\.{{1,2}}(/|\Z)){_PART})*)?")]
ImagePath = Annotated[str, _form(rf"/[^{_CONTROL}]*")]  #: absolute, in an image
#: Bytes, or a count. Larger numbers are not the same to all readers of JSON (RFC 7493), and no disk has as many bytes.
Size = Annotated[int, msgspec.Meta(ge=0, le=(1 << 53) - 1)]
Time = Annotated[int, msgspec.Meta(ge=0, le=253_402_300_799)]  #: Unix seconds, to the year 9999

#: normalised (PEP 503)
PackageName = Annotated[str, _form(_PACKAGE)]
DebianName = Annotated[str, _form(_DEBIAN)]  #: of a package, a suite or an architecture
Version = Annotated[str, _form(_VERSION)]  #: of Python's or Debian's packages
AnyVersion = Annotated[str, _form(f"({_VERSION})?")]  #: or empty
CudaVersion = Annotated[str, _form(r"(cpu|[0-9]+\.[0-9]+)")]
PythonVersion = Annotated[str, _form(r"3\.[0-9]+")]
Capability = Annotated[str, _form(r"[1-9][0-9]?\.[0-9](\+PTX)?")]  #: as in TORCH_CUDA_ARCH_LIST
Listed = Annotated[str, _form("([0-9]{8}T[0-9]{6}Z)?")]  #: a time as Debian's snapshot service writes it, or empty
CrateName = Annotated[str, _form("[A-Za-z0-9][A-Za-z0-9_-]{0,63}")]
CrateVersion = Annotated[str, _form(_SEMVER)]
Commit = Annotated[str, _form("([0-9a-f]{40})?")]  #: of git, or empty
Day = Annotated[str, _form("[0-9]{4}-[0-9]{2}-[0-9]{2}")]
PlatformName = Annotated[str, _form(_PLATFORM)]  #: that images are made for, as OCI has it
#: a variable with its value, as env(1) has it: one line of text
Assignment = Annotated[str, _form(rf"[A-Za-z_][A-Za-z0-9_]*=[^{_CONTROL}]*")]
#: of a registry and a repository there
Repository = Annotated[str, _form(r"[A-Za-z0-9\[][A-Za-z0-9._:/\[\]-]*")]

_MEANINGS = {
    Sha256: "a sha256 in 64 digits of lower-case hex",
    AnySha256: "a sha256 in 64 digits of lower-case hex, or nothing",
    Digest: "a digest: sha256: and 64 digits of lower-case hex",
    AnyDigest: "a digest (sha256: and 64 digits of lower-case hex), or nothing",
    ForeignDigest: "a digest such as sha256: and 64 digits of lower-case hex",
    FileName: "the name of a file, without / and control characters",
    ImageName: "a digest or a reference, without spaces and control characters",
    AnyFileName: "a name without / and control characters, or nothing",
    BelowPath: "a path below a folder, without .. and control characters",
    ImagePath: "an absolute path without control characters",
    PackageName: "a normalised package name, such as torch-geometric",
    DebianName: "a name in Debian, such as libc6",
    Version: "a version, such as 2.0.1+cu118",
    AnyVersion: "a version, such as 2.0.1+cu118, or nothing",
    CudaVersion: "a CUDA version such as 11.8, or cpu",
    PythonVersion: "a Python version such as 3.11",
    Capability: "a compute capability such as 8.0 or 9.0+PTX",
    Listed: "a time such as 20261125T021215Z, or nothing",
    Day: "a day such as 2023-08-31",
    CrateName: "the name of a crate of Rust, such as pyo3-ffi",
    CrateVersion: "a version of a crate, such as 0.29.0 or 1.0.0-rc.1+abi",
    Commit: "a commit of git in 40 digits of lower-case hex, or nothing",
    PlatformName: f"a platform that images are made for: {' or '.join(platform.name for platform in SUPPORTED)}",
    Assignment: "NAME=VALUE without control characters",
    Repository: "a registry and a repository, such as docker.io/library/python",
}
_BY_PATTERN = {form.__metadata__[0].pattern: words for form, words in _MEANINGS.items()}  # type: ignore[attr-defined]


def expected(pattern: str) -> str:
    """Describe a text of this pattern, in words; the pattern itself where it is not one of these."""
    return _BY_PATTERN.get(pattern, f"a text like {pattern}")


def is_sha256(text: str) -> bool:
    """Return whether it is a sha256 in lower-case hex."""
    return re.fullmatch(_HEX, text) is not None


def is_file_name(text: str) -> bool:
    """Return whether it is one part of a path, which stays in its folder."""
    return text not in (".", "..") and re.fullmatch(_PART, text) is not None
