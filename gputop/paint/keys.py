"""Every key, once: the screen's bindings and the help screen are both made of this table."""

from __future__ import annotations

from msgspec import Struct


class Key(Struct, frozen=True):
    """A binding: id (stable, for remapping), keys in Textual's names, as shown, what it does, section of the help.

    Without keys a command is in the palette alone, until somebody or a preset gives it one.
    """

    id: str
    keys: str
    shown: str
    does: str
    section: str


KEYS: tuple[Key, ...] = (
    Key("quit", "q,Q,f10", "q  Q  F10", "quit; close another screen", "everywhere"),
    Key("interrupt", "ctrl+c", "ctrl+c", "quit, from any screen", "everywhere"),
    Key("help", "question_mark,h,f1", "?  h  F1", "this help", "everywhere"),
    Key("palette", "ctrl+p,colon", "ctrl+p  :", "every command by name", "everywhere"),
    Key("copy", "y", "y", "copy what is selected for a ticket: verdict, evidence, remedy, the process", "everywhere"),
    Key("copy_json", "Y", "Y", "copy them as JSON", "everywhere"),
    Key("tour", "f7", "F7", "in the demo: its tour, GPU by GPU", "everywhere"),
    Key("theme", "T", "T", "choose a theme with a live preview; Esc cancels", "everywhere"),
    Key("counted", "w", "w", "next GPU that needs attention, like a click on a count", "GPUs"),
    Key("redraw", "ctrl+l", "ctrl+l", "redraw the whole screen", "everywhere"),
    Key("suspend", "ctrl+z", "ctrl+z", "suspend to the shell", "everywhere"),
    Key("layout", "c", "c", "layout: automatic, panes, list", "everywhere"),
    Key("pause", "p", "p", "pause and look back over this run; resume", "everywhere"),
    Key("longer", "plus,equals_sign", "+", "show a longer time in charts", "charts"),
    Key("shorter", "minus", "-", "show a shorter time in charts", "charts"),
    Key("previous_gpu", "left_square_bracket", "[", "previous GPU", "GPUs"),
    Key("next_gpu", "right_square_bracket", "]", "next GPU", "GPUs"),
    Key("gpu_details", "D", "D", "the selected GPU in full: all charts, verdicts, origin of each value", "GPUs"),
    Key("release_counters", "P", "P", "release the hardware counters for another tool, or take them back", "GPUs"),
    Key("section", "tab", "tab", "switch between the counts, the GPUs and the processes", "GPUs"),
    Key("up", "up,k", "↑  k", "up", "processes"),
    Key("down", "down,j", "↓  j", "down", "processes"),
    Key("page_up", "pageup,ctrl+b,ctrl+u", "PgUp  ctrl+b", "a page up", "processes"),
    Key("page_down", "pagedown,ctrl+f,ctrl+d", "PgDn  ctrl+f", "a page down", "processes"),
    Key("first", "home", "Home", "first row", "processes"),
    Key("last", "end", "End", "last row", "processes"),
    Key("top", "g", "g", "first row", "processes"),
    Key("bottom", "G", "G", "last row", "processes"),
    Key("command_left", "left", "←", "scroll long commands back", "processes"),
    Key("command_right", "right", "→", "scroll long commands", "processes"),
    Key("command_back", "shift+left", "shift+←", "the same while paused: the arrows step in time", "processes"),
    Key("command_on", "shift+right", "shift+→", "the same while paused: the arrows step in time", "processes"),
    Key("details", "enter", "enter", "the process in full; after Tab, the next GPU of a count or the GPU", "processes"),
    Key("tree", "t,f5", "t  F5", "show loaders and helpers: automatic, all, none", "processes"),
    Key("sort", "o", "o + letter", "sort: g GPU, p PID, u user, m memory, t time, c CPU, r host, n name", "processes"),
    Key("sort_next", "f6", "F6", "sort by the next column", "processes"),
    Key("sort_previous", "shift+f6,f18", "shift+F6", "sort by the column before", "processes"),
    Key("sort_memory", "M", "M", "sort by GPU memory", "processes"),
    Key("sort_cpu", "", "", "sort by CPU", "processes"),
    Key("sort_time", "", "", "sort by age", "processes"),
    Key("invert", "I", "I", "reverse the order", "processes"),
    Key("filter", "f,f4", "f  F4", "filter: gpu:3 user:ml mem>10G verdict:starved name~train !state:D", "processes"),
    Key("search", "slash", "/", "search in command, user, pid, job", "processes"),
    Key("match_next", "n", "n", "next match", "processes"),
    Key("match_previous", "N", "N", "previous match", "processes"),
    Key("search_next", "f3", "F3", "next match", "processes"),
    Key("search_previous", "shift+f3,f15", "shift+F3", "previous match", "processes"),
    Key("tag", "space,insert", "space", "tag for the next signal and move down", "processes"),
    Key("untag", "U", "U", "untag all", "processes"),
    Key("signal", "f9,K", "F9  K", "send a signal to the tagged or the selected process; asks first", "processes"),
    Key("terminate", "", "", "send SIGTERM to those; asks first", "processes"),
    Key("kill", "", "", "send SIGKILL to those; asks first", "processes"),
    Key("interrupt_process", "", "", "send SIGINT to those; asks first", "processes"),
    Key("environment", "e", "e", "environment variables, secrets masked", "processes"),
    Key("stacks", "d", "d", "deep look: Python stacks, threads, commands for profilers", "processes"),
    Key("users", "u", "u", "GPU use by user and by job", "processes"),
    Key("columns", "f2,C", "F2  C", "choose and order the columns", "processes"),
    Key("findings", "A", "A", "findings: every change, acknowledged here; alerts, silenced here", "everywhere"),
    Key("record", "R", "R", "start or stop recording to this directory", "everywhere"),
    Key("screenshot", "f8", "F8", "save a picture of the screen to this directory", "everywhere"),
    Key("release", "escape", "esc", "go back; follow what needs attention", "everywhere"),
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
