"""A request for an update, of new releases or of what has known vulnerabilities."""

import msgspec

from graphcrate.model.command import command
from graphcrate.model.errors import UsageError


class UpdateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for an update: one recipe, or all (empty). `check`: nothing is written.

    `prove`: images of what changed are built, checked and tested, within `disk` ("40GB"; empty: all). `security`: locks
    alone are renewed, by `security.run`.
    """

    recipe: str = ""
    check: bool = False
    prove: bool = False
    security: bool = False
    disk: str = ""
    mirror: str | None = None

    def raise_if_contradictory(self) -> None:
        """Raises UsageError for options that do not go together."""
        named = [self.recipe] if self.recipe else []
        if self.check and self.prove:
            raise UsageError(
                "--check writes nothing, and --prove is for what is written",
                next_step=f"{command('update', *named, check=True)}, or {command('update', *named, prove=True)}",
            )
        if self.disk and not self.prove:
            raise UsageError(
                "--disk is for the images of --prove",
                next_step=command("update", *named, prove=True, disk=self.disk),
            )
        if self.security and self.prove:
            raise UsageError(
                "--prove is for new releases, and --security renews locks alone",
                next_step=f"{command('update', *named, security=True)}, then {command('matrix', *named)}",
            )
