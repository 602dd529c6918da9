"""Calls of somebody else's code, in a process that must go on whatever it raises."""

from __future__ import annotations

import threading
from collections.abc import Callable


def error_of(call: Callable[[], object]) -> BaseException | None:
    """Call it, and return what it raised: SystemExit or a test framework's outcome must end neither the training nor
    gputop's thread. Ctrl+C is meant for the program, and Python raises it on its main thread alone: there it passes.
    """
    try:
        call()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise
        return error
    return None


def error_words(error: BaseException) -> str:
    """What was raised, in one line."""
    said = str(error).strip().splitlines()
    return f"{type(error).__name__}: {said[0]}" if said else type(error).__name__
