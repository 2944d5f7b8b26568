"""Measures what a site's shared cache saves: `python -m bench.site_cache [--image "pyg --cuda 11.7"]`.

Two users, each with an empty cache, build the same image, the second one from the registry on loopback that the first
one has filled. Without `--image` it is the smallest torch with a package that is compiled. Needs Debian's
docker-registry. Prints a row; nothing is written to docs/performance.md.
"""

import argparse
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from bench.clones import KEPT
from bench.main_job import working_folder
from bench.page import ROOT, machine, say, today
from graphcrate.host.context import Context
from tests.engines.daemons import registry_server
from tests.engines.workplace import versions

RECIPE = 'extends = "torch"\nname = "mine"\ncuda = "{cuda}"\npip = ["annoy"]\n'
GOAL = 1 / 3  #: of the first one's time, for the second


class Built(NamedTuple):
    """An image that a user built, and how long that took, in seconds."""

    digest: str
    seconds: float
    compiled: bool


def build(user: Path, words: list[str]) -> Built:
    """Build as a user whose home and cache are below a folder. Ends the bench where it fails."""
    environment = {name: os.environ[name] for name in KEPT if name in os.environ}
    environment |= {"HOME": str(user), "GRAPHCRATE_CACHE": str(user / "cache")}
    environment |= {"COSIGN_PASSWORD": "bench", "REGISTRY_PLAIN_HTTP": "*"}
    command = [str(ROOT / "build.py"), *words]
    say(shlex.join(command))
    begin = time.monotonic()
    done = subprocess.run(command, cwd=user, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{shlex.join(command)} ended with {done.returncode}\n{done.stderr}")
    return Built(done.stdout.strip().partition("@")[2], time.monotonic() - begin, "compiling " in done.stderr)


def measured(folder: Path, image: list[str], address: str) -> str:
    """Let two users build, and return the row."""
    first, second = folder / "first", folder / "second"
    for user in (first, second):
        user.mkdir()
    build(first, ["keys"])
    if not image:
        (folder / "mine.toml").write_text(RECIPE.format(cuda=versions()[1]))
        build(first, ["lock", str(folder / "mine.toml"), *versions()[2:]])
        image = [str(folder / "mine.toml"), *versions()[2:]]
    asked = ["image", *image, "--cache", f"{address}/cache", "--output"]
    filled = build(first, [*asked, str(first / "dist"), "--cache-key", str(first / "cosign.key")])
    taken = build(second, [*asked, str(second / "dist"), "--cache-trust", str(first / "cosign.pub")])
    if filled.digest != taken.digest or taken.compiled:
        sys.exit(f"the second user has another image, or compiled it: {filled}, {taken}")
    ratio = taken.seconds / filled.seconds
    verdict = "within" if ratio <= GOAL else "above"
    return (
        f"| {Path(image[0]).stem} {' '.join(image[1:])} | {filled.seconds:.0f} s | {taken.seconds:.0f} s "
        f"| {ratio:.2f}, {verdict} {GOAL:.2f} | {taken.digest[:19]} |\n"
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--image", default="", help="words of `image`, such as: pyg --cuda 11.7")
    given = options.parse_args()
    with working_folder(None) as folder, registry_server(folder / "registry") as address:
        row = measured(folder, shlex.split(given.image), address)
    sys.stdout.write(
        f"{today()}, once, {machine(Context.here(), on_gpu=False)}.\n\n"
        f"| image | first user | second user | second / first | digest of both |\n|---|---|---|---|---|\n{row}"
    )


if __name__ == "__main__":
    main()
