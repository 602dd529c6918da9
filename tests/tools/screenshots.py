"""The pictures of the README: ``python -m tests.tools.screenshots`` makes them anew, a test says when they are old."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from gputop.cli import main
from gputop.commands.screenshot import STARTED
from gputop.monitor import Frame, Monitor
from gputop.output.picture import drawn, head
from gputop.paint.glyphs import COLOUR
from gputop.paint.line import Row
from gputop.paint.main_screen import main_screen
from gputop.paint.theme import THEMES, Theme
from gputop.paint.tour_rows import tour_rows
from gputop.paint.view import View
from gputop.sources.simulation.scenarios import SCENARIOS
from gputop.sources.simulation.simulated import SimulatedSource

FOLDER = Path(__file__).parents[2] / "screenshots"
SIZES = {"main": (None, "160x48"), "small": (None, "80x24"), "one_gpu": ("one_gpu", "120x36")}


def pictures() -> dict[str, list[str]]:
    """File name → arguments of ``gputop screenshot`` after the output: three sizes, and each scenario."""
    made = {f"{name}.svg": _arguments(scenario, size) for name, (scenario, size) in SIZES.items()}
    for name in SCENARIOS:
        made.setdefault(f"scenario_{name}.svg", _arguments(name, "120x30"))
    return made


def _arguments(scenario: str | None, size: str) -> list[str]:
    return ["screenshot", "demo", *([scenario] if scenario else []), "--size", size]


TOUR, TOUR_SIZE = "tour.svg", (120, 34)
TOUR_STEPS = (0, 3, 6, 7)
"""What the moving picture shows of the tour: GPUs whose reasons differ."""
LOOKED_AT_S, READ_S = 5.0, 8.0
PAST_S = 600.0


def tour() -> str:
    """The node as it is, some of its GPUs with reason and remedy, and the node after all remedies."""
    now, after = _frame(None), _frame("remedied")
    view, (width, height) = View(glyphs=COLOUR, span_s=120.0, demo=True), TOUR_SIZE
    screens: list[tuple[list[Row], float]] = [
        (list(main_screen(now, view, width, height).rows), LOOKED_AT_S)
    ]
    screens += [(tour_rows(now, after, step, view, width, height), READ_S) for step in TOUR_STEPS]
    screens.append((list(main_screen(after, view, width, height).rows), LOOKED_AT_S))
    return moving_svg(
        screens,
        THEMES["dark"],
        "A simulated node: red GPUs, the reasons, the remedies, and all green",
    )


def plain(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def moving_svg(screens: Sequence[tuple[Sequence[Row], float]], theme: Theme, title: str) -> str:
    """One SVG document that shows painted screens one after the other, each for so many seconds, again and again.

    It moves by CSS alone; the first screen stays for who asked for less motion, and in viewers that know no CSS.
    """
    whole_s = sum(seconds for _, seconds in screens)
    parts = head([rows for rows, _ in screens], theme, title)
    style, groups, begun_s = (
        ["g.later{visibility:hidden}@media (prefers-reduced-motion:no-preference){"],
        [],
        0.0,
    )
    for number, (rows, seconds) in enumerate(screens):
        shown, gone = 100 * begun_s / whole_s, 100 * (begun_s + seconds) / whole_s
        before = "" if number == 0 else f"0%,{plain(shown - 0.001)}%{{visibility:hidden}}"
        style.append(
            f"@keyframes s{number}{{{before}{plain(shown)}%,{plain(gone - 0.001)}%{{visibility:visible}}"
            f"{plain(gone)}%,100%{{visibility:{'visible' if number == len(screens) - 1 else 'hidden'}}}}}"
            f"#s{number}{{animation:s{number} {plain(whole_s)}s step-end infinite}}"
        )
        groups += [
            f'<g id="s{number}"{"" if number == 0 else """ class="later" """}>',
            *drawn(rows, theme),
            "</g>",
        ]
        begun_s += seconds
    return "\n".join([*parts, f"<style>{''.join(style)}}}</style>", *groups, "</svg>"]) + "\n"


def _frame(scenario: str | None) -> Frame:
    monitor = Monitor(1.0)
    source = SimulatedSource(scenario, clock=lambda: STARTED)
    frames = [monitor.feed(snapshot) for snapshot in source.past(PAST_S)]
    return frames[-1]


def write(folder: Path, names: Collection[str]) -> None:
    """Make these pictures in a folder."""
    if TOUR in names:
        (folder / TOUR).write_text(tour(), encoding="utf-8")
    for name, arguments in pictures().items():
        if name in names and main([*arguments, "-o", str(folder / name)]) != 0:
            sys.exit(f"{name} could not be made")


if __name__ == "__main__":
    for old in FOLDER.glob("*.svg"):
        old.unlink()
    write(FOLDER, {*pictures(), TOUR})
