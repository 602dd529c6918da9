"""Compute samples/s, tokens/s and MFU from the described work of a step."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from msgspec import Struct

from gputop.model.durations import per_second
from gputop.model.quantity import is_number
from gputop.model.steps import MFU_REMEDY, MOST_MFU_PCT

if TYPE_CHECKING:
    from gputop.model.peak_flops import Precision

FLOPS_A_PARAMETER_AND_TOKEN = 6.0
"""Forward and backward pass of a dense transformer, attention left out: C ≈ 6·N·D (Kaplan et al. 2020,
arXiv:2001.08361, section 2.1)."""
NOT_GIVEN = "the program does not say what a step does"
IMPOSSIBLE = (
    "more than the chip can do: tokens and FLOPs are those of one step of this process alone"
)
NO_GPU = "which GPU this process computes on is not known"


class StepWork(Struct, frozen=True):
    """The work of one step of this process.

    ``flops`` are given, or 6 · parameters · tokens; ``rule`` says which.
    """

    samples: float | None = None
    tokens: float | None = None
    parameters: float | None = None
    flops: float | None = None
    precision: Precision = "bf16"
    peak_flops: float | None = None

    @property
    def step_flops(self) -> float | None:
        """FLOPs of one step; None where they do not follow."""
        if self.flops is not None:
            return self.flops
        if self.tokens is None or self.parameters is None:
            return None
        return FLOPS_A_PARAMETER_AND_TOKEN * self.parameters * self.tokens

    @property
    def rule(self) -> str:
        """The source of the FLOPs, in words."""
        return "FLOPs as given" if self.flops is not None else "6 · parameters · tokens"


class Rates(Struct, frozen=True):
    """The rates of this process.

    ``mfu_pct`` is model FLOPs utilisation (Chowdhery et al. 2022, arXiv:2204.02311, appendix B): the model's FLOPs a
    second in percent of the peak of the GPUs that this process computes on. ``mfu_from`` says how it was computed;
    where it is None, ``mfu_reason`` says why.
    """

    samples_per_s: float | None = None
    tokens_per_s: float | None = None
    mfu_pct: float | None = None
    mfu_from: str = ""
    mfu_reason: str = NOT_GIVEN

    @property
    def text(self) -> str:
        """One line for people; empty where the program said nothing of its steps."""
        parts = []
        if self.samples_per_s is not None:
            parts.append(f"{per_second(self.samples_per_s)} samples/s")
        if self.tokens_per_s is not None:
            parts.append(f"{per_second(self.tokens_per_s)} tokens/s")
        if self.mfu_pct is not None:
            digits = f"{self.mfu_pct:.1f}" if self.mfu_pct >= 0.095 else f"{self.mfu_pct:.1g}"
            doubt = f"; {IMPOSSIBLE}" if self.mfu_pct > 100.0 else ""
            parts.append(f"MFU {digits} % ({self.mfu_from}{doubt})")
        elif self.mfu_reason != NOT_GIVEN:
            parts.append(f"MFU n/a: {self.mfu_reason}")
        return f"This process: {', '.join(parts)}" if parts else ""


def checked_work(
    samples: float | None,
    tokens: float | None,
    parameters: float | None,
    flops: float | None,
    precision: str,
    peak_flops: float | None,
) -> StepWork:
    """Raises ValueError for numbers that cannot be, and words that mean nothing."""
    from gputop.model.peak_flops import PRECISIONS

    numbers = {
        "samples": samples, "tokens": tokens, "parameters": parameters, "flops": flops, "peak_flops": peak_flops,
    }  # fmt: skip
    for name, value in numbers.items():
        if value is not None and not (is_number(value) and value > 0.0):
            raise ValueError(f"{name} must be a number above 0, not {value!r}")
    checked_precision = next((allowed for allowed in PRECISIONS if allowed == precision), None)
    if checked_precision is None:
        raise ValueError(
            f"precision must be one of {', '.join(map(repr, PRECISIONS))}, not {precision!r}"
        )
    return StepWork(precision=checked_precision, **numbers)


def rates_of(
    work: StepWork | None, step_s: float | None, gpus: Collection[str], no_gpu: str | None = None
) -> Rates | None:
    """Return the rates at this mean step in seconds.

    None without steps, or without a description of their work. ``gpus`` are the names of the GPUs that this process
    computes on, ``no_gpu`` is why they are not known.
    """
    if work is None or step_s is None or step_s <= 0.0:
        return None
    samples = None if work.samples is None else work.samples / step_s
    tokens = None if work.tokens is None else work.tokens / step_s
    if work.step_flops is None:
        return Rates(samples, tokens)
    if not gpus:
        return Rates(samples, tokens, mfu_reason=no_gpu or NO_GPU)
    mfu = _mfu(work, step_s, gpus)
    if isinstance(mfu, str):
        return Rates(samples, tokens, mfu_reason=mfu)
    pct, words = mfu
    if pct > MOST_MFU_PCT:
        return Rates(
            samples,
            tokens,
            mfu_reason=f"{pct:.0f} % would be more than the GPUs can do: {MFU_REMEDY}",
        )
    return Rates(samples, tokens, pct, words, "")


def claimed_mfu_pct(work: StepWork | None, step_s: float, gpus: Collection[str]) -> float | None:
    """Return MFU in percent as it follows from the program's numbers.

    It may be more than possible: it travels with the steps, so that every reader refuses it in words. None where it
    does not follow.
    """
    mfu = _mfu(work, step_s, gpus) if work is not None and gpus and step_s > 0.0 else NOT_GIVEN
    return None if isinstance(mfu, str) else float(f"{mfu[0]:.6g}")


def _mfu(work: StepWork, step_s: float, gpus: Collection[str]) -> tuple[float, str] | str:
    """Return the percentage of the GPUs' peak and its source, or a reason for none.

    A given peak is one GPU's.
    """
    from gputop.model.peak_flops import NoPeak, peak_flops

    flops, given = work.step_flops, work.peak_flops
    if flops is None:
        return NOT_GIVEN
    try:
        peaks = [
            (given, "the peak as given") if given else peak_flops(gpu, work.precision)
            for gpu in gpus
        ]
    except NoPeak as error:
        return str(error)
    many = f"{len(peaks)} × " if len(peaks) > 1 else ""
    words = (
        f"{work.rule}, of {many}{peaks[0][0] / 1e12:.0f} TFLOPS {work.precision.upper()}, "
        f"{peaks[0][1]}"
    )
    return 100.0 * flops / step_s / sum(peak for peak, _ in peaks), words
