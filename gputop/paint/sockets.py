"""The TCP sockets of one process by the port that they lead to, with what they receive."""

from __future__ import annotations

from gputop.model.quantity import count, rate
from gputop.model.text import terminal_safe
from gputop.model.threads import SocketGroup, SocketList
from gputop.paint.details import Block, heading
from gputop.paint.glyphs import Glyphs
from gputop.paint.line import Line, Row
from gputop.paint.text import shorten

MOST_GROUPS = 12


def socket_blocks(sockets: SocketList | None, width: int, glyphs: Glyphs) -> list[Block]:
    """A heading and a row a port; nothing where the process has no TCP socket, or they were not read."""
    if sockets is None or not (sockets.groups or sockets.reason):
        return []
    rows = [Line().row(width), heading(_words(sockets), width, glyphs)]
    if sockets.reason is not None:
        rows.append(Line().to(2).add(shorten(terminal_safe(sockets.reason), width - 3), "dim").row(width))
    else:
        rows.append(Line().add(f"  {'PORT':<10}{'OTHER END':<15}{'SOCKETS':>8}{'RECEIVING':>13}", "heading").row(width))
        rows += [_row(group, width) for group in sockets.groups[:MOST_GROUPS]]
        left = len(sockets.groups) - MOST_GROUPS
        if left > 0:
            rows.append(Line().to(2).add(f"and {count(left, 'port')} more that receive less", "dim").row(width))
    return [Block(len(rows), lambda: rows)]


def _words(sockets: SocketList) -> str:
    known = [group.rx_bytes_per_s for group in sockets.groups if group.rx_bytes_per_s is not None]
    total = f", receiving {rate(sum(known))} in all" if known else ""
    number = sum(group.count for group in sockets.groups)
    return f"{count(number, 'TCP socket')}{total}" if number else "TCP sockets"


def _row(group: SocketGroup, width: int) -> Row:
    place = "listens" if group.listens else "this machine" if group.is_local else "elsewhere"
    receiving = "–" if group.listens else rate(group.rx_bytes_per_s)
    style = "text" if group.rx_bytes_per_s else "dim"
    return Line().add(f"  {group.port:<10}{place:<15}{group.count:>8}{receiving:>13}", style).row(width)
