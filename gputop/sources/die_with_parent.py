"""Programs that must not outlive this one, however it ends, even by SIGKILL.

The kernel is asked, on the child's side, to kill it when the thread that started it ends (PR_SET_PDEATHSIG in
linux/prctl.h). That needs a few lines between fork and exec, which are not safe where other threads run; so a small
Python of its own executes them and then becomes the program.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence

_BECOME = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
    try:
        os.execv(sys.argv[2], sys.argv[2:])
    except OSError as error:
        print(f"cannot run {sys.argv[2]}: {error.strerror}")
sys.exit(126)
"""
"""A parent that died before the request was made is noticed by its pid."""


def dying_with_parent(program: str, arguments: Sequence[str]) -> list[str]:
    """The command that runs ``program``, looked for in PATH, until the calling thread or this process ends.

    Raises FileNotFoundError when there is no such program.
    """
    path = shutil.which(program)
    if path is None:
        raise FileNotFoundError(program)
    return [sys.executable, "-I", "-S", "-c", _BECOME, str(os.getpid()), path, *arguments]
