"""A check: its title, reason and source, and a function from an image and a host to a verdict."""

import ast
import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

import msgspec

from graphcrate.checks.contracts.paths import named_paths
from graphcrate.checks.contracts.view import Asked, start_script
from graphcrate.compat.facts.facts import is_older
from graphcrate.model.contract import CheckVerdict, ContractFinding, Host, ImageView, Settings
from graphcrate.model.runtime import RuntimeName

_Value = TypeVar("_Value")
Judge = Callable[[ImageView, Host], CheckVerdict]
SettingsJudge = Callable[[ImageView, Host, Settings], CheckVerdict]

passed = functools.partial(CheckVerdict, "pass")  #: all is as it should be
warned = functools.partial(CheckVerdict, "warn")  #: it works, but not for everybody, or not as one would think
failed = functools.partial(CheckVerdict, "fail")  #: it does not work in this runtime, or on this host
unknown = functools.partial(CheckVerdict, "unknown")  #: of the image or of the host; the fix says how to find out


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a contract. `reason` is a sentence or two, `source` where the rule was read or seen."""

    id: str
    title: str
    runtimes: tuple[RuntimeName, ...]
    reason: str
    source: str
    judge: Judge
    #: what it looks at in the image, beside the paths that its settings name
    files: tuple[str, ...] = ()  #: paths, of small files with their text
    matching: str = ""  #: a pattern of paths, without their text
    programs: tuple[str, ...] = ()  #: by their names, as PATH finds them

    def find(self, view: ImageView, host: Host, runtimes: Iterable[RuntimeName]) -> ContractFinding:
        """The verdict on this image and host, for those of its runtimes that were asked for."""
        verdict = self.judge(self._declared(view), host)
        passed = verdict.status == "pass"
        return ContractFinding(
            check=self.id,
            title=self.title,
            runtimes=tuple(runtime for runtime in runtimes if runtime in self.runtimes),
            status=verdict.status,
            seen=verdict.seen,
            why="" if passed else self.reason,
            fix="" if passed else verdict.fix,
        )

    def _declared(self, view: ImageView) -> ImageView:
        """The view with what this check declares, and no more: what else it asks about was never looked for."""
        named = named_paths(view.settings or Settings(), start_script(view))

        def declares(path: str) -> bool:
            return path in self.files or re.fullmatch(self.matching, path) is not None

        return msgspec.structs.replace(
            view,
            files=Declared(view.files, self.id, declares, lambda path: path in named or not path.startswith("/")),
            programs=Declared(view.programs, self.id, self.programs.__contains__),
        )


class Declared(Mapping[str, _Value]):
    """Files or programs of an image that a check declares: those it can list.

    It may ask about further ones that are `known`; about any other one it raises AssertionError.
    """

    def __init__(
        self,
        values: Mapping[str, _Value],
        check: str,
        declares: Callable[[str], bool],
        known: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._values = values
        self._check = check
        self._declares = declares
        self._known = known

    def __getitem__(self, name: str) -> _Value:
        name = name.rstrip("/") or name[:1]
        if not self._declares(name) and not self._known(name):
            raise AssertionError(f"the check {self._check} looks at {name}, which its decorator does not declare")
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return filter(self._declares, self._values)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def asked_by(checks: Iterable[Check]) -> Asked:
    """Join what these checks declare."""
    checks = tuple(checks)
    return Asked(
        files=frozenset(path for check in checks for path in check.files),
        matching="|".join(dict.fromkeys(f"(?:{check.matching})" for check in checks if check.matching)),
        programs=tuple(dict.fromkeys(program for check in checks for program in check.programs)),
    )


def check(
    title: str,
    *runtimes: RuntimeName,
    files: tuple[str, ...] = (),
    matching: str = "",
    programs: tuple[str, ...] = (),
) -> Callable[[Judge], Check]:
    """Make a check of a function: its name, with dashes, is the id; its docstring says the reason, then the source.

    `files`, `matching` and `programs`: as in Check; nothing else of the image's files is there for it.
    """

    def made(judge: Judge) -> Check:
        reason, source = " ".join(_text(judge).split()).split(" Source: ")
        name = judge.__name__.replace("_", "-")
        return Check(
            id=name,
            title=title,
            runtimes=runtimes,
            reason=reason,
            source=source,
            judge=judge,
            files=files,
            matching=matching,
            programs=programs,
        )

    return made


def _text(judge: Judge) -> str:
    """The docstring of a function, from its source where Python runs with -OO, which drops it."""
    if judge.__doc__:
        return judge.__doc__
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(judge)))).body
    assert isinstance(function, ast.FunctionDef)
    return ast.get_docstring(function) or ""


def settings_check(
    title: str,
    *runtimes: RuntimeName,
    files: tuple[str, ...] = (),
    matching: str = "",
    programs: tuple[str, ...] = (),
) -> Callable[[SettingsJudge], Check]:
    """Make a check of a function that is called only where the artifact has a configuration. Else as `check`."""

    def made(judge: SettingsJudge) -> Check:
        @functools.wraps(judge)
        def judged(view: ImageView, host: Host) -> CheckVerdict:
            if view.settings is None:
                return unknown("the artifact has no configuration", "check the image that it was made of")
            return judge(view, host, view.settings)

        return check(title, *runtimes, files=files, matching=matching, programs=programs)(judged)

    return made


def absent(view: ImageView, verdict: CheckVerdict) -> CheckVerdict:
    """The verdict on a file that was not found; unknown where not all layers were read."""
    if not view.unread:
        return verdict
    return unknown(f"{verdict.seen} in the layers that were read; {view.unread[0]}", verdict.fix)


def since(what: str, program: str, version: str, oldest: str, fix: str, unsure: CheckVerdict) -> CheckVerdict:
    """Judge what a program does from a version on; `unsure` where its version is not known."""
    if not version:
        return unsure
    if is_older(version, oldest):
        return failed(f"{what}, and {program} {version}", fix)
    return passed(f"{what}, {program} {version}")


def is_root(user: str) -> bool:
    """Return whether a USER means root."""
    return user.partition(":")[0] in ("", "0", "root")
