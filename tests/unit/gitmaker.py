"""A stand-in for git: commits are archives of given files, and what git is asked is noted."""

import io
import tarfile

from graphcrate.host import git
from graphcrate.host.process import Completed

COMMIT = "0123456789" * 4


class Git:
    """Stands for git: writes `files` (path → content, or a link's target after `->`) as the archive of a commit.

    `files` may be a function of the folder that git stands in.
    """

    def __init__(self, monkeypatch, fails="", files=(), links=""):
        self.asked, self._fails, self._links = [], fails, links
        self._files = files if callable(files) else lambda _: dict(files)
        monkeypatch.setattr(git.process, "run", self.run)
        monkeypatch.setattr(git.process, "output", self.output)

    def run(self, argv, *, environment, cwd, on_line, timeout):
        self.asked.append((argv, environment, cwd, timeout))
        word = next(
            word for word in argv if word in ("ls-remote", "init", "fetch", "rev-parse", "update-ref", "read-tree")
        )
        if self._fails:
            return Completed(128, (self._fails,))
        if word == "init":
            (cwd / ".git").mkdir()
        if word == "rev-parse":
            on_line(COMMIT)
        if word == "ls-remote":
            on_line(f"{COMMIT}\tHEAD")
        return Completed(0, ())

    def output(self, argv, *, environment, cwd, timeout):
        self.asked.append((argv, environment, cwd, timeout))
        if "archive" in argv:
            path = next(word for word in argv if word.startswith("--output=")).partition("=")[2]
            with tarfile.open(path, "w") as archive:
                for name, content in self._files(cwd).items():
                    member = tarfile.TarInfo(name)
                    if name.endswith("/"):
                        member.type = tarfile.DIRTYPE
                    elif content.startswith("->"):
                        member.type, member.linkname = tarfile.SYMTYPE, content[2:]
                    else:
                        member.size = len(content)
                    archive.addfile(member, io.BytesIO(content.encode()) if member.size else None)
            return ""
        return (
            self._links
            if "ls-tree" in argv
            else "".join(
                f"{key}\n{value}\0"
                for key, value in (("submodule.a.path", "sub"), ("submodule.a.url", self._files(cwd)["url"]))
            )
        )
