"""What the keys of pages do, and pages that close once however often a key asks."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.screen import Screen, ScreenResultType

from gputop.paint.keys import PAGE_KEYS, Key

# Textual's bindings of ``PAGE_KEYS``: an action of the page for each id.

FAR = 10**6
ACTIONS: Mapping[str, str] = MappingProxyType({
    "list_close": "close", "list_down": "scroll(1)", "list_up": "scroll(-1)", "list_page_down": "page(1)",
    "list_page_up": "page(-1)", "list_half_down": "page(0.5)", "list_half_up": "page(-0.5)",
    "list_first": f"scroll(-{FAR})", "list_last": f"scroll({FAR})",
    "help_close": "close",
    "findings_close": "close", "findings_acknowledge": "acknowledge", "findings_silence": "silence",
    "users_close": "close", "users_regroup": "regroup", "users_take": "take",
    "environment_close": "close", "environment_reveal": "reveal", "environment_find": "find",
    "stacks_again": "again", **{f"stacks_copy_{n}": f"copy({n})" for n in (1, 2, 3)},
    "signals_choose": "choose", "signals_send": "send", "signals_back": "back",
    "columns_toggle": "show_or_hide", "columns_back": "move(-1)", "columns_on": "move(1)", "columns_reset": "reset",
    "columns_take": "take",
    "tour_close": "close", "tour_next": "step(1)", "tour_back": "step(-1)",
    **{f"tour_go_{n}": f"go({n - 1})" for n in range(1, 9)},
    "details_close": "close",
    **{
        f"details_{does}": f"change('{does}')"
        for does in (
            "up", "down", "page_up", "page_down", "left", "right", "far_left", "far_right", "oldest", "newest",
            "longer", "shorter",
        )
    },
    "onegpu_previous": "other(-1)", "onegpu_next": "other(1)",
})  # fmt: skip
"""Id of a key -> action of its page."""
USUAL: Mapping[str, str] = MappingProxyType({key.id: key.shown for key in PAGE_KEYS})
"""The table's own keys as shown, by id."""
FIRST = frozenset((
    "list_close", "help_close", "findings_close", "users_close", "users_regroup", "environment_close",
    "environment_find", "tour_close", "details_close",
))  # fmt: skip
"""Keys that take effect before the main screen's: they would open there what they close here."""


def page_bindings(group: str) -> list[BindingType]:
    """The bindings of the ids that begin with a group's name."""
    return [
        Binding(key.keys, ACTIONS[key.id], key.does, id=key.id, show=False, priority=key.id in FIRST)
        for key in keys_of((group,))
    ]


def keys_of(groups: tuple[str, ...]) -> list[Key]:
    """The keys whose ids begin with the name of one of the groups."""
    return [key for key in PAGE_KEYS if key.id.split("_")[0] in groups]


def hint(shown: Mapping[str, str], words: str, *ids: str) -> str:
    """The first key of each id, and what they do, for the last row of a page; empty where none has a key."""
    keys = " ".join(shown[key_id].split("  ")[0] for key_id in ids if shown.get(key_id))
    return f"{keys} {words}   " if keys else ""


# Screens that close once, however often and from wherever they are asked to.


class ClosesOnce(Screen[ScreenResultType]):
    """A screen under another, or closed already, ignores further requests to close.

    The second of two keys in one burst may reach a screen that the first has closed: Textual would then close the
    screen below, and end the program where there is none.
    """

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        return super().dismiss(result) if self.is_active else AwaitComplete()
