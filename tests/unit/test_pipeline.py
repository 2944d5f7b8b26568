"""What of the pipeline needs neither a network nor a process."""

from types import SimpleNamespace

import pytest

from graphcrate.build import pipeline
from graphcrate.model.errors import UsageError


def test_the_images_time_is_that_of_the_environment():
    assert [pipeline._created(epoch) for epoch in ("", "0", "1700000000")] == [None, 0, 1_700_000_000]
    for epoch in ("yesterday", "-1", "1.5", "1e9", "\N{SUPERSCRIPT TWO}", "9" * 20, " "):
        with pytest.raises(UsageError, match="invalid time") as caught:
            pipeline._created(epoch)
        assert caught.value.next_step.startswith("SOURCE_DATE_EPOCH=$(date +%s) make image")


def test_what_is_in_the_way_of_a_further_tag_is_said_before_the_build(tmp_path):
    job = SimpleNamespace(request=SimpleNamespace(output=tmp_path, name="pyg"))
    plan = SimpleNamespace(name="pyg", tag="1.0", aliases=("0.1.0-debian12",))
    pipeline._check_output(job, plan)
    (tmp_path / "pyg" / "0.1.0-debian12").mkdir(parents=True)
    with pytest.raises(UsageError, match="exists and is not a link") as caught:
        pipeline._check_output(job, plan)
    assert caught.value.next_step.startswith("mv ")
