"""Pictures as files: refused early, drawn in the theme of the settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gputop.model.source import UsageError

if TYPE_CHECKING:
    from gputop.config import Settings
    from gputop.report.job_report import JobReport

CARD_SUFFIXES = (".svg", ".png")


def refuse_early(path: Path) -> None:
    """Raise UsageError for a picture that cannot be written.

    What it shows takes seconds, or a job's whole time.
    """
    if not path.parent.is_dir():
        raise UsageError(f"cannot write {path}: no directory {path.parent}")
    if path.is_dir():
        raise UsageError(f"cannot write {path}: it is a directory")
    if path.suffix.lower() == ".png":
        from gputop.output.png import PngError, png_font

        try:
            png_font()
        except PngError as error:
            raise UsageError(str(error)) from error


def card_picture(report: JobReport, suffix: str, settings: Settings) -> str | bytes:
    """The card of a report as SVG or PNG.

    A theme that leaves the ground to the terminal is drawn as the dark one. Raises UsageError.
    """
    from gputop.output.card import card_of
    from gputop.output.card_picture import card_svg
    from gputop.output.png import PngError, png
    from gputop.paint.theme import THEMES

    theme = THEMES.get(settings.theme)
    if theme is None or theme.background is None:
        theme = THEMES["dark"]
    picture = card_svg(card_of(report), theme)
    if suffix.lower() == ".svg":
        return picture
    try:
        return png(picture, zoom=1)
    except PngError as error:
        raise UsageError(str(error)) from error
