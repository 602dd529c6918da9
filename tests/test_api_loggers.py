"""Loggers told apart by what they have: each gets numbers and verdicts in its own way, and none can hurt a training."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from gputop.api.loggers import MOST_SLOW, Logger, loggers_of


class Wandb:
    def __init__(self) -> None:
        self.got: list[tuple[dict[str, float], int | None]] = []
        self.summary: dict[str, str] = {}

    def log(self, numbers: dict[str, float], step: int | None = None) -> None:
        self.got.append((numbers, step))


Wandb.__module__ = Wandb.log.__module__ = "wandb.sdk.wandb_run"


class Board:
    def __init__(self) -> None:
        self.got: dict[str, tuple[Any, int]] = {}

    def add_scalar(self, key: str, value: float, step: int) -> None:
        self.got[key] = (value, step)

    def add_text(self, key: str, text: str, step: int) -> None:
        self.got[key] = (text, step)


class Flow:
    def __init__(self) -> None:
        self.got: list[Any] = []

    def log_metrics(self, numbers: dict[str, float], step: int | None = None) -> None:
        self.got.append((numbers, step))

    def set_tag(self, key: str, text: str) -> None:
        self.got.append((key, text))


def test_any_logger_gets_numbers_and_verdicts_in_its_own_way() -> None:
    run, board, flow, calls = Wandb(), Board(), Flow(), []
    numbers, texts = {"gputop/gpu0/util_pct": 90.0}, {"gputop/gpu0/verdict": "working"}
    for logger in loggers_of([run.log, board, flow, lambda given, step: calls.append((given, step))]):
        logger.log(numbers, texts, None, 12)
        logger.log(numbers, {}, 40, 13)
    assert run.got == [(numbers, None), (numbers, 40)], "W&B keeps a count of its own"
    assert run.summary == texts
    assert board.got == {"gputop/gpu0/util_pct": (90.0, 40), "gputop/gpu0/verdict": ("working", 12)}
    assert flow.got == [("gputop.gpu0.verdict", "working"), (numbers, 12), (numbers, 40)]
    assert calls == [(numbers, 12), (numbers, 40)]


def test_a_logger_that_raises_or_is_slow_is_told_of_once_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    def raises(_numbers: object, _step: object) -> None:
        raise ValueError("no\x1b[31m room")

    now, calls = [0.0], []

    def slow(numbers: object, _step: object) -> None:
        calls.append(numbers)
        now[0] += 2.0

    broken, late = Logger(raises), Logger(slow, lambda: now[0])
    for _ in range(5):
        broken.log({"a": 1.0}, {}, 1, 1)
        late.log({"a": 1.0}, {}, 1, 1)
    assert len(calls) == MOST_SLOW
    assert len(caplog.records) == 2 and "\x1b" not in caplog.text
    assert "raised ValueError" in caplog.text and "took more than 1 s 3 times" in caplog.text


class Mlflow:
    """As MLflow: each thread has a run of its own, and whoever logs without one begins one."""

    def __init__(self) -> None:
        self.got: dict[str, list[Any]] = {"mine": []}
        self._runs = threading.local()

    def start_run(self) -> None:
        self._runs.id = "mine"

    def active_run(self) -> Any:
        run_id = getattr(self._runs, "id", None)
        return run_id and SimpleNamespace(info=SimpleNamespace(run_id=run_id))

    def MlflowClient(self) -> Any:
        return SimpleNamespace(set_tag=lambda run_id, key, text: self.got[run_id].append((key, text)))

    def log_metrics(self, numbers: dict[str, float], step: int | None = None, run_id: str | None = None) -> None:
        self.got.setdefault(run_id or getattr(self._runs, "id", "a stray run"), []).append((numbers, step))

    def set_tag(self, key: str, text: str) -> None:
        self.got.setdefault(getattr(self._runs, "id", "a stray run"), []).append((key, text))


def test_what_another_thread_logs_to_mlflow_goes_into_the_run_that_was_active() -> None:
    """Until the first step the watch's own thread logs."""
    flow = Mlflow()
    flow.start_run()
    (logger,) = loggers_of(flow)
    thread = threading.Thread(target=logger.log, args=({"a": 1.0}, {"gputop/gpu0/verdict": "working"}, None, 0))
    thread.start()
    thread.join()
    assert flow.got == {"mine": [("gputop.gpu0.verdict", "working"), ({"a": 1.0}, 0)]}
