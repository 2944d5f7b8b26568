"""The contrast of two colours: whether a text can be read on what is behind it."""

LEAST = 4.5  #: contrast of text with what is behind it (WCAG 2.2, 1.4.3)


def contrast(first, second):
    """The contrast of two colours in hex, 1 to 21 (WCAG 2.2, relative luminance)."""
    darker, lighter = sorted(map(_luminance, (first, second)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour):
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
