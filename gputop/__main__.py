"""The ``gputop`` command, also as ``python -m gputop``: ``cli.main``, in a process that ends with it."""

import sys

from gputop.commands.interrupt import end_at_once


def program() -> int:
    """Run the command that the words ask for; return the exit status."""
    end_at_once()
    from gputop.cli import main

    status = main()
    end_at_once()
    return status


if __name__ == "__main__":
    sys.exit(program())
