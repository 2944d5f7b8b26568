"""The limits of a recipe that may be a stranger's: its own folder, or names alone."""

from pathlib import Path
from typing import NamedTuple

from graphcrate.model.command import setting
from graphcrate.model.errors import UsageError
from graphcrate.model.words import printable

IN_ITS_PLACE = "put its lines into this file instead"


class Within(NamedTuple):
    """The folder of a recipe that may be a stranger's: nothing outside of it is read, or looked at.

    `names_alone`: who asks is elsewhere, as of a site: packages are names, and no path, repository or index is.
    """

    home: Path  #: without links
    names_alone: bool = False

    def check(self, path: Path, what: str) -> None:
        """Raise UsageError for a path out of the folder, by links too; `what`: a sentence that ends with "is not".

        Raises OSError, ValueError or RuntimeError for an invalid path.
        """
        if not path.resolve().is_relative_to(self.home):
            raise self.refused(what)

    def refused(self, what: str) -> UsageError:
        """The error for what is not in the folder."""
        if self.names_alone:
            return not_a_name(f"{what} taken", IN_ITS_PLACE)
        return UsageError(
            f"{printable(what)} in the recipe's folder ({printable(str(self.home))})",
            cause="A recipe of somebody else's could name any file of yours, which the image would have then.",
            next_step="put it into that folder; or, for a recipe that you have read: "
            f"{setting(trust_paths=True).both()}",
        )


def not_a_name(what: str, next_step: str = "give the package's name and version: 'dgl==2.1'") -> UsageError:
    """The error for a path, a repository or an index of who may give names alone; `what`: ends with "is not taken"."""
    return UsageError(
        f"{printable(what)}: only names of packages are",
        cause="Another file of yours is not here, and an address would choose which servers are asked.",
        next_step=next_step,
    )
