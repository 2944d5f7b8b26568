"""Files that say what a project needs, as people have them: pip's format, conda's environments, projects and locks.

Each other format becomes lines of pip's, which one reader takes. Where packages come from is not this room's: what a
file says of it is kept as it is, with its line.
"""

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from graphcrate.compat.facts.packages import is_for_no_image
from graphcrate.compat.requirements import requirement_lines
from graphcrate.compat.requirements.refusals import refusing
from graphcrate.compat.requirements.within import IN_ITS_PLACE, Within
from graphcrate.model.errors import UsageError
from graphcrate.model.recipe import Additions, Expected, FurtherChannel
from graphcrate.model.words import listed, printable
from projectfiles import files, requirements_txt
from projectfiles.requirements_txt import CONSTRAINTS, INDEXES, LINKS, LISTS

#: a package as `Additions` has it, of a text, the folder that paths are relative to, where it is written, and `Within`
Package = Callable[[str, Path, str, "Within | None"], str]
#: options that say nothing about an image, with a value: wheels and hashes are what a lock is made of
_IDLE_WITH_VALUE = (
    *("--only-binary", "--no-binary", "--use-feature", "--trusted-host", "--progress-bar", "--timeout", "--retries"),
    "--root-user-action",
)
#: options that are passed over, and what an image does in their place
_INSTEAD = {
    "--pre": "final releases go before pre-releases, and package>=1.0rc1 asks for one",
    "--no-binary": "what has a wheel is not compiled; the folder of a source is, where it is given as a package",
}
#: a package as `pip freeze` writes it that conda built, in a folder of the machine that did (conda-build, conda-forge)
_OF_CONDA = re.compile(
    r"([A-Za-z0-9._-]+)\s*@\s*file://\S*(?:/croot/|/feedstock_root/|/conda-bld/|/b/abs_|/tmp/build/)\S*"
)
#: what Debian's own `pip freeze` lists, and no index has (Debian bug 871790)
_OF_DEBIAN = "pkg-resources==0.0.0"


def read(path: Path, package: Package, within: Within | None = None) -> Additions:
    """Read a file and those that it refers to. `pyproject.toml[train]` takes an extra with it.

    `within`: where all that they name has to be. Raises UsageError that names file and line.
    """
    reader = _Reader(package, within)
    reader.read(path)
    return Additions(
        packages=tuple(reader.packages),
        constraints=tuple(reader.constraints),
        channels=tuple(dict.fromkeys(reader.named_channels())),
        expected=tuple(reader.all_expected()),
        hashes={name: tuple(hashes) for name, hashes in reader.hashes.items()},
        notes=tuple(reader.notes),
    )


class _Reader:
    """A reader of requirements files, with those that they refer to; each is read once."""

    def __init__(self, package: Package, within: Within | None) -> None:
        self._package, self._within = package, within
        self.packages = list[str]()
        self.constraints = list[str]()
        self.channels = list[FurtherChannel]()
        self.expected = list[Expected]()
        self.of_pages = list[Expected]()  #: the CUDA of PyTorch's and PyG's pages, where no version names it
        self.hashes = dict[str, list[str]]()
        self.notes = list[str]()
        self._done = set[tuple[Path, bool]]()
        self._others = list[str]()  #: packages of the file that is read, whose markers no image fulfils
        self._of_conda = list[str]()  #: those that are written as folders of a machine of conda's

    def all_expected(self) -> list[Expected]:
        """All that is compared: the CUDA of pages where no version and no package of conda's names one."""
        is_said = any(entry.build or entry.name == "cuda" for entry in self.expected)
        return self.expected + ([] if is_said else self.of_pages[:1])

    def named_channels(self) -> Iterator[FurtherChannel]:
        """The places, each with the packages that these files name."""
        texts = (package for package in self.packages if not package.startswith(("/", "git+")))
        names = tuple(sorted({str(canonicalize_name(Requirement(text).name)) for text in texts}))
        return (msgspec.structs.replace(channel, names=names) for channel in self.channels)

    def read(self, path: Path, *, constrains: bool = False, chain: tuple[Path, ...] = (), where: str = "") -> None:
        """Read a file, to which `chain` has led, at `where`; `constrains`: it says what may be taken, not what is."""
        path, extras = files.with_extras(path)
        text = self._text(path, chain, where)
        same = path.resolve()
        if same in chain:
            raise UsageError(
                f"{chain[-1]}: it refers to {path}, which leads back to it",
                cause=f"Files that refer to each other in a circle: {' → '.join(map(str, (*chain, same)))}.",
                next_step="take out one of these -r or -c",
            )
        if (same, constrains) in self._done:
            return
        self._done.add((same, constrains))
        from graphcrate.compat.requirements import project_files

        translated = project_files.read(path, text, extras, lambda beside: self._text(beside, (*chain, same)))
        refused = list[UsageError]()
        for lines, constraining in ((translated.lines, constrains), (translated.constraints, True)):
            for where, line in lines:
                try:
                    self._take(line, path, where, constraining, (*chain, same))
                except UsageError as error:
                    refused.append(error)
        if refused:
            raise _all_of(path, refused)
        self.expected += translated.expected
        self.notes += translated.notes
        if self._others:
            self.notes.append(f"{path}: for other systems, and left out: {listed(dict.fromkeys(self._others))}")
            self._others.clear()
        if self._of_conda:
            names = listed(dict.fromkeys(self._of_conda))
            self.notes.append(f"{path}: addresses of conda's build machines, taken by name in any version: {names}")
            self._of_conda.clear()
        if not (translated.lines or translated.expected or translated.notes):
            raise UsageError(f"{path} has no packages", next_step="one on each line, such as lightning==2.1")

    def _text(self, path: Path, chain: tuple[Path, ...], where: str = "") -> str:
        """Read the file to which the last of `chain` refers. Raises UsageError, for one that is elsewhere too."""
        begin = f"{where or chain[-1]}: " if chain else ""
        if self._within:
            with contextlib.suppress(OSError, ValueError, RuntimeError):  # which `read_text` words
                self._within.check(path, f"{begin}{path} is not")
                if path.is_fifo():  # whose end may never come
                    raise UsageError(f"{begin}{path} is a pipe, and no file", next_step=IN_ITS_PLACE)
        try:
            return read_text(path)
        except UsageError as error:
            if not where:
                raise
            raise UsageError(f"{begin}{error.what}", cause=error.cause, next_step=IN_ITS_PLACE) from error

    def _take(self, line: str, path: Path, where: str, constrains: bool, chain: tuple[Path, ...]) -> None:
        if line.startswith("-"):
            self._options(line, path, where, constrains, chain)
        elif line == _OF_DEBIAN:
            self.notes.append(f"{where}: {line} is passed over: Debian's pip freeze lists it, setuptools has it")
        elif conda := _OF_CONDA.fullmatch(line):
            self._of_conda.append(conda[1])
            self._add(conda[1], path, where, constrains)
        else:
            text, behind = requirements_txt.split(line)
            self._add(text, path, where, constrains)
            for option in behind:
                self._options(option, path, where, constrains, chain)

    def _options(self, line: str, path: Path, where: str, constrains: bool, chain: tuple[Path, ...]) -> None:
        """Take a line of options, of which there may be several."""
        with refusing():
            options = requirements_txt.options(line, where)
        for option, given in options:
            if option in _INSTEAD and option not in _IDLE_WITH_VALUE:
                self.notes.append(f"{where}: {option} is passed over: {_INSTEAD[option]}")
                continue
            if option in requirements_txt.FLAGS and given is None:
                self.notes.append(f"{where}: {option} is passed over: an image has the files of its lock, with hashes")
                continue
            value = given or ""
            if option in LISTS:
                self.read(path.parent / value, constrains=constrains, chain=chain, where=where)
            elif option in CONSTRAINTS:
                self.read(path.parent / value, constrains=True, chain=chain, where=where)
            elif option in ("-e", "--editable"):
                self._add(value, path, where, constrains)
            elif option in (*INDEXES, *LINKS):
                self.channels.append(requirement_lines.channel_of(option, value, path, where, self._within))
                self.of_pages += requirement_lines.cuda_of_page(self.channels[-1])
            elif option in _IDLE_WITH_VALUE:
                instead = _INSTEAD.get(option, "it is about pip on one machine")
                self.notes.append(f"{where}: {option} is passed over: {instead}")
            else:
                _refuse(option, where)

    def _add(self, line: str, path: Path, where: str, constrains: bool) -> None:
        taken, folder = self.constraints if constrains else self.packages, path.absolute().parent
        given = requirements_txt.package(line)
        hashes = [value.removeprefix("sha256:") for value in given.hashes if value.startswith("sha256:")]
        if given.hashes and not hashes:
            self.notes.append(f"{where}: its --hash is not compared: it is not a sha256")
        self.notes += [f"{where}: {option} is passed over (docs/compiling.md)" for option in given.build_options]
        text = requirement_lines.by_address(given.text, where, self._within)
        local, extras = files.bracketed(text) if text.startswith((".", "/", "~")) else (text, ())
        text, expected = requirement_lines.without_build(local, where)
        if is_for_no_image(text):
            self._others.append(Requirement(text).name)
            return
        if pinned := requirement_lines.torchs_pin(text, where):
            self.expected.append(pinned)
            return
        self.expected += expected
        package = self._package(text, folder, where, self._within)
        taken.append(package)
        self.expected += requirement_lines.binding(package, where)
        if extras:
            self._add_extras(Path(package), extras, where)
        if hashes and not package.startswith(("/", "git+")):
            self.hashes.setdefault(str(canonicalize_name(Requirement(package).name)), []).extend(hashes)

    def _add_extras(self, project: Path, extras: tuple[str, ...], where: str) -> None:
        """Add what extras of a project's folder need, as its pyproject.toml says."""
        from graphcrate.compat.requirements import project_files

        path = project / "pyproject.toml"
        if not path.is_file():
            raise UsageError(
                f"{where}: extras are read from a pyproject.toml, and {project} has none",
                next_step="name what they need, a package on each line",
            )
        for place, line in project_files.extras(self._text(path, (project,)), str(path), extras):
            self._take(line, path, place, False, ())


def _all_of(path: Path, refused: Sequence[UsageError]) -> UsageError:
    """The one error for all lines of a file that cannot be taken, each with its own next step."""
    if len(refused) == 1:
        return refused[0]
    lines = "".join(f"\n    {error.what}\n      next: {error.next_step}" for error in refused)
    causes = dict.fromkeys(error.cause for error in refused if error.cause)
    return UsageError(
        f"{path}: {len(refused)} of its lines cannot be taken{lines}",
        cause=" ".join(causes),
        next_step=f"change these lines of {path}, as said beside each",
    )


def _refuse(option: str, where: str) -> NoReturn:
    raise UsageError(
        f"{where}: {printable(option)} is not taken from a requirements file",
        cause="Lines may be packages, -r, -c, -e, --index-url, --extra-index-url and --find-links. "
        "Versions and hashes are the lock's.",
        next_step="take it out",
    )


def read_text(path: Path) -> str:
    """Read a text file, up to the size that one may have. Raises UsageError."""
    with refusing():
        return files.read_text(path)
