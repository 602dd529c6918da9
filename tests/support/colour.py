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
TO_XYZ = ((0.4124564, 0.3575761, 0.1804375), (0.2126729, 0.7151522, 0.0721750), (0.0193339, 0.1191920, 0.9503041))
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
    """CIEDE2000 between two linear RGB colours; about 1 is just noticeable side by side (Sharma, Wu and Dalal 2005)."""
    (l1, a1, b1), (l2, a2, b2) = _lab(one), _lab(other)
    mean_c7 = ((math.hypot(a1, b1) + math.hypot(a2, b2)) / 2) ** 7
    g = 0.5 * (1 - math.sqrt(mean_c7 / (mean_c7 + 25**7)))
    a1, a2 = a1 * (1 + g), a2 * (1 + g)
    c1, c2 = math.hypot(a1, b1), math.hypot(a2, b2)
    h1, h2 = math.degrees(math.atan2(b1, a1)) % 360, math.degrees(math.atan2(b2, a2)) % 360
    turn = (h2 - h1 + 180) % 360 - 180 if c1 * c2 else 0.0
    dl, dc, dh = l2 - l1, c2 - c1, 2 * math.sqrt(c1 * c2) * math.sin(math.radians(turn / 2))
    light, chroma = (l1 + l2) / 2, (c1 + c2) / 2
    hue = (h1 + turn / 2) % 360 if c1 * c2 else h1 + h2
    t = (
        1
        - 0.17 * math.cos(math.radians(hue - 30))
        + 0.24 * math.cos(math.radians(2 * hue))
        + 0.32 * math.cos(math.radians(3 * hue + 6))
        - 0.20 * math.cos(math.radians(4 * hue - 63))
    )
    sl = 1 + 0.015 * (light - 50) ** 2 / math.sqrt(20 + (light - 50) ** 2)
    sc, sh = 1 + 0.045 * chroma, 1 + 0.015 * chroma * t
    rc = 2 * math.sqrt(chroma**7 / (chroma**7 + 25**7))
    rt = -rc * math.sin(math.radians(60 * math.exp(-(((hue - 275) / 25) ** 2))))
    return math.sqrt((dl / sl) ** 2 + (dc / sc) ** 2 + (dh / sh) ** 2 + rt * (dc / sc) * (dh / sh))
