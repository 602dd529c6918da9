"""Commands that look deeper into one process than gputop can, ready to copy. Pure: a start in, text out.

Only options that the tools have had for years: py-spy 0.4 ``record --help``; Nsight Systems' user guide, "CLI Profile
Command Switch Options"; torch.profiler's documentation.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from msgspec import Struct


class Recipe(Struct, frozen=True):
    """What a command is for, and its lines."""

    purpose: str
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        """What is copied."""
        return "\n".join(self.lines) + "\n"


def recipes(pid: int, argv: Sequence[str], folder: str | None) -> tuple[Recipe, ...]:
    """py-spy on the running process, Nsight Systems on a new run of it, torch.profiler for its training loop.

    Non-printing characters are dropped: an escape sequence in a command line could end a paste and start to run.
    """
    again = shlex.join(argv) if argv and all(word.isprintable() for word in argv) else "COMMAND"
    where = (f"cd {shlex.quote(folder)}",) if folder and folder.isprintable() else ()
    return (
        Recipe(
            "where the Python code spends its time, as a flame graph; the job goes on",
            (f"py-spy record --output profile-{pid}.svg --duration 30 --subprocesses --pid {pid}",),
        ),
        Recipe(
            "kernels, copies and the CPU on one time axis; restarts the job (--gpu-metrics-devices=all adds SM)",
            (
                *where,
                f"nsys profile --output profile-{pid} --trace cuda,nvtx,osrt,cudnn,cublas --delay 60 "
                f"--duration 30 --kill none {again}",
                f"nsys export --type sqlite --force-overwrite=true --output profile-{pid}.sqlite "
                f"profile-{pid}.nsys-rep",
                f"gputop trace profile-{pid}.sqlite",
            ),
        ),
        Recipe(
            "operators and kernels by name; around the training loop",
            (
                "from torch.profiler import profile, schedule",
                "with profile(schedule=schedule(wait=10, warmup=2, active=6, repeat=1),",
                "             on_trace_ready=lambda p: p.export_chrome_trace('trace.json.gz')) as profiler:",
                "    for batch in loader:",
                "        step(batch)",
                "        profiler.step()",
                "# then, in a shell: gputop trace trace.json.gz",
            ),
        ),
    )
