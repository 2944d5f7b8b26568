"""Colours of pages and pictures: text can be read on what is behind it."""

import re

import pytest

from graphcrate.pages.colours import COLOURS
from graphcrate.pages.html import render_page
from tests.contrast import LEAST, contrast

#: text, and what it may stand on
PAIRS = (
    *((text, ground) for text in ("ink", "soft", "accent") for ground in ("paper", "card")),
    *((text, "card") for text in ("yes", "limits", "built", "no")),
    *((text, f"{text}-bg") for text in ("yes", "limits", "built", "no")),
    *(("ink", f"{mark}-bg") for mark in ("yes", "limits", "built", "no")),
    *(("soft", ground) for ground in ("no-bg", "yes-bg")),
    *(("on", ground) for ground in ("torch", "nvidia", "pyg", "system", "other", "bar", "run")),
    ("on-ptx", "ptx"),
)


def test_contrast_is_that_of_wcag():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#ffffff", "#ffffff") == 1
    assert contrast("#777777", "#ffffff") == contrast("#ffffff", "#777777") == pytest.approx(4.48, abs=0.005)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colour_pairs_have_enough_contrast(scheme):
    found = {
        (text, ground): contrast(*(getattr(COLOURS[name], scheme) for name in (text, ground))) for text, ground in PAIRS
    }
    assert {pair: ratio for pair, ratio in found.items() if ratio < LEAST} == {}


def test_page_style_has_colours_of_the_table_only():
    style = render_page("base.html", {}).partition("<style>")[2].partition("</style>")[0]
    known = {colour.upper() for pair in COLOURS.values() for colour in pair} | {"#FFF", "#BBB"}  # those of paper: print
    assert {one.upper() for one in re.findall(r"#[0-9a-fA-F]{3,6}\b", style)} <= known
    defined = set(re.findall(r"--([\w-]+):", style))
    assert set(re.findall(r"var\(--([\w-]+)\)", style)) <= defined == set(COLOURS)
