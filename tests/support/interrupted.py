"""gputop as a program that gets SIGINT at its N-th import: N PYTHON -m gputop ARGUMENTS…"""

import os
import signal
import sys

from gputop.__main__ import program


class AtImport:
    """Finds nothing, and counts."""

    def __init__(self, wanted: int) -> None:
        self.left = wanted

    def find_spec(self, *_: object) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    counter = AtImport(int(sys.argv[1]))
    sys.argv[:5] = ["gputop"]
    sys.meta_path.insert(0, counter)  # type: ignore[arg-type]
    sys.exit(program())
