"""The table of docs/requirements.md: files that are taken, and how many of tests/files say what of each line."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILES = ROOT / "tests" / "files"
HEAD = ("file", "what is taken", "tested with")
#: names of files in the corpus, as the manual writes them, and what is taken of each
ROWS = (
    (
        ("requirements.txt",),
        "pip's format: packages, `-r`, `-c`, `-e ./project[extra]`, hashes, UTF-8 or UTF-16 with a mark, any line ends",
    ),
    (
        ("pyproject.toml",),
        "`[project]`, Poetry's or pixi's tables. `REQUIREMENTS='pyproject.toml[train,dev]'` takes extras, groups and "
        "features with it",
    ),
    (("pixi.toml",), "pixi's packages, conda's as of an `environment.yml`"),
    (
        ("uv.lock", "poetry.lock", "pdm.lock"),
        "what the project needs, in the versions of the lock, with its hashes",
    ),
    (
        ("pylock.toml",),
        "all its packages of the default groups; `pylock.toml[gpu,dev]` takes an extra and a group, too",
    ),
    (
        ("environment.yml",),
        "the `pip:` part, and of conda's packages those whose name on the package index is known",
    ),
    (("list.txt",), "the same"),
)
#: of a name in the corpus, what people have under it
_SHOWN = {"list.txt": "conda list --export"}


def rows() -> list[tuple[str, ...]]:
    """Return the table's rows."""
    return [(", ".join(f"`{_SHOWN.get(name, name)}`" for name in names), what, _tested(names)) for names, what in ROWS]


def _tested(names: tuple[str, ...]) -> str:
    """Count the examples of these names, and the lines of which they say what becomes."""
    tables = [path for name in names for path in FILES.glob(f"*/*.{name}.expected")]
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in tables)
    return f"{len(tables)} file{'s' * (len(tables) != 1)}, {lines} lines"
