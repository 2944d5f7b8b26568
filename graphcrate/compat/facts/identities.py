"""Keys and names that Debian's packages make at their installation, and that no two machines may share.

`data/identities.toml` is the list. No base has any of them: what is installed in one is in every copy of an image.
Where a program needs them, it makes its own at its first start in a copy. Until then Debian's program waits in `PLACE`,
by a diversion that dpkg knows of, and a few lines of shell have its place. Then it takes that again.
"""

import functools
import hashlib
import re
from collections.abc import Collection, Iterator, Sequence

import msgspec

from graphcrate.compat.facts.facts import table_reader

PLACE = "/usr/lib/graphcrate"  #: where programs wait for their first start, by their own names


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Files that each of `packages` makes: these `paths`, patterns of the shell, a folder with all that is below it.

    Each of `programs` that is there runs `commands`, which make what is missing, at its first start, if `folder` can be
    written. `by_hand` is for people: where no program makes it, or where it has to be a certain one.
    """

    packages: tuple[str, ...]
    paths: tuple[str, ...]
    what: str
    known: str
    programs: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    folder: str = ""
    by_hand: str = ""


#: all of them
identities = table_reader("identities", tuple[Identity, ...], "identity")


@functools.cache
def pattern() -> re.Pattern[str]:
    """Match every path of the list, from the root of a base and without the first slash."""
    patterns = (_translated(path.strip("/")) for identity in identities() for path in identity.paths)
    return re.compile(f"(?:{'|'.join(patterns)})(?:/.*)?", re.DOTALL)


def _translated(path: str) -> str:
    """A regular expression for a pattern of the shell that has no other sign than `*`."""
    return "[^/]*".join(map(re.escape, path.split("*")))


def of(packages: Collection[str]) -> tuple[Identity, ...]:
    """Return what these packages of Debian make."""
    return tuple(identity for identity in identities() if not set(identity.packages).isdisjoint(packages))


def key(packages: Collection[str]) -> str:
    """Return what becomes another where a base of these packages would get other bytes; empty for ordinary ones."""
    lines = "\n".join(after_install(packages))
    return hashlib.sha256(lines.encode()).hexdigest() if lines else ""


def after_install(packages: Collection[str]) -> tuple[str, ...]:
    r"""Return what root's shell runs where these packages were installed: removes things, puts wrappers in place.

    A line is a command, which ` \` at its end continues. They can run again.
    """
    members = of(packages)
    lines = [line for identity in members for path in identity.paths for line in _removed(path)]
    for program in dict.fromkeys(program for identity in members for program in identity.programs):
        lines += _diverted(
            program, wrapper(program, [identity for identity in members if program in identity.programs])
        )
    return tuple(lines)


def _removed(path: str) -> Iterator[str]:
    """A file, and the links to it beside it: certificates have a second name, by their hash."""
    folder, _, name = path.rpartition("/")
    yield f"rm -rf {path}"
    if "*" not in name:
        yield f"if [ -d {folder} ]; then find {folder} -maxdepth 1 -lname {name} -delete; fi"


def _diverted(program: str, text: str) -> Iterator[str]:
    """By dpkg's own means, so that an upgrade replaces the program where it waits."""
    waiting = _waiting(program)
    yield f"if dpkg-query --search {program} > /dev/null 2>&1 && [ ! -e {waiting} ]; then \\"
    yield f"    mkdir -p {PLACE} \\"
    yield f" && dpkg-divert --quiet --local --rename --divert {waiting} --add {program} \\"
    yield f" && printf '%s\\n' > {program} \\"
    yield from (f"    {_quoted(line)} \\" for line in text.splitlines())
    yield f" && chmod 755 {program}; \\"
    yield "fi"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _waiting(program: str) -> str:
    return f"{PLACE}/{program.rpartition('/')[2]}"


def wrapper(program: str, making: Sequence[Identity]) -> str:
    """Write what has a program's place until its first start.

    Input and output are left alone: they may be a client's connection. One start at a time makes things; another that
    waited for it finds them made. What fails is left to the program itself to tell.
    """
    waiting, (folder, _, name) = _waiting(program), program.rpartition("/")
    steps = [f"[ -w {identity.folder} ]" for identity in making]
    steps += [f"{{ {command}; }}" for identity in making for command in identity.commands]
    steps += [
        f"[ -w {folder} ]",
        f"dpkg-divert --quiet --local --no-rename --remove {program}",
        f"mv -f {waiting} {program}",
    ]
    made = " &&\n    ".join(steps)
    return f"""\
#!/bin/sh
# Keys and names of one machine are not in an image. Each copy makes its own here, before {name} starts for the first
# time; then the program itself takes this place again. Where nothing can be written, it starts as it is.
(
    PATH=/usr/sbin:/usr/bin:/sbin:/bin; export PATH
    umask 022
    flock 9
    [ -x {waiting} ] || exit
    {made}
) 9< {PLACE} < /dev/null > /dev/null 2>&1
if [ -x {waiting} ]; then exec {waiting} "$@"; fi
if ! grep -qs {waiting} {program}; then exec {program} "$@"; fi
echo "{program}: {waiting} is missing: install the package of {name} again" >&2
exit 127
"""
