"""All keys: bindings, help and manual use these tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from gputop.model.expression import nearest
from gputop.model.foreign_values import quoted
from gputop.paint.key_names import key_name, shown_key, split_names

ALSO = ("equals_sign", "insert", "f15", "f18")
"""What keyboards and terminals send for a key that is named before it; it is not shown beside that."""


class Key(Struct, frozen=True):
    """A binding.

    Id (stable, for remapping), keys in Textual's names, its effect, and that in a few words for the help's first page,
    where equal ones share a line. Without keys a command is in the palette alone, until the user or a preset gives it
    one. ``call`` is what a key of a page makes the page do, where that is not what its id ends in.
    """

    id: str
    keys: str
    does: str
    short: str = ""
    call: str = ""
    section: str = ""

    @property
    def action(self) -> str:
        """Name of the page's action."""
        return self.call or self.id.partition("_")[2]

    @property
    def shown(self) -> str:
        """Keys for people, two blanks between them."""
        return _shown(self.keys)

    @property
    def first(self) -> str:
        """The first of them; empty without one."""
        return self.shown.partition("  ")[0]


@lru_cache(maxsize=256)
def _shown(keys: str) -> str:
    names = keys.split(",")
    return "  ".join(shown_key(name) for name in names if name not in ALSO or name == names[0])


def section(name: str, *keys: Key) -> tuple[Key, ...]:
    """Return keys with their section."""
    return tuple([replace(key, section=name) for key in keys])


_COPY, _SCROLL = "copy the verdict, as JSON", "scroll long commands"
FAR = 10**6
"""More rows than any page has."""
KEYS = (
    *section(
        "everywhere",
        Key("quit", "q,Q,f10", "quit; close another screen", "quit"),
        Key("interrupt", "ctrl+c", "quit, from any screen"),
        Key("help", "question_mark,h,f1", "this help", "this help; / searches in it"),
        Key("palette", "ctrl+p,colon", "every command by name", "every command by name"),
        Key(
            "copy",
            "y",
            "copy what is selected for a ticket: verdict, evidence, remedy, the process",
            _COPY,
        ),
        Key("copy_json", "Y", "copy them as JSON", _COPY),
        Key("tour", "f7", "in the demo: its tour, GPU by GPU"),
        Key("theme", "T", "the next theme of colours", "theme"),
        Key("redraw", "ctrl+l", "redraw the whole screen", "draw everything again"),
        Key("suspend", "ctrl+z", "suspend to the shell", "suspend"),
        Key(
            "layout",
            "c",
            "layout: panes where all fit, panes that scroll, a line a GPU",
            "panes, a line a GPU",
        ),
        Key("pause", "p", "pause and look back over this run; resume", "pause and look back"),
        Key("findings", "A", "findings: every change, acknowledged here; alerts", "findings"),
        Key("record", "R", "start or stop recording to this directory", "record"),
        Key("screenshot", "f8", "save a picture of the screen to this directory", "save a picture"),
        Key("release", "escape", "go back; follow what needs attention", "go back"),
    ),
    *section(
        "GPUs",
        Key(
            "counted",
            "w",
            "next GPU that needs attention, like a click on a count",
            "next GPU in need of a look",
        ),
        Key("previous_gpu", "left_square_bracket", "previous GPU", "previous, next GPU"),
        Key("next_gpu", "right_square_bracket", "next GPU", "previous, next GPU"),
        Key(
            "gpu_details",
            "D",
            "the selected GPU in full: all charts, verdicts, origin of each value",
            "the GPU in full",
        ),
    ),
    *section(
        "charts",
        Key("longer", "plus,equals_sign", "show a longer time in charts", "longer, shorter charts"),
        Key("shorter", "minus", "show a shorter time in charts", "longer, shorter charts"),
    ),
    *section(
        "processes",
        Key("up", "up,k", "up", "up, down"),
        Key("down", "down,j", "down", "up, down"),
        Key("page_up", "pageup,ctrl+b", "a page up", "a page up, down"),
        Key("page_down", "pagedown,ctrl+f", "a page down", "a page up, down"),
        Key("half_up", "ctrl+u", "half a page up"),
        Key("half_down", "ctrl+d", "half a page down"),
        Key("first", "home,g", "first row", "first, last row"),
        Key("last", "end,G", "last row", "first, last row"),
        Key(
            "command_left",
            "left,shift+left",
            "scroll long commands back; while paused with shift",
            _SCROLL,
        ),
        Key(
            "command_right",
            "right,shift+right",
            "scroll long commands; while paused with shift",
            _SCROLL,
        ),
        Key("details", "enter", "the process in full; without one the GPU", "the process in full"),
        Key(
            "tree", "t,f5", "show loaders and helpers: automatic, all, none", "loaders and helpers"
        ),
        Key("sort", "o,f6", "sort: a letter, or the list (g GPU, m memory, c CPU, n name)", "sort"),
        Key("sort_next", "full_stop", "sort by the next column", "sort: next, previous column"),
        Key(
            "sort_previous",
            "comma,shift+f6,f18",
            "sort by the column before",
            "sort: next, previous column",
        ),
        Key("sort_memory", "M", "sort by GPU memory"),
        Key("sort_cpu", "", "sort by CPU"),
        Key("sort_time", "", "sort by age"),
        Key("invert", "I", "reverse the order", "reverse the order"),
        Key(
            "filter",
            "f,f4",
            "filter: gpu:3 user:ml mem>10G verdict:starved name~train !state:D",
            "filter",
        ),
        Key("search", "slash", "search in command, user, pid, job", "search"),
        Key("match_next", "n,f3", "next match", "next, previous match"),
        Key("match_previous", "N,shift+f3,f15", "previous match", "next, previous match"),
        Key("tag", "space,insert", "tag for the next signal and move down", "tag, untag all"),
        Key("tag_tree", "B", "tag or untag a process with everything below it: its branch"),
        Key("untag", "U", "untag all", "tag, untag all"),
        Key(
            "signal",
            "f9,K",
            "send a signal to the tagged or the selected process; asks first",
            "send a signal, asks first",
        ),
        Key("terminate", "", "end the tagged or the selected process (SIGTERM); asks first"),
        Key("kill", "", "kill the tagged or the selected process (SIGKILL); asks first"),
        Key(
            "interrupt_process",
            "",
            "interrupt the tagged or the selected process (SIGINT); asks first",
        ),
        Key("environment", "e", "environment variables, secrets masked", "environment variables"),
        Key(
            "stacks",
            "d",
            "deep look: Python stacks, threads, commands for profilers",
            "Python stacks, threads",
        ),
        Key("users", "u", "GPU use by user and by job", "by user and by job"),
        Key("columns", "f2,C", "choose and order the columns", "choose columns"),
    ),
)
REPLAY_KEYS = section(
    "paused or replaying",
    Key("play", "space", "play, pause", "paused: play"),
    Key("back", "left", "one frame back", "paused: a frame back, on"),
    Key("on", "right", "one frame on", "paused: a frame back, on"),
    Key("jump", "J", "jump to a time: 12:03, -10m, +1h", "paused: jump to a time"),
    Key("next_change", "n", "next change of a verdict", "paused: next, last verdict"),
    Key("previous_change", "N", "previous change of a verdict", "paused: next, last verdict"),
    Key("slower", "comma", "slower", "paused: slower, faster"),
    Key("faster", "full_stop", "faster", "paused: slower, faster"),
    Key("begin", "g", "to the beginning", "paused: to begin, to end"),
    Key("end", "G", "to the end", "paused: to begin, to end"),
)
"""Keys that count only while the screen shows the past, before all others of the same name."""
_DETAILS = (
    ("up", "up,k", "up"), ("down", "down,j", "down"), ("page_up", "pageup,ctrl+b", "a page up"),
    ("page_down", "pagedown,space,ctrl+f", "a page down"), ("left", "left", "read an earlier moment"),
    ("right", "right", "read a later moment"), ("far_left", "shift+left", "read a much earlier moment"),
    ("far_right", "shift+right", "read a much later moment"), ("oldest", "home", "read the oldest moment"),
    ("newest", "end", "read what is now"), ("longer", "plus,equals_sign", "show a longer time"),
    ("shorter", "minus", "show a shorter time"),
)  # fmt: skip
"""What ``detail_page.after_key`` knows, its keys, and what it does."""
PAGE_KEYS = (
    *section(
        "every page of rows",
        Key("list_close", "escape,q", "close the page"),
        Key("list_down", "down,j", "down", call="scroll(1)"),
        Key("list_up", "up,k", "up", call="scroll(-1)"),
        Key("list_page_down", "pagedown,space,ctrl+f", "a page down", call="page(1)"),
        Key("list_page_up", "pageup,ctrl+b", "a page up", call="page(-1)"),
        Key("list_half_down", "ctrl+d", "half a page down", call="page(0.5)"),
        Key("list_half_up", "ctrl+u", "half a page up", call="page(-0.5)"),
        Key("list_first", "home,g", "to the first row", call=f"scroll({-FAR})"),
        Key("list_last", "end,G", "to the last row", call=f"scroll({FAR})"),
    ),
    *section(
        "help",
        Key("help_close", "question_mark,h,f1,enter", "close the help"),
        Key("help_find", "slash,f3", "find a word in the help"),
        Key("help_next", "n", "find the word again"),
    ),
    *section(
        "findings",
        Key("findings_close", "A", "close the findings"),
        Key("findings_acknowledge", "a", "acknowledge the finding under the cursor"),
    ),
    *section(
        "users and jobs",
        Key("users_close", "u", "close the table of users"),
        Key("users_regroup", "tab", "by user, or by job"),
        Key("users_take", "enter", "show only the processes of the one under the cursor"),
    ),
    *section(
        "environment",
        Key("environment_close", "e", "close the environment"),
        Key("environment_reveal", "v", "show or hide secrets"),
        Key("environment_find", "slash,f3", "find in names and values"),
    ),
    *section(
        "deep look",
        Key("stacks_again", "d", "look again"),
    ),
    *section(
        "signals",
        Key("signals_choose", "enter", "choose the signal under the cursor"),
        Key("signals_send", "y", "send it"),
        Key("signals_back", "n", "do not send it"),
    ),
    *section(
        "columns",
        Key("columns_toggle", "space", "show or hide the column", call="show_or_hide"),
        Key(
            "columns_back",
            "less_than_sign,left,shift+up",
            "move the column to the left",
            call="move(-1)",
        ),
        Key(
            "columns_on",
            "greater_than_sign,right,shift+down",
            "move the column to the right",
            call="move(1)",
        ),
        Key("columns_reset", "r", "the usual columns"),
        Key("columns_take", "enter", "take these columns"),
    ),
    *section(
        "the tour of the demo",
        Key("tour_close", "f7", "close the tour"),
        Key("tour_next", "right,l,n,enter,space", "next GPU", call="step(1)"),
        Key("tour_back", "left,backspace,p", "previous GPU", call="step(-1)"),
        *[Key(f"tour_go_{n}", str(n), f"page {n}", call=f"go({n - 1})") for n in range(1, 9)],
    ),
    *section(
        "the page of a GPU or a process",
        Key("details_close", "escape,q,enter", "close the page"),
        *[
            Key(f"details_{name}", keys, does, call=f"change('{name}')")
            for name, keys, does in _DETAILS
        ],
    ),
    *section(
        "the page of a GPU",
        Key("onegpu_previous", "left_square_bracket", "the GPU before", call="other(-1)"),
        Key("onegpu_next", "right_square_bracket", "the next GPU", call="other(1)"),
    ),
)
"""Keys of the screens that open above the main one. Each section is a table of its own: the same key may stand in all.

Questions and prompts have none: what is typed there is text, and Enter and Esc answer.
"""


USUAL: Mapping[str, Key] = {key.id: key for key in PAGE_KEYS}


def keys_of(groups: Collection[str]) -> list[Key]:
    """Return the page keys of the named groups."""
    return [key for key in PAGE_KEYS if key.id.partition("_")[0] in groups]


def page_tables() -> tuple[tuple[Key, ...], ...]:
    """``PAGE_KEYS``, section by section."""
    sections = dict.fromkeys(key.section for key in PAGE_KEYS)
    return tuple(tuple(key for key in PAGE_KEYS if key.section == section) for section in sections)


def page_keys(user_keys: Mapping[str, str]) -> tuple[Key, ...]:
    """``PAGE_KEYS`` with the user's own keys in them."""
    elsewhere = {key.id for key in PAGE_KEYS}
    return tuple(
        key
        for table in page_tables()
        for key in rebound(table, user_keys, elsewhere - _ids(table))[0]
    )


def _ids(table: Iterable[Key]) -> set[str]:
    return {key.id for key in table}


NO_KEYS: Mapping[str, str] = {}
"""The setting of a user who wants the table's own keys."""


ALWAYS_QUITS, INTERRUPT = "ctrl+c", "interrupt"
"""A key that keeps its action whatever else is bound, so that the screen can always be left."""


class KeyProblem(Struct, frozen=True):
    """A key that could not be bound.

    The reason in one line, and the user's action.
    """

    action: str
    words: str


def rebound(
    keys: Sequence[Key], user_keys: Mapping[str, str], elsewhere: Collection[str] = ()
) -> tuple[tuple[Key, ...], list[KeyProblem]]:
    """Return the table with the user's keys, and the problems.

    ``user_keys`` maps binding ids to keys separated by commas; an empty text removes an action's keys. Ids in
    ``elsewhere`` belong to another table and are passed over. A wrong key leaves the default in force.
    """
    taken: dict[str, str] = {}
    chosen: dict[str, list[str]] = {}
    ids = [key.id for key in keys]
    known = {*ids, *elsewhere}
    unknown = [key_id for key_id in user_keys if key_id not in known]
    problems = _unknown(unknown, (*ids, *elsewhere))
    for key_id, text in user_keys.items():
        if key_id not in ids:
            continue
        names = _names(key_id, text, taken, problems)
        if names or not text.strip():
            chosen[key_id] = names
            taken.update(dict.fromkeys(names, key_id))
    return tuple(_with(key, chosen.get(key.id), taken, problems) for key in keys), problems


LONGEST_KEYS = 1000
"""Characters of one action's keys."""
MOST_TOLD = 10
"""Unknown actions that are told one by one; of the others, how many they are."""


def _unknown(unknown: Sequence[str], known: Sequence[str]) -> list[KeyProblem]:
    problems = []
    for key_id in unknown[:MOST_TOLD]:
        words = f"no action {quoted(key_id)} to bind{nearest(key_id, known)}"
        problems.append(KeyProblem(key_id, words))
    if len(unknown) > MOST_TOLD:
        more = f"{len(unknown) - MOST_TOLD} more actions that do not exist"
        problems.append(KeyProblem(unknown[MOST_TOLD], more))
    return problems


def _names(
    key_id: str, text: str, taken: Mapping[str, str], problems: list[KeyProblem]
) -> list[str]:
    if len(text) > LONGEST_KEYS:
        problems.append(KeyProblem(key_id, f"{key_id}: more keys than any keyboard has"))
        return []
    names: list[str] = []
    for part in split_names(text):
        name = key_name(part)
        if name is None:
            problems.append(KeyProblem(key_id, f"{key_id}: no terminal sends a key {quoted(part)}"))
        elif name == ALWAYS_QUITS and key_id != INTERRUPT:
            problems.append(
                KeyProblem(key_id, f"{key_id}: {name} always quits; choose another key")
            )
        elif name in taken:
            words = (
                f"{shown_key(name)} is bound to {taken[name]} and to {key_id}: {taken[name]} has it"
            )
            problems.append(KeyProblem(taken[name], words))
        elif name not in names:
            names.append(name)
    return names


def _with(
    key: Key, names: list[str] | None, taken: Mapping[str, str], problems: list[KeyProblem]
) -> Key:
    if names is not None:
        if key.id == INTERRUPT and ALWAYS_QUITS not in names:
            names = [*names, ALWAYS_QUITS]
        return replace(key, keys=",".join(names))
    usual = key.keys.split(",")
    remaining = [name for name in usual if taken.get(name, key.id) == key.id]
    if len(remaining) == len(usual):
        return key
    if not remaining:
        lost = " and ".join(f"{shown_key(name)} is now {taken[name]}" for name in usual)
        problems.append(
            KeyProblem(taken[usual[0]], f"{key.id} has no key left: {lost}; give it another one")
        )
    return replace(key, keys=",".join(remaining))
