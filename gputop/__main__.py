"""The ``gputop`` command, also as ``python -m gputop``: ``cli.main``, in a process that ends with it."""

import sys

from gputop.commands.interrupt import end_at_once
from gputop.commands.terminal_parent import hold_terminal


def program() -> int:
    """Run the command that the words ask for; the exit status is returned."""
    end_at_once()
    hold_terminal(sys.argv[1:])
    from gputop.cli import main

    status = main()
    end_at_once()
    return status


if __name__ == "__main__":
    sys.exit(program())
