"""The ``gputop`` command, also as ``python -m gputop``."""

import sys

from gputop.command_line.interrupt import end_at_once


def program() -> int:
    """Run the command on the command line; return the exit status."""
    end_at_once()
    from gputop.cli import main

    status = main()
    end_at_once()
    return status


if __name__ == "__main__":
    sys.exit(program())
