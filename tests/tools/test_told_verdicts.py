"""What is told of known pasts is written down at each change, and compared field by field."""

from __future__ import annotations

import json
from pathlib import Path

from gputop.recording.reader import read_snapshots
from tests.tools.told_verdicts import changes, differences

RECORDING = Path(__file__).parents[1] / "vectors" / "dataloader_cpu.jsonl"


def test_a_verdict_that_stands_still_is_written_once() -> None:
    told = list(changes(read_snapshots(str(RECORDING))))
    assert told[-1]["verdict"] == "dataloader_cpu"
    assert 1 < len(told) < sum(1 for _ in read_snapshots(str(RECORDING)))


def test_a_field_that_differs_is_named_with_its_place(tmp_path: Path) -> None:
    line = {"past": "p", "gpu": 0, "second": 3.0, "verdict": "healthy", "cause": None}
    later = {**line, "second": 9.0}
    for name, rows in (
        ("old", [line]),
        ("same", [line]),
        ("new", [{**line, "verdict": "hang"}, later]),
    ):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert differences(str(tmp_path / "old"), str(tmp_path / "same")) == {}
    found = differences(str(tmp_path / "old"), str(tmp_path / "new"))
    assert found == {
        "verdict": ["p, GPU 0, second 3.0: 'healthy' -> 'hang'"],
        "changes at another second": ["p, GPU 0, second 9.0"],
    }
