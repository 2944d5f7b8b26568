"""Colours of pages and pictures, light and dark, and the contrast of two. Pure.

One table for both. A test asks of each pair that WCAG 2.2 asks for: 4.5 for text.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Colour(NamedTuple):
    """As CSS writes it, on a light and on a dark page."""

    light: str
    dark: str


COLOURS: Mapping[str, Colour] = {
    name: Colour(*pair)
    for name, pair in {
        "paper": ("#fbfbf9", "#14171b"),
        "card": ("#ffffff", "#1c2026"),
        "ink": ("#1c2127", "#e6e9ed"),
        "soft": ("#5c6570", "#a3acb7"),
        "line": ("#d5d9de", "#3a424c"),
        "accent": ("#0b62a4", "#79b8f3"),
        "yes": ("#116329", "#6fd08c"),
        "yes-bg": ("#d9f2e0", "#1d3d28"),
        "limits": ("#7d5200", "#e8c06a"),
        "limits-bg": ("#fbecc8", "#463a17"),
        "built": ("#6b4ea0", "#c9b6f2"),
        "built-bg": ("#ece5f8", "#362b4d"),
        "no": ("#b42318", "#f19a90"),
        "no-bg": ("#eceef0", "#262b32"),
        # with white on it
        "on": ("#ffffff", "#ffffff"),
        "torch": ("#b84a33", "#b04a35"),
        "nvidia": ("#4a7518", "#4c761a"),
        "pyg": ("#2f6db5", "#2a5f9e"),
        "system": ("#6f639c", "#655a90"),
        "other": ("#626b75", "#565e68"),
        "bar": ("#0b62a4", "#1f6fb0"),
        "run": ("#1a7f37", "#1f7a3a"),
        # with a dark text on it
        "ptx": ("#e3b341", "#d0a030"),
        "on-ptx": ("#1c2127", "#1c2127"),
    }.items()
}
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
LEAST = 4.5  #: contrast of text with what is behind it (WCAG 2.2, 1.4.3)


def contrast(first: str, second: str) -> float:
    """The contrast of two colours in hex, 1 to 21 (WCAG 2.2, relative luminance)."""
    darker, lighter = sorted(map(_luminance, (first, second)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
