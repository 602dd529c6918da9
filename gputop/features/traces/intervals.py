"""Sets of moments as sorted, disjoint intervals: lists of (begin, end) in nanoseconds, begin < end."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate, pairwise

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


def subtract(minuend: Intervals, subtrahend: Intervals) -> Intervals:
    """The moments of the first set that are not in the second."""
    difference: Intervals = []
    at, many = 0, len(subtrahend)
    for begin, end in minuend:
        while at < many and subtrahend[at][1] <= begin:
            at += 1
        look = at
        while look < many and subtrahend[look][0] < end:
            first, last = subtrahend[look]
            if first > begin:
                difference.append((begin, first))
            begin = max(begin, last)
            if begin >= end:
                break
            look += 1
        if begin < end:
            difference.append((begin, end))
    return difference


def intersect(first_set: Intervals, second_set: Intervals) -> Intervals:
    """The moments of both sets."""
    return subtract(first_set, subtract(first_set, second_set))


def clip(intervals: Iterable[Interval], begin: int, end: int) -> Intervals:
    """The part of each interval inside of [begin, end)."""
    return [
        (max(first, begin), min(last, end))
        for first, last in intervals
        if first < end and last > begin
    ]


def touching(intervals: Intervals, begin: int, end: int) -> Intervals:
    """Select sorted, disjoint intervals that overlap [begin, end)."""
    at = bisect_right(intervals, (begin, begin)) - 1
    if at < 0 or intervals[at][1] <= begin:
        at += 1
    until = at
    while until < len(intervals) and intervals[until][0] < end:
        until += 1
    return intervals[at:until]


def length_by(intervals: Intervals, boundaries: list[int]) -> list[int]:
    """Nanoseconds of sorted, disjoint intervals between each two consecutive boundaries."""
    begins = [begin for begin, _ in intervals]
    spent = [0, *accumulate(end - begin for begin, end in intervals)]

    def until(moment: int) -> int:
        at = bisect_left(begins, moment)
        return spent[at] - max(0, intervals[at - 1][1] - moment) if at else 0

    return [after - before for before, after in pairwise(map(until, boundaries))]
