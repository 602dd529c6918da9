"""The steps: each runs programs, judges what they show, and gives the text that goes into the report."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from importlib import metadata
from math import inf
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from tests.hardware import checks
from tests.hardware.beside import as_nobody, two_helpers
from tests.hardware.checks import Missing, Wrong, output
from tests.hardware.gpu_work import CAUSES
from tests.hardware.red_scenes import SCENES

SOURCES = ("gpm", "dcgm-exporter", "dcgmi", "counters")
PACKAGES = (
    "textual",
    "nvidia-ml-py",
    "msgspec",
    "psutil",
    "torch",
    "nvidia-cuda-cupti",
    "nvidia-cuda-cupti-cu12",
    "nvitop",
)
JOB_S = 32.0
RED_S = 36.0
"""A window of 30 s, and the start of CUDA before it."""
SM_METRIC = "2"
"""NVML_GPM_METRIC_SM_UTIL of nvml.h, as ``nvidia-smi dmon --gpm-metrics`` numbers it."""
BUSY_PCT = 80
LEAST_COLUMNS = 3
NCU_METRIC = "sm__cycles_active.avg.pct_of_peak_sustained_elapsed"
MOST_APART_POINTS = 5.0
"""Between two means of SM activity that were not read in the same milliseconds [judged]."""
ONCE = 5
WARM_UP_S, WATCHED_S = 4.0, 15.0
"""Of a program on a terminal: what is not counted, and what is."""


class Step(NamedTuple):
    """A title and what gives its text. ``run`` raises Missing and Wrong; whatever else it raises has failed, too."""

    title: str
    run: Callable[[], str]


def machine() -> str:
    """What everything else was measured on."""
    lines = [
        f"Python {platform.python_version()}, kernel {platform.release()}, {os.cpu_count()} cores, uid {os.geteuid()}"
    ]
    for name in PACKAGES:
        try:
            lines.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            lines.append(f"{name} is not here")
    for path in (
        "/proc/self/status",
        "/proc/driver/nvidia/params",
        "/proc/driver/nvidia/version",
        "/proc/self/cgroup",
    ):
        try:
            text = Path(path).read_text()
        except OSError as error:
            lines.append(f"{path}: {error.strerror}")
            continue
        lines += [
            line for line in text.splitlines() if re.match(r"Cap|Rm(Prof|Perf)|NVRM|GCC|\d+:", line)
        ]
    for words in (("nvidia-smi",), ("nvidia-smi", "-q", "-d", "CLOCK,POWER,PERFORMANCE")):
        try:
            lines.append(output(words, 20.0, merged=True))
        except (Missing, Wrong) as trouble:
            lines.append(str(trouble))
    return "\n".join(lines)


def doctor(out: Path) -> str:
    """The report for people; that for programs is kept beside."""
    text = output([*checks.GPUTOP, "doctor", "--json"], right=(0, 1))
    (out / "doctor.json").write_text(text, "utf-8")
    return output([*checks.GPUTOP, "doctor"], right=(0, 1))


def once(out: Path) -> str:
    """What is printed, what is kept as JSON, and how long it takes with the real driver."""
    (out / "once.json").write_text(output([*checks.GPUTOP, "once", "--json"]), "utf-8")
    text = output([*checks.GPUTOP, "once"])
    took = []
    for _ in range(ONCE):
        begun = time.monotonic()
        output([*checks.GPUTOP, "once"])
        took.append(1000 * (time.monotonic() - begun))
    return f"{text}\ntook {', '.join(f'{ms:.0f}' for ms in took)} ms, median {median(took):.0f}"


def gpus(*options: str) -> list[dict[str, Any]]:
    """The GPUs as `gputop once --json` gives them. Raises Missing where there is none."""
    found: list[dict[str, Any]] = json.loads(output([*checks.GPUTOP, "once", "--json", *options]))[
        "gpus"
    ]
    if not found:
        raise Missing("no GPU")
    return found


def prove(source: str, out: Path) -> Step:
    kept = out / f"prove-{source}"

    def run() -> str:
        if not any(gpu["sm_source"] == source for gpu in gpus("--sm-source", source)):
            raise Missing(f"nothing here is measured by {source}: the doctor says why")
        options = ["--sm-source", source, "--record", f"{kept}.jsonl.gz", "-o", f"{kept}.svg"]
        return output([*checks.GPUTOP, "prove", *options], 180.0, merged=True)

    return Step(f"prove by {source}", run)


def on_a_terminal() -> str:
    """First frame, CPU and memory of the screen with the real driver, and the same of nvitop where it is here."""
    try:
        from tests.bench.terminal import ProgramEnded, Terminal
    except ImportError as missing:
        raise Missing(f"a terminal to look at needs pyte: {missing}") from None
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
            memory_mb = terminal.memory().peak_mb
        except ProgramEnded as ended:
            lines.append(f"{name} has ended: {ended}")
            if name == "gputop":
                raise Wrong("\n".join(lines)) from None
            continue
        finally:
            terminal.close()
        shown = "no GPU" if first is None else f"{1000 * first:.0f} ms"
        lines.append(
            f"{name}: first frame {shown}, {cpu_pct[name]:.2f} % of a core, {memory_mb or 0:.0f} MB"
        )
        if name == "gputop":
            lines.append("\n".join(terminal.screen()))
            if first is None:
                raise Wrong("\n".join(lines))
    if cpu_pct["gputop"] > cpu_pct.get("nvitop", inf):
        raise Wrong("\n".join(lines))
    return "\n".join(lines)


def loader_job(cause: str, out: Path) -> Step:
    """A real job with a planted cause, recorded, and whether the recording is judged as it should be."""
    path = str(out / f"job-{cause}.jsonl.gz")

    def run() -> str:
        work = [*checks.WORK, cause, "--for", str(JOB_S)]
        ran = output([*checks.GPUTOP, "run", "-o", path, "--", *work], JOB_S + 90.0, merged=True)
        found: list[dict[str, Any]] = json.loads(
            output([*checks.GPUTOP, "diagnose", path, "--json"], right=(0, 1))
        )["gpus"]
        told = [
            f"GPU {gpu['index']}: {gpu['verdict']}, {'; '.join(gpu['evidence'])}" for gpu in found
        ]
        text = "\n".join([*told, "", ran])
        if not {gpu["verdict"] for gpu in found} & set(CAUSES[cause]):
            raise Wrong(f"wanted {' or '.join(CAUSES[cause])}\n{text}")
        return text

    return Step(f"job: {cause}", run)


def red_scene(name: str, out: Path) -> Step:
    """Work that only looks like work, recorded, with NVIDIA's own SM activity beside it."""
    path = out / f"red-{name}.jsonl.gz"

    def run() -> str:
        dmon = DmonBeside()
        work = [*checks.RED, name, "--for", str(RED_S)]
        ran = output(
            [*checks.GPUTOP, "run", "-o", str(path), "--", *work],
            RED_S + 60.0,
            right=(0,),
            merged=True,
        )
        theirs = dmon.sm_pct()
        verdicts = _verdicts(path)
        told = [f"{SCENES[name].text}", *verdicts.values(), theirs.text, "", ran]
        wrong = not set(verdicts) & SCENES[name].verdicts
        ours = _mean_sm_pct(path)
        if theirs.mean_pct is not None and ours is not None:
            told.insert(1, f"SM activity: gputop {ours:.1f} %, dmon {theirs.mean_pct:.1f} %")
            wrong = wrong or abs(theirs.mean_pct - ours) > MOST_APART_POINTS
        text = "\n".join(told)
        if wrong:
            raise Wrong(f"wanted {' or '.join(sorted(SCENES[name].verdicts))}\n{text}")
        return text

    return Step(f"red: {name}", run)


def _verdicts(path: Path) -> dict[str, str]:
    """Return the sentence of each verdict in which a recording ends."""
    found: list[dict[str, Any]] = json.loads(
        output([*checks.GPUTOP, "diagnose", str(path), "--json"], right=(0, 1))
    )["gpus"]
    return {
        gpu["verdict"]: f"GPU {gpu['index']}: {gpu['verdict']}, {'; '.join(gpu['evidence'])}"
        for gpu in found
    }


def _mean_sm_pct(path: Path) -> float | None:
    """Return the mean SM activity of the first GPU while it was busy."""
    rows = output([*checks.GPUTOP, "dump", str(path), "--json"]).splitlines()
    first = [json.loads(row)["gpus"][0] for row in rows]
    busy = [
        gpu["sm_active_pct"]
        for gpu in first
        if gpu.get("sm_active_pct") is not None and (gpu.get("gpu_util_pct") or 0) >= BUSY_PCT
    ]
    return sum(busy) / len(busy) if busy else None


class DmonMean(NamedTuple):
    mean_pct: float | None
    text: str


class DmonBeside:
    """NVIDIA's own reading of SM activity, taken while a scene runs."""

    def __init__(self) -> None:
        self._process = None
        if shutil.which("nvidia-smi") is not None:
            command = ["nvidia-smi", "dmon", "-i", "0", "-s", "u", "--gpm-metrics", SM_METRIC]
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )

    def sm_pct(self) -> DmonMean:
        """End it, and return the mean of its SM activity while the GPU was busy."""
        if self._process is None:
            return DmonMean(None, "nvidia-smi is not here")
        self._process.terminate()
        text, _ = self._process.communicate(timeout=10.0)
        return dmon_mean(text)


def dmon_mean(text: str) -> DmonMean:
    """Return the mean of the last column of dmon's rows in which ``sm``, its util, is high."""
    names: list[str] = []
    values: list[float] = []
    for line in text.splitlines():
        words = line.split()
        if line.startswith("#"):
            names = names or [word for word in words if word != "#"]
            continue
        row = dict(zip(names, words, strict=False))
        is_busy = row.get("sm", "").isdigit() and int(row["sm"]) >= BUSY_PCT
        if is_busy and words[-1].replace(".", "", 1).isdigit():
            values.append(float(words[-1]))
    if not values or len(names) < LEAST_COLUMNS:
        return DmonMean(None, f"dmon gives no SM activity here: {text.strip()[-200:]}")
    mean_pct = sum(values) / len(values)
    return DmonMean(mean_pct, f"dmon: {len(values)} rows")


def beside_ncu() -> str:
    """Profile one kernel by ncu while gputop records: neither may take the other's counters."""
    if shutil.which("ncu") is None:
        raise Missing("ncu is not here")
    scene = [*checks.RED, "one_sm", "--for", "1"]
    profile = ["ncu", "--launch-count", "1", "--metrics", NCU_METRIC, *scene]
    return output([*checks.GPUTOP, "run", "--", *profile], 60.0, merged=True)


def steps(out: Path) -> list[Step]:
    """In the order of their worth, so that a run that is cut short has shown the most. ``out`` takes what is kept."""
    first, *others = (prove(source, out) for source in SOURCES)
    return [
        Step("machine", machine),
        Step("doctor", lambda: doctor(out)),
        Step("once", lambda: once(out)),
        first,
        Step("on a terminal, beside nvitop", on_a_terminal),
        *others,
        *(red_scene(name, out) for name in SCENES),
        Step("two helpers, and kill -9", two_helpers),
        Step("as uid 65534", as_nobody),
        Step("beside ncu", beside_ncu),
        *(loader_job(cause, out) for cause in CAUSES),
    ]
