"""Whatever tells a verdict as JSON tells it by the same keys, with the same values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gputop.diagnosis.verdict.diagnosis_data import as_json, verdict_data
from gputop.features.alerts.alert_table import alerts_of
from gputop.features.alerts.evaluator import firing
from gputop.output.ticket import ticket_data
from tests.support.command import trace_said
from tests.support.frames import demo_frame
from tests.support.synthetic_trace import planted, written

OF_A_TRACE = (
    "verdict",
    "title",
    "level",
    "busy_not_working",
    "confidence",
    "cause",
    "evidence",
    "remedy",
    "notes",
)


def _alert_payload(position: int) -> dict[str, Any]:
    frame = demo_frame()
    (alert,) = alerts_of([{"name": "a", "when": "util_pct >= 0", "run": ["true"]}])
    return json.loads(json.dumps(firing(alert, frame, [position], frame.snapshot.t).data))  # type: ignore[no-any-return]


@pytest.mark.parametrize("position", [0, 3, 4])
def test_diagnosis_ticket_and_alert_tell_a_verdict_alike(position: int) -> None:
    frame = demo_frame()
    wanted = json.loads(json.dumps(verdict_data(frame.diagnoses[position])))
    whole: Any = as_json(frame.snapshot, frame.diagnoses, frame.snapshot.t - 60.0)
    payload = _alert_payload(position)
    for told in (
        whole["gpus"][position],
        ticket_data(frame, position),
        payload,
        payload["gpus"][0],
    ):
        assert {key: told[key] for key in wanted} == wanted
    assert wanted["title"].startswith("busy, not working: ") is bool(wanted["busy_not_working"])


def test_a_trace_tells_its_verdict_by_the_same_keys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "t.json", planted("single_process"))
    _, text = trace_said(capsys, str(path), "--json")
    (gpu,) = json.loads(text)["ranks"][0]["gpus"]
    assert set(OF_A_TRACE) <= set(verdict_data(demo_frame().diagnoses[0])) & set(gpu)
    assert isinstance(gpu["evidence"], list) and isinstance(gpu["notes"], list)
