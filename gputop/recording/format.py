"""Kinds of lines of a recording, format 2.

Each line is one JSON object. Its key ``k`` names the kind: ``machine``, ``process``, ``health``, ``frame`` (a
snapshot), ``event`` or ``run``. Readers skip lines of other kinds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

from msgspec import Meta, Struct
from msgspec.structs import replace

from gputop.model.bounds import Count, Text
from gputop.model.clean_text import clean_text
from gputop.model.snapshot import (
    DEFAULT_INTERVAL_S,
    MOST_GPUS,
    UNKNOWN_PROCESS,
    Event,
    GpuSample,
    GpuStatic,
    ProcessStatic,
    Snapshot,
)
from gputop.model.steps import DIGITS

VERSION = 2
MEMBER_FRAMES = 60
"""Frames in one gzip member: the most that one flipped byte can cost."""
MOST_LINE_BYTES = 8 << 20
"""Bytes of one line: 4096 processes take some 5 MB."""
SUFFIXES = (".jsonl.gz", ".jsonl")
MOST_COMMAND = 1000
"""Characters of the command on a ``run`` line."""


class RecordingError(Exception):
    """A recording cannot be read or written.

    The message is one line: the file, the fault, the fix.
    """


class Damage(Exception):
    """A line or a member does not follow the format.

    Readers count the damage and continue.
    """


class MachineLine(Struct, frozen=True, omit_defaults=True, tag_field="k", tag="machine"):
    """Machine and GPUs: first line of each gzip member.

    ``frames_before`` counts the frames before this line in the same file. ``clock_set_back`` says that the clock was
    set back before the frames that follow.
    """

    version: Count
    hostname: Text = "unknown"
    boot_id: Text | None = None
    driver: Text | None = None
    interval_s: Annotated[float, Meta(ge=0.01, le=86400.0)] = DEFAULT_INTERVAL_S
    gpus: Annotated[tuple[GpuStatic, ...], Meta(max_length=MOST_GPUS)] = ()
    frames_before: Count = 0
    clock_set_back: bool = False
    made_by: Text = ""


class ProcessLine(Struct, frozen=True, omit_defaults=True, tag_field="k", tag="process"):
    """Static facts of one process, before its first frame.

    Each gzip member repeats the line.
    """

    pid: Count
    starttime: Count | None = None
    static: ProcessStatic = UNKNOWN_PROCESS


class HealthLine(Struct, frozen=True, omit_defaults=True, tag_field="k", tag="health"):
    """Health of all GPUs, before the first frame that has it.

    ``gpus`` are in the order of the machine line and have ``HEALTH_KEYS`` alone. Each gzip member repeats the line.
    """

    gpus: Annotated[tuple[GpuSample, ...], Meta(max_length=MOST_GPUS)] = ()


class RunFacts(Struct, frozen=True, omit_defaults=True, tag_field="k", tag="run"):
    """Facts of the recorded program; last line of its recording.

    ``command`` has its secrets masked, or is the name of a program that watches itself. ``seconds`` is wall time.
    ``exit_code`` is the shell's exit code, None if the end was not observed. ``run`` identifies the program's own run
    among the announced steps; empty if another program recorded it.
    """

    command: Text
    seconds: Annotated[float, Meta(ge=0.0, le=1e10)]
    exit_code: Annotated[int, Meta(ge=0, le=255)] | None = None
    run: Annotated[str, Meta(pattern=f"^[0-9a-f]{{0,{DIGITS}}}\\Z")] = ""


Line: TypeAlias = MachineLine | ProcessLine | HealthLine | Snapshot | Event | RunFacts


def cleaned(value: Any) -> Any:
    """Replace control characters in every text of a struct.

    Nested structs and collections are included.
    """
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, Struct):
        fields = ((name, getattr(value, name)) for name in value.__struct_fields__)
        changes = {
            name: harmless for name, field in fields if (harmless := cleaned(field)) is not field
        }
        return replace(value, **changes) if changes else value
    if isinstance(value, tuple):
        items = tuple(map(cleaned, value))
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    if isinstance(value, Mapping) and value:
        return {clean_text(key): cleaned(item) for key, item in value.items()}
    return value


def is_clean(line: bytes) -> bool:
    """Return whether a JSON line needs no cleaning.

    No text of such a line can hold a control character. JSON has control characters as escapes alone; others that are
    not harmless are no ASCII.
    """
    return line.isascii() and b"\\" not in line and b"\x7f" not in line
