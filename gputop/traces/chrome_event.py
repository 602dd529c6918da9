"""One event of a Chrome trace as Kineto writes it, and the same with odd values normalised.

Arguments are Kineto's (libkineto, output_json.cpp). Nothing here knows what an event means.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from gputop.traces.columns import ABSENT

Value = int | float | str | None


class Args(Struct, gc=False, frozen=True):
    """The arguments that nearly every trace needs. Each further one slows reading down."""

    device: Value = None
    stream: Value = None
    correlation: Value = None
    blocks: Value = field(name="blocks per SM", default=None)
    occupancy: Value = field(name="est. achieved occupancy %", default=None)


class AllArgs(Args, gc=False, frozen=True):
    """Also with the arguments of collectives and hardware counters."""

    operation: Value = field(name="Collective name", default=None)
    group: Value = field(name="Process Group Name", default=None)
    seq: Value = field(name="Seq", default=None)
    sm_active: Value = field(name="sm__cycles_active.avg.pct_of_peak_sustained_elapsed", default=None)


class _Event(Struct, gc=False, frozen=True):
    ph: str = ""
    cat: str | None = None
    name: Value = None
    pid: Value = None
    tid: Value = None
    ts: Value = None
    dur: Value = None


class Event(_Event, gc=False, frozen=True):
    """One event as the file has it."""

    args: Args | None = None


class FullEvent(_Event, gc=False, frozen=True):
    """One event with all arguments that are used here."""

    args: AllArgs | None = None


NO_ARGS = AllArgs()
_LEAN = msgspec.json.Decoder(list[Event])
_FULL = msgspec.json.Decoder(list[FullEvent])
_RARE = (b'"Collective name"', b'"hardware_counters"')


def decode(text: bytes) -> list[Any]:
    """A list of events, with the rarer arguments where the text holds any."""
    return (_FULL if any(word in text for word in _RARE) else _LEAN).decode(text)


def plain(event: Any) -> Event | FullEvent:
    """The event with its values in the types that new traces write. Raises TypeError, ValueError and OverflowError."""
    args = event.args or NO_ARGS
    return replace(  # type: ignore[no-any-return]
        event,
        name="" if event.name is None else str(event.name),
        ts=float(event.ts),
        dur=0.0 if event.dur is None else float(event.dur),
        args=replace(
            args,
            device=whole(args.device if args.device is not None else event.pid),
            stream=whole(args.stream if args.stream is not None else event.tid),
            correlation=whole(args.correlation),
            blocks=_positive(args.blocks),
            occupancy=_positive(args.occupancy),
        ),
    )


def whole(value: Value) -> int:
    """A number of a device, stream or correlation; the digits of a text such as "stream 7"; -1 for none."""
    if value is None:
        return ABSENT
    if isinstance(value, str):
        found = re.search(r"\d+", value)
        return int(found[0]) if found else ABSENT
    number = int(value)
    # Beyond 64 bits it matches nothing.
    return number if -(2**63) <= number < 2**63 else ABSENT


def _positive(value: Value) -> float:
    if value is None or value.__class__ is str:
        return float(ABSENT)
    number = float(value)
    return number if 0.0 < number < 1e9 else float(ABSENT)
