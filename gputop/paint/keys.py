"""Every key, once: the screen's bindings and the help screen are both made of this table."""

from __future__ import annotations

from msgspec import Struct


class Key(Struct, frozen=True):
    """A binding: id (stable, for remapping), keys in Textual's names, as shown, what it does, section of the help."""

    id: str
    keys: str
    shown: str
    does: str
    section: str


KEYS: tuple[Key, ...] = (
    Key("quit", "q,Q,f10", "q  Q  F10", "quit; close another screen", "everywhere"),
    Key("interrupt", "ctrl+c", "ctrl+c", "quit, from any screen", "everywhere"),
    Key("help", "question_mark,h,f1", "?  h  F1", "this help", "everywhere"),
    Key("palette", "ctrl+p", "ctrl+p", "every command by name", "everywhere"),
    Key("copy", "y", "y", "copy verdict, evidence and remedy as text for a ticket", "everywhere"),
    Key("copy_json", "Y", "Y", "copy them as JSON", "everywhere"),
    Key("tour", "f7", "F7", "in the demo: its tour, GPU by GPU", "everywhere"),
    Key("theme", "T", "T", "next theme", "everywhere"),
    Key("counted", "w", "w", "next GPU of those in most need, as a click on a count does", "GPUs"),
    Key("suspend", "ctrl+z", "ctrl+z", "suspend to the shell", "everywhere"),
    Key("layout", "c", "c", "layout: automatic, panes, list", "everywhere"),
    Key("pause", "p", "p", "pause on this run's own past; go on", "everywhere"),
    Key("longer", "plus,equals_sign", "+", "charts over a longer time", "charts"),
    Key("shorter", "minus", "-", "charts over a shorter time", "charts"),
    Key("previous_gpu", "left_square_bracket", "[", "previous GPU", "GPUs"),
    Key("next_gpu", "right_square_bracket", "]", "next GPU", "GPUs"),
    Key("gpu_details", "D", "D", "the selected GPU in full: all charts, verdicts, where each value is from", "GPUs"),
    Key("release_counters", "P", "P", "release the hardware counters for another tool; take them again", "GPUs"),
    Key("section", "tab", "tab", "move in processes or in GPUs", "GPUs"),
    Key("up", "up,k", "↑  k", "up", "processes"),
    Key("down", "down,j", "↓  j", "down", "processes"),
    Key("page_up", "pageup", "PgUp", "a page up", "processes"),
    Key("page_down", "pagedown", "PgDn", "a page down", "processes"),
    Key("first", "home", "Home", "first row", "processes"),
    Key("last", "end", "End", "last row", "processes"),
    Key("top", "g", "g", "first row", "processes"),
    Key("bottom", "G", "G", "last row", "processes"),
    Key("command_left", "left", "←", "scroll long commands back", "processes"),
    Key("command_right", "right", "→", "scroll long commands", "processes"),
    Key("details", "enter", "enter", "the process in full; after tab, the GPU; so does a double click", "processes"),
    Key("tree", "t,f5", "t  F5", "loaders and helpers: automatic, all, none", "processes"),
    Key("sort", "o", "o + letter", "sort: g GPU, p PID, u user, m memory, t time, c CPU, r host, n name", "processes"),
    Key("sort_next", "f6", "F6", "sort by the next column", "processes"),
    Key("invert", "I", "I", "reverse the order", "processes"),
    Key("filter", "f,f4", "f  F4", "filter: gpu:3 user:ml mem>10G verdict:starved name~train !state:D", "processes"),
    Key("search", "slash", "/", "search in command, user, pid, job", "processes"),
    Key("search_next", "f3", "F3", "next match", "processes"),
    Key("search_previous", "shift+f3,f15", "shift+F3", "previous match", "processes"),
    Key("tag", "space,insert", "space", "tag for the next signal, go down", "processes"),
    Key("untag", "U", "U", "untag all", "processes"),
    Key("signal", "f9,K", "F9  K", "send a signal to the tagged ones or the selected one; asks first", "processes"),
    Key("environment", "e", "e", "environment, secrets masked", "processes"),
    Key("stacks", "d", "d", "deep look: Python stacks, threads, profiler commands", "processes"),
    Key("users", "u", "u", "GPU use by user and by job", "processes"),
    Key("columns", "f2,C", "F2  C", "choose and order the columns", "processes"),
    Key("findings", "A", "A", "findings: every change, acknowledge", "everywhere"),
    Key("record", "R", "R", "record to this directory; again ends it", "everywhere"),
    Key("screenshot", "f8", "F8", "picture of the screen to this directory", "everywhere"),
    Key("release", "escape", "esc", "back; follow what needs attention", "everywhere"),
)  # fmt: skip

REPLAY_KEYS: tuple[Key, ...] = (
    Key("play", "space", "space", "play, pause", "paused or replaying"),
    Key("back", "left", "←", "one frame back", "paused or replaying"),
    Key("on", "right", "→", "one frame on", "paused or replaying"),
    Key("jump", "J", "J", "jump to a time: 12:03, -10m, +1h", "paused or replaying"),
    Key("next_change", "n", "n", "next change of a verdict", "paused or replaying"),
    Key("previous_change", "N", "N", "previous change of a verdict", "paused or replaying"),
    Key("slower", "comma", ",", "slower", "paused or replaying"),
    Key("faster", "full_stop", ".", "faster", "paused or replaying"),
    Key("begin", "g", "g", "to the beginning", "paused or replaying"),
    Key("end", "G", "G", "to the end", "paused or replaying"),
)  # fmt: skip
"""Keys that count only while the screen shows the past."""
