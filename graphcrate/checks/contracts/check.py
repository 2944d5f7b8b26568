"""What a check is: what it wants, why, who says so, and a function from an image and a host to a verdict."""

from collections.abc import Callable, Iterable

import msgspec

from graphcrate.model.contract import RUNTIMES, FileFact, Finding, Host, ImageView, Runtime, Settings, Verdict

Judge = Callable[[ImageView, Host], Verdict]
EVERYWHERE = RUNTIMES


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a contract. `reason` is a sentence or two, `source` where the rule was read or seen."""

    id: str
    title: str
    runtimes: tuple[Runtime, ...]
    reason: str
    source: str
    judge: Judge

    def find(self, view: ImageView, host: Host, runtimes: Iterable[Runtime]) -> Finding:
        """The verdict on this image and host, for those of its runtimes that were asked for."""
        verdict = self.judge(view, host)
        passed = verdict.status == "pass"
        return Finding(
            check=self.id,
            title=self.title,
            runtimes=tuple(runtime for runtime in runtimes if runtime in self.runtimes),
            status=verdict.status,
            seen=verdict.seen,
            why="" if passed else self.reason,
            fix="" if passed else verdict.fix,
        )


def check(title: str, *runtimes: Runtime, reason: str, source: str) -> Callable[[Judge], Check]:
    """Makes a check of a function; its name, with dashes, is the check's id."""

    def made(judge: Judge) -> Check:
        name = judge.__name__.replace("_", "-")
        return Check(id=name, title=title, runtimes=runtimes, reason=reason, source=source, judge=judge)

    return made


def configured(judge: Callable[[ImageView, Host, Settings], Verdict]) -> Judge:
    """A judge that is asked only where the artifact has a configuration."""

    def judged(view: ImageView, host: Host) -> Verdict:
        if view.settings is None:
            return unknown("the artifact has no configuration", "check the image that it was made of")
        return judge(view, host, view.settings)

    judged.__name__ = judge.__name__
    return judged


def passed(seen: str) -> Verdict:
    """All is as it should be."""
    return Verdict("pass", seen)


def warned(seen: str, fix: str) -> Verdict:
    """It works, but not for everybody, or not as one would think."""
    return Verdict("warn", seen, fix)


def failed(seen: str, fix: str) -> Verdict:
    """It does not work in this runtime, or on this host."""
    return Verdict("fail", seen, fix)


def unknown(seen: str, fix: str = "") -> Verdict:
    """Something is not known, of the image or of the host; `fix` says how to find out."""
    return Verdict("unknown", seen, fix)


def absent(view: ImageView, verdict: Verdict) -> Verdict:
    """The verdict on a file that was not found; unknown where not all layers were read."""
    if not view.unread:
        return verdict
    return unknown(f"{verdict.seen} in the layers that were read; {view.unread[0]}", verdict.fix)


def text_of(view: ImageView, path: str) -> str:
    """A small file's content; empty where it is not there or was not read."""
    file = view.files.get(path)
    return (file.text or "") if file is not None else ""


def folders_in_path(settings: Settings) -> list[str]:
    """The folders of PATH, in order."""
    return [folder for folder in settings.variables.get("PATH", "").split(":") if folder.startswith("/")]


def is_root(user: str) -> bool:
    """Whether a USER means root."""
    return user.partition(":")[0] in ("", "0", "root")


def has_gpu_code(view: ImageView) -> bool | None:
    """Whether the image has CUDA programs; None where nobody knows."""
    if view.cuda:
        return view.cuda != "cpu"
    return None


def is_file(file: FileFact | None) -> bool:
    """Whether something is there and, links followed, a file."""
    return file is not None and file.real == "file"
