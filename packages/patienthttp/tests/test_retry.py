"""One budget of tries and pauses."""

import itertools

import pytest

from patienthttp.errors import HttpError, NoAnswer
from patienthttp.retry import LONGEST_PAUSE, MOST, TRIES, Retry


def failing(times, reason=NoAnswer.STATUS, status=503, after=None):
    """A function that fails so often, and then answers."""
    left = [times]

    def attempt():
        if left[0] == 0:
            return "answer"
        left[0] -= 1
        error = HttpError.of(
            reason, "https://registry.example/v2/", status=status if reason is NoAnswer.STATUS else None
        )
        error.retry_after = after
        raise error

    return attempt


def test_retry_pauses_grow_with_jitter_or_follow_retry_after():
    pauses, lines = [], []
    retry = Retry(pauses.append)
    retry.note = lines.append
    assert retry.call(failing(TRIES)) == "answer"
    for number, pause in enumerate(pauses):
        assert 0.25 * 2**number <= pause <= 0.5 * 2**number
    assert lines == []
    retry.call(failing(3, status=429, after=7.0))
    assert pauses[TRIES:] == [7.0] * 3
    assert lines == ["HTTP 429 (registry.example): trying again in 7 s"] * 3
    with pytest.raises(HttpError):
        retry.call(failing(1, status=429, after=LONGEST_PAUSE + 1))
    assert len(pauses) == TRIES + 3


def test_retry_budget_is_shared_by_all_requests():
    pauses = []
    retry = Retry(pauses.append, seconds=20.0)
    for _ in range(2):
        retry.call(failing(1, after=10.0))
    with pytest.raises(HttpError):
        retry.call(failing(1, after=10.0))
    assert pauses == [10.0, 10.0]


@pytest.mark.parametrize(
    ("reason", "status", "tries"),
    [
        (NoAnswer.STATUS, 503, TRIES),
        (NoAnswer.STATUS, 404, 0),
        (NoAnswer.CERTIFICATE, 0, 0),
        (NoAnswer.NAME, 0, 1),
    ],
)
def test_retry_count_by_error(reason, status, tries):
    pauses = []
    with pytest.raises(HttpError):
        Retry(pauses.append).call(failing(TRIES + 1, reason, status))
    assert len(pauses) == tries


def test_refused_connection_is_retried_more_after_a_first_answer():
    pauses = []
    retry = Retry(pauses.append)
    with pytest.raises(HttpError):
        retry.call(failing(2, NoAnswer.REFUSED))
    assert len(pauses) == 1
    retry.call(failing(0))
    assert retry.call(failing(TRIES, NoAnswer.REFUSED)) == "answer"


def test_download_progress_resets_the_failure_count():
    position, left = [0], [3 * TRIES]

    def attempt():
        if not left[0]:
            return "answer"
        left[0] -= 1
        position[0] += left[0] % TRIES == 0
        return failing(1)()

    assert Retry(lambda _: None).call(attempt, lambda: position[0]) == "answer"


def test_failures_of_one_budget_end_however_far_the_work_gets_between_them():
    """A server, or what stands in its place, that gives a byte and hangs up would keep us for days."""
    pauses = []
    with pytest.raises(HttpError):
        Retry(pauses.append).call(failing(-1, NoAnswer.CUT), itertools.count().__next__)
    assert len(pauses) == MOST


def test_nested_retry_uses_one_budget():
    pauses = []
    retry, broken = Retry(pauses.append), failing(99)
    with pytest.raises(HttpError):
        retry.call(lambda: retry.call(broken))
    assert len(pauses) == TRIES
