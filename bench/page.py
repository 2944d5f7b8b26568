"""docs/performance.md as benches write it: each its own section between two marks; and what every section tells."""

import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from graphcrate.host import settings
from graphcrate.host.context import Context
from graphcrate.host.sandbox import gpu

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "performance.md"


@dataclass(frozen=True)
class Section:
    """The part of a page between the marks of a name; `bench` is the program that writes it."""

    name: str
    bench: str

    @property
    def begin(self) -> str:
        """The mark before it, a line."""
        return f"<!-- {self.name}: written by {self.bench} -->\n"

    @property
    def end(self) -> str:
        """The mark after it."""
        return f"<!-- end of {self.name} -->\n"

    def put(self, page: str, text: str) -> str:
        """The page with `text` in the place of what stood there. ValueError where it has no such place."""
        before, begin, rest = page.partition(self.begin)
        _, end, after = rest.partition(self.end)
        if not begin or not end:
            raise ValueError(f"there is no place for the section: {self.begin}{self.end}")
        return f"{before}{begin}{text}{end}{after}"

    def write(self, text: str) -> None:
        """Put it into the page and show it."""
        PAGE.write_text(self.put(PAGE.read_text(encoding="utf-8"), text), encoding="utf-8")
        sys.stdout.write(text)


def today() -> str:
    """The date, as the sections begin with."""
    return settings.now_utc()[:10]


def machine(ctx: Context, *, on_gpu: bool) -> str:
    """Device, driver, cores, kernel and commit, in a sentence and its end."""
    driver = f" (driver {gpu.driver_version()})" if on_gpu else "; no GPU was at hand"
    commit = subprocess.check_output(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], encoding="utf-8").strip()
    return (
        f"on {gpu.device(ctx.environment, on_gpu=on_gpu)}{driver}, {os.cpu_count()} cores, Linux "
        f"{platform.release()}, commit {commit}. Processes that wanted a core at the end: {os.getloadavg()[1]:.1f}"
    )


def spread(values: Sequence[float], digits: int = 3) -> str:
    """`1.004 (0.991 … 1.020)`: median, least, most."""
    median, least, most = (f"{one:.{digits}f}" for one in (statistics.median(values), min(values), max(values)))
    return f"{median} ({least} … {most})"


def say(message: str) -> None:
    """To who watches."""
    sys.stderr.write(f"bench: {message}\n")
