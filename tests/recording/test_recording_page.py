"""docs/design/recording.md says enough: a recording made of its examples alone is read, reported and diagnosed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gputop.cli import main
from gputop.recording.check import decode_line
from gputop.recording.format import Line

PAGE = (Path(__file__).parents[2] / "docs" / "design" / "recording.md").read_text(encoding="utf-8")
EXAMPLES = [line for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]


def example(kind: str) -> dict[str, Any]:
    return next(row for line in EXAMPLES if (row := json.loads(line))["k"] == kind)


def test_every_kind_of_line_has_an_example_that_is_valid() -> None:
    assert {json.loads(line)["k"] for line in EXAMPLES} == {"machine", "process", "frame", "event", "run"}
    for line in EXAMPLES:
        assert isinstance(decode_line(line.encode()), Line)


def test_a_recording_by_another_program_is_reported_and_diagnosed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = example("frame")
    frame["gpus"][0] |= {"util_pct": 20.0, "sm_active_pct": 15.0}
    frame["processes"][0] |= {"main_run_pct": 95.0, "main": {}, "gpu_mem_bytes": 6e10}
    frames = [frame | {"t": frame["t"] + second} for second in range(60)]
    rows = [example("machine"), example("process"), *frames, example("event"), example("run")]
    path = tmp_path / "made.gputop.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["report", str(path), "--json"]) in (0, 1)
    report = json.loads(capsys.readouterr().out)
    assert (report["frames"], report["command"]) == (60, "python train.py")
    assert main(["diagnose", str(path), "--json"]) in (0, 1)
    (gpu,) = json.loads(capsys.readouterr().out)["gpus"]
    assert gpu["state"] == "starved" and gpu["verdict"] != "collecting"
