"""Run the screen until its first picture is drawn, write down what was imported by then, and end: FILE COMMAND…"""

import os
import sys


def main(file: str) -> None:
    at_hand = set(sys.modules)
    from gputop.cli import main as gputop
    from gputop.command_line import screen

    draw = screen.draw

    def last(*given: object) -> None:
        draw(*given)  # type: ignore[arg-type]
        with open(file, "w", encoding="utf-8") as out:
            out.write("\n".join(sorted(set(sys.modules) - at_hand)))
        os._exit(0)

    screen.draw = last  # type: ignore[assignment]
    # The picture is to come, however busy the machine is.
    screen.FIRST_WAIT_S = 25.0
    gputop([])


if __name__ == "__main__":
    sys.argv, wanted = sys.argv[:1], sys.argv[1]
    main(wanted)
