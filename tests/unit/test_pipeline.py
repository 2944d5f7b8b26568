"""What of the pipeline needs neither a network nor a process."""

import pytest

from graphcrate import pipeline
from graphcrate.errors import UsageError


@pytest.mark.parametrize(("epoch", "created"), [("", None), ("0", 0), ("1700000000", 1_700_000_000)])
def test_the_images_time_is_that_of_the_environment(epoch, created):
    assert pipeline._created(epoch) == created


@pytest.mark.parametrize("epoch", ["yesterday", "-1", "1.5", "1e9", "\N{SUPERSCRIPT TWO}", "9" * 20, " "])
def test_a_time_that_is_none_is_said(epoch):
    with pytest.raises(UsageError, match="is no time") as caught:
        pipeline._created(epoch)
    assert caught.value.next_step.startswith("SOURCE_DATE_EPOCH=$(date +%s) make image")
