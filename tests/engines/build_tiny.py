"""A program: builds a text on the tiny base and says what came of it. A test starts it, and interrupts it.

python -m tests.engines.build_tiny ENGINE FOLDER TEXT
"""

import sys
from pathlib import Path

from graphcrate.engines.builders import oci
from graphcrate.host import oci_engine, process, settings
from graphcrate.host.cache import Cache
from tests.engines import tiny


def main(engine, folder, text):
    process.interrupt_on_terminate()
    oci.dockerfile = lambda *_, **__: text
    if engine == "classic":
        oci_engine._has_buildkit = lambda *_: False
    builder = oci.Builder("podman" if engine == "podman" else "docker")
    cache = Cache(Path(folder, "cache"))
    try:
        print(builder.build(tiny.order(Path(folder), cache, settings.environment())))
    except KeyboardInterrupt:
        print("interrupted")
        return 130
    finally:
        cache.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
