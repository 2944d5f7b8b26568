"""Lines of requirements files: builds that versions name, wheels and pages by address, pins of the stack's own."""

import re
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion

from graphcrate.compat.facts.addresses import STACK_HOSTS, labelled_cuda
from graphcrate.compat.requirements.translated import is_stacks, is_torchs
from graphcrate.compat.requirements.within import Within, not_a_name
from graphcrate.model.command import AGAIN
from graphcrate.model.errors import UsageError
from graphcrate.model.recipe import Expected, FurtherChannel
from graphcrate.model.words import printable
from patienthttp.errors import host_of, redacted
from projectfiles.requirements_txt import INDEXES

_ADDRESS = re.compile(r"https?://[^\s,\"'<>\\^`{|}\x00-\x1f\x7f]+", re.IGNORECASE)
_WHEEL = re.compile(r"(?:[A-Za-z0-9._-]+(?:\[[^]]*\])?\s*@\s*)?(https?://\S+\.whl)(?:#\S*)?(?:\s*;.*)?", re.DOTALL)
#: the local part of a version that names with what it is built: cu118, pt20cu118, cpu
_BUILD = re.compile(r"(?:pt\d+)?(?:cu\d+|cpu|rocm[\d.]+|xpu)")
#: as PyG's own guide had it until 2021, where a package index was not asked
_LATEST = re.compile(r"([A-Za-z0-9._-]+)==latest(?:\+(\w+))?")


def without_build(text: str, where: str) -> tuple[str, tuple[Expected, ...]]:
    """A requirement without the local part that names a CUDA (`torch==2.0.1+cu118`), and that part to be compared."""
    if (match := _LATEST.fullmatch(text)) and is_stacks(match[1]):
        name = str(canonicalize_name(match[1]))
        return match[1], (Expected(name=name, where=where, build=match[2]),) if match[2] else ()
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return text, ()
    for part in requirement.specifier:
        public, plus, local = part.version.partition("+")
        if plus and part.operator in ("==", "===") and _BUILD.fullmatch(local):
            name = str(canonicalize_name(requirement.name))
            expected = Expected(name=name, where=where, specifier=f"=={public}", build=local)
            # pt20cu118: what PyG's page had for a torch and a CUDA, as the stack's is what it has for these
            is_pages = local.startswith("pt") and is_stacks(name)
            return text.replace(str(part) if is_pages else f"+{local}", "", 1), (expected,)
    return text, ()


def binding(package: str, where: str) -> Iterator[Expected]:
    """Yield a requirement on a package that stacks have, with its line."""
    if not package.startswith(("/", "git+")):
        requirement = Requirement(package)
        if is_stacks(requirement.name):
            name = str(canonicalize_name(requirement.name))
            yield Expected(name=name, where=where, specifier=str(requirement.specifier), binding=True)


def cuda_of_page(channel: FurtherChannel) -> Iterator[Expected]:
    """Yield the CUDA that a page of PyTorch's or PyG's is for, with its line."""
    cuda = labelled_cuda(channel.location) if host_of(channel.location) in STACK_HOSTS else ""
    if cuda == "cpu":
        yield Expected(name="cuda", where=channel.where, build=cuda)
    elif cuda:
        yield Expected(name="cuda", where=channel.where, specifier=f"=={cuda}.*")


def torchs_pin(text: str, where: str) -> Expected | None:
    """A pin of one of torch's own libraries, as `pip freeze` writes it: the stack's is taken, and compared with it."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return None
    if not is_torchs(requirement.name) or not any(part.operator == "==" for part in requirement.specifier):
        return None
    return Expected(name=str(canonicalize_name(requirement.name)), where=where, specifier=str(requirement.specifier))


def by_address(text: str, where: str, within: Within | None) -> str:
    """A wheel of PyTorch's or PyG's own pages by name and version, which is how the stack has it; else as it is.

    Raises UsageError for a wheel of another address.
    """
    match = _WHEEL.fullmatch(text)
    if not match:
        return text
    parts = urllib.parse.urlsplit(match[1])
    try:
        name, version, _, _ = parse_wheel_filename(urllib.parse.unquote(parts.path.rpartition("/")[2]))
    except (InvalidWheelFilename, InvalidVersion):
        return text
    if host_of(match[1]) in STACK_HOSTS:
        _, marked, marker = text.partition(";")
        return f"{name}=={version}" + (f" ; {marker.strip()}" if marked else "")
    if within and within.names_alone:
        raise not_a_name(f"{where}: {redacted(match[1])} is not taken")
    raise UsageError(
        f"{where}: {name} is given by an address, which may have another file tomorrow",
        next_step="download it and give the wheel: ./file.whl",
    )


def channel_of(option: str, value: str, path: Path, where: str, within: Within | None) -> FurtherChannel:
    """The place that an option names. Raises UsageError; the message has no password."""
    is_index = option in INDEXES
    if within and within.names_alone:  # an address may have a password
        raise not_a_name(f"{where}: {option} is not taken", "take the line out")
    if "${" in value:
        raise UsageError(
            f"{where}: the address has a variable of your environment in it, which is not put there",
            cause="A file of somebody else would send your passwords to an address of its choice.",
            next_step="take the line out, and name the index yourself: "
            f"UV_INDEX=https://… {AGAIN}    (docs/customize.md)",
        )
    if _ADDRESS.fullmatch(value) and host_of(value):
        return FurtherChannel(kind="index" if is_index else "links", location=value, where=where)
    try:
        folder = (path.absolute().parent / Path(value.removeprefix("file://")).expanduser()).resolve()
        if within:
            within.check(folder, f"{where}: {value} is not")
        if value and not is_index and folder.is_dir():
            return FurtherChannel(kind="folder", location=str(folder), where=where)
    except (OSError, ValueError, RuntimeError):  # too long, a NUL in it, no such user or a circle of links
        pass
    shown = printable(redacted(value) if "//" in value else value)
    raise UsageError(
        f"{where}: {option} {shown} is {'not an address' if is_index else 'neither an address nor a folder'}",
        next_step="https://HOST/simple" if is_index else "https://HOST/page.html or ./folder",
    )
