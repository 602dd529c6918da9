"""What NVML's GPU performance monitoring answers beyond what gputop asks: short windows, and counters since reboot.

nvml.h (13.x) describes the ids 248 to 260 as cycles and activity "since reboot". It does not say whether the elapsed
and the active cycles are counted over the same multiprocessors, from which of the two samples the value is taken, when
the count begins anew, or on which GPUs and drivers it exists. Here they stand beside metric 2 of the same samples,
under a load that is known.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pynvml

from tests.hardware.checks import Missing
from tests.hardware.load import half_busy

SM_UTIL, ELAPSED, ACTIVE = 2, 248, 249
TWO_SAMPLE = (1, SM_UTIL, 3, 5, 10)
CUMULATIVE = range(ELAPSED, 261)
WINDOWS_S = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.5, 1.0)
APART_S = 1.0


@contextmanager
def _device() -> Iterator[tuple[Any, list[Any]]]:
    """The first GPU and three sample buffers. Raises Missing where it has no GPM."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise Missing(f"NVML: {error}") from None
    samples: list[Any] = []
    try:
        device = pynvml.nvmlDeviceGetHandleByIndex(0)
        if not pynvml.nvmlGpmQueryDeviceSupport(device).isSupportedDevice:
            raise Missing("this GPU has no GPM")
        samples += [pynvml.nvmlGpmSampleAlloc() for _ in range(3)]
        yield device, samples
    except pynvml.NVMLError as error:
        raise Missing(f"GPM: {error}") from None
    finally:
        for sample in samples:
            pynvml.nvmlGpmSampleFree(sample)
        pynvml.nvmlShutdown()


def _ask(first: Any, second: Any, ids: Sequence[int]) -> dict[int, Any]:
    """Each metric's answer by id, or why there is none. One that this driver does not know may refuse a whole call."""
    found: dict[int, Any] = {}
    for metric in ids:
        pair = pynvml.c_nvmlGpmMetricsGet_t()
        pair.version, pair.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, 1
        pair.sample1, pair.sample2 = first, second
        pair.metrics[0].metricId = metric
        try:
            pynvml.nvmlGpmMetricsGet(pair)
        except pynvml.NVMLError as error:
            found[metric] = f"the call: {error}"
            continue
        answer = pair.metrics[0]
        if answer.nvmlReturn == pynvml.NVML_SUCCESS:
            found[metric] = answer
        else:
            found[metric] = str(pynvml.NVMLError(answer.nvmlReturn))
    return found


def _shown(answer: Any) -> str:
    return answer if isinstance(answer, str) else f"{answer.value:.6g}"


def _name(answer: Any) -> str:
    """What the driver itself calls a metric, with its unit."""
    if isinstance(answer, str):
        return ""
    info = answer.metricInfo
    return " ".join((text or b"").decode("utf-8", "replace") for text in (info.shortName, info.longName, info.unit))


def short_windows() -> str:
    """Metric 2 over ever longer windows, under a known load: from which on it is a number, and from which on true."""
    lines = ["window  SM activity"]
    with half_busy() as expected, _device() as (device, (first, second, _)):
        for window_s in WINDOWS_S:
            said = []
            for _ in range(3):
                pynvml.nvmlGpmSampleGet(device, first)
                time.sleep(window_s)
                pynvml.nvmlGpmSampleGet(device, second)
                said.append(_shown(_ask(first, second, [SM_UTIL])[SM_UTIL]))
            lines.append(f"{window_s * 1000:4.0f} ms  {'  '.join(said)}")
    return "\n".join([f"{expected:.1f} % of the multiprocessors spin", *lines])


def cumulative() -> str:
    """The counters since reboot beside the metrics of the same two samples, and what one sample alone gives."""
    with half_busy() as expected, _device() as (device, (first, middle, last)):
        for sample in (first, middle, last):
            pynvml.nvmlGpmSampleGet(device, sample)
            time.sleep(APART_S)
        between = _ask(first, last, TWO_SAMPLE)
        rows = {
            "first+middle": _ask(first, middle, CUMULATIVE),
            "middle+last": _ask(middle, last, CUMULATIVE),
            "last+first": _ask(last, first, CUMULATIVE),
            "last+last": _ask(last, last, CUMULATIVE),
        }
        lines = [f"{expected:.1f} % of the multiprocessors spin; samples {APART_S:.0f} s apart"]
        lines += [f"metric {metric:3}: {_shown(answer):>12}  {_name(answer)}" for metric, answer in between.items()]
        lines.append(f"{'id':>4} " + " ".join(f"{pair:>16}" for pair in rows))
        for metric in CUMULATIVE:
            answers = [answers[metric] for answers in rows.values()]
            lines.append(f"{metric:4} " + " ".join(f"{_shown(a):>16}" for a in answers) + f"  {_name(answers[1])}")
        return "\n".join([*lines, _ratio(rows["first+middle"], rows["middle+last"], between[SM_UTIL])])


def _ratio(before: dict[int, Any], after: dict[int, Any], two_sample: Any) -> str:
    """Active over elapsed cycles of one second: does it say what metric 2 says?"""
    asked = [answers[metric] for answers in (before, after) for metric in (ELAPSED, ACTIVE)]
    if any(isinstance(answer, str) for answer in asked):
        return "no cumulative cycles on this GPU and driver"
    elapsed, active, elapsed_then, active_then = (answer.value for answer in asked)
    spent = elapsed_then - elapsed
    if not spent:
        return "the elapsed cycles do not move: the value is not of the second sample, or not cumulative"
    ratio = 100.0 * (active_then - active) / spent
    return f"active / elapsed cycles of one second: {ratio:.2f} %; metric 2 of both seconds: {_shown(two_sample)} %"
