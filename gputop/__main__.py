"""``python -m gputop``: the same program as the ``gputop`` command."""

import sys

from gputop.cli import program

if __name__ == "__main__":
    sys.exit(program())
