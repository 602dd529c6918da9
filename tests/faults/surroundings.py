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
from tests.faults.row import Row, World, holds, is_root
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
        program = f"{sys.executable} -m gputop"
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line.replace("gputop", program, 1)],
            env=world.environment(world.make(1)), capture_output=True, text=True, timeout=60, cwd=world.directory,
            check=False,
        )  # fmt: skip
        holds(row, done)

    return proof


def _environment(*arguments: str, without: tuple[str, ...] = (), **more: str) -> Proof:
    def proof(row: Row, world: World) -> None:
        holds(row, world.run(world.make(1), *arguments, env=more, without=without))

    return proof


def _configured(content: bytes) -> Proof:
    def proof(row: Row, world: World) -> None:
        path = world.directory / "config.toml"
        path.write_bytes(content)
        holds(row, world.run(world.make(1), "once", "--config", str(path)))

    return proof


def _nobody(row: Row, world: World) -> None:
    with tempfile.TemporaryDirectory() as name:
        public = Path(name)
        public.chmod(0o777)
        shutil.copy(world.make().library_directory / LIBRARY, public)
        scenario = Scenario(public, public)
        environment = world.environment(scenario, {"HOME": "/nonexistent"})
        done = subprocess.run(
            [sys.executable, "-c", AS_NOBODY], env=environment, capture_output=True, text=True, timeout=60,
            cwd=ROOT if not is_root() else "/", check=False,
        )  # fmt: skip
    holds(row, done)


def _lent(*command: str) -> tuple[str, ...]:
    """A command that puts what follows it into namespaces; where the kernel lends none, the test is left out."""
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this kernel lends no namespaces")
    return command


def _root(row: Row, world: World) -> None:
    within = () if is_root() else _lent("unshare", "--user", "--map-root-user")
    done = subprocess.run(
        [*within, sys.executable, "-m", "gputop", "once"],
        env=world.environment(world.make(1)), capture_output=True, text=True, timeout=60, cwd=world.directory,
        check=False,
    )  # fmt: skip
    holds(row, done)


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
        self.within = _lent("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, self.folder)

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
        program.read_screen_until(lambda screen: any("320 / 700 W" in line for line in screen), WIDE, 48)
        program.press("q")
        program.end()
        assert program.status == row.status
        assert program.is_restored()


def _full_disk_without_a_screen(row: Row, world: World) -> None:
    disk, scenario = _Disk(world, FULL_AT_8_KB), world.make(8)
    scenario.wave_s = 3.0
    keep = ("sh", "-c", '"$@"; status=$?; cp *.gz "$0"; exit $status', str(world.directory))
    done = subprocess.run(
        [*disk.within, *keep, sys.executable, "-m", "gputop", "record", "--interval", "0.25", "--for", "60s"],
        env=world.environment(scenario), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == row.status
    began, told = done.stderr.splitlines()
    assert began.startswith("gputop: recording to ")
    assert row.sees in told
    (path,) = world.directory.glob("*.gz")
    assert 0 < len(list(read_snapshots(str(path)))) == _written(told)


def _read_only(row: Row, world: World) -> None:
    disk = _Disk(world, "ro")
    with world.screen(world.make(1), within=disk.within, columns=WIDE, env={"HOME": disk.folder}) as program:
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
    plain = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    no_terminal = "the screen needs a terminal on stdin and stdout: use `gputop once`"
    return [
        Row("stdin closed", "`gputop once <&-`", "H100", "everything", 0, _shell("gputop once <&-")),
        Row("stdout closed", "`gputop once >&-`", "stdout is closed", "–", 2, _shell("gputop once >&-")),
        Row("stdout closed: doctor", "`gputop doctor >&-`", "stdout is closed", "–", 2,
            _shell("gputop doctor >&-"), slow=True),
        Row("stdout closed: diagnose", "`gputop diagnose >&-`", "stdout is closed", "–", 2,
            _shell("gputop diagnose --for 1s >&-"), slow=True),
        Row("stderr closed", "`gputop once 2>&-`", "H100", "everything", 0, _shell("gputop once 2>&-")),
        Row("all streams closed", "`gputop once <&- >&- 2>&-`", "–", "–", 2, _shell("gputop once <&- >&- 2>&-")),
        Row("no terminal on stdin", "`gputop <&-`", no_terminal, "–", 2, _shell("gputop <&-")),
        Row("no terminal on stdout", "`gputop | cat`", no_terminal, "–", 2, _shell("gputop | cat")),
        Row("a full disk behind stdout", "`gputop once >/dev/full`", "No space left on device", "–", 1,
            _shell("env -u PYTHONUNBUFFERED gputop once >/dev/full")),
        Row("the reader goes away", "`gputop once --json | true`", "–", "–", 141,
            _shell("gputop once --json | true")),
        Row("locale C: once", "a terminal that knows ASCII alone", "SM measured - GPM", "everything, in ASCII", 0,
            _environment("once", **plain)),
        Row("locale C: diagnose", "the same", "- GPU 0: collecting", "everything", 0,
            _environment("diagnose", "--for", "1s", **plain), slow=True),
        Row("locale C: doctor", "the same", "encoding ascii", "everything", 0,
            _environment("doctor", **plain), slow=True),
        Row("PYTHONOPTIMIZE=2", "Python without asserts and docstrings", "H100", "everything", 0,
            _environment("once", PYTHONOPTIMIZE="2"), slow=True),
        Row("PYTHONOPTIMIZE=2: the command line", "the same", "usage", "everything", 0,
            _environment("--help", PYTHONOPTIMIZE="2"), slow=True),
        Row("no HOME", "HOME is not set", "H100", "everything", 0, _environment("once", without=("HOME",))),
        Row("a home that cannot be written", "HOME is on a read-only file system", "H100", "everything", 0,
            _environment("once", HOME="/dev/null/home")),
        Row("a read-only file system under everything", "HOME and the working directory take no file",
            "Read-only file system", "the screen; `R` and F8 say why they cannot", 0, _read_only,
            terminal=True, slow=True),
        Row("root", "started by root, or by who is root in a namespace", "H100", "everything", 0,
            _root),
        Row("not root", "a user without any rights", "H100", "own processes; why the rest is not seen", 0, _nobody),
        Row("secrets on command lines", "`--api-key X`, `HF_TOKEN=X`, `https://me:X@host`, `hf_…`, random letters and "
            "digits behind a prefix; bare hex digits, UUIDs, paths and names of checkpoints stay",
            "`********` on every screen, in every file and message", "verdicts, and all other arguments", 0,
            "tests/test_every_output.py::test_one_look_and_the_screen_send_and_write_nothing_and_show_no_secret"),
        Row("a hostile command line", "8 kB that are made to be slow to search", "it, with what looks secret masked",
            "everything", 0, "tests/model/test_secrets.py::test_a_hostile_command_line_takes_no_time"),
        Row("what is shown goes to strangers", "any command with `--redact`",
            "users, hosts, jobs, paths and UUIDs as numbers", "the same verdicts", 0,
            "tests/model/test_redaction.py::test_a_simulated_scenario_gets_the_same_verdicts_redacted"),
        Row("a size without a unit", "`--filter 'mem>70'`", "70 of what? write 70G, 70M, 70K or 70B", "–", 2,
            _environment("once", "--filter", "mem>70")),
        Row("counters that disagree", "SM activity above utilisation in a burst", "efficiency 100, never more",
            "verdicts; data keeps the raw value", 0,
            "tests/output/test_words_and_numbers.py::test_people_never_read_an_efficiency_above_a_hundred"),
        Row("no configuration there", "`--config` names nothing", "no configuration file at", "–", 2,
            _environment("once", "--config", "none.toml")),
        Row("an unreadable configuration", "a directory, or a closed file", "cannot read", "–", 2,
            "tests/commands/test_cli.py::test_an_unreadable_configuration_is_named"),
        Row("a huge configuration", "2 MiB", "is larger than 1 MiB", "–", 2, _configured(b"#" * (2 << 20))),
        Row("a binary configuration", "bytes that are no text", "is not valid TOML", "–", 2,
            _configured(bytes(range(256))), slow=True),
        Row("a disk that takes no more of a recording", "a size limit is reached while recording",
            "recording stopped", "the screen; what was written stays readable", 1,
            # Python would keep half a file of bytecode, and stumble over it the next time.
            _shell("ulimit -f 1; PYTHONDONTWRITEBYTECODE=1 "
                   "gputop record -o r.jsonl.gz --for 60s --interval 0.25 --gpus 0 2>&1 | tail -1")),
        Row("a full disk while recording", "ENOSPC under `R`", "No space left on device",
            "the screen; the frames that it owns up to can be read", 0, _full_disk_under_the_screen,
            terminal=True, slow=True),
        Row("a full disk under `doctor --bundle`", "the archive cannot be written", "No space left on device",
            "–; nothing of it is left", 1,
            "tests/commands/test_doctor_bundle.py::test_where_the_disk_is_full_nothing_is_left"),
        Row("a file in the way of `doctor --bundle`", "it exists, or its directory cannot be written to",
            "exists and was not changed: name another file", "–; nothing is measured first", 2,
            "tests/commands/test_doctor_bundle.py::"
            "test_a_place_that_cannot_be_written_is_told_before_anything_is_measured"),
        Row("a slow link under `prove --links`", "a card in a narrow slot, a NVLink pair slower than the others",
            "links are slow, worst", "every other link", 1,
            "tests/features/prove/test_links.py::test_one_gpu_has_the_host_s_link_alone_and_a_slow_one_is_told"),
        Row("a full disk under `record`", "ENOSPC", "No space left on device",
            "the frames that it owns up to can be read", 1, _full_disk_without_a_screen, slow=True),
        Row("SIGKILL", "`kill -KILL` while `dcgmi dmon` runs", "–", "no process is left behind", 137,
            "tests/sources/activity/test_dcgmi.py::test_a_dmon_does_not_outlive_a_program_that_is_killed"),
        Row("SIGKILL while an alert's command runs", "`kill -KILL` of `gputop record`", "–",
            "the command, to its own end: nothing else is left", 137,
            "tests/features/alerts/test_alert_commands.py::"
            "test_record_and_export_fire_once_an_hour_and_what_runs_goes_on_after_a_kill"),
        Row("a disk that hangs while recording", "writes block", "frames lost to a slow disk", "the screen", None,
            "tests/recording/test_recording_writer.py::test_a_hung_disk_costs_frames_but_never_holds_the_one_who_offers"),
        Row("a recording that cannot be written", "a file system that takes none", "No such file or directory", "–", 2,
            _shell("gputop record -o /proc/none --for 1s")),
    ]  # fmt: skip
