"""Errors of the libraries that read images and their files, as graphcrate has them."""

import contextlib
from collections.abc import Iterator

from graphcrate.host.disk.trees import remove_tree
from graphcrate.model.errors import CacheError, IntegrityError, LayoutError
from sifsquash.errors import DamagedBlocksError, ImageError
from treeaudit.errors import FileError


@contextlib.contextmanager
def layout_errors() -> Iterator[None]:
    """Raise what sifsquash says of an image as a LayoutError, of a packed layer of the cache as a CacheError."""
    try:
        yield
    except DamagedBlocksError as error:
        remove_tree(error.data.parent)
        raise CacheError(
            f"{error.data} was damaged, and is removed",
            cause=error.cause,
            next_step="the same command again    (it compresses that layer again)",
        ) from error
    except ImageError as error:
        raise LayoutError(error.what, cause=error.cause, next_step=error.next_step) from error


@contextlib.contextmanager
def integrity_errors() -> Iterator[None]:
    """Raise what treeaudit says of a file as an IntegrityError."""
    try:
        yield
    except FileError as error:
        raise IntegrityError(error.what, cause=error.cause) from error
