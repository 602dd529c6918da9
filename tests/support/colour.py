"""How colours look, by the published formulas: contrast, difference, and both to an eye without green cones."""

from __future__ import annotations

import math

Rgb = tuple[float, float, float]

DEUTERANOPIA = (
    (0.367322, 0.860646, -0.227968),
    (0.280085, 0.672501, 0.047413),
    (-0.011820, 0.042940, 0.968881),
)
"""Machado, Oliveira and Fernandes 2009, severity 1.0; applied to linear RGB."""
TO_XYZ = (
    (0.4124564, 0.3575761, 0.1804375),
    (0.2126729, 0.7151522, 0.0721750),
    (0.0193339, 0.1191920, 0.9503041),
)
D65 = (0.95047, 1.0, 1.08883)


def linear(colour: str) -> Rgb:
    """``#rrggbb`` as linear light, 0–1 (IEC 61966-2-1)."""
    values = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values)
    return r, g, b


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG 2.2, 1–21."""
    high, low = sorted((_luminance(linear(one)), _luminance(linear(other))), reverse=True)
    return (high + 0.05) / (low + 0.05)


def _luminance(rgb: Rgb) -> float:
    return 0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2]


def without_green_cones(rgb: Rgb) -> Rgb:
    """Linear RGB as a deuteranope sees it."""
    r, g, b = (min(1.0, max(0.0, value)) for value in _times(DEUTERANOPIA, rgb))
    return r, g, b


def _times(matrix: tuple[Rgb, Rgb, Rgb], v: Rgb) -> Rgb:
    x, y, z = (row[0] * v[0] + row[1] * v[1] + row[2] * v[2] for row in matrix)
    return x, y, z


def _lab(rgb: Rgb) -> Rgb:
    def root(t: float) -> float:
        return t ** (1 / 3) if t > 216 / 24389 else (24389 / 27 * t + 16) / 116

    x, y, z = (root(value / white) for value, white in zip(_times(TO_XYZ, rgb), D65, strict=True))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def difference(one: Rgb, other: Rgb) -> float:
    """The distance of two linear RGB colours in CIELAB (CIE 1976); 2.3 is just noticeable side by side."""
    return math.dist(_lab(one), _lab(other))
