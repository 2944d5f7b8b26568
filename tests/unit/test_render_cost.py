"""What rendering everything costs, in calls of Python's functions: a clock would judge the machine and its other work.

Today there are 290,000, and `./build.py render` takes half a second. Compiling the templates for each text would take
1,340,000.
"""

import sys
from pathlib import Path

from graphcrate import texts
from graphcrate.host.workplace import Workplace

PLACE = Workplace(root=Path(__file__).parents[2], environment={})
BOUND = 400_000


def test_all_texts_of_all_variants_are_cheap_to_render(tmp_path):
    wrote = []
    count = calls(lambda: wrote.extend(texts.render_all(PLACE, None, None, texts.Choice(), tmp_path)))
    assert len(wrote) == len(list((PLACE.root / "images").glob("*/*")))
    assert count < BOUND


def calls(work):
    """How many Python functions are called while this works."""
    count = 0

    def seen(frame, event, argument):
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count
