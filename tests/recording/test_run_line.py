"""What ran, as the last line of a recording: kept, checked, and skipped by nobody's mistake."""

from __future__ import annotations

import json

import pytest

from gputop.recording.decode import Decoder
from gputop.recording.encode import Encoder, run_line
from gputop.recording.format import RunFacts
from tests.support.recording_frames import frame


def test_a_run_is_read_back_and_its_secrets_are_masked_again() -> None:
    encoder, decoder = Encoder(), Decoder()
    for line in [*encoder.key_lines(frame(0)), *encoder.frame_lines(frame(0))]:
        decoder.feed(line)
    facts = RunFacts("python train.py --lr 0.1", 812.4, 137)
    assert decoder.run is None and decoder.feed(run_line(facts)) is None and decoder.run == facts
    decoder.feed(run_line(RunFacts("python t.py --api-key Zq7xW9vK2mPl\x1b[31m", 1.0)))
    assert decoder.run is not None and decoder.run.exit_code is None
    assert "Zq7x" not in decoder.run.command and "\x1b" not in decoder.run.command


@pytest.mark.parametrize(
    "wrong", [{"command": 3}, {"seconds": -1}, {"seconds": "x"}, {"exit_code": 999}, {"exit_code": [1]}]
)
def test_a_run_that_cannot_be_is_damage(wrong: dict[str, object]) -> None:
    decoder = Decoder()
    decoder.feed(json.dumps({"k": "run", "command": "x", "seconds": 1.0} | wrong).encode())
    assert decoder.run is None and decoder.damaged == 1
