"""``python -m tests.cells.draw SCENARIO LIBRARY``: reads the stand-in NVML and prints every state as JSON.

The stand-in lives at moments that are set here, and the readings get the same ones: nothing depends on the machine.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path

import pynvml
from msgspec.structs import replace

from gputop.model.snapshot import GpuSample, Snapshot
from gputop.monitor import Monitor
from gputop.output.snapshot_data import snapshot_data
from gputop.paint.line import Row
from gputop.paint.main_screen import main_screen
from gputop.paint.theme import THEMES
from gputop.paint.view import View
from gputop.sources.gpu_process import GpuProcess, unseen
from gputop.sources.nvml.gpu_device import Device
from gputop.sources.selection import MachineOptions
from tests.cells.states import H100, State, states
from tests.nvml.stand_in import LIBRARY, Scenario, make_gpu
from tests.support.scenes import snap

SIZES = ((80, 24), (160, 48))
BETWEEN_S = 10.0
"""Between two readings: what the machine's own clock adds to that is too little to be shown."""
UNMEASURED = "this test reads no /proc"


class Driver:
    """The stand-in at moments of its own: ``at`` is monotonic seconds."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.at = 1000.0
        self._set_clock = ctypes.CDLL(LIBRARY).stand_in_clock
        self._set_clock.argtypes = (ctypes.c_double,)

    def answer(self) -> None:
        """Put the scenario in force, one step later."""
        self.scenario.write()
        self.at += BETWEEN_S
        self._set_clock(self.at)

    def devices(self) -> list[Device]:
        """A device for each GPU, and for each of its MIG instances."""
        found = []
        for index, gpu in enumerate(self.scenario.gpus):
            device = Device(index, MachineOptions(interval_s=BETWEEN_S), lambda _: [])
            device.find(index, self.scenario.driver, self.at)
            found.append(device)
            for slot, instance in enumerate(gpu.instances):
                part = Device(
                    10 + slot,
                    MachineOptions(interval_s=BETWEEN_S),
                    lambda _: [],
                    device,
                    instance.uuid,
                )
                part.find(slot, self.scenario.driver, self.at)
                found.append(part)
        return found

    def read(self, state: State) -> tuple[list[GpuSample], list[GpuProcess]]:
        """The second of two readings of a state's GPU beside a healthy one."""
        healthy = make_gpu(1, H100)
        healthy.set(util=97)
        healthy.gpm.update({2: 84, 5: 41})
        self.scenario.gpus = [state.gpu, healthy]
        self.answer()
        if not pynvml_is_open():
            pynvml.nvmlInit()
        devices = self.devices()
        for device in devices:
            device.read(self.at, self.at, "none")
        state.later(state.gpu)
        self.answer()
        for device in devices:
            device.ask_seldom(self.at, self.at)
        samples = [device.read(self.at, self.at, "none") for device in devices]
        processes = [process for device in devices for process in device.processes]
        for device in devices:
            device.close()
        return samples, processes


def pynvml_is_open() -> bool:
    try:
        pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError:
        return False
    return True


def snapshot_of(samples: list[GpuSample], named: list[GpuProcess], state: State) -> Snapshot:
    """One snapshot of the machine: the GPUs as read, the processes as /proc would show them."""
    known = {process.pid for process in state.processes}
    strangers = [unseen(process, UNMEASURED) for process in named if process.pid not in known]
    return snap(0, samples, (*state.processes, *strangers))


def grid(rows: list[Row]) -> list[str]:
    """Each row of cells as its text, and below it a letter for the colour of each cell, where one is coloured."""
    looks: dict[str, str] = {}
    lines: list[str] = []
    for row in rows:
        text, colours = "", ""
        for span, style in row:
            look = THEMES["dark"].look(style)
            words = " ".join(
                filter(None, (look.fg, look.bg and f"on {look.bg}", "bold" if look.bold else ""))
            )
            letter = looks.setdefault(words, chr(ord("a") + len(looks)))
            text += span
            colours += letter * len(span)
        lines += [f"|{text.rstrip()}", f":{colours}" if text.strip() else ":"]
    return [*lines, *(f"{letter} {words}" for words, letter in looks.items())]


def main() -> int:
    driver = Driver(Scenario(Path(sys.argv[1]), Path(sys.argv[2])))
    drawn: dict[str, dict[str, object]] = {}
    for name, state in states().items():
        samples, named = driver.read(state)
        snapshot, monitor = snapshot_of(samples, named, state), Monitor()
        for second in range(state.watched_s):
            frame = monitor.feed(replace(snapshot, t=snapshot.t + second))
        grids = {
            f"{width}x{height}": grid(main_screen(frame, View(), width, height).rows)
            for width, height in SIZES
        }
        drawn[name] = {"gpu": snapshot_data(snapshot)["gpus"][0], **grids}
    print(json.dumps(drawn))
    return 0


if __name__ == "__main__":
    sys.exit(main())
