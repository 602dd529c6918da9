"""All keys: bindings, help and manual use these tables."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from gputop.model.expression import nearest
from gputop.model.text_table import table_rows

ALSO = ("equals_sign", "insert", "f15", "f18")
"""What keyboards and terminals send for a key that is named before it; it is not shown beside that."""


class Key(Struct, frozen=True):
    """A binding.

    Id (stable, for remapping), keys in Textual's names, its effect, section of the help. Without keys a command is
    in the palette alone, until the user or a preset gives it one. ``call`` is what a key of a page makes the page
    do, where that is not what its id ends in.
    """

    id: str
    keys: str
    does: str
    section: str
    call: str = ""

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


def _table(text: str) -> tuple[Key, ...]:
    """Parse keys from a table.

    A section's name, then a row for each key with at least two blanks between the columns. They are id, keys, the
    call of a page's key, and its effect; a dash means nothing.
    """
    keys, section = [], ""
    for line in text.strip().split("\n"):
        if not line.startswith(" "):
            section = line
            continue
        ((key_id, names, *call, does),) = table_rows(line)
        keys.append(Key(key_id, _or_none(names), does, section, *map(_or_none, call)))
    return tuple(keys)


def _or_none(text: str) -> str:
    return "" if text == "-" else text


KEYS = _table("""
everywhere
  quit                 q,Q,f10            quit; close another screen
  interrupt            ctrl+c             quit, from any screen
  help                 question_mark,h,f1  this help
  palette              ctrl+p,colon       every command by name
  copy                 y                  copy what is selected for a ticket: verdict, evidence, remedy, the process
  copy_json            Y                  copy them as JSON
  tour                 f7                 in the demo: its tour, GPU by GPU
  theme                T                  choose a theme with a live preview; Esc cancels
  redraw               ctrl+l             redraw the whole screen
  suspend              ctrl+z             suspend to the shell
  layout               c                  layout: automatic, panes, list
  layout_auto          1                  layout: automatic
  layout_panes         2                  layout: panes
  layout_list          3                  layout: a line a GPU
  pause                p                  pause and look back over this run; resume
  findings             A                  findings: every change, acknowledged here; alerts
  record               R                  start or stop recording to this directory
  screenshot           f8                 save a picture of the screen to this directory
  release              escape             go back; follow what needs attention
GPUs
  counted              w                  next GPU that needs attention, like a click on a count
  previous_gpu         left_square_bracket  previous GPU
  next_gpu             right_square_bracket  next GPU
  gpu_details          D                  the selected GPU in full: all charts, verdicts, origin of each value
  release_counters     P                  release the hardware counters for another tool, or take them back
  section              tab                switch between the counts, the GPUs and the processes
  section_back         shift+tab          the same, the other way round
  to_counts            S                  to the counts of states in the second row
  to_gpus              V                  to the GPUs and their verdicts
  to_processes         L                  to the list of processes
charts
  longer               plus,equals_sign   show a longer time in charts
  shorter              minus              show a shorter time in charts
processes
  up                   up,k               up
  down                 down,j             down
  page_up              pageup,ctrl+b      a page up
  page_down            pagedown,ctrl+f    a page down
  half_up              ctrl+u             half a page up
  half_down            ctrl+d             half a page down
  first                home,g             first row
  last                 end,G              last row
  command_left         left,shift+left    scroll long commands back; while paused with shift
  command_right        right,shift+right  scroll long commands; while paused with shift
  details              enter              the process in full; after Tab, the next GPU of a count or the GPU
  tree                 t,f5               show loaders and helpers: automatic, all, none
  sort                 o,f6               sort: a letter, or the list (g GPU, m memory, c CPU, n name)
  sort_next            full_stop          sort by the next column
  sort_previous        comma,shift+f6,f18  sort by the column before
  sort_memory          M                  sort by GPU memory
  sort_cpu             -                  sort by CPU
  sort_time            -                  sort by age
  invert               I                  reverse the order
  filter               f,f4               filter: gpu:3 user:ml mem>10G verdict:starved name~train !state:D
  search               slash              search in command, user, pid, job
  match_next           n,f3               next match
  match_previous       N,shift+f3,f15     previous match
  tag                  space,insert       tag for the next signal and move down
  tag_tree             B                  tag or untag a process with everything below it: its branch
  untag                U                  untag all
  signal               f9,K               send a signal to the tagged or the selected process; asks first
  terminate            -                  end the tagged or the selected process (SIGTERM); asks first
  kill                 -                  kill the tagged or the selected process (SIGKILL); asks first
  interrupt_process    -                  interrupt the tagged or the selected process (SIGINT); asks first
  environment          e                  environment variables, secrets masked
  stacks               d                  deep look: Python stacks, threads, commands for profilers
  users                u                  GPU use by user and by job
  columns              f2,C               choose and order the columns
""")
REPLAY_KEYS = _table("""
paused or replaying
  play                 space              play, pause
  back                 left               one frame back
  on                   right              one frame on
  jump                 J                  jump to a time: 12:03, -10m, +1h
  next_change          n                  next change of a verdict
  previous_change      N                  previous change of a verdict
  slower               comma              slower
  faster               full_stop          faster
  begin                g                  to the beginning
  end                  G                  to the end
""")
"""Keys that count only while the screen shows the past, before all others of the same name."""
FAR = 10**6
"""More rows than any page has."""
PAGE_KEYS = _table("""
every page of rows
  list_close           escape,q           -               close the page
  list_down            down,j             scroll(1)       down
  list_up              up,k               scroll(-1)      up
  list_page_down       pagedown,space,ctrl+f  page(1)     a page down
  list_page_up         pageup,ctrl+b      page(-1)        a page up
  list_half_down       ctrl+d             page(0.5)       half a page down
  list_half_up         ctrl+u             page(-0.5)      half a page up
  list_first           home,g             scroll(-1000000)  to the first row
  list_last            end,G              scroll(1000000)  to the last row
help
  help_close           question_mark,h,f1,enter  -        close the help
  help_find            slash,f3           -               find a word in the help
  help_next            n                  -               find the word again
findings
  findings_close       A                  -               close the findings
  findings_acknowledge  a                 -               acknowledge the finding under the cursor
users and jobs
  users_close          u                  -               close the table of users
  users_regroup        tab                -               by user, or by job
  users_take           enter              -               show only the processes of the one under the cursor
environment
  environment_close    e                  -               close the environment
  environment_reveal   v                  -               show or hide secrets
  environment_find     slash,f3           -               find in names and values
deep look
  stacks_again         d                  -               look again
  stacks_copy_1        1                  copy(1)         copy the command number 1
  stacks_copy_2        2                  copy(2)         copy the command number 2
  stacks_copy_3        3                  copy(3)         copy the command number 3
signals
  signals_choose       enter              -               choose the signal under the cursor
  signals_send         y                  -               send it
  signals_back         n                  -               do not send it
columns
  columns_toggle       space              show_or_hide    show or hide the column
  columns_back         less_than_sign,left,shift+up  move(-1)  move the column to the left
  columns_on           greater_than_sign,right,shift+down  move(1)  move the column to the right
  columns_reset        r                  -               the usual columns
  columns_take         enter              -               take these columns
the tour of the demo
  tour_close           f7                 -               close the tour
  tour_next            right,l,n,enter,space  step(1)     next GPU
  tour_back            left,backspace,p   step(-1)        previous GPU
the page of a GPU or a process
  details_close        escape,q,enter     -               close the page
  details_up           up,k               change('up')    up
  details_down         down,j             change('down')  down
  details_page_up      pageup,ctrl+b      change('page_up')  a page up
  details_page_down    pagedown,space,ctrl+f  change('page_down')  a page down
  details_left         left               change('left')  read an earlier moment
  details_right        right              change('right')  read a later moment
  details_far_left     shift+left         change('far_left')  read a much earlier moment
  details_far_right    shift+right        change('far_right')  read a much later moment
  details_oldest       home               change('oldest')  read the oldest moment
  details_newest       end                change('newest')  read what is now
  details_longer       plus,equals_sign   change('longer')  show a longer time
  details_shorter      minus              change('shorter')  show a shorter time
the page of a GPU
  onegpu_previous      left_square_bracket  other(-1)     the GPU before
  onegpu_next          right_square_bracket  other(1)     the next GPU
""") + tuple(Key(f"tour_go_{n}", str(n), f"page {n}", "the tour of the demo", f"go({n - 1})") for n in range(1, 9))
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
    return tuple(key for table in page_tables() for key in rebound(table, user_keys, elsewhere - _ids(table))[0])


def _ids(table: Iterable[Key]) -> set[str]:
    return {key.id for key in table}


# The keys of other programs, for people used to them. A preset only rebinds actions.

PRESETS: dict[str, dict[str, str]] = {"gputop": {}, "nvitop": {}, "htop": {}}
for _preset, _action, _keys in table_rows("""
    nvitop  signal             f9
    nvitop  terminate          T
    nvitop  kill               K
    nvitop  interrupt_process  I
    nvitop  theme              -
    nvitop  layout             a,f,c
    nvitop  invert             slash
    nvitop  sort_next          full_stop
    nvitop  sort_previous      comma
    nvitop  slower             <
    nvitop  faster             >
    nvitop  search             f3
    nvitop  filter             f4,backslash
    nvitop  command_left       left,[
    nvitop  command_right      right,]
    nvitop  previous_gpu       {
    nvitop  next_gpu           }
    htop    quit               q,f10
    htop    signal             k,f9
    htop    up                 up
    htop    sort               f6,<,>,o
    htop    search             slash,f3
    htop    filter             backslash,f4
    htop    columns            f2,S,C
    htop    sort_cpu           P
    htop    sort_time          T
    htop    theme              -
    htop    release_counters   -
    htop    to_counts          -
    htop    tag_tree           c,B
    htop    layout             a
"""):
    PRESETS[_preset][_action] = _or_none(_keys)
"""Preset -> action -> keys, for the actions whose keys differ."""


ELSEWHERE = dict(
    table_rows("""
    a  c, or 1, 2 and 3, change the layout
    s  o and a letter sort; --interval sets how often gputop measures
    <  o and a letter, or , and ., choose the order
    >  o and a letter, or , and ., choose the order
    l  open files are not shown; e shows the environment, enter the process in full
    m  o m, or M, sorts by GPU memory
    r  I reverses the order; priorities are not changed from here
    v  space tags one process after the other
    x  the column that is sorted by is brighter; o and a letter sort
    z  T changes the colours
    H  the threads of a process: enter
    F  the cursor follows its process; esc lets it go
    W  settings are kept in a file: gputop config --init
    4  1, 2, 3 choose a layout; D shows one GPU in full
    J  jumps through the past; p shows it
    Z  p pauses
    i  all processes on the GPUs are shown; f filters them
    0  [ and ] choose a GPU; ctrl+p finds one by number
    *  t opens and closes all branches
""")
)
"""What people expect of letters that have no command here, and where to find it."""


def unknown_key(key: str) -> str:
    """Return the message for a key without a command."""

    shown = shown_key(key)
    return f"{shown}: {ELSEWHERE.get(shown, 'no command')} (? lists the keys, ctrl+p finds commands by name)"


def wanted_keys(preset: str, user_keys: Mapping[str, str]) -> Mapping[str, str]:
    """The preset's keys, single ones overridden by the user's own."""
    return user_keys if preset == "gputop" else {**PRESETS[preset], **user_keys}


# The key table after the user's ``[keys]`` setting: by binding id, with a message for everything that cannot be bound.
#
# Keys are given as people write them (``?``, ``ctrl+p``, ``PgUp``) or by Textual's names. A key that the user gives to
# one action is taken from the action that had it by default.

ALWAYS_QUITS, INTERRUPT = "ctrl+c", "interrupt"
"""A key that keeps its action whatever else is bound, so that the screen can always be left."""

NO_KEYS: Mapping[str, str] = {}
"""The setting of a user who wants the table's own keys."""
_RENAMED: Mapping[str, str] = {
    "solidus": "slash", "reverse_solidus": "backslash", "commercial_at": "at", "hyphen_minus": "minus",
    "plus_sign": "plus", "low_line": "underscore",
}  # fmt: skip
"""Names of characters that Textual shortens (``KEY_NAME_REPLACEMENTS`` in ``textual.keys``)."""
_SPELLED: Mapping[str, str] = {
    "esc": "escape", "return": "enter", "pgup": "pageup", "pgdn": "pagedown", "del": "delete", "ins": "insert",
    "←": "left", "→": "right", "↑": "up", "↓": "down",
    "ctrl+i": "tab", "ctrl+m": "enter", "ctrl+[": "escape",
}  # fmt: skip
"""Other spellings, and keys that a terminal cannot tell from each other."""
_SHOWN: Mapping[str, str] = {
    "escape": "esc", "up": "↑", "down": "↓", "left": "←", "right": "→", "pageup": "PgUp", "pagedown": "PgDn",
    "home": "Home", "end": "End",
}  # fmt: skip
_NAMED = frozenset([
    "escape", "enter", "tab", "space", "backspace", "up", "down", "left", "right", "home", "end", "pageup", "pagedown",
    "insert", "delete", *(f"f{n}" for n in range(1, 25)),
])  # fmt: skip


def _character_name(char: str) -> str:
    if char.isalnum():
        return char
    name = unicodedata.name(char, "").lower().replace("-", "_").replace(" ", "_")
    return _RENAMED.get(name, name)


_CHARACTERS: Mapping[str, str] = {_character_name(char): char for char in string.punctuation}


def key_name(text: str) -> str | None:
    """Return Textual's name of a key that a user wrote.

    None where no terminal sends such a key.
    """
    text = text.strip()
    if len(text) == 1 and text not in _SPELLED:
        return _character_name(text) if text.isprintable() else None
    lowered = text.lower()
    lowered = _SPELLED.get(lowered, lowered)
    *modifiers, base = lowered.split("+")
    base = _SPELLED.get(base, base)
    if not modifiers:
        return base if base in _NAMED or base in _CHARACTERS else None
    if not set(modifiers) <= {"ctrl", "shift", "alt"}:
        return None
    if len(base) == 1 and base.isascii() and base.isalnum():
        # Upper-case letters are keys of their own: a terminal does not send shift+a.
        is_sent = modifiers != ["shift"]
    else:
        is_sent = base in _NAMED or (modifiers != ["shift"] and base in _CHARACTERS)
    return "+".join([*modifiers, base]) if is_sent else None


def shown_key(name: str) -> str:
    """A key's name as the help shows it: ``question_mark`` is ``?``."""
    *modifiers, base = name.split("+")
    if re.fullmatch(r"f\d+", base):
        base = base.upper()
    return "+".join([*modifiers, _SHOWN.get(base, _CHARACTERS.get(base, base))])


def _split(text: str) -> list[str]:
    """Split a setting's keys at commas.

    ``,`` itself is a comma between commas, or alone.
    """
    if text.strip() == ",":
        return [","]
    return [part.strip() or "," for part in text.replace(",,", ",comma").split(",")] if text.strip() else []


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
    problems: list[KeyProblem] = []
    taken: dict[str, str] = {}
    chosen: dict[str, list[str]] = {}
    ids = [key.id for key in keys]
    for key_id, text in user_keys.items():
        if key_id in elsewhere:
            continue
        if key_id not in ids:
            hint = nearest(key_id, (*ids, *elsewhere))
            problems.append(KeyProblem(key_id, f"no action {key_id!r} to bind{hint}"))
            continue
        names = _names(key_id, text, taken, problems)
        if names or not text.strip():
            chosen[key_id] = names
            taken.update(dict.fromkeys(names, key_id))
    return tuple(_with(key, chosen.get(key.id), taken, problems) for key in keys), problems


def _names(key_id: str, text: str, taken: Mapping[str, str], problems: list[KeyProblem]) -> list[str]:
    names: list[str] = []
    for part in _split(text):
        name = key_name(part)
        if name is None:
            problems.append(KeyProblem(key_id, f"{key_id}: no terminal sends a key {part!r}"))
        elif name == ALWAYS_QUITS and key_id != INTERRUPT:
            problems.append(KeyProblem(key_id, f"{key_id}: {name} always quits; choose another key"))
        elif name in taken:
            words = f"{shown_key(name)} is bound to {taken[name]} and to {key_id}: {taken[name]} has it"
            problems.append(KeyProblem(taken[name], words))
        elif name not in names:
            names.append(name)
    return names


def _with(key: Key, names: list[str] | None, taken: Mapping[str, str], problems: list[KeyProblem]) -> Key:
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
        problems.append(KeyProblem(taken[usual[0]], f"{key.id} has no key left: {lost}; give it another one"))
    return replace(key, keys=",".join(remaining))
