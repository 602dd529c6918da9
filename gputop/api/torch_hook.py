"""Steps of an unchanged PyTorch loop, by torch's own hook after any optimizer's step.

torch is never imported here.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any

from gputop.api.step_phases import PhaseSampler, is_compiling

_OPTIMIZERS = "torch.optim.optimizer"
_AFTER_STEP = "register_optimizer_step_post_hook", "_global_optimizer_post_hooks"
_BEFORE_STEP = "register_optimizer_step_pre_hook", "_global_optimizer_pre_hooks"
"""How each kind of hook is registered, and torch's table of those that are."""


class TorchHook:
    """Calls ``ended`` after each step of the first optimizer.

    Steps of other optimizers are accumulation or a second model.
    """

    def __init__(self, ended: Callable[[], None], phases: PhaseSampler | None = None) -> None:
        self._ended = ended
        self._phases = phases
        self._first: weakref.ref[Any] | None = None
        self._handles: list[Any] = []

    @property
    def registered(self) -> bool:
        return bool(self._handles)

    def register(self, *, on_training_thread: bool) -> bool:
        """Register with torch where it is imported; True where that is done.

        From another thread only while torch has no such hook: it goes through its hooks without a lock, and a new one
        would end that loop with an error in the training. Going through none is a single step of the interpreter.
        """
        module: Any = sys.modules.get(_OPTIMIZERS)
        hooks = [(self._hook, *_AFTER_STEP), (self._begins, *_BEFORE_STEP)][
            : 1 if self._phases is None else 2
        ]
        registrations = [
            (hook, getattr(module, register, None), table) for hook, register, table in hooks
        ]
        if self._handles or not all(callable(register) for _, register, _ in registrations):
            return self.registered
        if not on_training_thread and any(
            getattr(module, table, True) for _, _, table in registrations
        ):
            return False
        self._handles = [
            register(hook) for hook, register, _ in registrations if register is not None
        ]
        return True

    def remove(self) -> None:
        """Remove the hooks; on the training thread."""
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()
        if self._phases is not None:
            self._phases.stop()

    def _begins(self, optimizer: Any, _args: object, _kwargs: object) -> None:
        if (
            self._phases is not None
            and self._first is not None
            and self._first() is optimizer
            and not is_compiling()
        ):
            self._phases.optimizer_begins()

    def _hook(self, optimizer: Any, _args: object, _kwargs: object) -> None:
        if is_compiling():
            # torch.compile would break its graph for the clock, and warn of it: such steps are not counted here.
            return
        first = self._first() if self._first is not None else None
        if first is None:
            self._first = weakref.ref(optimizer)
        elif first is not optimizer:
            return
        self._ended()
        if self._phases is not None:
            self._phases.optimizer_ended()
