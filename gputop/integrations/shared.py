"""Parts that callbacks of several frameworks share.

The wait for a batch, the framework's list of callbacks, and verdicts as texts.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from functools import partial
from inspect import currentframe
from time import perf_counter
from typing import Any, TypeVar

from gputop.api.log_turn import verdict_texts
from gputop.api.loggers import texts_to
from gputop.api.run_summary import Summary
from gputop.api.user_calls import error_of
from gputop.api.watch import Watch
from gputop.api.watch_options import NOTICES
from gputop.model.clean_text import clean_text, error_words

T = TypeVar("T")


class BatchWait:
    """Sums the time in which a loop fetches its batches.

    A framework that offers no hook at the fetch itself begins with the last callback before it and ends with the first
    one after it. Of several begins the last counts, of several ends the first.
    """

    def __init__(self) -> None:
        self._since: float | None = None
        self._waited_s: float | None = None

    def begin(self) -> None:
        """Begin to fetch."""
        self._since = perf_counter()

    def end(self) -> None:
        """End the fetch: the batch is there."""
        if self._since is not None:
            self._waited_s = (self._waited_s or 0.0) + perf_counter() - self._since
            self._since = None

    def take(self) -> float | None:
        """Return the seconds waited since the last call, if any."""
        waited_s, self._waited_s = self._waited_s, None
        return waited_s


def calling(kind: type[T]) -> T | None:
    """Return the object of this type that called the caller.

    A framework's list of callbacks is passed to no hook. None where something else called.
    """
    frame = currentframe()
    while frame is not None and not isinstance(frame.f_locals.get("self"), kind):
        frame = frame.f_back
    return None if frame is None else frame.f_locals["self"]


def ended(watch: Watch, *, prints: bool) -> Summary:
    """Return the summary of a watch that was stopped, and print it if wanted."""
    summary = watch.summary()
    if prints:
        sys.stderr.write(f"\n{summary}")
    return summary


class VerdictTexts:
    """Hands changed verdicts to the trackers that a framework's other callbacks report to."""

    def __init__(self) -> None:
        self._latest: dict[str, str] = {}
        self._broken = False

    def put(self, watch: Watch, reporters: Iterable[Any], step: int) -> Mapping[str, str]:
        """Log changed verdicts; return all verdicts by name."""
        texts = verdict_texts(watch.verdicts())
        changed = dict(texts.items() - self._latest.items())
        self._latest = {**self._latest, **texts}
        for reporter in reporters if changed and not self._broken else ():
            error = error_of(partial(_log_texts, reporter, changed, step))
            if error is not None:
                self._broken = True
                NOTICES.warning(
                    "gputop: verdicts are not logged: %s", clean_text(error_words(error))
                )
        return self._latest


def _log_texts(reporter: Any, texts: Mapping[str, str], step: int) -> None:
    texts_to(tracker_of(reporter), texts, step)


def tracker_of(reporter: Any) -> Any:
    """Return the run or writer that a callback reports to.

    W&B's, MLflow's or TensorBoard's; None for any other.
    """
    name = f"{type(reporter).__module__}.{type(reporter).__name__}".lower()
    if "wandb" in name:
        return getattr(sys.modules.get("wandb"), "run", None)
    if "mlflow" in name and (mlflow := sys.modules.get("mlflow")) is not None:
        return mlflow.active_run()
    return getattr(reporter, "tb_writer", None)
