"""Instructions of a tick, stage by stage: `python -m tests.bench.instructions [--ticks N] [STAGE …]`. Needs valgrind.

Counted, not timed, so that a loaded machine gives the same answer as a free one. The screen's stages and those of
``record``, ``export`` and the API get the simulated node (8 GPUs, moving values) or the same snapshot again and again
("calm"), the collector 64 real sleeping processes, NVML the test driver, whose own work counts.
What the kernel does is not counted. Words choose the stages that have one of them in their name; what only the others
need is not prepared, so that one stage alone takes a minute or two.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from gputop.commands.screen import first_view
from gputop.config import Settings
from gputop.diagnosis.engine import Diagnoser
from gputop.model.snapshot import Snapshot
from gputop.monitor import Frame, Monitor
from gputop.output.ansi import Differ
from gputop.paint.glyphs import choose
from gputop.paint.line import Row
from gputop.paint.main_screen import Painter
from gputop.paint.theme import THEMES
from gputop.paint.view import View
from gputop.recording.recent_past import Memory
from gputop.sources.gpu_process import GpuProcess
from gputop.sources.processes.collector import ProcessCollector
from gputop.sources.simulation.simulated import snapshot_at
from tests.bench.headless_stages import HEADLESS, READING, Tick, headless_stages, named, of, reading_stages
from tests.bench.key_stages import KEYS, key_stages
from tests.bench.workload import Load, machine, set_in_motion, sleeping_processes

WIDTH, HEIGHT = 160, 50
SCREEN = "diagnose", "feed", "feed, paint", "feed, paint, diff", "remember"
PROCESSES = "processes, GPUs wait", "processes, GPUs work"
T, WARM, GPUS = 1.78e9, 125, 8
"""Ticks before those that are counted: the charts are full then, and stand still where nothing changes."""


def screen() -> tuple[View, Differ]:
    """The main screen before any key, and what writes it to a terminal with all colours."""
    terminal = choose({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, "utf-8", theme="dark", ascii_only=False,
                      no_color=False)  # fmt: skip
    return first_view(Settings(), terminal), Differ(THEMES[terminal.theme], terminal.depth)


def screen_stages(name: str, snapshots: list[Snapshot]) -> dict[str, Tick]:
    """What the screen does with each of these snapshots, after the first ``WARM``."""
    monitor, diagnoser, memory, painter = Monitor(), Diagnoser(), Memory(), Painter()
    view, differ = screen()
    frames: list[Frame] = []
    screens: list[list[Row]] = []
    for snapshot in snapshots[:WARM]:
        frames.append(monitor.feed(snapshot))
        diagnoser.observe(snapshot)
        memory.add(snapshot)
        screens.append(painter.paint(frames[-1], view, WIDTH, HEIGHT).rows)

    def diagnose(i: int) -> None:
        diagnoser.observe(snapshots[WARM + i])
        diagnoser.findings()
        diagnoser.waste()

    def feed(i: int) -> None:
        frames.append(monitor.feed(snapshots[WARM + i]))

    def paint(i: int) -> None:
        feed(i)
        screens.append(painter.paint(frames[-1], view, WIDTH, HEIGHT).rows)

    def write(i: int) -> None:
        paint(i)
        differ.changes(screens[-2], screens[-1]).encode()

    def remember(i: int) -> None:
        memory.add(snapshots[WARM + i])

    return named(name, SCREEN, diagnose, feed, paint, write, remember)


def collector_stages(pids: list[int]) -> dict[str, Tick]:
    """Reading 64 processes of 8 GPUs that wait, or that work."""
    stages: list[Tick] = []
    owned = [GpuProcess(i % GPUS, pid, 1e9 + i, "C", 10.0) for i, pid in enumerate(pids)]
    for util in (50.0, 99.0):
        collector, utils = ProcessCollector(), dict.fromkeys(range(GPUS), util)
        for second in range(WARM):
            collector.read(float(second), owned, utils)
        stages.append(lambda i, c=collector, u=utils: c.read(float(WARM + i), owned, u))  # type: ignore[misc]
    return dict(zip(PROCESSES, stages, strict=True))


def counted(ticks: int, words: list[str], folder: Path) -> None:
    """Runs under valgrind: a child for each stage and one that does nothing, whose counts tell them apart."""
    moving = [snapshot_at(T + i, gpus=GPUS, started=T - 600.0) for i in range(WARM + ticks)]
    calm = [replace(moving[0], t=T + i) for i in range(WARM + ticks)]
    with sleeping_processes(64) as pids:
        groups: list[tuple[Sequence[str], Callable[[], dict[str, Tick]]]] = [
            (of("moving", SCREEN), lambda: screen_stages("moving", moving)),
            (of("calm", SCREEN), lambda: screen_stages("calm", calm)),
            (KEYS, lambda: key_stages(moving[:WARM], *screen(), (WIDTH, HEIGHT))),
            (PROCESSES, lambda: collector_stages(pids)),
            (of("moving", HEADLESS), lambda: headless_stages("moving", moving, WARM, folder)),
            (of("calm", HEADLESS), lambda: headless_stages("calm", calm, WARM, folder)),
            (READING, reading_stages),
        ]
        stages: dict[str, Tick] = {"nothing": lambda i: None}
        for names, prepared in groups:
            chosen = [name for name in names if not words or any(word in name for word in words)]
            made = prepared() if chosen else {}
            stages.update({name: made[name] for name in chosen})
        for name, tick in stages.items():
            child = os.fork()
            if not child:
                for i in range(ticks):
                    tick(i)
                os._exit(0)
            os.waitpid(child, 0)
            print(f"{child} {name}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ticks", type=int, default=20)
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="words in the names of stages (default: all)")
    parser.add_argument("--keep", type=Path, help="keep what callgrind wrote in this directory")
    parser.add_argument("--counted", metavar="FOLDER", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.counted is not None:
        counted(options.ticks, options.stages, options.counted)
        return 0
    with tempfile.TemporaryDirectory(prefix="gputop-instructions-") as scratch:
        folder = options.keep or scratch
        valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/%p", "--quiet"]
        command = [sys.executable, "-m", "tests.bench.instructions", "--ticks", str(options.ticks)]
        command += ["--counted", scratch, *options.stages]
        with machine(Load(GPUS), Path(scratch)) as scenario:
            set_in_motion(scenario, moving=True)
            environment = scenario.environment()
            done = subprocess.run([*valgrind, *command], stdout=subprocess.PIPE, text=True, check=True, env=environment)
        counts: dict[str, int] = {}
        for line in done.stdout.splitlines():
            child, _, name = line.partition(" ")
            found = re.search(r"^(?:summary|totals): (\d+)", Path(folder, child).read_text(), re.MULTILINE)
            counts[name] = int(found[1]) if found else 0
    base = counts.pop("nothing")
    for name, count in counts.items():
        print(f"{name:<32}{(count - base) / options.ticks / 1e6:8.2f} million instructions a tick")
    return 0


if __name__ == "__main__":
    sys.exit(main())
