"""The helper as a process: started with the one capability that it needs, and ended even if it hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import gputop
from gputop.model.text import clean_text
from gputop.sources.capabilities import PERFMON, ambient
from gputop.sources.die_with_parent import dying_with_parent

MODULE = "gputop.sources.activity.counters.helper"
EOF_S = 0.1
"""How long it may take to end by itself once its stdin is closed."""


def start(words: Sequence[str]) -> subprocess.Popen[bytes]:
    """Run the helper with these words, in a session of its own, until the calling thread ends. Raises OSError."""
    # Never import from the folder that gputop was started in: anything may lie there.
    code = f"import sys; sys.path[:] = {_own_path()!r}; from {MODULE} import main; sys.exit(main(sys.argv[1:]))"
    with ambient(PERFMON):
        return subprocess.Popen(
            dying_with_parent(sys.executable, ["-I", "-c", code, *words]),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True, bufsize=0,
        )  # fmt: skip


def end(process: subprocess.Popen[bytes], wait_s: float) -> None:
    """Close its stdin, then ask it to end, then kill it; ``wait_s`` is the time for each of the last two."""
    if process.stdin is not None:
        process.stdin.close()
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        try:
            if number is not None:
                os.killpg(process.pid, number)
            process.wait(EOF_S if number is None else wait_s)
            break
        except subprocess.TimeoutExpired:
            continue
        except ProcessLookupError:
            process.poll()
            break
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def last_words(process: subprocess.Popen[bytes], said: bytes) -> str:
    """Why a helper ended without saying so itself."""
    try:
        status = process.wait(EOF_S)
    except subprocess.TimeoutExpired:
        return "the helper has closed its output"
    if status < 0:
        try:
            return f"the helper was ended by {signal.Signals(-status).name}"
        except ValueError:
            return f"the helper was ended by signal {-status}"
    lines = [words for line in said.decode(errors="replace").splitlines() if (words := clean_text(line).strip())]
    return f"the helper ended ({lines[-1][:200] if lines else f'status {status}'})"


def _own_path() -> list[str]:
    """Where gputop and what it needs are imported from, without the folder that it was started in."""
    own = str(Path(gputop.__file__).parent.parent)
    return [own, *(path for path in sys.path if path and path != own and os.path.isabs(path) and path != os.getcwd())]
