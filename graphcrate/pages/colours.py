"""Colours of pages and pictures, light and dark. Pure.

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
