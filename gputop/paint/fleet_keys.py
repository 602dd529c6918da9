"""The keys of the fleet's screen, once: its bindings and its help are both made of this table."""

from __future__ import annotations

from gputop.paint.keys import Key

FLEET_KEYS: tuple[Key, ...] = (
    Key("quit", "q,Q,f10", "q  Q  F10", "quit", "everywhere"),
    Key("interrupt", "ctrl+c", "ctrl+c", "quit, from any screen", "everywhere"),
    Key("help", "question_mark,h,f1", "?  h  F1", "this help", "everywhere"),
    Key("palette", "ctrl+p", "ctrl+p", "every command by name", "everywhere"),
    Key("release", "escape", "esc", "back to the hosts; clear the filter", "everywhere"),
    Key("copy", "y", "y", "copy the row as text for a ticket", "everywhere"),
    Key("copy_ssh", "c", "c", "copy the command that opens gputop on the host", "everywhere"),
    Key("screenshot", "f8", "F8", "save a picture of the screen to this directory", "everywhere"),
    Key("theme", "T", "T", "next theme", "everywhere"),
    Key("suspend", "ctrl+z", "ctrl+z", "suspend to the shell", "everywhere"),
    Key("open", "enter", "enter", "details of the host; the hosts of a job or user", "what is shown"),
    Key("jobs", "u", "u", "by job; again by user; again by host", "what is shown"),
    Key("stragglers", "s", "s", "the GPUs that slow their jobs down", "what is shown"),
    Key("waste", "w", "w", "GPU-hours of the last hour that were not work, by job, user and cause", "what is shown"),
    Key("alerts", "A", "A", "the alerts firing in Prometheus", "what is shown"),
    Key("up", "up,k", "↑  k", "up", "rows"),
    Key("down", "down,j", "↓  j", "down", "rows"),
    Key("page_up", "pageup", "PgUp", "a page up", "rows"),
    Key("page_down", "pagedown", "PgDn", "a page down", "rows"),
    Key("first", "home,g", "Home  g", "first row", "rows"),
    Key("last", "end,G", "End  G", "last row", "rows"),
    Key("sort", "o,f6", "o  F6", "sort by the next column; a click on a column's head sorts by it", "rows"),
    Key("invert", "I", "I", "reverse the order", "rows"),
    Key("filter", "f,f4,slash", "f  F4  /", "filter: user:ml util<50 state:starved job~8830 !host~node-0", "rows"),
    Key("pause", "p", "p", "pause; return to the present", "time"),
    Key("back", "left", "←", "a minute back", "time"),
    Key("on", "right", "→", "a minute on", "time"),
    Key("jump", "J", "J", "jump to a time: 12:03, -10m, an ISO date", "time"),
)  # fmt: skip
