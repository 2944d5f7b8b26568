"""Where passes are kept: a file for each, in a folder beside the image, so that they go where its folder goes.

No locks: nodes of a cluster write at the same time through a network file system. A file appears whole or not at all.
"""

import contextlib
from pathlib import Path
from typing import NamedTuple

from graphcrate import passes
from graphcrate.host import settings
from graphcrate.model.lock import encode
from graphcrate.model.passes import Claim, Pass
from graphcrate.model.report import SmokeReport

FOLDER = "passes"  #: in the image's folder, dist/<name>/<tag>


class Memory(NamedTuple):
    """The passes of a folder. `rerun`: nothing is recalled, and what passes is remembered all the same."""

    folder: Path
    rerun: bool = False

    def recall(self, claim: Claim | None) -> Pass | None:
        """The pass of this claim, if there is one and it may be used."""
        if claim is None or self.rerun:
            return None
        try:
            return passes.read(self._path(claim).read_bytes(), claim)
        except OSError:
            return None

    def settle(self, claim: Claim | None, report: SmokeReport) -> str:
        """Remember a pass; forget an older one where the suite has failed since. Returns why it could not, or nothing.

        A folder that this user may not write to is no reason to fail.
        """
        if claim is None:
            return ""
        import secrets  # takes longer to load than all that an unchanged image asks for

        path, proven = self._path(claim), passes.made(claim, report, settings.now_utc())
        try:
            if proven is None:
                path.unlink(missing_ok=True)
                return ""
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
            try:
                temporary.write_bytes(encode(proven))
                temporary.replace(path)
            finally:
                with contextlib.suppress(OSError):
                    temporary.unlink(missing_ok=True)
        except OSError as error:
            return f"{claim.suite} will be run again next time: {self.folder} cannot be written ({error.strerror})"
        return ""

    def _path(self, claim: Claim) -> Path:
        return self.folder / f"{claim.suite}-{passes.key(claim)}.json"
