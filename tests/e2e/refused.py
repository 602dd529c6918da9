"""gputop as an ordinary user of a machine with Yama's ``ptrace_scope`` 1 has it: no thread's system call may be seen.

Started as ``python -m tests.e2e.refused ARGUMENTS``.
"""

from __future__ import annotations

import sys

from gputop.sources.processes import system_calls


def _refused(folder: str) -> None:
    return None


vars(system_calls)["call_of"] = _refused

if __name__ == "__main__":
    from gputop.cli import main

    sys.exit(main())
