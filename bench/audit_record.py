"""Observations of pairs of packages, the audit's predictions, and where the two differ. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence, Set

import msgspec

#: The driver's own libraries, which lie on the user's machine and in no image.
DRIVER = re.compile(r"\blib(cuda|nvidia-ml)\.so\.1: cannot open")
_KINDS = (
    ("undefined symbol", re.compile(r"undefined symbol: (\S+)")),
    ("version not found", re.compile(r"version `([^']+)' not found")),
    ("missing library", re.compile(r"(\S+): cannot open shared object file")),
    ("missing module", re.compile(r"No module named '?([^' ]+)")),
    ("crash", re.compile(r"ended by (SIG\w+)")),
)
_PYTHON = "Python code"
_LINKING = ("libraries", "versions", "symbols")  #: the audit's checks of whether a file loads


class Pair(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Packages to be put beside one torch. `about`: in words, what the pair is to show."""

    packages: tuple[str, ...]  #: "torchvision==0.15.2"
    imports: tuple[str, ...] = ()  #: of these packages; empty: by their names
    requirements: tuple[str, ...] = ()  #: what the packages' metadata forgets
    without: tuple[str, ...] = ()  #: names of packages that are left out
    about: str = ""


class Group(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pairs with one torch (empty: none at all) and one Python, which Debian's suite comes with."""

    python: str
    torch: str = ""
    pairs: tuple[Pair, ...] = ()

    def name(self, pair: Pair) -> str:
        """The pair's name, for people and as a key."""
        words = [f"torch {self.torch}" if self.torch else "no torch", *pair.packages]
        words += [f"without {name}" for name in pair.without]
        words += [f"beside {name}" for name in pair.requirements]
        return ", ".join(words) + f" (Python {self.python})"


class Idle(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Libraries of a package that it loads only where something else is there, and does without where it is not.

    `package` and `files` are regular expressions, the latter for paths; {torch} in it is the torch at hand.
    """

    package: str
    files: str
    why: str

    def has(self, file: str, outcome: "Outcome", torch: str) -> bool:
        """Return whether this library is one of them."""
        pattern = self.files.replace("{torch}", re.escape(torch.partition("+")[0]))
        return bool(re.fullmatch(self.package, plain(outcome.package)) and re.search(pattern, file))


class Pairs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """bench/audit_pairs.toml."""

    groups: tuple[Group, ...] = msgspec.field(name="group")
    idle: tuple[Idle, ...] = ()


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Of one import, or of one library: `after` is what had been imported before it loaded.

    `driver`: it did not go without the driver's libraries, and the rest was found out with them.
    """

    ok: bool
    error: str = ""
    signal: int = 0
    said: tuple[str, ...] = ()
    after: str = ""
    package: str = ""
    driver: bool = False


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A finding of the audit, as its JSON has it."""

    check: str
    severity: str
    what: str = ""
    breaks: str = ""
    package: str = ""
    file: str = ""
    fix: str = ""


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """The audit of the folder: its findings, or the `error` that it ended with."""

    findings: tuple[Finding, ...] = ()
    seconds: float = 0.0
    error: str = ""

    @property
    def broken(self) -> frozenset[str]:
        """Files that are said not to load, or to load and not to work."""
        return frozenset(each.file for each in self.findings if each.severity == "fail" and each.file)

    @property
    def idle(self) -> frozenset[str]:
        """Files that are said not to load and break nothing: plugins for what is not there."""
        notes = (each for each in self.findings if each.severity == "note" and each.check in _LINKING)
        return frozenset(each.file for each in notes if each.file) - self.broken


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """One pair in one base. `files` are those of distributions that were not seen beside this torch before."""

    torch: str
    packages: tuple[str, ...]
    about: str
    suite: str
    python: str  #: "3.11.2"
    glibc: str
    installed: Mapping[str, str]
    imports: Mapping[str, Outcome]
    files: Mapping[str, Outcome]
    predicted: Prediction | None = None

    @property
    def judged(self) -> bool:
        """Return whether the audit has answered."""
        return self.predicted is not None and not self.predicted.error


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Of one pair. Files by path; `missed` and `cried` are where the audit was wrong."""

    missed: tuple[str, ...]  #: does not load, predicted fine
    cried: tuple[str, ...]  #: loads, predicted not to
    observed_broken: bool  #: more than plugins for what is not there
    predicted_broken: bool
    beyond: bool  #: it breaks, and only in its Python code, of which no audit of binaries knows

    @property
    def false_fine(self) -> bool:
        """Something broke that the audit let pass."""
        return bool(self.missed) or (self.observed_broken and not self.predicted_broken and not self.beyond)

    @property
    def false_alarm(self) -> bool:
        """The audit let something fail that worked."""
        return bool(self.cried) or (self.predicted_broken and not self.observed_broken)


def cause(outcome: Outcome) -> tuple[str, str]:
    """(kind, name of what was missing) of an outcome that is not ok."""
    for kind, pattern in _KINDS:
        if found := pattern.search(outcome.error):
            return kind, found[1]
    return _PYTHON, outcome.error.partition("\n")[0]


def merged(first: Mapping[str, Outcome], again: Mapping[str, Outcome]) -> dict[str, Outcome]:
    """The outcomes, those that were tried again with the driver's libraries in their place and marked."""
    return {
        name: msgspec.structs.replace(again[name], driver=True) if name in again else one for name, one in first.items()
    }


def needs_driver(outcomes: Mapping[str, Outcome]) -> list[str]:
    """Names of those that failed for lack of the driver's libraries."""
    return [name for name, one in outcomes.items() if not one.ok and DRIVER.search(one.error)]


def compare(seen: Observation, predicted: Prediction, idle: Sequence[Idle] = ()) -> Comparison:
    """The differences of a pair's prediction and observation. `idle`: what may fail to load without harm."""
    broken = {file for file, outcome in seen.files.items() if not outcome.ok}
    spare = {file for file in broken if any(each.has(file, seen.files[file], seen.torch) for each in idle)}
    follow = _follow(seen, spare)
    minded = broken - spare - follow
    failing = [outcome for outcome in seen.imports.values() if not outcome.ok]
    named = predicted.broken & seen.files.keys()
    packages = {plain(each.package) for each in predicted.findings if each.severity == "fail"}
    return Comparison(
        missed=tuple(sorted(broken - predicted.broken - predicted.idle - follow)),
        cried=tuple(sorted((named | (predicted.idle & seen.files.keys())) - broken)),
        observed_broken=bool(minded or failing),
        predicted_broken=bool(named or packages & _subjects(seen)),
        beyond=not minded and bool(failing) and all(cause(one)[0] == _PYTHON for one in failing),
    )


def _follow(seen: Observation, spare: Set[str]) -> set[str]:
    """Libraries that lack only one of their own package, which loads: they are loaded after it, or never.

    Which is so where the package's import failed, or where it does without them.
    """
    there = {(one.package, file.rpartition("/")[2]) for file, one in seen.files.items() if one.ok}
    failed = not all(outcome.ok for outcome in seen.imports.values())
    lacking = {file: cause(one) for file, one in seen.files.items() if not one.ok and (failed or file in spare)}
    return {
        file
        for file, (kind, name) in lacking.items()
        if kind == "missing library" and (seen.files[file].package, name) in there
    }


def _subjects(seen: Observation) -> set[str]:
    """Packages that the pair is about: the named ones and what they brought along, or torch where it is alone."""
    named = {plain(re.split(r"[=<>!~ ]", name)[0]) for name in seen.packages} or {"torch"}
    return named | {plain(outcome.package) for outcome in seen.files.values()}


def plain(name: str) -> str:
    """A distribution's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def summary(observations: Mapping[str, Observation], idle: Sequence[Idle] = ()) -> list[str]:
    """A line for each pair where prediction and observation differ, and below them what all pairs come to."""
    compared = {
        name: (seen, compare(seen, seen.predicted, idle))
        for name, seen in observations.items()
        if seen.judged and seen.predicted is not None
    }
    lines = [f"{name}: {_difference(*both)}" for name, both in compared.items() if _difference(*both)]
    return [*lines, *_sums([difference for _, difference in compared.values()], observations.values())]


def _difference(seen: Observation, difference: Comparison) -> str:
    """Describe where the audit was wrong; empty where it was right."""
    words = []
    if difference.false_fine:
        failed = {**{file: seen.files[file] for file in difference.missed}, **seen.imports}
        causes = [f"{name} ({' '.join(cause(one))})" for name, one in failed.items() if not one.ok]
        words.append(f"missed: {', '.join(causes)}")
    if difference.false_alarm:
        words.append(f"false alarm: {', '.join(difference.cried) or 'the package'}")
    return "; ".join(words)


def _sums(differences: Sequence[Comparison], observations: Iterable[Observation]) -> list[str]:
    files = [seen.files for seen in observations if seen.judged]
    total, broken = sum(map(len, files)), sum(not one.ok for each in files for one in each.values())
    works = sum(not each.observed_broken for each in differences)
    missed, cried = sum(len(each.missed) for each in differences), sum(len(each.cried) for each in differences)
    return [
        f"{len(differences)} pairs, of which {len(differences) - works} break; {total} libraries, of which {broken} do "
        "not load.",
        f"False \u201cfine\u201d: {sum(each.false_fine for each in differences)} pairs, {missed} libraries. "
        f"False alarms: {sum(each.false_alarm for each in differences)} pairs "
        f"({_percent(sum(each.false_alarm for each in differences), works)} of those that work), {cried} libraries "
        f"({_percent(cried, total - broken)}).",
    ]


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "none"
