"""Which package owns which path of the image; two that disagree are an error, not a race."""

from collections.abc import Iterator

from graphcrate.errors import BuildError

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
        for path, (owner, _) in self._owners.items():
            for parent in _parents(path):
                if parent in self._owners:
                    raise BuildError(
                        f"{self._owners[parent][0]} has the file {parent}, and {owner} has {path} below it",
                        cause="One path cannot be a file and a folder.",
                        next_step=_NEXT_STEP,
                    )


def _parents(path: str) -> Iterator[str]:
    parent = path.rpartition("/")[0]
    while parent:
        yield parent
        parent = parent.rpartition("/")[0]
