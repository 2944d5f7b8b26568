"""Which package owns which path of the image; two that disagree are an error, not a race."""

from graphcrate.model.errors import BuildError

_NEXT_STEP = "leave one of them out of the recipe, or pin versions that go together"


class Claims:
    """Owners of paths, over any number of wheels."""

    def __init__(self) -> None:
        self._owners: dict[str, tuple[str, str]] = {}

    def claim(self, owner: str, path: str, identity: str) -> bool:
        """Note that `owner` has `path`, with this hash of its content.

        False when another owner has the same content there already. Raises BuildError when it has another content.
        """
        other, known = self._owners.setdefault(path, (owner, identity))
        if known != identity:
            raise BuildError(
                f"{other} and {owner} both own {path}, with different content",
                cause="One would silently overwrite the other.",
                next_step=_NEXT_STEP,
            )
        return other == owner

    def check_folders(self) -> None:
        """Raises BuildError when one package has a file where another has a folder."""
        folders: dict[str, str] = {}  #: folder → a path in it
        for path in self._owners:
            parent = path.rpartition("/")[0]
            while parent and parent not in folders:
                folders[parent] = path
                parent = parent.rpartition("/")[0]
        for clash in folders.keys() & self._owners.keys():
            path = folders[clash]
            raise BuildError(
                f"{self._owners[clash][0]} has the file {clash}, and {self._owners[path][0]} has {path} below it",
                cause="One path cannot be a file and a folder.",
                next_step=_NEXT_STEP,
            )
