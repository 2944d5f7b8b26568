"""Parsing what Slurm's commands print."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcrate.engines.slurm import parse
from graphcrate.engines.slurm.parse import JobView, Partition

SCONTROL = (
    "JobId=3 ArrayJobId=3 ArrayTaskId=1 JobName=wrap UserId=root(0) JobState=NODE_FAIL Reason=NodeDown ExitCode=0:15 "
    "StartTime=2026-11-22T00:58:06 NodeList=n1 BatchHost=n1 Command=(null)\n"
    "JobId=9 JobName=graphcrate-test JobState=CANCELLED Reason=None ExitCode=0:0 NodeList=(null)\n"
    "JobId=11 ArrayJobId=11 ArrayTaskId=0-1,5%2 JobState=PENDING Reason=Priority ExitCode=0:0 NodeList=\n"
)


@pytest.mark.parametrize(
    ("read", "text", "expected"),
    [
        (
            parse.partitions,
            "dgx2|up|infinite|gpu:16\na100|down|7-00:00:00|gpu:a100:4\nsmall|up|1:00:00|(null)\n",
            (
                Partition("dgx2", True, "infinite", "gpu:16"),
                Partition("a100", False, "7-00:00:00", "gpu:a100:4"),
                Partition("small", True, "1:00:00", ""),
            ),
        ),
        (  # two kinds of nodes
            parse.partitions,
            "a100|up|infinite|gpu:4\na100|up|infinite|gpu:8\na100|up|infinite|(null)\n",
            (Partition("a100", True, "infinite", "gpu:4,gpu:8"),),
        ),
        (
            parse.queue,
            "7|COMPLETED|n1|None\n12_0|RUNNING|n1|None\n12_1|PENDING||PartitionDown\n13|CANCELLED by 0|n2|None\n",
            {
                "7": JobView("COMPLETED", "n1"),
                "12_0": JobView("RUNNING", "n1"),
                "12_1": JobView("PENDING", "", "PartitionDown"),
                "13": JobView("CANCELLED", "n2"),
            },
        ),
        (  # allocations alone
            parse.accounting,
            "20|TIMEOUT|n1|None|0:0\n20.batch|CANCELLED|n1||0:15\n21_3|CANCELLED by 1000|None assigned|None|0:0\n",
            {"20": JobView("TIMEOUT", "n1", "", "0:0"), "21_3": JobView("CANCELLED", "", "", "0:0")},
        ),
        *[
            (parse.numbers, text, tasks)
            for text, tasks in {"3": [3], "0-6:3,9%4": [0, 3, 6, 9], "": [], "a": [], "5-2": []}.items()
        ],
        (parse.has_pyxis, "      --container-image=[USER@][REGISTRY#]IMAGE[:TAG]|PATH\n", True),
        (parse.has_pyxis, "      --container=PATH          Path to OCI container bundle\n", False),
        (parse.has_pyxis, "nothing of --container-image here\n", False),
        (
            parse.last_error,
            ["sbatch: error: invalid partition specified: x", "sbatch: error: Batch job submission failed: No", "end"],
            "Batch job submission failed: No",
        ),
        (parse.last_error, ["", "something else", ""], "something else"),
        (parse.last_error, [], ""),
    ],
)
def test_what_slurm_prints_is_read(read, text, expected):
    assert read(text) == expected


def test_how_jobs_ended():
    views = parse.scontrol_jobs(SCONTROL)
    assert views["3_1"].words == "NODE_FAIL on n1 (NodeDown, exit code 0:15)"
    assert views["9"].words == "CANCELLED"
    assert set(views) == {"3_1", "9", "11_0", "11_1", "11_5"}


def test_no_state_is_both_waiting_and_ended():
    assert not parse.WAITING & parse.ENDED


@pytest.mark.parametrize(
    ("reasons", "is_hopeless"),
    [
        ("BadConstraints PartitionTimeLimit AssocMaxCpuPerJobLimit QOSMaxGRESPerJob", True),
        ("Resources Priority PartitionDown QOSMaxJobsPerUserLimit ReqNodeNotAvail", False),
    ],
)
def test_some_reasons_are_hopeless(reasons, is_hopeless):
    for reason in reasons.split():
        assert bool(parse.HOPELESS.search(reason)) is is_hopeless, reason


word = st.text("abcXYZ019_-.:()[],", min_size=1, max_size=12)
state = st.sampled_from(sorted(parse.WAITING | parse.ENDED | {"RUNNING", "COMPLETING"}))
job_id = st.one_of(
    st.integers(1, 9**9).map(str), st.tuples(st.integers(1, 9**9), st.integers(0, 9999)).map("{0[0]}_{0[1]}".format)
)


@given(st.dictionaries(job_id, st.tuples(state, word, word), max_size=6))
def test_a_queue_is_read_as_it_was_written(jobs):
    text = "".join(f"{job}|{state}|{node}|{reason}\n" for job, (state, node, reason) in jobs.items())
    assert {job: view.state for job, view in parse.queue(text).items()} == {
        job: value[0] for job, value in jobs.items()
    }


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), min_size=1, max_size=5))
def test_ranges_are_their_numbers(ranges):
    text = ",".join(f"{first}-{first + more}" for first, more in ranges)
    assert parse.numbers(text) == [number for first, more in ranges for number in range(first, first + more + 1)]


@given(st.text(max_size=300))
def test_no_output_breaks_the_parsers(text):
    for read in (parse.partitions, parse.queue, parse.scontrol_jobs, parse.accounting):
        read(text)
    parse.has_pyxis(text)
    parse.last_error(text.splitlines())
