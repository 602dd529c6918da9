"""The steps around the hardware counters: who may have them, who else may not, and what goes on undisturbed."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from gputop.sources.activity.counters.access import PERFMON_DRIVER
from gputop.sources.capabilities import PERFMON, capabilities
from tests.hardware import checks
from tests.hardware.checks import Missing, Wrong, counters_held, first_sample, helper, printed, said
from tests.hardware.load import gpus, half_busy

NOBODY = 65534
PARAMETERS = Path("/proc/driver/nvidia/params")
LEAST_RATE = 0.97
"""Of the products of matrices without the counters: what they may cost."""
MOST_APART_PCT = 2.0
SETTLES_S = 6.0
"""An idle GPU lowers its clocks so long after it has worked."""
Judge = Callable[[str, str, int], bool]


def two_helpers() -> str:
    """The second one must be told that the counters are in use; killed, the first one must free them."""
    with counters_held() as first:
        with helper() as second:
            beside = first_sample(second)
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
    with helper() as third:
        after = first_sample(third)
    text = f"second beside the first: {beside}\nafter kill -9 of the first: {after}"
    if beside.get("state") != "busy" or after["t"] != "s":
        raise Wrong(text)
    return text


def while_held(run: Callable[[], str], judge: Judge) -> Callable[[], str]:
    """Something before, and while a helper holds the counters; ``judge`` is given both texts and the helper's pid."""

    def both() -> str:
        with counters_held():
            pass
        before = run()
        with counters_held() as held:
            during = run()
            right = judge(before, during, held.pid)
        text = f"before:\n{before}\nwhile a helper holds the counters:\n{during}"
        if not right:
            raise Wrong(text)
        return text

    return both


def _nvidia_smi(query: str) -> str:
    return printed(["nvidia-smi", query, "--format=csv,noheader"])


def _performance_states(text: str) -> list[str]:
    """The last column of each GPU's line."""
    return [line.rpartition(",")[2].strip() for line in text.splitlines()]


def clocks() -> str:
    """Whether to hold the counters keeps an idle GPU from resting."""

    def states() -> str:
        time.sleep(SETTLES_S)
        return _nvidia_smi("--query-gpu=clocks.sm,clocks.mem,power.draw,pstate")

    return while_held(states, lambda a, b, _: _performance_states(a) == _performance_states(b))()


def memory() -> str:
    """A CUDA context of the helper would take hundreds of MB, and stand among the applications.

    In a container their pids are of another namespace, or none is listed: then their number, and the memory, tell.
    """

    def used() -> str:
        return _nvidia_smi("--query-compute-apps=pid,used_memory") + "\n" + _nvidia_smi("--query-gpu=memory.used")

    def is_none(before: str, during: str, pid: int) -> bool:
        return f"{pid}," not in during and len(during.split("\n")) <= len(before.split("\n"))

    return while_held(used, is_none)()


def gpm_beside() -> str:
    """SM activity by GPM under a known load, which the counters must not disturb."""

    def both() -> str:
        found = gpus("--sm-source", "gpm")[0]
        if found["sm_active_pct"] is None:
            raise Missing(f"no GPM: {found.get('sm_lack')}")
        return json.dumps(found["sm_active_pct"])

    with half_busy() as expected:
        text = while_held(both, lambda a, b, _: abs(float(a) - float(b)) <= MOST_APART_PCT)()
    return f"{text}\nexpected {expected:.1f}"


def rate() -> str:
    return printed([*checks.WORK, "gemm"])


def kernels_seen() -> str:
    return printed([*checks.WORK, "profile"])


def is_as_fast(before: str, during: str, _pid: int) -> bool:
    return float(during) >= LEAST_RATE * float(before)


def as_nobody() -> str:
    """Without any right the counters are denied; with CAP_PERFMON alone they are had, from driver 565 on."""
    if os.geteuid() != 0:
        raise Missing("only root may start programs as another user")
    said(["setpriv", "--version"])
    if "RmProfilingAdminOnly: 0" in (PARAMETERS.read_text() if PARAMETERS.exists() else ""):
        raise Missing("this driver lets every user read the counters")
    if not capabilities().bounding >> PERFMON & 1:
        raise Missing("CAP_PERFMON is outside the bounding set, as in a container without --cap-add=PERFMON")
    major = int(printed(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]).split(".")[0])
    user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    found = {}
    for right in ("-all", "+perfmon"):
        with helper([*user, f"--inh-caps={right}", f"--ambient-caps={right}"]) as process:
            found[right] = first_sample(process)
    text = f"driver {major}\n" + "\n".join(
        f"uid {NOBODY}, capabilities {right}: {answer}" for right, answer in found.items()
    )
    if all(answer["t"] in ("nothing", "bye") for answer in found.values()):
        raise Missing(f"uid {NOBODY} cannot run this Python or load the libraries\n{text}")
    with_right = found["+perfmon"]
    allowed = with_right["t"] == "s" if major >= PERFMON_DRIVER else with_right.get("state") == "denied"
    if found["-all"].get("state") != "denied" or not allowed:
        raise Wrong(text)
    return text


def ncu() -> str:
    """Nsight Compute gets the counters although a helper has them: it lets go."""
    metric = "sm__cycles_active.avg.pct_of_peak_sustained_elapsed"
    said(["ncu", "--version"])
    words = ["ncu", "--clock-control", "none", "--metrics", metric, "--launch-count", "1"]
    with counters_held():
        text = said([*words, *checks.WORK, "gemm", "--for", "1"], 180.0)
    if metric not in text:
        raise Wrong(text)
    return text
