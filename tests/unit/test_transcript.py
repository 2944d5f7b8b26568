"""What is read from the output of classic Docker, BuildKit and buildah."""

import io
from pathlib import Path

import pytest

from graphcrate.engines.builders.transcript import Transcript

LOG = Path("build.log")


class Clock:
    """A clock that a test moves."""

    now = 100.0

    def __call__(self):
        return self.now


class Heard:
    """A transcript with what it said and logged."""

    def __init__(self, prefix="docker", secrets=()):
        self.log, self.said, self.clock = io.StringIO(), [], Clock()
        self.transcript = Transcript(self.log, self.said.append, self.clock, prefix=prefix, secrets=secrets)

    def lines(self, *lines):
        for line in lines:
            self.transcript.line(line)
        return self.transcript


def test_classic_steps_are_told_with_their_time():
    heard = Heard()
    heard.lines(
        "Step 1/2 : FROM base", " ---> 0123456789ab", "Step 2/2 : RUN apt-get  update", " ---> Running in ba9876543210"
    )
    heard.clock.now += 12.34
    heard.lines("Removing intermediate container ba9876543210", " ---> 00112233aabb")
    heard.transcript.finish()
    assert heard.said == ["docker 1/2 FROM base", "docker 2/2 RUN apt-get update", "docker 2/2 took 12.3 s"]
    assert heard.transcript.images == ["0123456789ab", "00112233aabb"]
    assert heard.transcript.containers == ["ba9876543210"]


def test_pieces_of_lines_are_put_together():
    heard = Heard()
    for piece in ("Step 1/1 : RUN a", " && b\nhal", "f\r", "line\r\n", "rest"):
        heard.transcript.feed(piece)
    heard.transcript.finish()
    assert heard.log.getvalue().splitlines() == ["Step 1/1 : RUN a && b", "half", "line", "rest"]


def test_buildkit_steps_run_side_by_side():
    heard = Heard()
    heard.lines(
        "#1 [internal] load build definition from Dockerfile",
        "#1 DONE 0.0s",
        "#5 [one 2/3] RUN first",
        "#6 [two 2/3] RUN second",
        "#5 0.123 of the first",
        "#6 0.200 of the second",
    )
    heard.clock.now += 5
    heard.lines(
        "#6 DONE 5.0s",
        "#5 7.000 last of the first",
        '#5 ERROR: process "/bin/sh -c first" did not complete successfully: exit code: 7',
        "------",
        " > [one 2/3] RUN first:",
        "------",
    )
    heard.transcript.finish()
    assert heard.said == ["docker one 2/3 RUN first", "docker two 2/3 RUN second", "docker two 2/3 took 5.0 s"]
    error = heard.transcript.failure("the build", "failed to solve: exit code: 7", LOG)
    first, *lines = error.what.splitlines()
    assert first == "the build failed at step one 2/3 RUN first"
    assert lines[:2] == ["    of the first", "    last of the first"]
    assert "second" not in error.what
    assert error.cause == "The command ended with exit code 7."


def test_buildah_steps_have_their_stage():
    heard = Heard(prefix="podman")
    heard.lines(
        "[1/2] STEP 1/3: FROM base AS build", "[1/2] STEP 2/3: RUN a", "said", "--> 36310e1cc2b", "STEP 1/1: RUN b"
    )
    assert heard.said == ["podman [1/2] 1/3 FROM base AS build", "podman [1/2] 2/3 RUN a", "podman 1/1 RUN b"]
    assert heard.transcript.images == ["36310e1cc2b"]


def test_cached_images_of_buildah_count():
    digits = "b17a2726cf02d42d13d495bb8d3c52be7300df1288afebbc4b8dda19e6caf77b"
    assert Heard().lines(f"--> Using cache {digits}").images == [digits]


def test_a_failure_shows_the_last_twenty_lines_of_its_step():
    heard = Heard()
    heard.lines("Step 1/2 : RUN before", "from before", "Step 2/2 : RUN long", *(f"line {n}" for n in range(50)))
    heard.lines("\x1b[91mred", "\x1b[0m")
    error = heard.transcript.failure("the build", "The command 'x' returned a non-zero code: 2", LOG)
    lines = error.what.splitlines()[1:]
    assert lines == [*(f"    line {n}" for n in range(31, 50)), "    red"]
    assert error.cause == "The command ended with exit code 2."
    assert "less build.log" in error.next_step


def test_a_long_instruction_is_cut_where_it_is_shown_and_whole_in_the_log():
    heard = Heard()
    heard.lines(f"Step 1/1 : RUN {'x' * 500}")
    assert len(heard.said[0]) < 150
    assert "x" * 500 in heard.log.getvalue()


def test_secrets_appear_nowhere():
    heard = Heard(secrets=("me:hush",))
    heard.lines("Step 1/1 : RUN curl http://me:hush@proxy", "no route to http://me:hush@proxy")
    error = heard.transcript.failure("the build", "http://me:hush@proxy does not answer", LOG)
    assert "hush" not in heard.log.getvalue() + "".join(heard.said) + str(error)
    assert "http://***@proxy does not answer" in error.cause


@pytest.mark.parametrize(
    ("prefix", "lines"),
    [
        ("docker", ["Step 1/9 : FROM debian:none AS base"]),
        ("docker", ["#3 [internal] load metadata for debian:none", "#3 ERROR: no such host"]),
        ("podman", ["[1/2] STEP 1/5: FROM debian:none AS build", "Trying to pull debian:none..."]),
    ],
)
def test_a_base_that_cannot_be_had_is_named(prefix, lines):
    error = Heard(prefix).lines(*lines).failure("the build", "no such host", LOG)
    assert error.cause == "The base image debian:none cannot be had: no such host"
    assert error.next_step.startswith(f"{prefix} pull debian:none ")


def test_a_failure_of_no_step_has_what_was_said_last():
    heard = Heard()
    heard.lines("#1 [internal] load build definition", "#1 DONE 0.0s", "failed to solve: unknown instruction: RUNN")
    error = heard.transcript.failure("the build", "unknown instruction: RUNN", LOG)
    assert error.what == "the build failed\n    failed to solve: unknown instruction: RUNN"
