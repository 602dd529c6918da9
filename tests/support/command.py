"""The command line, run as a program of its own or in this process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from gputop.cli import main

ROOT = Path(__file__).parents[2]


def ran(
    folder: Path,
    *words: str,
    launcher: Sequence[str] = (sys.executable,),
    timeout: float = 150.0,
    environ: Mapping[str, str] = os.environ,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """Run this Python, or what launches it, in a folder, on the checkout's gputop."""
    return subprocess.run(
        [*launcher, *words], cwd=folder, env={**environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True, text=True, timeout=timeout, check=False,
    )  # fmt: skip


def gputop(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command with no driver to be found, unless the environment says otherwise."""
    env = {
        key: value for key, value in os.environ.items() if not key.startswith(("GPUTOP_", "CUDA_"))
    }
    env.update(
        {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "PYTHONUTF8": "1", **environment}
    )
    return subprocess.run(
        [sys.executable, "-m", "gputop", *arguments],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def is_one_line(text: str) -> bool:
    """Whether this is one message of gputop and nothing else."""
    return text.startswith("gputop: ") and text.count("\n") == 1


def trace_said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Run `gputop trace` in this process: its exit status and all that it printed."""
    status = main(["trace", *words])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return status, captured.out + captured.err
