"""The time that a site lets its users wait: for a page's first byte, a refusal, a plan; and 200 requests at once.

    .venv/bin/python -m bench.serve [--rounds 15]

It starts a site of its own over an empty folder and prints medians. A plan is measured from its request to its result,
with what the cache has after the first one; each has another GPU, since equal requests are one plan. Of 200 requests at
once 180 are equal: 21 plans are to come of them.
"""

import argparse
import http.client
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from graphcrate.compat.facts import gpu_table

ROOT = Path(__file__).resolve().parent.parent
AT_ONCE, EQUAL = 200, 180
REFUSED = {"gpu": "v100", "driver": "450.80.02", "cuda": "12.1"}
STEP = 0.02  #: seconds between two looks


def ask(address: str, method: str, path: str, value: dict[str, str] | None = None) -> tuple[float, int, bytes]:
    """Ask the site; seconds until the first byte, the status, and the answer."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=120)
    body = None if value is None else json.dumps(value)
    start = time.perf_counter()
    connection.request(method, path, body, {"content-type": "application/json"})
    answer = connection.getresponse()
    first = answer.read(1)
    seconds = time.perf_counter() - start
    return seconds, answer.status, first + answer.read()


def plan(address: str, question: dict[str, str]) -> float:
    """Seconds until a plan is there."""
    start = time.perf_counter()
    job = json.loads(ask(address, "POST", "/v1/plans", question)[2])
    while job["state"] in ("waiting", "running"):
        time.sleep(STEP)
        job = json.loads(ask(address, "GET", f"/v1/jobs/{job['id']}")[2])
    if job["state"] != "done":
        sys.exit(f"the plan ended as {job['state']}:\n{job['lines'] or job['log'] or job['note']}")
    return time.perf_counter() - start


def crowd(address: str) -> tuple[int, int, float]:
    """Send all requests at once: distinct plans, answers that were refused, seconds until the last answer."""
    packages = ["ase"] * EQUAL + [f"ase>={number}" for number in range(AT_ONCE - EQUAL)]
    start = time.perf_counter()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(lambda word: ask(address, "POST", "/v1/plans", {"packages": word}), packages))
    seconds = time.perf_counter() - start
    names = {json.loads(body)["id"] for _, status, body in answers if status == http.HTTPStatus.ACCEPTED}
    for name in names:  # they are not waited for
        ask(address, "DELETE", f"/v1/jobs/{name}")
    return len(names), sum(status != http.HTTPStatus.ACCEPTED for _, status, _ in answers), seconds


def measure(address: str, rounds: int) -> None:
    """Measure, and print a line for each."""

    def median(name: str, function: Callable[[], float], limit: str) -> None:
        times = [function() for _ in range(rounds)]
        spread = f"{min(times) * 1000:.0f} to {max(times) * 1000:.0f}"
        sys.stdout.write(f"{name}: {statistics.median(times) * 1000:.0f} ms ({spread}; at most {limit})\n")

    median("first byte of the page", lambda: ask(address, "GET", "/")[0], "50 ms")
    median("a refusal with its reason", lambda: ask(address, "GET", f"/v1/explain?{urlencode(REFUSED)}")[0], "1 s")
    models = iter([name.lower() for name in gpu_table.gpus()][: rounds + 1])
    cold = plan(address, {"stack": "torch", "gpu": next(models), "cuda": ""})
    sys.stdout.write(f"the first plan: {cold:.1f} s\n")
    times: list[float] = [plan(address, {"stack": "torch", "gpu": model}) for model in models]
    sys.stdout.write(f"a plan, warm: {statistics.median(times):.1f} s ({min(times):.1f} to {max(times):.1f}; 3 s)\n")
    plans, refused, seconds = crowd(address)
    sys.stdout.write(
        f"{AT_ONCE} requests at once, {EQUAL} equal: {plans} plans, {refused} refused, in {seconds:.1f} s\n"
    )


def main(words: list[str] | None = None) -> None:
    """Start a site, measure it, end it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    given: Any = parser.parse_args(words)
    folder = Path(tempfile.mkdtemp(prefix="bench-serve-"))
    program = [sys.executable, "-E", "-s", str(ROOT / "build.py"), "serve", "--listen", "127.0.0.1:0"]
    site = subprocess.Popen([*program, "--output", str(folder)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert site.stdout
        measure(site.stdout.readline().decode().strip().rstrip("/"), given.rounds)
    finally:
        site.terminate()
        site.wait()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
