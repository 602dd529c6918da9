"""The ports of the fabric between machines, a row each, where there is room for them."""

from __future__ import annotations

from gputop.diagnosis.fabric import FabricSignals
from gputop.model.fabric import FabricPort
from gputop.model.text import terminal_safe
from gputop.monitor import Frame
from gputop.paint.details import Block, heading
from gputop.paint.fabric import traffic_fields, trouble_fields
from gputop.paint.glyphs import Glyphs
from gputop.paint.line import Line, Row
from gputop.paint.text import rate, shorten

NAME_WIDTH, KIND_WIDTH, LINK_WIDTH, COUNT_WIDTH = 12, 12, 17, 13
COUNTS = ("DROPS", "RETRANS", "ERRORS")
SUMS_ONLY = "a recording keeps the sums over all ports"


def port_blocks(frame: Frame, width: int, glyphs: Glyphs) -> list[Block]:
    """A heading and a row a port; nothing on a machine without a fabric."""
    fabric, ports = frame.fabric, frame.snapshot.fabric_ports
    if fabric is None or not (fabric.there or ports):
        return []
    said = f"fabric: {fabric.peak} each way" if fabric.peak_bytes_per_s else "fabric: no port has a link"
    rows = [
        Line().row(width),
        heading(said, width, glyphs),
        *(_rows(ports, width, glyphs) if ports else _sums(fabric, width, glyphs)),
    ]
    return [Block(len(rows), lambda: rows)]


def _rows(ports: tuple[FabricPort, ...], width: int, glyphs: Glyphs) -> list[Row]:
    head = Line().to(2).add(f"{'PORT':<{NAME_WIDTH}}{'KIND':<{KIND_WIDTH}}{'LINK':<{LINK_WIDTH}}", "heading")
    head.add(f"{glyphs.down:>9}{glyphs.up:>11}", "heading")
    shown = min(len(COUNTS), max(0, (width - head.width - 1) // COUNT_WIDTH))
    head.add("".join(f"{name:>{COUNT_WIDTH}}" for name in COUNTS[:shown]), "heading")
    return [head.row(width), *(_row(port, shown, width, glyphs) for port in ports)]


def _row(port: FabricPort, shown: int, width: int, glyphs: Glyphs) -> Row:
    line = Line().to(2).add(f"{shorten(terminal_safe(port.name), NAME_WIDTH - 1, glyphs.more):<{NAME_WIDTH}}", "text")
    link = shorten(_link(port), LINK_WIDTH - 1, glyphs.more)
    line.add(f"{port.kind:<{KIND_WIDTH}}{link:<{LINK_WIDTH}}", "level.red" if port.trouble else "dim")
    if port.spare:
        return line.add("never connected, or switched off", "dim").row(width)
    line.add(f"{rate(port.rx_bytes_per_s)}  {rate(port.tx_bytes_per_s)}", "value")
    for number in (port.drops, port.retransmits, port.link_errors)[:shown]:
        line.add(f"{'n/a' if number is None else f'{number:,}':>{COUNT_WIDTH}}", "text" if number else "dim")
    return line.add(f"  {terminal_safe(port.trouble)}", "level.red").row(width)


def _link(port: FabricPort) -> str:
    if not port.up or port.peak_bytes_per_s is None:
        return terminal_safe(port.state)
    return f"{port.peak_bytes_per_s * 8 / 1e9:g} Gb/s {terminal_safe(port.width)}".rstrip()


def _sums(fabric: FabricSignals, width: int, glyphs: Glyphs) -> list[Row]:
    """What a replay knows: the sums."""
    line = Line().to(2)
    for text, style in (*traffic_fields(fabric, glyphs), *trouble_fields(fabric)):
        line.add(text, style).add("   ")
    return [line.row(width), Line().to(2).add(SUMS_ONLY, "dim").row(width)]
