"""Pictures of README and docs/ as readers see them: by Chromium and librsvg, light and dark, wide and narrow.

Each text is looked for in the pixels where it has to be.
"""

import base64
import io
import re
import subprocess

import pytest
from PIL import Image

from tests import ROOT
from tests.conftest import program
from tests.contrast import LEAST, contrast

pytestmark = [pytest.mark.slow, pytest.mark.engine("chromium", "chromedriver", "rsvg-convert")]

PICTURES = sorted((ROOT / "docs" / "pictures").glob("*.svg"))
#: width in pixels (README on GitHub, a telephone) → the least height of letters' body there
SIZES = {838: 12.0, 390: 8.5}
SHARPNESS = 2  #: device pixels for each; telephones have three
NEAR = 90  #: how far a pixel of a letter may be from its colour, as letters have soft edges
#: a page has the picture as GitHub shows it, and below it, unseen, the same one whose parts can be asked
PAGE = """<!doctype html><meta charset="utf-8"><body style="margin: 0; background: {ground}">
<img src="{uri}" style="display: block; width: {width}px"><div style="position: absolute; top: 0; left: 0;
width: {width}px; visibility: hidden">{svg}</div>"""
TEXTS = """
const scale = arguments[0] / document.querySelector("div svg").viewBox.baseVal.width;
return [...document.querySelectorAll("div svg text")].filter((one) => one.textContent.trim()).map((one) => {
  const box = one.getBoundingClientRect(), style = getComputedStyle(one);
  return {text: one.textContent, box: [box.left, box.top, box.right, box.bottom], fill: style.fill,
    size: parseFloat(style.fontSize) * scale};
});"""


def shown(browser, folder, path, width, scheme):
    """The pixels of a picture as an image of a page, and its texts with their places."""
    ground = {"light": "#ffffff", "dark": "#0d1117"}[scheme]
    svg = re.sub(r'(<svg[^>]*?) width="\d+" height="\d+"', r'\1 width="100%"', path.read_text(encoding="utf-8"))
    page = folder / "page.html"
    page.write_text(PAGE.format(uri=path.as_uri(), width=width, svg=svg, ground=ground), encoding="utf-8")
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    metrics = {"width": width, "height": 1300, "deviceScaleFactor": SHARPNESS, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get(page.as_uri())
    texts = browser.execute_script(TEXTS, width)
    taken = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "format": "png"})
    return Image.open(io.BytesIO(base64.b64decode(taken["data"]))).convert("RGB"), texts


def by_librsvg(path, width, ground):
    """The pixels that librsvg draws, on a page of this colour."""
    command = [program("rsvg-convert"), "--width", str(width * SHARPNESS), "--background-color", ground, str(path)]
    drawn = subprocess.run(command, check=True, capture_output=True)
    return Image.open(io.BytesIO(drawn.stdout)).convert("RGB")


def code(colour):
    return "#{:02x}{:02x}{:02x}".format(*colour)


def faults(pixels, texts):
    """Faults of the texts in these pixels."""
    for one in texts:
        part = pixels.crop([round(edge * SHARPNESS) for edge in one["box"]])
        colours = part.getcolors(part.width * part.height)
        _, ground = max(colours)
        wanted = tuple(map(int, re.findall(r"\d+", one["fill"])[:3]))
        near = sum(count for count, seen in colours if sum(map(abs, map(int.__sub__, seen, wanted))) <= NEAR)
        found = contrast(code(wanted), code(ground))
        if found < LEAST:
            yield f"{one['text']!r}: {code(wanted)} on {code(ground)} is {found:.1f}"
        elif near < part.width * part.height / 200:
            yield f"{one['text']!r}: {near} pixels are {code(wanted)}"


def overlapping(texts):
    """Texts that are drawn over one another."""
    for at, one in enumerate(texts):
        left, top, right, bottom = one["box"]
        for other in texts[at + 1 :]:
            x, y, far, low = other["box"]
            if min(right, far) - max(left, x) > 1 and min(bottom, low) - max(top, y) > (bottom - top) / 3:
                yield f"{one['text']!r} and {other['text']!r}"


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.stem)
@pytest.mark.parametrize("width", SIZES)
def test_the_text_of_a_picture_can_be_read(browser, tmp_path, path, width):
    for scheme in ("light", "dark"):
        pixels, texts = shown(browser, tmp_path, path, width, scheme)
        assert len(texts) > 3
        assert list(faults(pixels, texts)) == [], scheme
        assert [one["text"] for one in texts if one["size"] < SIZES[width]] == []
        assert [one["text"] for one in texts if one["box"][0] < 0 or one["box"][2] > width - 2] == []
        assert list(overlapping(texts)) == []
        if scheme == "light":
            for ground in ("#ffffff", "#0d1117"):  # it has no dark scheme: the picture keeps its own ground
                assert list(faults(by_librsvg(path, width, ground), texts)) == [], ground


def test_a_dark_page_gets_dark_pictures(browser, tmp_path):
    for path in PICTURES:
        grounds = [shown(browser, tmp_path, path, 838, scheme)[0].getpixel((20, 20)) for scheme in ("light", "dark")]
        assert (sum(grounds[0]) > 700, sum(grounds[1]) < 150) == (True, True), path.name
