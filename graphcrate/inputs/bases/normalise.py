"""From the tree of a Debian system to the tar blocks of a base layer, by the entries that `debroot` gives."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from debroot import normalise
from debroot.deb import FileOwner
from graphcrate.compat.facts import identities, suites
from graphcrate.inputs.bases.debroot_errors import translated
from graphcrate.model.plan import LAYER_MTIME
from ocilayout.tar import EntryType, header, padding

_RULES = "graphcrate"  #: name of the file with dpkg's rules


def private_keys(root: Path) -> list[str]:
    """Private keys that were made here, as no package brings them, and that the list of identities does not know."""
    with translated():
        return normalise.private_keys(root, lambda path: identities.pattern().fullmatch(path) is not None)


def entries(root: Path, owners: Mapping[str, FileOwner], suite: str, left_out: Collection[str] = ()) -> Iterator[bytes]:
    """The layer's tar blocks without the end of archive, in pieces: of the tree at `root`. `owners`: not root's paths.

    `left_out`: paths that are not to be in it, beside those that no base has. Raises BuildError for what a base cannot
    have.
    """
    listed = identities.pattern()
    with translated():
        written = normalise.written_files(root, suite, suites.distribution_of(suite), _RULES)
        for entry in normalise.entries(
            root, owners, written, lambda path: listed.fullmatch(path) is not None or path in left_out
        ):
            kind = EntryType(entry.kind)
            yield header(
                entry.path,
                kind,
                mode=entry.mode,
                mtime=LAYER_MTIME,
                size=entry.size,
                link=entry.link,
                uid=entry.uid,
                gid=entry.gid,
            )
            if kind is EntryType.FILE:
                yield from entry.pieces()
                yield padding(entry.size)
