"""Options of commands that build: one row each, from the field of a request to make's setting.

The command line declares an option with its help (`cli.main`, `cli.options`); all else that is known of it is here.
"""

from typing import NamedTuple


class BuildOption(NamedTuple):
    """An option by its `name`, and the `field` of `compat.variants.request.BuildRequest` that has its value.

    A field that is as in a request without it is not typed; empty: no request has it. `again`: commands that are
    printed with it, to ask for the same once more; `make`: targets of the Makefile that have it as a setting.
    `flag`: it has no value; `adds`: a further value goes beside those that were typed, and not in their place.
    """

    name: str
    field: str = ""
    again: tuple[str, ...] = ()
    make: tuple[str, ...] = ()
    flag: bool = False
    adds: bool = False


_BUILT = ("image", "publish")  #: by make: its `publish` builds the image, too

#: in the order in which they are printed
ROWS = (
    BuildOption("cuda", "cuda", ("image", "lock", "publish", "render"), _BUILT),
    BuildOption("platform", "other_platform", ("image", "lock", "publish"), _BUILT),
    BuildOption("target", "machine.target", ("image", "publish"), _BUILT),
    BuildOption("gpu", "machine.gpu", ("image", "publish"), _BUILT),
    BuildOption("driver", "machine.driver", ("image",), _BUILT),
    BuildOption("channel", "sources.channel", ("image", "lock"), _BUILT),
    BuildOption("mirror", "sources.shown_mirror", ("image", "lock"), _BUILT),
    BuildOption("wheels", "sources.wheels", ("image", "lock"), _BUILT),
    BuildOption("extensions", "sources.extensions", ("image", "lock"), _BUILT),
    BuildOption("toolkit", "sources.toolkit", ("image", "lock"), _BUILT),
    BuildOption("pyg-lib", "sources.shown_pyg_lib", ("image", "lock"), _BUILT),
    BuildOption("cache", "sources.shown_cache", ("image",), _BUILT),
    BuildOption("cache-trust", "sources.cache_trust", ("image",), _BUILT),
    BuildOption("cache-key", "sources.cache_key", ("image",), _BUILT),
    BuildOption("cache-check", "sources.cache_check", ("image",), _BUILT),
    BuildOption("engine", "engine", ("image",), ("image",)),
    BuildOption("flavour", "flavour", ("image",), _BUILT),
    BuildOption("slim", "slim", ("image",), _BUILT),
    BuildOption("pack", "packs", ("image",), ("image",)),
    BuildOption("with", "shown_packages", ("image",), _BUILT, adds=True),
    BuildOption("requirements", "requirements", ("image",), _BUILT, adds=True),
    BuildOption("apt", "typed_additions.apt", ("image",), _BUILT, adds=True),
    BuildOption("build-apt", "typed_additions.build_apt", ("image",), _BUILT, adds=True),
    BuildOption("build-env", "typed_additions.build_environment", ("image",), _BUILT, adds=True),
    BuildOption("trust-paths", "trust_paths", ("image", "lock", "publish", "render"), _BUILT, flag=True),
    BuildOption("walled", "sources.walled", ("image",), _BUILT, flag=True),
    BuildOption("locked", "sources.locked", ("image",), _BUILT, flag=True),
    BuildOption("without-security", "sources.without_security", ("image", "lock"), _BUILT, flag=True),
    BuildOption("output", "output", ("image", "publish")),
    BuildOption("no-smoke", "suites.skipped", ("image",), flag=True),
    BuildOption("rerun", "suites.rerun", ("image",), flag=True),
    BuildOption("keep-going", "suites.keep_going", ("image",), _BUILT, flag=True),
    BuildOption("device", "suites.device", ("image",)),
    *(BuildOption(name, "", ("image",), _BUILT) for name in ("on", "partition", "time", "account", "cpus")),
    BuildOption("quiet", "", ("image",), _BUILT, flag=True),
    BuildOption("verbose", make=_BUILT, flag=True),
    BuildOption("plan", make=_BUILT, flag=True),
    *(BuildOption(name, make=("image",)) for name in ("at", "save")),
    BuildOption("to", make=("publish",)),
    BuildOption("key", make=("publish",)),
    BuildOption("allow-cpu-only", make=("publish",), flag=True),
    BuildOption("allow-emulated", make=("publish",), flag=True),
)
