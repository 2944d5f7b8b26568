"""Write doctor/facts.py from graphcrate/compat/data and recipes/*.toml.

`python -m tools.doctor_facts` rewrites it; a unit test fails when it is stale. The doctor runs where neither msgspec
nor tomllib is, so it has the facts as Python.
"""

import pprint
import tomllib
from typing import Any

from graphcrate import recipes
from graphcrate.compat import facts, glt
from tools.generate import ROOT

MODULE = ROOT / "doctor" / "facts.py"
HEAD = '''\
"""What drivers, GPUs, builds of torch and graphlearn-torch want of each other.

Written by `python -m tools.doctor_facts` from graphcrate/compat/data and recipes/. Do not edit.
"""
'''


def _drivers() -> dict[str, Any]:
    return tomllib.loads((ROOT / "graphcrate" / "compat" / "data" / "drivers.toml").read_text(encoding="utf-8"))


def _variants() -> list[tuple[str, str, tuple[str, ...]]]:
    """CUDA of a variant, its torch, and what that has code for; each CUDA and torch once, the newest last."""
    builds = {(build.torch, build.cuda): tuple(build.sm) for build in facts.torch_builds()}
    found = set()
    for path in (ROOT / "recipes").glob("*.toml"):
        for variant in recipes.load(path).variants:
            for way in variant.candidates[:1] if variant.unavailable is None else ():
                version = way.torch.partition("+")[0]
                if variant.cuda != "cpu":
                    found.add((variant.cuda, version, builds.get((version, way.torch_cuda), ())))
    return sorted(found, key=lambda row: ([int(part) for part in row[0].split(".")], row[1]))


def _releases() -> dict[str, tuple[tuple[str, ...], str]]:
    return {release.version: (tuple(release.torch), release.cuda) for release in glt.releases()}


def text() -> str:
    """The module."""
    drivers = _drivers()
    values = (
        ("MINIMUM_DRIVERS", "major CUDA version → the oldest driver that runs what it made", drivers["minimum"]),
        ("TOOLKIT_DRIVERS", "CUDA version → the driver that came with it", drivers["toolkit"]),
        ("GPU_CAPABILITIES", "GPU model → compute capability", facts.all_gpus()),
        ("VARIANTS", "CUDA of our variants, torch, compute capabilities with machine code", _variants()),
        ("GLT_RELEASES", "graphlearn-torch → series of torch, major CUDA version", _releases()),
    )
    parts = [HEAD]
    for name, meaning, value in values:
        # one entry a line with double quotes, as ruff formats
        parts.append(f"\n#: {meaning}\n{name} = {_literal(value)}\n")
    return "".join(parts)


def _literal(value: object) -> str:
    if isinstance(value, dict):
        rows = [f"    {_quoted(key)}: {_quoted(entry)},\n" for key, entry in value.items()]
        return "{\n" + "".join(rows) + "}"
    assert isinstance(value, list)
    return "(\n" + "".join(f"    {_quoted(entry)},\n" for entry in value) + ")"


def _quoted(value: object) -> str:
    return pprint.pformat(value, width=1000).replace("'", '"')


if __name__ == "__main__":
    MODULE.write_text(text(), encoding="utf-8")
