"""Source 3: ``dcgmi dmon``, one process for all GPUs, only on request.

Before Hopper its profiling fields take the GPU's one profiling unit from ncu and nsys. Read on a thread of its own;
the process is killed on ``stop``, and by the kernel when this program dies.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import isfinite
from time import monotonic

from gputop.model.clean_text import clean_text
from gputop.model.snapshot import GpuStatic
from gputop.sources.activity.fallback_chain import (
    MeasuredActivity,
    SharedReader,
    SmReadFailed,
    Waiting,
    believed,
)
from gputop.sources.activity.sm_remedies import NO_DCGM_FIX
from gputop.system.children import WITH_STDOUT, Child, TooLate, end, ours, start, until_we_end
from gputop.system.worker import Worker

FIELDS = {
    "1002": "sm_active_pct",
    "1003": "sm_occupancy_pct",
    "1004": "tensor_active_pct",
    "1005": "dram_active_pct",
}
"""DCGM's field ids (dcgm_fields.h, DCGM_FI_PROF_…) → catalogue key, in the order of the columns."""
CLOSEST_MS = 100
RESTART_S = 2.0
DISCOVERY_S = 5.0
"""How long ``dcgmi discovery`` may take."""
SILENT_S = 5.0
"""A dmon that has printed no row of a GPU for so long, and for ten intervals, is no longer trusted."""
UNUSED_S = 10.0
"""A dmon that no GPU has read for so long, because a better source is back, is ended: it holds the profiling unit."""
LONGEST_LINE = 4096
KILL_AFTER_S = 0.1
FIX = "start the host engine (sudo systemctl start nvidia-dcgm), or use dcgm-exporter"
NOT_INSTALLED = "dcgmi is not installed"
INSTANCE = "dcgmi dmon watches whole GPUs, and numbers MIG instances in a way of its own"
ALONE_FIX = "end what else profiles: ncu, nsys, or a dcgm-exporter with a host engine of its own"
FIXES = (
    ("running as root", "run the host engine (nv-hostengine) as root"),
    ("running as non", "run the host engine (nv-hostengine) as root"),
    ("Profiling module returned", ALONE_FIX),
    ("resource is in use", ALONE_FIX),
    ("not supported for this group", NO_DCGM_FIX),
    ("not currently loaded", NO_DCGM_FIX),
    ("no value", "dcgmi profile --resume, if profiling is paused"),
)
"""What dcgmi says (errorString in dcgm_structs.c, DeviceMonitor.cpp) → what would help, where it is not FIX."""

_ID = re.compile(r"^\|\s*(\d+)\s*\|")
_UUID = re.compile(r"Device UUID:\s*(GPU-[0-9A-Fa-f-]+)")


def parse_discovery(text: str) -> dict[int, str]:
    """Return UUIDs by DCGM's GPU number, from ``dcgmi discovery -l``."""
    uuid_of_number: dict[int, str] = {}
    number: int | None = None
    for line in text.splitlines():
        if (id_match := _ID.match(line)) is not None:
            number = int(id_match[1])
        if (uuid_match := _UUID.search(line)) is not None and number is not None:
            uuid_of_number[number] = uuid_match[1]
    return uuid_of_number


def parse_row(line: str) -> tuple[int, dict[str, float]] | None:
    """Return DCGM's GPU number and ratios by key, without N/A.

    None for any other line.
    """
    words = line.split()
    if (
        len(words) != 2 + len(FIELDS)
        or words[0] != "GPU"
        or not (words[1].isascii() and words[1].isdigit())
    ):
        return None
    values: dict[str, float] = {}
    for key, word in zip(FIELDS.values(), words[2:], strict=True):
        with suppress(ValueError):
            values[key] = float(word)
    return int(words[1]), {key: value for key, value in values.items() if isfinite(value)}


def fix_for(trouble: str) -> str:
    """Return a remedy for a message of dcgmi."""
    return next((fix for words, fix in FIXES if words in trouble), FIX)


def _failure_line(lines: Iterable[str]) -> str:
    """Return a failed program's last error, else its first line."""
    spoken = [words[:200] for line in lines if (words := clean_text(line).strip())]
    return next(
        (words for words in reversed(spoken) if words.startswith("Error")),
        spoken[0] if spoken else "nothing",
    )


class Dmon:
    """One ``dcgmi dmon``, shared by all GPUs.

    Nothing is started before the first ``activity``.
    """

    def __init__(
        self, interval_s: float = 1.0, program: str = "dcgmi", restart_s: float = RESTART_S
    ) -> None:
        """``program`` is looked up in PATH; ``restart_s`` separates attempts."""
        self._program = program
        self._delay_ms = max(CLOSEST_MS, round(interval_s * 1000))
        self._restart_s = restart_s
        self._silent_s = max(SILENT_S, 10 * interval_s)
        self._worker = Worker("dcgmi", self._watch, again=self._pause_s)
        self._lock = threading.Lock()
        self._process: Child | None = None
        self._uuids: Mapping[int, str] = {}
        self._rows: dict[str, tuple[float, dict[str, float]]] = {}
        self._began: float | None = None
        """When reading began; None while it is not wanted."""
        self._asked_at = 0.0
        self._trouble: str | None = None
        self._given_up = False

    def activity(self, uuid: str, now: float) -> MeasuredActivity | Waiting:
        """Return a GPU's newest value and keep reading from now on.

        Raises SmReadFailed.
        """
        self._asked_at = monotonic()
        with self._lock:
            if self._began is None:
                self._began = now
                self._worker.ask()
        return self.newest(uuid, now)

    def newest(self, uuid: str, now: float) -> MeasuredActivity | Waiting:
        """Return a GPU's newest value without starting anything."""
        if self._given_up or self._trouble is not None:
            raise SmReadFailed(
                f"dcgmi: {self._trouble}", self._given_up, fix_for(self._trouble or "")
            )
        if self._uuids and uuid not in self._uuids.values():
            raise SmReadFailed("dcgmi does not know this GPU", False, FIX)
        row = self._rows.get(uuid)
        if row is None:
            # The first rows are N/A, before DCGM has two samples.
            if self._began is None or now - self._began <= DISCOVERY_S + self._silent_s:
                return Waiting("waiting for the first value of dcgmi")
            why = f"dcgmi has given no value for {now - self._began:.0f} s"
            raise SmReadFailed(why, False, fix_for(why))
        t, ratios = row
        if now - t > self._silent_s:
            raise SmReadFailed(f"dcgmi has said nothing for {now - t:.0f} s", False, FIX)
        values, missing = believed(ratios, 100.0, "dcgmi")
        missing.update((key, "dcgmi gives N/A") for key in FIELDS.values() if key not in ratios)
        if "sm_active_pct" not in values:
            why = f"SM activity: {missing['sm_active_pct']}"
            raise SmReadFailed(why, False, fix_for(why))
        return MeasuredActivity(values, missing, self._delay_ms / 1000, t)

    def discover(self) -> Mapping[int, str]:
        """Ask for the UUIDs by DCGM's numbers.

        Raises OSError without a program, SmReadFailed without an answer.
        """
        process = self._start(["discovery", "-l"])
        try:
            output = process.communicate(timeout=DISCOVERY_S)[0].decode(errors="replace")
        except TooLate:
            raise SmReadFailed(
                f"`dcgmi discovery -l` has not answered for {DISCOVERY_S:.0f} s", False, FIX
            ) from None
        finally:
            self._end()
        uuids = parse_discovery(output)
        if not uuids:
            last_line = _failure_line(output.splitlines())
            raise SmReadFailed(
                f"`dcgmi discovery -l` names no GPU: {last_line}", False, fix_for(last_line)
            )
        return uuids

    def stop(self) -> None:
        """Kill the process within 0.2 s and end the thread."""
        self._worker.stop()
        self._end()

    @property
    def _unused(self) -> bool:
        return monotonic() - self._asked_at > UNUSED_S

    def _pause_s(self) -> float | None:
        """Return the pause before a restart, None for no restart.

        None when it is given up, or no longer read: it then waits for the next ``activity``.
        """
        error = self._worker.error
        if error is not None:
            self._trouble = f"what dmon prints cannot be read ({type(error).__name__})"
        with self._lock:
            if self._unused:
                self._began = self._trouble = None
                self._rows.clear()
                return None
        return None if self._given_up else self._restart_s

    def _watch(self) -> None:
        """Run dmon to its end; ``_trouble`` is the reason."""
        try:
            # Asked at each start: DCGM's numbers are valid only while its host engine lives.
            self._uuids = self.discover()
            process = self._start(["dmon", "-e", ",".join(FIELDS), "-d", str(self._delay_ms)])
        except FileNotFoundError:
            self._trouble, self._given_up = NOT_INSTALLED, True
            return
        except OSError as error:
            self._trouble, self._given_up = f"cannot run {self._program}: {error.strerror}", True
            return
        except SmReadFailed as failure:
            self._trouble = failure.reason
            return
        with process:
            try:
                last_line = self._read(process)
            finally:
                self._end()
        self._trouble = f"dmon ended ({last_line})" if last_line else "dmon ended"

    def _read(self, process: Child) -> str:
        """Read rows to the end; return the last other line."""
        assert process.stdout is not None
        last_line = ""
        while not self._unused and (line := process.stdout.readline(LONGEST_LINE)):
            text = line.decode(errors="replace")
            row = parse_row(text)
            if row is None:
                words = clean_text(text).strip()
                last_line = (
                    words[:200]
                    if words and not words.startswith(("#", "ID", "Id", "GPU"))
                    else last_line
                )
            elif (uuid := self._uuids.get(row[0])) is not None:
                self._trouble = None
                if "sm_active_pct" in row[1] or uuid in self._rows:
                    self._rows[uuid] = monotonic(), row[1]
        return last_line

    def _start(self, arguments: Sequence[str]) -> Child:
        with self._lock:
            if self._worker.stopping.is_set():
                raise SmReadFailed("stopped")
            self._process = start(
                until_we_end(self._program, *arguments), ours(), stderr=WITH_STDOUT
            )
            return self._process

    def _end(self) -> None:
        with self._lock:
            process, self._process = self._process, None
        if process is not None and process.returncode is None:
            end(process, KILL_AFTER_S)


def dcgmi_reader(dmon: Dmon, gpu: GpuStatic) -> SharedReader:
    """Return the source of one whole GPU; a MIG instance only gets a reason."""

    def refuse(_now: float) -> Waiting:
        raise SmReadFailed(INSTANCE, forever=True)

    return SharedReader(
        "dcgmi", partial(dmon.activity, gpu.uuid) if gpu.mig_parent is None else refuse
    )
