"""Sets of moments as sorted, disjoint intervals: lists of (begin, end) in nanoseconds, begin < end."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

Interval = tuple[int, int]
Intervals = list[Interval]


def union(intervals: Iterable[Interval]) -> Intervals:
    """The union of intervals that are sorted by their begin. Empty ones are left out."""
    merged: Intervals = []
    begin, end = 0, -(2**63)
    for first, last in intervals:
        if first > end:
            if begin < end:
                merged.append((begin, end))
            begin, end = first, last
        elif last > end:
            end = last
    if begin < end:
        merged.append((begin, end))
    return merged


def length(intervals: Iterable[Interval]) -> int:
    """Total length in nanoseconds."""
    return sum(end - begin for begin, end in intervals)


def subtract(these: Intervals, those: Intervals) -> Intervals:
    """The moments of the first set that are not in the second."""
    left: Intervals = []
    at, many = 0, len(those)
    for begin, end in these:
        while at < many and those[at][1] <= begin:
            at += 1
        look = at
        while look < many and those[look][0] < end:
            first, last = those[look]
            if first > begin:
                left.append((begin, first))
            begin = max(begin, last)
            if begin >= end:
                break
            look += 1
        if begin < end:
            left.append((begin, end))
    return left


def intersect(these: Intervals, those: Intervals) -> Intervals:
    """The moments of both sets."""
    both: Intervals = []
    at, many = 0, len(those)
    for begin, end in these:
        while at < many and those[at][1] <= begin:
            at += 1
        look = at
        while look < many and those[look][0] < end:
            first, last = max(begin, those[look][0]), min(end, those[look][1])
            if first < last:
                both.append((first, last))
            look += 1
    return both


def clip(intervals: Iterable[Interval], begin: int, end: int) -> Intervals:
    """The part of each interval inside of [begin, end)."""
    return [(max(first, begin), min(last, end)) for first, last in intervals if first < end and last > begin]


def touching(intervals: Intervals, begin: int, end: int) -> Intervals:
    """Those of sorted, disjoint intervals that share a moment with [begin, end)."""
    at = bisect_right(intervals, (begin, begin)) - 1
    if at < 0 or intervals[at][1] <= begin:
        at += 1
    until = at
    while until < len(intervals) and intervals[until][0] < end:
        until += 1
    return intervals[at:until]


def length_by(intervals: Intervals, boundaries: list[int]) -> list[int]:
    """Nanoseconds of sorted, disjoint intervals between each two consecutive boundaries."""
    sums = [0] * (len(boundaries) - 1)
    at = 0
    for begin, end in intervals:
        while at < len(sums) and boundaries[at + 1] <= begin:
            at += 1
        row = at
        while row < len(sums) and boundaries[row] < end:
            sums[row] += max(0, min(end, boundaries[row + 1]) - max(begin, boundaries[row]))
            row += 1
    return sums
