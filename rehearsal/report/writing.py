"""How wide text is in a picture, before anyone draws it: by the widest of the fonts that a viewer may have."""

from __future__ import annotations

FONT = "Helvetica, Arial, 'DejaVu Sans', sans-serif"
LARGE, MEDIUM, SMALL = 12.0, 11.0, 10.0
"""Sizes in pixels."""

# Widths in em of DejaVu Sans 2.37, rounded up; Helvetica and Arial are narrower throughout.
_NARROW = dict.fromkeys("ijl'", 0.28) | dict.fromkeys("I,.:;|!()[]/ -ftr", 0.42)
_WIDE = dict.fromkeys("mMWQO@%…·→", 1.0) | {"w": 0.82}
_CAPITAL, _OTHER, _FOREIGN = 0.78, 0.64, 1.1
_BOLD = 1.13


def width(text: str, size: float, *, bold: bool = False) -> float:
    """The most pixels that a line of text takes."""
    return sum(map(_em, text)) * size * (_BOLD if bold else 1)


def fit(text: str, size: float, most: float, *, bold: bool = False) -> str:
    """The text, or as much of its beginning and its end as fits into `most` pixels: long names differ at both."""
    if width(text, size, bold=bold) <= most:
        return text
    for left_out in range(1, len(text) + 1):
        kept = len(text) - left_out
        short = f"{text[: kept // 2]}…{text[len(text) - (kept - kept // 2) :]}"
        if width(short, size, bold=bold) <= most:
            return short
    return ""


def _em(sign: str) -> float:
    if sign in _NARROW:
        return _NARROW[sign]
    if sign in _WIDE:
        return _WIDE[sign]
    if not sign.isascii():
        return _FOREIGN
    return _CAPITAL if sign.isupper() else _OTHER
