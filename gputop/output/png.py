"""gputop's SVG as a PNG, by resvg, with a monospaced font of this machine.

Charts and glyphs are shapes in the SVG; only letters need a font, and resvg draws none unless it is given one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from gputop.model.extras import install

FAMILIES = (
    ("DejaVu Sans Mono", "DejaVuSansMono.ttf", "DejaVuSansMono-Bold.ttf"),
    ("Liberation Mono", "LiberationMono-Regular.ttf", "LiberationMono-Bold.ttf"),
    ("JetBrains Mono", "JetBrainsMono-Regular.ttf", "JetBrainsMono-Bold.ttf"),
    ("Noto Sans Mono", "NotoSansMono-Regular.ttf", "NotoSansMono-Bold.ttf"),
    ("Ubuntu Mono", "UbuntuMono-R.ttf", "UbuntuMono-B.ttf"),
    ("Hack", "Hack-Regular.ttf", "Hack-Bold.ttf"),
)
FOLDERS = ("/usr/share/fonts", "/usr/local/share/fonts", "~/.local/share/fonts", "~/.fonts")


class PngError(Exception):
    """No PNG can be made: one line with reason and fix."""


def png(svg: str, zoom: int = 2) -> bytes:
    """The picture as PNG, ``zoom`` pixels a unit.

    Raises PngError when the library or a font is missing.
    """
    family, files = png_font()
    import resvg_py

    data = resvg_py.svg_to_bytes(
        svg_string=svg.replace("'DejaVu Sans Mono',", f"'{family}','DejaVu Sans Mono',"),
        font_files=files,
        skip_system_fonts=True,
        monospace_family=family,
        zoom=zoom,
    )
    return bytes(data)


def png_font() -> tuple[str, list[str]]:
    """Family and files of the font to draw with.

    Raises PngError when the font or the library is missing.
    """
    if find_spec("resvg_py") is None:
        raise PngError(f"a PNG needs resvg-py: {install('png')}, or name a .svg file")
    return find_font(FOLDERS)


def find_font(folders: Iterable[str]) -> tuple[str, list[str]]:
    """Family and files of the first known monospaced font.

    Raises PngError when there is none.
    """
    path_of_name: dict[str, str] = {}
    for folder in folders:
        for root, _, names in os.walk(Path(folder).expanduser()):
            path_of_name.update(
                {
                    name: os.path.join(root, name)
                    for name in names
                    if name.endswith((".ttf", ".otf"))
                }
            )
    for family, regular, bold in FAMILIES:
        if regular in path_of_name:
            return family, [path_of_name[name] for name in (regular, bold) if name in path_of_name]
    raise PngError("a PNG needs a monospaced font: install fonts-dejavu-core, or name a .svg file")
