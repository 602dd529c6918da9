"""Faults of where the program runs: streams, locale, users, environment, files."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from gputop.recording.reader import read_snapshots
from tests.faults.row import NOTHING, Row, World, ended, holds, is_root
from tests.nvml.stand_in import LIBRARY, Scenario
from tests.support.pty_program import ROOT, SCREEN_TAKEN

Proof = Callable[[Row, World], None]

AS_NOBODY = """
import ctypes, os, pkgutil, sys
from importlib import import_module
import difflib, encodings.ascii, http.client, statistics, urllib.request
import gputop, gputop.commands.once
ctypes.CDLL("libnvidia-ml.so.1")
for module in pkgutil.walk_packages(gputop.__path__, "gputop."):
    if not module.name.startswith(
        ("gputop.tui", "gputop.__main__", "gputop.features.web.serve_command", "gputop.integrations.")
    ):
        import_module(module.name)
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
from gputop.cli import main
sys.exit(main(["once"]))
"""
"""Everything is imported first, because Python itself may live where only root can read."""


def _shell(line: str) -> Proof:
    """``line`` for a shell; ``gputop`` in it is this one."""

    def proof(row: Row, world: World) -> None:
        words = [
            "bash",
            "-o",
            "pipefail",
            "-c",
            line.replace("gputop", f"{sys.executable} -m gputop", 1),
        ]
        holds(row, ended(words, world.environment(world.make(1)), world.directory))

    return proof


def _no_home(row: Row, world: World) -> None:
    holds(row, world.run(world.make(1), "once", env={"HOME": "/dev/null/home"}))


def _nobody(row: Row, world: World) -> None:
    with tempfile.TemporaryDirectory() as name:
        public = Path(name)
        public.chmod(0o777)
        shutil.copy(world.make().library_directory / LIBRARY, public)
        scenario = Scenario(public, public)
        environment = world.environment(scenario, {"HOME": "/nonexistent"})
        done = ended(
            [sys.executable, "-c", AS_NOBODY], environment, Path("/") if is_root() else ROOT
        )
    holds(row, done)


def _lent(*command: str) -> tuple[str, ...]:
    """A command that puts what follows it into namespaces; where the kernel lends none, the test is left out."""
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this kernel lends no namespaces")
    return command


FULL_AT_8_KB = "size=8k"
WIDE = 300
"""Columns for a message with a whole path in it."""


class _Disk:
    """A file system that only a program started ``within`` it sees, mounted over a folder of its own."""

    def __init__(self, world: World, options: str) -> None:
        folder = world.directory / "disk"
        folder.mkdir()
        self.folder = str(folder)
        mount = f'mount -t tmpfs -o {options} none "$0" && cd "$0" && exec "$@"'
        self.within = _lent(
            "unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, self.folder
        )

    def frames(self, pid: int) -> list[float]:
        """The times of the frames in the recording there, read through the eyes of a process that still runs."""
        (path,) = Path(f"/proc/{pid}/root{self.folder}").iterdir()
        return [snapshot.t for snapshot in read_snapshots(str(path))]


def _written(words: str) -> int:
    """How many frames a message owns up to."""
    found = re.search(r"frames written: (\d+)", words)
    assert found is not None, words
    return int(found[1])


def _full_disk_under_the_screen(row: Row, world: World) -> None:
    disk, scenario = _Disk(world, FULL_AT_8_KB), world.make(8)
    scenario.wave_s = 3.0
    with world.screen(scenario, "--interval", "0.25", within=disk.within, columns=WIDE) as program:
        program.read_until(SCREEN_TAKEN)
        program.press("R")
        program.read_until("recording to")
        program.read_until(row.sees)
        (told,) = [line for line in program.screen(WIDE, 48) if "recording stopped" in line]
        times = disk.frames(program.pid)
        assert times == sorted(times)
        assert 0 < len(times) == _written(told)
        scenario.wave_s = 0.0
        scenario.gpus[0].set(power_w=320)
        scenario.write()
        program.read_screen_until(
            lambda screen: any("320 / 700 W" in line for line in screen), WIDE, 48
        )
        program.press("q")
        program.end()
        assert program.status == row.status
        assert program.is_restored()


def _read_only(row: Row, world: World) -> None:
    disk = _Disk(world, "ro")
    with world.screen(
        world.make(1), within=disk.within, columns=WIDE, env={"HOME": disk.folder}
    ) as program:
        program.read_until(SCREEN_TAKEN)
        program.press("R")
        program.read_until(row.sees)
        program.press("\x1b[19~")
        program.read_until("no screenshot")
        program.press("q")
        program.end()
        assert program.status == row.status
        assert program.is_restored()


def rows() -> list[Row]:
    """The part of the matrix about where the program runs."""
    return [
        Row("all streams closed", NOTHING, 2, _shell("gputop once <&- >&- 2>&-")),
        Row("a home that cannot be written", "H100", 0, _no_home),
        Row(
            "a read-only file system under everything",
            "Read-only file system",
            0,
            _read_only,
            slow=True,
        ),
        Row("not root", "H100", 0, _nobody, slow=True),
        Row(
            "a disk that takes no more of a recording",
            "recording stopped",
            2,
            _shell(
                "ulimit -f 1; PYTHONDONTWRITEBYTECODE=1 "
                "gputop record -o r.jsonl.gz --for 60s --interval 0.25 --gpus 0 2>&1 | tail -1"
            ),
        ),
        Row(
            "a full disk while recording",
            "No space left on device",
            0,
            _full_disk_under_the_screen,
            slow=True,
        ),
    ]
