"""The steps around the hardware counters: who may have them, and who else may not."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from gputop.sources.activity.counters.access import PERFMON_DRIVER
from gputop.sources.capabilities import PERFMON, capabilities
from tests.hardware.checks import Missing, Wrong, counters_held, first_sample, helper, output

NOBODY = 65534
PARAMETERS = Path("/proc/driver/nvidia/params")


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


def as_nobody() -> str:
    """Without any right the counters are denied; with CAP_PERFMON alone they are had, from driver 565 on."""
    if os.geteuid() != 0:
        raise Missing("only root may start programs as another user")
    output(["setpriv", "--version"])
    if "RmProfilingAdminOnly: 0" in (PARAMETERS.read_text() if PARAMETERS.exists() else ""):
        raise Missing("this driver lets every user read the counters")
    if not capabilities().bounding >> PERFMON & 1:
        raise Missing(
            "CAP_PERFMON is outside the bounding set, as in a container without --cap-add=PERFMON"
        )
    major = int(
        output(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]).split(".")[0]
    )
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
    allowed = (
        with_right["t"] == "s" if major >= PERFMON_DRIVER else with_right.get("state") == "denied"
    )
    if found["-all"].get("state") != "denied" or not allowed:
        raise Wrong(text)
    return text
