"""Loggers told apart by what they have: each gets numbers and verdicts in its own way, and none can hurt a training."""

from __future__ import annotations

import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gputop.api.loggers import MOST_SLOW, Logger, loggers_of


class Wandb:
    """As a run of W&B: rows are counted, and ended by whoever does not say ``commit=False``."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = [{}]
        self.summary: dict[str, str] = {}
        self.axes: list[tuple[str, str]] = []

    @property
    def step(self) -> int:
        return len(self.rows) - 1

    def define_metric(self, name: str, step_metric: str) -> None:
        self.axes.append((name, step_metric))

    def log(self, numbers: dict[str, float], step: int | None = None, commit: bool = True) -> None:
        assert step is None, "a row of a smaller step would be dropped"
        self.rows[-1].update(numbers)
        if commit:
            self.rows.append({})


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
    for logger in loggers_of(
        [run.log, board, flow, lambda given, step: calls.append((given, step))]
    ):
        logger.log(numbers, texts, 12)
        logger.log(numbers, {}, 40)
    run.log({"loss": 1.0})
    assert run.rows == [{**numbers, "gputop/step": 40, "loss": 1.0}, {}], (
        "into the row that the loop ends"
    )
    assert run.summary == texts and run.axes == [("gputop/*", "gputop/step")]
    assert board.got == {"gputop/gpu0/util_pct": (90.0, 40), "gputop/gpu0/verdict": ("working", 12)}
    assert flow.got == [(numbers, 12), ("gputop.gpu0.verdict", "working"), (numbers, 40)]
    assert calls == [(numbers, 12), (numbers, 40)]


def test_a_logger_that_raises_or_is_slow_is_told_of_once_and_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def raises(_numbers: object, _step: object) -> None:
        raise ValueError("no\x1b[31m room")

    now, calls = [0.0], []

    def slow(numbers: object, _step: object) -> None:
        calls.append(numbers)
        now[0] += 2.0

    broken, late = Logger(raises), Logger(slow, lambda: now[0])
    for _ in range(5):
        broken.log({"a": 1.0}, {}, 1)
        late.log({"a": 1.0}, {}, 1)
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
        return SimpleNamespace(
            set_tag=lambda run_id, key, text: self.got[run_id].append((key, text))
        )

    def log_metrics(
        self, numbers: dict[str, float], step: int | None = None, run_id: str | None = None
    ) -> None:
        self.got.setdefault(run_id or getattr(self._runs, "id", "a stray run"), []).append(
            (numbers, step)
        )

    def set_tag(self, key: str, text: str) -> None:
        self.got.setdefault(getattr(self._runs, "id", "a stray run"), []).append((key, text))


def test_what_another_thread_logs_to_mlflow_goes_into_the_run_that_was_active() -> None:
    """Until the first step the watch's own thread logs."""
    flow = Mlflow()
    flow.start_run()
    (logger,) = loggers_of(flow)
    thread = threading.Thread(
        target=logger.log, args=({"a": 1.0}, {"gputop/gpu0/verdict": "working"}, 0)
    )
    thread.start()
    thread.join()
    assert flow.got == {"mine": [({"a": 1.0}, 0), ("gputop.gpu0.verdict", "working")]}


def test_a_watch_made_before_the_run_of_mlflow_begins_none_and_keeps_its_texts() -> None:
    flow = Mlflow()
    (logger,) = loggers_of(flow)

    def log_on_the_watch_s_thread(step: int) -> None:
        thread = threading.Thread(
            target=logger.log, args=({"a": 1.0}, {"v": "working"} if step == 0 else {}, step)
        )
        thread.start()
        thread.join()

    log_on_the_watch_s_thread(0)
    assert flow.got == {"mine": []}
    flow.start_run()
    logger.log({"a": 2.0}, {}, 1)
    log_on_the_watch_s_thread(2)
    assert flow.got == {"mine": [({"a": 2.0}, 1), ("v", "working"), ({"a": 1.0}, 2)]}


def test_a_run_to_which_nobody_else_logs_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    run = Wandb()
    (logger,) = loggers_of(run)
    for step in range(9):
        logger.log({"gputop/cpu_pct": float(step), "batch_size": 4.0}, {}, step)
    assert caplog.text.count("the loop has logged nothing to the W&B run") == 1
    assert run.rows == [{"gputop/cpu_pct": 8.0, "batch_size": 4.0, "gputop/step": 8}], (
        "its own rows may come yet"
    )


def test_a_loop_that_hands_its_loss_to_step_alone_has_a_row_for_each_interval(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = Wandb()
    (logger,) = loggers_of(run.log)
    for step in range(4):
        logger.log({"loss": float(step)}, {}, step)
    assert [row["loss"] for row in run.rows] == [0.0, 1.0, 2.0, 3.0] and caplog.text == ""
    run.log({"accuracy": 1.0})
    logger.log({"loss": 4.0}, {}, 4)
    assert (
        run.rows[3] == {"loss": 3.0, "gputop/step": 3, "accuracy": 1.0}
        and run.rows[4]["loss"] == 4.0
    )


@pytest.mark.parametrize("way", ["log", "module"])
def test_a_watch_made_before_the_run_of_wandb_logs_to_the_run_that_comes(
    way: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    module = ModuleType("wandb")
    module.run = None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", module)

    def log(*_: object) -> None:
        raise RuntimeError("You must call wandb.init() before wandb.log()")

    log.__module__ = "wandb.sdk.lib.preinit"
    (logger,) = loggers_of(log if way == "log" else module)
    for step in range(9):
        logger.log({"gputop/cpu_pct": 1.0}, {"verdict": "working"} if step == 0 else {}, step)
    assert caplog.text.count("call wandb.init()") == 1
    first, second = Wandb(), Wandb()
    for run in (first, second):
        module.run = run  # type: ignore[attr-defined]
        logger.log({"gputop/cpu_pct": 2.0}, {}, 9)
    module.run = None  # type: ignore[attr-defined]
    logger.log({"gputop/cpu_pct": 3.0}, {"verdict": "idle"}, 10)
    for run in (first, second):
        assert run.rows == [{"gputop/cpu_pct": 2.0, "gputop/step": 9}] and run.axes
    assert first.summary == {"verdict": "working"}, "the text has waited for the run"
    assert not logger.broken


def test_an_accelerators_trackers_are_each_given_the_numbers_in_their_own_way() -> None:
    class Tracker:
        def __init__(self, tracker: Any) -> None:
            self.tracker = tracker
            self.got: list[Any] = []

        def log(self, numbers: dict[str, float], step: int | None = None) -> None:
            self.got.append((numbers, step))

    class Accelerator:
        def __init__(self) -> None:
            self.trackers: list[Tracker] = []

        def log(self, numbers: dict[str, float], step: int | None = None) -> None:
            raise AssertionError("a step for all of them loses W&B's rows")

    accelerator = Accelerator()
    (logger,) = loggers_of(accelerator)
    # They come with init_trackers, after the watch was made.
    accelerator.trackers += [Tracker(Wandb()), Tracker(object())]
    logger.log({"a": 1.0}, {}, 5)
    assert accelerator.trackers[0].tracker.rows == [{"a": 1.0, "gputop/step": 5}]
    assert accelerator.trackers[1].got == [({"a": 1.0}, 5)]


def test_ctrl_c_while_a_logger_runs_is_the_programs() -> None:
    def interrupted(_numbers: object, _step: object) -> None:
        raise KeyboardInterrupt

    (logger,) = loggers_of(interrupted)
    with pytest.raises(KeyboardInterrupt):
        logger.log({"a": 1.0}, {}, 1)
