"""The steps: each runs programs, judges what they show, and gives the text that goes into the report."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from math import inf
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from tests.bench.terminal import Terminal
from tests.hardware import checks
from tests.hardware.checks import Missing, Wrong, counters_held, first_sample, helper, printed, said
from tests.hardware.gpu_work import CAUSES

SOURCES = ("gpm", "dcgm-exporter", "dcgmi", "counters")
NOBODY = 65534
PARAMETERS = Path("/proc/driver/nvidia/params")
JOB_S = 40.0
LEAST_RATE = 0.97
"""Of the products of matrices without the counters: what they may cost."""
MOST_APART_PCT = 5.0
WARM_UP_S, WATCHED_S = 4.0, 15.0
"""Of a program on a terminal: what is not counted, and what is."""


class Step(NamedTuple):
    """A title and what gives its text. ``run`` raises Missing and Wrong; whatever else it raises has failed, too."""

    title: str
    run: Callable[[], str]


def prove(source: str, out: Path) -> Step:
    kept = out / f"prove-{source}"

    def run() -> str:
        options = ["--sm-source", source, "--record", f"{kept}.jsonl.gz", "-o", f"{kept}.svg"]
        return said([*checks.GPUTOP, "prove", *options], 180.0)

    return Step(f"prove by {source}", run)


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


def beside_the_counters(run: Callable[[], str], judge: Callable[[str, str, int], bool]) -> Callable[[], str]:
    """Something before, and while a helper holds the counters; ``judge`` is given both texts and the helper's pid."""

    def both() -> str:
        before = run()
        with counters_held() as held:
            during = run()
            right = judge(before, during, held.pid)
        text = f"before:\n{before}\nwhile a helper holds the counters:\n{during}"
        if not right:
            raise Wrong(text)
        return text

    return both


def nvidia_smi(*words: str) -> Callable[[], str]:
    return lambda: printed(["nvidia-smi", *words, "--format=csv,noheader"])


def performance_states(text: str) -> list[str]:
    """The last column of each GPU's line."""
    return [line.rpartition(",")[2].strip() for line in text.splitlines()]


def gpm_now() -> str:
    """SM activity of each GPU by GPM. Raises Missing where a GPU has none."""
    gpus = json.loads(printed([*checks.GPUTOP, "once", "--json", "--sm-source", "gpm"]))["gpus"]
    if not gpus or any(gpu["sm_active_pct"] is None for gpu in gpus):
        raise Missing("no GPM on every GPU: " + "; ".join(str(gpu.get("sm_reason")) for gpu in gpus))
    return json.dumps([gpu["sm_active_pct"] for gpu in gpus])


def rate() -> str:
    return printed([*checks.WORK, "gemm"])


def kernels_seen() -> str:
    return printed([*checks.WORK, "profile"])


def is_as_fast(before: str, during: str, _pid: int) -> bool:
    return float(during) >= LEAST_RATE * float(before)


def as_nobody() -> str:
    """Without any right the counters are denied, with CAP_PERFMON alone they are had: as uid 65534."""
    if os.geteuid() != 0:
        raise Missing("only root may start programs as another user")
    said(["setpriv", "--version"])
    if "RmProfilingAdminOnly: 0" in (PARAMETERS.read_text() if PARAMETERS.exists() else ""):
        raise Missing("this driver lets every user read the counters")
    user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    found = {}
    for right in ("-all", "+perfmon"):
        with helper([*user, f"--inh-caps={right}", f"--ambient-caps={right}"]) as process:
            found[right] = first_sample(process)
    text = "\n".join(f"uid {NOBODY}, capabilities {right}: {answer}" for right, answer in found.items())
    if all(answer["t"] in ("nothing", "bye") for answer in found.values()):
        raise Missing(f"uid {NOBODY} cannot run this Python or load the libraries\n{text}")
    if found["-all"].get("state") != "denied" or found["+perfmon"]["t"] != "s":
        raise Wrong(text)
    return text


def ncu() -> str:
    """Nsight Compute gets the counters although a helper has them: it lets go."""
    metric = "sm__cycles_active.avg.pct_of_peak_sustained_elapsed"
    said(["ncu", "--version"])
    with counters_held():
        text = said(["ncu", "--metrics", metric, "--launch-count", "1", *checks.WORK, "gemm", "--for", "1"], 180.0)
    if metric not in text:
        raise Wrong(text)
    return text


def dmon() -> str:
    """NVIDIA's own reading of SM activity beside ours, while a GPU works."""
    said([*checks.WORK, "profile"])
    with subprocess.Popen([*checks.WORK, "gemm", "--for", "30"], stdout=subprocess.DEVNULL) as work:
        try:
            text = printed(["nvidia-smi", "dmon", "--gpm-metrics", "2", "-c", "8", "-i", "0"])
            ours = float(json.loads(gpm_now())[0])
        finally:
            work.kill()
    rows = [line.split() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    try:
        theirs = median(float(row[-1]) for row in rows[-5:])
    except (ValueError, IndexError):
        raise Wrong(f"its table cannot be read:\n{text}") from None
    text += f"\nnvidia-smi {theirs:.1f} %, gputop {ours:.1f} %"
    if abs(theirs - ours) > MOST_APART_PCT:
        raise Wrong(text)
    return text


def on_a_terminal() -> str:
    """First frame, CPU and memory of the screen with the real driver, and the same of nvitop where it is here."""
    lines, cpu_pct = [], {}
    for name, command in (("gputop", checks.GPUTOP), ("nvitop", ("nvitop",))):
        if shutil.which(command[0]) is None:
            lines.append(f"{name} is not here")
            continue
        terminal = Terminal(command, {**os.environ, "TERM": "xterm-256color"}, 50, 160)
        try:
            terminal.drain(WARM_UP_S)
            begun, used = time.monotonic(), terminal.cpu_s()
            terminal.drain(WATCHED_S)
            cpu_pct[name] = 100 * (terminal.cpu_s() - used) / (time.monotonic() - begun)
            first = terminal.first_shown_s(r"[0-9] ?[GM]iB")
            memory = terminal.memory().rss_mb
        finally:
            terminal.close()
        shown = "no GPU" if first is None else f"{1000 * first:.0f} ms"
        lines.append(f"{name}: first frame {shown}, {cpu_pct[name]:.2f} % of a core, {memory or 0:.0f} MB")
        if first is None and name == "gputop":
            raise Wrong("\n".join(lines))
    if cpu_pct["gputop"] > cpu_pct.get("nvitop", inf):
        raise Wrong("\n".join(lines))
    return "\n".join(lines)


def loader_job(cause: str, out: Path) -> Step:
    """A real job with a planted cause, recorded, and whether the recording is judged as it should be."""
    path = str(out / f"job-{cause}.jsonl.gz")

    def run() -> str:
        said([*checks.WORK, "profile"])
        work = [*checks.WORK, "job", cause, "--for", str(JOB_S)]
        said([*checks.GPUTOP, "run", "-o", path, "--", *work], 2 * JOB_S)
        text = said([*checks.GPUTOP, "diagnose", path, "--json"], right=(0, 1)).rpartition("\n(exit ")[0]
        gpus: list[dict[str, Any]] = json.loads(text)["gpus"]
        found = [gpu["verdict"] for gpu in gpus]
        if not set(found) & set(CAUSES[cause]):
            raise Wrong(f"said {', '.join(found)}, wanted {' or '.join(CAUSES[cause])}\n{text}")
        return f"said {', '.join(found)}"

    return Step(f"job: {cause}", run)


def steps(out: Path) -> list[Step]:
    """In the order of their worth, so that a run that is cut short has shown the most. ``out`` takes what is kept."""
    applications = nvidia_smi("--query-compute-apps=pid,used_memory")
    beside = beside_the_counters
    return [
        Step("doctor", lambda: said([*checks.GPUTOP, "doctor", "--json"], right=(0, 1))),
        Step("once", lambda: said([*checks.GPUTOP, "once", "--json"])),
        *(prove(source, out) for source in SOURCES),
        Step("two helpers, and kill -9", two_helpers),
        Step("as uid 65534", as_nobody),
        Step(
            "clocks beside the counters",
            beside(
                nvidia_smi("--query-gpu=clocks.sm,pstate"),
                lambda before, during, _: performance_states(before) == performance_states(during),
            ),
        ),
        Step("memory beside the counters", beside(applications, lambda _b, during, pid: f"{pid}," not in during)),
        Step("GPM beside the counters", beside(gpm_now, lambda _b, _d, _p: True)),
        Step("matrix products beside the counters", beside(rate, is_as_fast)),
        Step(
            "torch.profiler beside the counters",
            beside(kernels_seen, lambda before, during, _: 0 < int(before) <= int(during)),
        ),
        Step("ncu beside the counters", ncu),
        Step("dmon", dmon),
        *(loader_job(cause, out) for cause in CAUSES),
        Step("on a terminal, beside nvitop", on_a_terminal),
    ]
