"""Steps of a PyTorch loop without a line in it: torch's own hook after any optimizer's step. torch is never imported
here, and nothing of it is patched."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any

_MODULE = "torch.optim.optimizer"
_REGISTER = "register_optimizer_step_post_hook"
_HOOKS = "_global_optimizer_post_hooks"


class TorchHook:
    """Calls ``ended`` after each step of the optimizer that steps first; others are accumulation or a second model."""

    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended
        self._first: weakref.ref[Any] | None = None
        self._handle: Any = None

    @property
    def registered(self) -> bool:
        return self._handle is not None

    def register(self, *, on_training_thread: bool) -> bool:
        """Register with torch where it is imported; True where that is done.

        From another thread only while torch has no such hook: it goes through its hooks without a lock, and a new one
        would end that loop with an error in the training. Going through none is a single step of the interpreter.
        """
        module: Any = sys.modules.get(_MODULE)
        register = getattr(module, _REGISTER, None)
        if self._handle is not None or not callable(register):
            return self._handle is not None
        if not on_training_thread and getattr(module, _HOOKS, True):
            return False
        self._handle = register(self._hook)
        return True

    def remove(self) -> None:
        """Remove the hook; on the training thread."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _hook(self, optimizer: Any, _args: object, _kwargs: object) -> None:
        first = self._first() if self._first is not None else None
        if first is None:
            self._first = weakref.ref(optimizer)
        elif first is not optimizer:
            return
        self._ended()
