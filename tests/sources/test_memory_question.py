"""Used memory has one meaning for as long as a GPU is watched: with the driver's reserve, or without."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from gputop.sources.nvml.gpu_questions import ask_memory_into
from gputop.sources.nvml.handle import Handle, MetricAnswers

GIB = 2.0**30
WITH_RESERVE, WITHOUT = 40.6, 40.0


def used(handle: Handle, now: float, v2_error: int | None, monkeypatch: pytest.MonkeyPatch) -> float | None:
    def answer(name: str, raw: object, *arguments: object) -> Any:
        if arguments and v2_error is not None:
            raise pynvml.NVMLError(v2_error)
        return SimpleNamespace(used=(WITHOUT if arguments else WITH_RESERVE) * GIB, total=80.0 * GIB)

    monkeypatch.setattr(Handle, "run_bare", staticmethod(answer))
    into = MetricAnswers()
    assert ask_memory_into(handle, into, now)
    value = into.values.get("mem_used_bytes")
    assert value is not None or into.missing["mem_used_bytes"]
    return None if value is None else value / GIB


def test_failures_of_the_newer_question_never_give_the_older_ones_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = Handle("gpu")
    assert used(handle, 0.0, None, monkeypatch) == WITHOUT
    for now in (1.0, 2.0, 3.0, 30.0, 61.0):
        assert used(handle, now, pynvml.NVML_ERROR_UNKNOWN, monkeypatch) is None
    assert used(handle, 150.0, None, monkeypatch) == WITHOUT


def test_a_driver_without_the_newer_question_answers_the_older_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert used(Handle("gpu"), 0.0, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, monkeypatch) == WITH_RESERVE
    known = Handle("gpu")
    assert used(known, 0.0, None, monkeypatch) == WITHOUT
    assert used(known, 1.0, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, monkeypatch) == WITH_RESERVE
