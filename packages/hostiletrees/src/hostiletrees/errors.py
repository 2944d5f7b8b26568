"""The error of this library."""

import os
from pathlib import Path


class TooDeepError(Exception):
    """A folder is too deep to be walked. `path` is relative to the root, `depth` how many folders deep it is."""

    def __init__(self, root: str | Path, path: str | Path) -> None:
        self.path = os.path.relpath(path, root)
        self.depth = self.path.count("/") + 1
        super().__init__(f"/{self.path[:60]}… is {self.depth} folders deep")
