"""Measure a step's host time by phase, with PyTorch's own hooks.

The phases are forward, backward, optimizer, and the time between steps. Host time is spent by the training thread: the
GPU works behind it. About one step a second is observed, because hooks on every module cost some microseconds each; the
others pay for one attribute. All of this runs on the training thread, keeps no tensor, reads no device and sets no hook
on a module or a tensor of the program's: the hooks hold for all modules, are not copied or saved with any of them, and
are gone after the step.

A step is one call of the optimizer that steps first, from its end to its next end. The events of one step, in order:

====================================================  =======================  ========================================
hook of PyTorch                                       method                   what ends, and what begins
====================================================  =======================  ========================================
optimizer, after its step (the first optimizer's)     ``optimizer_ended``      the step before; *between* begins
module, before its forward: outermost, in training    ``_module_begins``       *between*; *forward* begins
module, after its forward: outermost, the last one    ``_module_ends``         *forward*, the loss as a module included;
                                                                               *backward* begins: a loss as a function,
                                                                               gradients, their clipping
optimizer, before its step                            ``optimizer_begins``     *backward*; *optimizer* begins
a framework whose optimizer calls forward itself      ``backward_ended``       *backward*, in place of the event above
optimizer, after its step                             ``optimizer_ended``      *optimizer*, and the step
====================================================  =======================  ========================================

In any other order nothing is said of the step, and its hooks are taken back:

==========================================================================  ==========================================
what happens                                                                why
==========================================================================  ==========================================
an outermost module begins a second time                                    several batches a step, or an evaluation
a module is compiled or sharded (``_NOT_THESE``)                            its hooks do not say when it runs
over ``MOST_CALLS`` modules are called                                      observing would cost too much
the optimizer does not step                                                 a gradient scaler skips the step
a module is called from another thread                                      not this loop
no module is called                                                         a replayed CUDA graph calls no hook
==========================================================================  ==========================================
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Mapping
from threading import get_ident
from time import perf_counter
from typing import Any

from msgspec import Struct

from gputop.diagnosis.phase_growth import grown, growth_remedy
from gputop.model.durations import step_time
from gputop.model.step_pace import PhaseGrowth, PhaseSeries, mean_phases, phase_word
from gputop.model.steps import Phase

MOST_CALLS = 50_000
"""Modules that may be called in a step that is looked at: a few tenths of a second."""
MOST_WAITING = 256
_MODULES = "torch.nn.modules.module"
_BEFORE, _AFTER = "register_module_forward_pre_hook", "register_module_forward_hook"
_NOT_THESE = ("OptimizedModule", "FullyShardedDataParallel", "FSDPModule")
"""What ``torch.compile`` makes of a module, and the two forms of FSDP, by the names of their classes."""


Phases = dict[Phase, float]
"""One step's host time in seconds, in the order of a step. Without ``backward`` and ``optimizer`` where the optimizer
itself calls forward and backward and their ends cannot be seen."""


class PhaseSampler:
    """Observes the step after ``due`` was set, by the events of the table above.

    Another thread sets ``due`` and reads ``taken``::

        sampler.due = True
        # … the training thread ends a step, and then another …
        sampler.taken.popleft()  # {"forward": 0.041, "backward": 0.08, "optimizer": 0.01, "between": 0.2}
    """

    def __init__(self) -> None:
        self.due = False
        self.taken: deque[Phases] = deque(maxlen=MOST_WAITING)
        self._handles: list[Any] = []
        self._thread = 0
        self._begin()

    def _begin(self) -> None:
        self._begun = perf_counter()
        self._calls = self._depth = 0
        self._forward: list[float] = []
        """When it began, and when it ended last."""
        self._outer: set[int] = set()
        self._inner: set[int] = set()
        """Modules with parameters that were called from outside any other, and all that were called within one, by
        identity. What is called within one first, and then from outside, is computed again in the backward pass."""
        self._stepping: float | None = None
        self._differentiated: float | None = None

    def optimizer_begins(self) -> None:
        """The optimizer that steps first begins its step."""
        if self._handles and self._stepping is None:
            self._stepping = perf_counter()

    def backward_ended(self) -> None:
        """A framework says so, whose optimizer calls forward and backward itself."""
        if self._handles:
            self._differentiated = perf_counter()

    def optimizer_ended(self) -> None:
        """End a step of the optimizer, and observe the next if due."""
        if self._handles:
            now = perf_counter()
            self.stop()
            phases = self._phases_of_step(now)
            if phases is not None and get_ident() == self._thread:
                self.taken.append(phases)
        elif self.due:
            self.due = False
            self._start()

    def stop(self) -> None:
        """Take the hooks back."""
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()

    def _start(self) -> None:
        modules: Any = sys.modules.get(_MODULES)
        before, after = getattr(modules, _BEFORE, None), getattr(modules, _AFTER, None)
        if before is None or after is None:
            return
        self._thread = get_ident()
        self._begin()
        try:
            # Also after an error, such as the one by which torch ends what it computes again.
            ended = after(self._module_ends, always_call=True)
        except TypeError:  # before PyTorch 2.1
            ended = after(self._module_ends)
        self._handles = [before(self._module_begins), ended]

    def _module_begins(self, module: Any, _given: object) -> None:
        if is_compiling() or get_ident() != self._thread or not self._handles:
            return
        self._calls += 1
        if self._calls > MOST_CALLS:
            self.stop()
            return
        self._depth += 1
        if self._depth > 1:
            self._inner.add(id(module))
        elif id(module) in self._outer:
            # A second batch of the same step, or an evaluation.
            self.stop()
        elif id(module) not in self._inner and next(iter(module.parameters()), None) is not None:
            self._outer.add(id(module))
            # One that is not trained is no beginning, as a teacher's, or that of an evaluation.
            if not self._forward and module.training:
                if any(
                    base.__name__ in _NOT_THESE
                    for part in module.modules()
                    for base in type(part).__mro__
                ):
                    self.stop()
                    return
                self._forward = [perf_counter(), 0.0]

    def _module_ends(self, module: Any, _given: object, _made: object) -> None:
        if is_compiling() or get_ident() != self._thread or not self._handles:
            return
        self._depth -= 1
        if self._depth == 0 and self._forward and id(module) not in self._inner:
            self._forward[1] = perf_counter()

    def _phases_of_step(self, now: float) -> Phases | None:
        """Return the phases of the step that ends now; None in any other order."""
        stepping = self._stepping
        if stepping is None or self._depth or not self._forward or not self._forward[1]:
            return None
        begun, forward, made = self._begun, *self._forward
        if forward < stepping < made:
            return None
        ended = stepping if stepping >= made else self._differentiated
        later: Phases = {}
        if ended is not None and ended >= made:
            later = {"backward": ended - made, "optimizer": now - ended}
        return {"forward": made - forward, **later, "between": forward - begun}


MOST_KEPT = 4096


class PhaseSummary(Struct, frozen=True):
    """Mean host time of the observed steps, by phase, in seconds.

    A phase that could not be told from the one before is absent. ``growth`` is the phase that grew over the run.
    """

    steps: int
    means_s: Mapping[Phase, float]
    growth: PhaseGrowth | None = None

    @property
    def text(self) -> str:
        """One line for people, and one more where a phase grew."""
        parts = ", ".join(
            f"{phase_word(phase)} {step_time(mean)}" for phase, mean in self.means_s.items()
        )
        text = f"Host time of a step ({self.steps} looked at; the GPU works behind it): {parts}"
        if self.growth is None:
            return text
        phase, grew = self.growth.phase, self.growth
        change = f"{step_time(grew.before_s)} → {step_time(grew.after_s)}"
        return f"{text}; {phase_word(phase)} grew, {change}: {growth_remedy(grew)}"


def phase_summary(series: PhaseSeries) -> PhaseSummary | None:
    """The means, and what grew; None where no step was looked at."""
    steps = series.steps
    return PhaseSummary(series.count, mean_phases(steps), grown(steps)) if steps else None


def is_compiling() -> bool:
    """Whether torch.compile traces this very call.

    torch folds the answer into the code that it compiles.
    """
    compiler = sys.modules.get("torch.compiler")
    return compiler is not None and bool(compiler.is_compiling())
