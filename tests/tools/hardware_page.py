"""``docs/hardware.md`` from ``docs/hardware/*.json``, which ``gputop prove --report`` wrote on somebody's machine."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from gputop.model.clean_text import clean_text

FOLDER = Path(__file__).parents[2] / "docs" / "hardware"
WORDS = {0: "right", 1: "**wrong**", 3: "not measured"}
HEAD = """# Seen on

On which cards gputop has been seen to measure rightly, by whom. Each row is a file that `gputop prove --report FILE`
wrote: kernels of known width ran for half a minute, and SM activity was compared with what is true.
"""
FOOT = """
Yours? `gputop prove --report report.json` takes half a minute and names no host and no user; the repository's form "A
hardware report" takes the file.
"""

MOST_BYTES, MOST_TEXT = 256 << 10, 200
TEXTS = ("gpu", "driver", "gputop", "by", "date", "sm_source")


class ReportedStage(Struct, frozen=True):
    """One stage of the experiment, in percent; None where nothing was measured or expected."""

    expected_pct: float | None
    sm_pct: float | None


class HardwareReport(Struct, frozen=True):
    """One GPU, seen once. ``exit_status`` is that of ``gputop prove``: 0 right, 1 wrong, 3 not measured."""

    kind: Literal["gputop hardware report"]
    schema: Literal[1]
    gputop: str
    date: str
    gpu: str
    driver: str | None
    sm_source: str
    exit_status: Literal[0, 1, 3]
    stages: tuple[ReportedStage, ...]
    by: str = ""


class NoReport(Exception):
    """A file is no hardware report. One line: why."""


def read_report(data: bytes) -> HardwareReport:
    """A report from a file, its texts made harmless. Raises NoReport."""
    if len(data) > MOST_BYTES:
        raise NoReport(f"no hardware report: it is larger than {MOST_BYTES >> 10} KiB")
    try:
        report = msgspec.json.decode(data, type=HardwareReport)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NoReport(f"no hardware report: {error}") from None
    texts = {name: value for name in TEXTS if (value := getattr(report, name)) is not None}
    return msgspec.structs.replace(
        report, **{name: clean_text(value)[:MOST_TEXT] for name, value in texts.items()}
    )


def page(folder: Path = FOLDER) -> str:
    """The page. Raises SystemExit with one line for a file that is no report."""
    reports = [_read(path) for path in sorted(folder.glob("*.json"))]
    rows = [
        "",
        "| card | driver | SM activity by | it was | widest error | gputop | seen | by |",
        "|" + "---|" * 8,
    ]
    for found in sorted(reports, key=lambda report: (report.gpu, report.date)):
        cells = (
            found.gpu, found.driver or "n/a", found.sm_source, WORDS[found.exit_status], _error(found), found.gputop,
            found.date, found.by or "–",
        )  # fmt: skip
        rows.append(
            "| " + " | ".join(cell.replace("|", "/").replace("<", "‹") for cell in cells) + " |"
        )
    return HEAD + "\n".join(rows) + "\n" + FOOT


def _read(path: Path) -> HardwareReport:
    try:
        return read_report(path.read_bytes())
    except NoReport as none:
        raise SystemExit(f"{path.name}: {none}") from None


def _error(found: HardwareReport) -> str:
    """How far SM activity was at most from what a stage must show, in points."""
    errors = [
        abs(stage.sm_pct - stage.expected_pct)
        for stage in found.stages
        if stage.sm_pct is not None and stage.expected_pct is not None
    ]
    return f"{max(errors):.1f} points" if errors else "n/a"
