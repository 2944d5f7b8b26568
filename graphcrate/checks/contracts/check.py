"""What a check is: what it wants, why, who says so, and a function from an image and a host to a verdict."""

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable, Iterable

import msgspec

from graphcrate.compat.facts import is_older
from graphcrate.model.contract import CheckVerdict, ContractFinding, Host, ImageView, Runtime, Settings

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
    runtimes: tuple[Runtime, ...]
    reason: str
    source: str
    judge: Judge

    def find(self, view: ImageView, host: Host, runtimes: Iterable[Runtime]) -> ContractFinding:
        """The verdict on this image and host, for those of its runtimes that were asked for."""
        verdict = self.judge(view, host)
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


def check(title: str, *runtimes: Runtime) -> Callable[[Judge], Check]:
    """Make a check of a function: its name, with dashes, is the id; its docstring says the reason, then the source."""

    def made(judge: Judge) -> Check:
        reason, source = " ".join(_text(judge).split()).split(" Source: ")
        name = judge.__name__.replace("_", "-")
        return Check(id=name, title=title, runtimes=runtimes, reason=reason, source=source, judge=judge)

    return made


def _text(judge: Judge) -> str:
    """The docstring of a function, from its source where Python runs with -OO, which drops it."""
    if judge.__doc__:
        return judge.__doc__
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(judge)))).body
    assert isinstance(function, ast.FunctionDef)
    return ast.get_docstring(function) or ""


def settings_check(title: str, *runtimes: Runtime) -> Callable[[SettingsJudge], Check]:
    """Make a check of a function that is called only where the artifact has a configuration."""

    def made(judge: SettingsJudge) -> Check:
        @functools.wraps(judge)
        def judged(view: ImageView, host: Host) -> CheckVerdict:
            if view.settings is None:
                return unknown("the artifact has no configuration", "check the image that it was made of")
            return judge(view, host, view.settings)

        return check(title, *runtimes)(judged)

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
    """Whether a USER means root."""
    return user.partition(":")[0] in ("", "0", "root")
