"""``gputop run``: the command is as if alone, and only its GPUs are recorded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from gputop.features.alerts.alert_table import alerts_of
from gputop.features.alerts.node_alerts import FiringLock, NodeAlerts
from gputop.model.inspection import Relatives
from gputop.model.redaction import Redactor
from gputop.model.snapshot import COLLECTORS, Snapshot
from gputop.model.source import SourceError
from gputop.model.steps import StepRow
from gputop.output.report_text import report_data, report_markdown, report_text
from gputop.recording.format import RecordingError
from gputop.recording.reader import read_snapshots
from gputop.report.job_report import report_recording
from gputop.report.lanes import pictured_recording
from gputop.session.foreground_job import FORWARDED
from gputop.session.job import JobResult, RelativesOf, _Watch, run_job
from gputop.session.record_run import record
from gputop.sources.marked import Marked
from gputop.sources.marks import Sent, send_mark
from gputop.sources.procfs import relatives_of
from gputop.sources.step_socket import StepSender
from tests.support.polled import PolledSource
from tests.support.recording_frames import T0, frame

JOB = """
import os, sys, time
folder = sys.argv[1]
with open(folder + "/pid.new", "w") as file:
    file.write(str(os.getpid()))
os.rename(folder + "/pid.new", folder + "/pid")
while not os.path.exists(folder + "/go"):
    time.sleep(0.005)
sys.exit(int(sys.argv[2]))
"""


class ScriptedSource(PolledSource):
    """Three GPUs. GPU 1 is used by the job from its fifth frame on, GPU 0 by somebody else; then the job may end."""

    interval_s = 1.0

    def __init__(self, folder: Path, pid: Callable[[int], int] = lambda pid: pid) -> None:
        super().__init__()
        self._folder = folder
        self._pid = pid
        self._count = 0
        self._with_job = 0

    def poll(self) -> Snapshot | None:
        if self._count > 40 or self._with_job > 20:
            (self._folder / "go").touch()
            return None
        pid_file = self._folder / "pid"
        if self._count >= 4 and not pid_file.exists():
            return None
        self._count += 1
        snapshot = frame(self._count, gpus=3, processes=1)
        if self._count < 5:
            return snapshot
        self._with_job += 1
        theirs = replace(snapshot.processes[0], pid=1, gpu=0)
        ours = replace(snapshot.processes[0], pid=self._pid(int(pid_file.read_text())), gpu=1)
        return replace(snapshot, processes=(theirs, ours))


def run(
    tmp_path: Path, source: ScriptedSource, code: int = 0, target: str | None = None
) -> JobResult:
    return watched([sys.executable, "-c", JOB, str(tmp_path), str(code)], source, target=target)


def watched(
    command: list[str],
    source: ScriptedSource,
    *,
    target: str | None = None,
    relatives: RelativesOf = relatives_of,
) -> JobResult:
    """A job watched as ``gputop run`` watches it, on a scripted source."""
    return run_job(command, Marked(source, at_once=True), relatives_of=relatives, target=target)


def test_only_the_gpus_of_the_job_are_recorded_from_its_start_on(tmp_path: Path) -> None:
    source = ScriptedSource(tmp_path)
    result = run(tmp_path, source, 3, str(tmp_path / "r.jsonl.gz"))
    assert result.exit_code == 3
    assert source.closed
    assert result.path == str(tmp_path / "r.jsonl.gz")
    found = list(read_snapshots(result.path))
    assert {gpu.static.index for s in found for gpu in s.gpus} == {1}
    assert {process.gpu for s in found for process in s.processes} == {1}
    assert found[0].t == T0 + 1
    assert [gpu.index for gpu in result.report.gpus] == [1]
    assert result.report.frames == len(found)
    assert (result.report.exit_code, result.report.command is not None) == (3, True)
    later = report_recording(result.path)
    # Lines of the command stand beside each other: it is one line of the recording's reader.
    told = " ".join((result.report.command or "").split())
    assert (" ".join((later.command or "").split()), later.exit_code) == (told, 3)
    # The script's seconds pass faster than the clock's.
    assert later.duration_s == pytest.approx(found[-1].t - found[0].t, abs=5.0)
    hidden = report_recording(result.path, recording_filter=Redactor())
    assert hidden.command == os.path.basename(sys.executable) and hidden.exit_code == 3
    assert report_data(pictured_recording(result.path).report)["command"] == later.command


def test_alerts_are_judged_on_the_job_s_gpus_and_told_in_the_report(tmp_path: Path) -> None:
    alert = alerts_of([{"name": "any", "when": "mem_total_bytes >= 0", "for": "0s"}])
    alerts = NodeAlerts(alert, FiringLock(str(tmp_path)))
    command = [sys.executable, "-c", JOB, str(tmp_path), "0"]
    marked = Marked(ScriptedSource(tmp_path), at_once=True)
    result = run_job(command, marked, relatives_of=relatives_of, alerts=alerts)
    assert list(result.report.notes) == ["alert any on GPU 1: mem_total_bytes >= 0 holds"]


def test_a_descendant_of_the_job_counts_and_nobody_else(tmp_path: Path) -> None:
    """The one that uses the GPU is found by its parents in a /proc of its own making."""
    proc = tmp_path / "proc"

    def grandchild(pid: int) -> int:
        for child, parent, name in ((900001, pid, "sh"), (900002, 900001, "a) b")):
            (proc / str(child)).mkdir(parents=True, exist_ok=True)
            (proc / str(child) / "stat").write_text(
                f"{child} ({name}) S {parent} {child} 1 0{' 0' * 14} 7 0 0"
            )
        return 900002

    command = [sys.executable, "-c", JOB, str(tmp_path), "0"]
    result = watched(
        command,
        ScriptedSource(tmp_path, grandchild),
        relatives=partial(relatives_of, proc=str(proc)),
    )
    assert [gpu.index for gpu in result.report.gpus] == [1]


def test_a_job_without_a_gpu_says_so_and_records_nothing(tmp_path: Path) -> None:
    result = run(tmp_path, ScriptedSource(tmp_path, lambda pid: 1), 0, str(tmp_path / "r.jsonl.gz"))
    assert result.path is None
    assert not (tmp_path / "r.jsonl.gz").exists()
    assert f"the job used no GPU: nothing was recorded in {tmp_path}" in " ".join(
        report_text(result.report).split()
    )


def test_steps_after_the_last_snapshot_and_without_a_gpu_are_in_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    announce = (
        "import os, sys\n"
        "from gputop.model.steps import StepRow\n"
        "from gputop.sources.step_socket import StepSender\n"
        "StepSender().send(StepRow(os.getpid(), None, None, 'x', 7, 0.7, 0.1, 0.1, 0.1, 0.1))\n"
    )
    result = watched(
        [sys.executable, "-c", announce + JOB, str(tmp_path), "0"],
        ScriptedSource(tmp_path, lambda _: 1),
    )
    assert result.report.gpus == () and [run.steps for run in result.report.steps] == [7]

    class Late(ScriptedSource):
        def close(self) -> None:
            """As a job that announces its last steps and ends before anything else is measured."""
            sender = StepSender()
            assert (
                sender.send(StepRow(os.getpid(), None, None, "x", 9, 0.9, 0.1, 0.1, 0.1, 0.1)) >= 1
            )

    source, path = Late(tmp_path), str(tmp_path / "late.jsonl.gz")
    source.interval_s = 0.01
    (tmp_path / "pid").write_text("1")
    record(Marked(source, at_once=True), path, stop=threading.Event(), seconds=2.0)
    *_, last = read_snapshots(path)
    assert [row.count for row in last.steps] == [9] and last.repeats == COLLECTORS


def test_a_pid_that_is_used_again_does_not_join_the_job() -> None:
    there = {10: Relatives(1, 10, 1), 20: Relatives(10, 20, 5)}
    watch = _Watch(10, None, there.get)
    owner = replace(next(p for p in frame(0).processes if p.role == "gpu"), pid=20, starttime=5)
    assert watch._is_member(owner) and watch._descends(20)
    there[20] = Relatives(1, 20, 99)
    assert not watch._is_member(replace(owner, starttime=99)) and not watch._descends(20)
    del there[20]
    assert watch._descends(20), "its last steps come when it has ended"


def test_a_source_that_cannot_measure_does_not_keep_the_job_from_running(tmp_path: Path) -> None:
    class NoDriver(ScriptedSource):
        def begin(self, wait_s: float) -> Snapshot | None:
            (self._folder / "go").touch()
            raise SourceError("no NVIDIA driver: install one")

    result = run(tmp_path, NoDriver(tmp_path), 5)
    assert result.exit_code == 5
    assert "nothing was measured: no NVIDIA driver" in report_text(result.report)
    title = report_markdown(result.report).splitlines()[0]
    assert title.startswith(f"# {sys.executable} -c") and title.endswith(
        " 5: no GPU time was judged"
    )


def test_what_nobody_has_foreseen_ends_the_measuring_and_not_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gputop.monitor.Monitor.feed", lambda *_: 1 / 0)
    result = run(tmp_path, ScriptedSource(tmp_path), 5)
    assert result.exit_code == 5
    assert "nothing more was measured: internal error: ZeroDivisionError" in report_text(
        result.report
    )


def test_the_exit_code_is_as_a_shell_gives_it(tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    for command, code in (
        ([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], 137),
        ([str(tmp_path / "none")], 127),
        ([str(tmp_path)], 126),
    ):
        assert watched(command, ScriptedSource(tmp_path)).exit_code == code


def test_a_recording_that_cannot_be_written_is_told_before_the_job_starts(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl.gz").touch()
    for target in (tmp_path / "r.jsonl.gz", tmp_path / "none" / "r.jsonl.gz"):
        with pytest.raises(RecordingError):
            run(tmp_path, ScriptedSource(tmp_path), 0, str(target))
    assert not (tmp_path / "pid").exists()


def test_signal_handlers_are_as_they_were_afterwards(tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    run(tmp_path, ScriptedSource(tmp_path))
    assert [
        signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    ] == before


COUNTING = """
import os, signal, sys, time
got = []
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, frame: got.append(number))
print("ready", sys.stdin.isatty(), flush=True)
while not got:
    signal.pause()
time.sleep(0.3)
print("got", [int(number) for number in got], flush=True)
sys.exit(7)
"""
RUNNER = """
import sys
from pathlib import Path
from tests.session.test_job import COUNTING, ScriptedSource, watched
print("code", watched([sys.executable, "-c", COUNTING], ScriptedSource(Path(sys.argv[1]))).exit_code, flush=True)
"""
AT_A_TERMINAL = "import pty, sys; pty.spawn(sys.argv[1:])"


def test_ctrl_c_at_a_terminal_reaches_the_job_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", AT_A_TERMINAL, sys.executable, "-c", RUNNER, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        seen = b""
        while b"ready True" not in seen:
            seen += process.stdout.read(4096)
        process.stdin.write(b"\x03")
        while b"code 7" not in seen:
            seen += (more := process.stdout.read(4096))
            assert more
        process.stdin.close()
        process.stdout.read()
    assert b"got [2]" in seen and b"code 7" in seen


def test_a_signal_to_gputop_is_passed_on_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", RUNNER, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, bufsize=0
    ) as process:
        assert process.stdout is not None
        seen = b""
        while not seen.endswith(b"\n"):
            seen += process.stdout.read(4096)
        assert seen == b"ready False\n"
        process.send_signal(signal.SIGTERM)
        while more := process.stdout.read(4096):
            seen += more
    assert seen.endswith(b"got [15]\ncode 7\n")


def test_the_job_has_our_standard_input_and_output_untouched(tmp_path: Path) -> None:
    runner = RUNNER.replace(
        '"-c", COUNTING', '"-c", "import sys; sys.stdout.write(sys.stdin.read()[::-1])"'
    )
    made = subprocess.run(
        [sys.executable, "-c", runner, str(tmp_path)],
        input="abc",
        capture_output=True,
        text=True,
        check=True,
    )
    assert made.stdout == "cbacode 0\n"


class EndlessSource(ScriptedSource):
    def poll(self) -> Snapshot | None:
        self._count += 1
        return None if self._count % 5 == 0 else frame(self._count)


def test_a_headless_recording_ends_after_its_time_and_says_where_it_is(tmp_path: Path) -> None:
    told: list[str] = []
    source = EndlessSource(tmp_path)
    source.interval_s = 0.01
    path = str(tmp_path / "r.jsonl.gz")
    done = record(
        Marked(source, at_once=True), path, stop=threading.Event(), seconds=0.1, started=told.append
    )
    assert source.closed
    assert told in ([], [path])
    assert (done.path, done.error, done.dropped) == (path, None, 0)
    assert done.frames > 0
    assert len(list(read_snapshots(path))) == done.frames
    assert done.bytes_written == os.path.getsize(path)


class SteppedSource(EndlessSource):
    """Each snapshot lies an hour after the one before."""

    def poll(self) -> Snapshot | None:
        snapshot = super().poll()
        return None if snapshot is None else frame(3_600 * self._count)


def test_a_step_of_the_wall_clock_ends_no_recording(tmp_path: Path) -> None:
    source, begun = SteppedSource(tmp_path), time.monotonic()
    source.interval_s = 0.01
    path = str(tmp_path / "r.jsonl.gz")
    done = record(Marked(source, at_once=True), path, stop=threading.Event(), seconds=0.3)
    assert done.seconds > 3_600.0
    assert time.monotonic() - begun >= 0.3


def test_a_headless_recording_ends_when_it_is_asked_to(tmp_path: Path) -> None:
    stop = threading.Event()
    source = EndlessSource(tmp_path)
    source.interval_s = 0.01
    done = record(
        Marked(source, at_once=True), f"{tmp_path}/d/", stop=stop, started=lambda path: stop.set()
    )
    assert done.error is None and done.frames > 0
    assert done.path is not None and done.path.startswith(f"{tmp_path}/d/node-17-2026")


def test_a_mark_that_comes_after_the_last_frame_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    source = EndlessSource(tmp_path)
    source.interval_s = 0.01
    sent: list[Sent] = []

    def close() -> None:
        source.closed = True
        sent.append(send_mark("the end", time.time()))

    monkeypatch.setattr(source, "close", close)
    done = record(
        Marked(source, at_once=True),
        str(tmp_path / "r.jsonl.gz"),
        stop=threading.Event(),
        seconds=1.0,
    )
    assert sent[0].reached >= 1
    assert done.path is not None
    events = [event.text for snapshot in read_snapshots(done.path) for event in snapshot.events]
    assert events == ["the end"]


AT_THE_START = """
import os, signal, sys, threading
from gputop.session import foreground_job
numbers = [int(word) for word in sys.argv[1].split(",")]
signal.signal(signal.SIGUSR2, signal.SIG_IGN)
start = foreground_job.in_our_place
def start_under_signals(command, before_exec):
    for number in numbers:
        os.kill(os.getpid(), number)
    process = start(command, before_exec)
    for number in numbers:
        os.kill(os.getpid(), number)
    return process
foreground_job.in_our_place = start_under_signals
changed = threading.Event()
try:
    job = foreground_job.ForegroundJob(sys.argv[2:], changed.set)
except OSError as error:
    print("no job:", error.strerror, flush=True)
    sys.exit()
while not job.take_changes():
    changed.wait(1.0)
    changed.clear()
print("code", job.exit_code, flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_while_the_job_starts_is_passed_on_to_it(number: signal.Signals) -> None:
    words = [sys.executable, "-c", AT_THE_START, str(int(number)), "sleep", "60"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stdout) == (0, f"code {128 + number}\n"), done.stderr


def test_the_job_ignores_what_was_ignored_and_nothing_else() -> None:
    shell = "grep -E 'Sig(Ign|Blk)' /proc/self/status"
    words = [sys.executable, "-c", AT_THE_START, str(int(signal.SIGUSR2)), "sh", "-c", shell]
    done = subprocess.run(words, capture_output=True, text=True, timeout=50)
    masks = {line.split()[0]: int(line.split()[1], 16) for line in done.stdout.splitlines()[:2]}
    forwarded = sum(1 << number - 1 for number in FORWARDED)
    assert masks["SigIgn:"] & forwarded == 1 << signal.SIGUSR2 - 1
    assert masks["SigBlk:"] == 0 and "code 0" in done.stdout


def test_a_signal_while_a_job_cannot_start_has_its_usual_effect() -> None:
    words = [sys.executable, "-c", AT_THE_START, str(int(signal.SIGTERM)), "/no/such/program"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "")
