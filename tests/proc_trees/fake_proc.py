"""A made-up /proc and /sys in a folder, for what a test machine cannot be brought to do."""

from __future__ import annotations

import shutil
from pathlib import Path


class FakeProc:
    """Writes the files that gputop reads. Times are in clock ticks (100 a second), as the kernel writes them."""

    def __init__(self, root: Path) -> None:
        self.proc = root / "proc"
        self.sys = root / "sys"
        self.proc.mkdir()
        self.sys.mkdir()
        self._turns = 0
        self.uptime(1000.0)

    def write(self, path: str, text: str) -> None:
        """Write one file below the folder, e.g. ``proc/stat``; an open file sees the new text."""
        file = self.proc.parent / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def uptime(self, seconds: float) -> None:
        self.write("proc/uptime", f"{seconds:.2f} 0.00\n")

    def process(
        self,
        pid: int,
        comm: str = "python",
        command: str = "python train.py",
        *,
        ppid: int = 1,
        session: int = 10,
        state: str = "S",
        cpu_ticks: int = 0,
        run_ns: int = 1,
        wait_ns: int = 0,
        threads: dict[int, str] | None = None,
        runs: int = 0,
        starttime: int = 5000,
        wchan: str = "hrtimer_nanosleep",
        read_bytes: int = 0,
        write_bytes: int = 0,
        cgroup: str = "0::/\n",
    ) -> None:
        """Write or rewrite a process, which has been on a core since. ``command`` holds its words apart by spaces.

        The first ``runs`` of its other ``threads`` can run, the rest wait for a lock.
        """
        self._turns += 1
        here = f"proc/{pid}"
        count = 1 + len(threads or {})
        middle = f"{session} 0 -1 0 0 0 0 0 {cpu_ticks} 0 0 0 20 0 {count} 0 {starttime}"
        self.write(
            f"{here}/stat", f"{pid} ({comm}) {state} {ppid} {session} {middle} 4096 100 0 0\n"
        )
        self.write(f"{here}/schedstat", f"{run_ns} {wait_ns} {self._turns}\n")
        self.write(
            f"{here}/io",
            f"rchar: 0\nwchar: 0\nsyscr: 0\nsyscw: 0\nread_bytes: {read_bytes}\nwrite_bytes: {write_bytes}\n"
            "cancelled_write_bytes: 0\n",
        )
        self.write(f"{here}/wchan", wchan)
        self.write(f"{here}/cmdline", command.replace(" ", "\0") + "\0" if command else "")
        self.write(f"{here}/cgroup", cgroup)
        self.write(f"{here}/task/{pid}/comm", comm + "\n")
        for place, (tid, name) in enumerate((threads or {}).items()):
            self.write(f"{here}/task/{tid}/comm", name + "\n")
            self.write(
                f"{here}/task/{tid}/stat",
                f"{tid} ({name}) {'R' if place < runs else 'S'} {ppid} 1 {middle} 0 0\n",
            )
            self.write(f"{here}/task/{tid}/wchan", "futex_wait_queue")
            self.write(f"{here}/task/{tid}/schedstat", "1 0 1\n")

    def end(self, pid: int) -> None:
        """A process goes. Its open files give nothing more, as the kernel's do."""
        for name in ("stat", "schedstat"):
            (self.proc / str(pid) / name).write_text("")
        shutil.rmtree(self.proc / str(pid))

    def group(self, path: str, **files: str) -> None:
        """A cgroup folder below sys/fs/cgroup; ``cpu_max="50000 100000"`` writes ``cpu.max``."""
        self.write(f"sys/fs/cgroup/{path}/cgroup.procs", "")
        for name, text in files.items():
            self.write(f"sys/fs/cgroup/{path}/{name.replace('_', '.', 1)}", text)
