"""A first push beside skopeo's of the same layout, and a second variant that shares its layers, to a local registry.

    .venv/bin/python -m bench.pushing dist/torch/TAG/oci [dist/torch/OTHER/oci] [--rounds 3]

Needs `docker-registry` and `skopeo` (Debian). Each round has a registry of its own, empty, on loopback; the clients
take turns.
"""

import argparse
import contextlib
import functools
import os
import platform
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from graphcrate.host.net import Client
from graphcrate.host.progress import Progress
from graphcrate.oci import credentials, push, reference
from graphcrate.oci.layout import Layout, read_layout
from graphcrate.oci.registry import Repository
from ociregistry.push import Pushed

STARTS_WITHIN = 60  #: seconds


def main(arguments: Sequence[str]) -> int:
    """Measure, and print what came out."""
    given = parse(arguments)
    first = read_layout(given.layout)
    second = read_layout(given.second) if given.second else None
    print(f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, {platform.machine()}, Linux {platform.release()}")
    print(f"{given.layout}: {sum(layer.size for layer in first.layers) / 1e9:.2f} GB in {len(first.layers)} layers")
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(given.rounds):
        with registry() as address:
            ours.append(pushed(address, first)[0])
            if second is not None:
                seconds, result = pushed(address, second, "second")
                shared = result.bytes_there + result.bytes_mounted
                print(
                    f"second variant: {seconds:.2f} s, {result.bytes_sent} bytes sent, {shared} were there", flush=True
                )
            seconds, result = pushed(address, first, "again")
            print(f"the same under another name: {seconds:.2f} s, {result.bytes_sent} bytes sent", flush=True)
        with registry() as address:
            theirs.append(by_skopeo(address, given.layout))
    one, other = statistics.median(ours), statistics.median(theirs)
    print(f"first push: {one:.1f} s; skopeo: {other:.1f} s; {one / other:.2f} of its time (medians of {given.rounds})")
    print(f"memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6:.0f} MB at most")
    return 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("layout", type=Path)
    parser.add_argument("second", type=Path, nargs="?")
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args(arguments)


@contextlib.contextmanager
def registry() -> Iterator[str]:
    """The address of an empty registry on loopback."""
    program = shutil.which("docker-registry")
    if program is None:
        sys.exit("docker-registry is not installed: apt-get install docker-registry")
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder) / "settings.yml"
        storage = {"filesystem": {"rootdirectory": f"{folder}/images"}}
        settings.write_bytes(msgspec.json.encode({"version": 0.1, "storage": storage, "http": {"addr": address}}))
        server = subprocess.Popen([program, "serve", settings], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for(address)
            yield address
        finally:
            server.terminate()
            server.wait()


def wait_for(address: str) -> None:
    """Until something listens there."""
    host, _, port = address.partition(":")
    deadline = time.monotonic() + STARTS_WITHIN
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
            return
        time.sleep(0.1)
    sys.exit("the registry does not start")


def pushed(address: str, layout: Layout, name: str = "first") -> tuple[float, Pushed]:
    """(seconds, what became of it) of a push by our client."""
    target = reference.parse(f"{address}/team/image:{name}")
    find = functools.partial(credentials.find, target, {})
    client = Client({})
    began = time.monotonic()
    result = push.push_layout(Repository(client, target, find, writes=True), layout, "docker", Progress())
    return time.monotonic() - began, result


def by_skopeo(address: str, layout: Path) -> float:
    """Seconds of the same by skopeo, blobs as they are."""
    source = f"oci:{layout}" + (f":{tag}" if (tag := read_layout(layout).tag) else "")
    command = ["skopeo", "copy", "--quiet", "--insecure-policy", "--format", "v2s2", "--dest-tls-verify=false"]
    began = time.monotonic()
    subprocess.run([*command, source, f"docker://{address}/team/image:first"], check=True)
    return time.monotonic() - began


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
