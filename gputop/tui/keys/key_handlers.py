"""Every key and what it does: the table of ``gputop.paint.keys`` with a handler for each id, checked at import."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from gputop.paint.keys import KEYS, PAGE_KEYS, REPLAY_KEYS, Key, page_keys, rebound
from gputop.paint.process_columns import BY_VERDICT
from gputop.paint.process_table import order_words
from gputop.paint.theme import Theme
from gputop.paint.view_changes import VIEW_KEYS
from gputop.paint.words import gpu_label
from gputop.tui.keys import everywhere_keys, process_keys, time_keys
from gputop.tui.keys.key_screen import MainScreen

PLAYING = frozenset(key.id for key in REPLAY_KEYS)
"""Keys that count only while the past shows."""
ALWAYS = frozenset(("interrupt", "suspend", "palette"))
"""Keys that count in every screen, whatever is awaited."""
LIVE = frozenset(
    (
        "tag",
        "top",
        "bottom",
        "command_left",
        "command_right",
        "match_next",
        "match_previous",
        "sort_next",
        "sort_previous",
    )
)
"""Keys that mean time while the past shows."""
Group = TypeVar("Group")


class KeyTableError(Exception):
    """Keys and handlers do not fit together."""


def check(keys: Iterable[Key], handled: Iterable[str]) -> None:
    """Raises KeyTableError unless each key has one handler and each handler a key."""
    key_ids, handled_ids = [key.id for key in keys], list(handled)
    without = [key_id for key_id in key_ids if key_id not in handled_ids]
    unknown = [key_id for key_id in handled_ids if key_id not in key_ids]
    twice = sorted({key_id for key_id in handled_ids if handled_ids.count(key_id) > 1})
    if without or unknown or twice:
        raise KeyTableError(f"keys without a handler: {without}; handlers without a key: {unknown}; twice: {twice}")


check(
    (*KEYS, *REPLAY_KEYS),
    (
        *everywhere_keys.EVERYWHERE_HANDLERS,
        *everywhere_keys.THEMES_HANDLERS,
        *process_keys.HANDLERS,
        *everywhere_keys.DETAILS_HANDLERS,
        *time_keys.HANDLERS,
        *VIEW_KEYS,
    ),
)


class KeyTable:
    """The keys of one screen. ``keys`` is the table with the user's own keys in it."""

    def __init__(
        self,
        screen: MainScreen,
        change_view: Callable[[str], None],
        user_keys: Mapping[str, str],
        write: Callable[[str], None] | None,
        wear: Callable[[Theme], None],
    ) -> None:
        """``change_view`` is called with an id of ``VIEW_KEYS``; ``user_keys`` are the user's own keys.

        ``write`` writes to the terminal, where there is one, ``wear`` applies a theme.
        """
        self._screen = screen
        self.process = process_keys.ProcessKeys(screen)
        self.themes = everywhere_keys.ThemeChoice(screen, wear)
        self.details = everywhere_keys.DetailsKeys(screen)
        self.time = time_keys.TimeKeys(screen)
        self._handlers: Mapping[str, Callable[[], None]] = {
            **_bound(
                everywhere_keys.EVERYWHERE_HANDLERS, everywhere_keys.EverywhereKeys(screen, lambda: self.keys, write)
            ),
            **_bound(everywhere_keys.THEMES_HANDLERS, self.themes),
            **_bound(process_keys.HANDLERS, self.process),
            **_bound(everywhere_keys.DETAILS_HANDLERS, self.details),
            **_bound(time_keys.HANDLERS, self.time),
            **{key_id: partial(change_view, key_id) for key_id in VIEW_KEYS},
        }
        self.bind(user_keys)

    def bind(self, user_keys: Mapping[str, str]) -> Mapping[str, str]:
        """Apply the user's own keys, which `gputop config --check` judges. Returns the changed bindings."""
        main, past = ([key.id for key in table] for table in (KEYS, REPLAY_KEYS))
        self.keys = (*rebound(KEYS, user_keys, past)[0], *rebound(REPLAY_KEYS, user_keys, main)[0])
        if user_keys or self._screen.view.past_keys:
            from gputop.paint.replay_bar import shown_keys

            self._screen.view = replace(self._screen.view, past_keys=shown_keys(self.keys))
        pages = page_keys(user_keys)
        self.pages = {key.id: key.shown for key in pages}
        usual = {key.id: key.keys for key in (*KEYS, *REPLAY_KEYS, *PAGE_KEYS)}
        return {key.id: key.keys for key in (*self.keys, *pages) if key.keys != usual[key.id]}

    def counts(self, key_id: str) -> bool:
        """Whether a key has a command now."""
        if key_id in ALWAYS:
            return True
        # While another screen is open, letters are not commands.
        if len(self._screen.screen_stack) > 1:
            return False
        # In the past the space bar plays, and the arrows move through time.
        return key_id not in LIVE if self._screen.playback.shows_past else key_id not in PLAYING

    def press(self, key_id: str) -> None:
        """Run the command of one key, unless it means nothing now."""
        if self.counts(key_id):
            self._handlers[key_id]()

    def offered(self) -> list[Key]:
        """The keys whose commands the palette offers."""
        return [key for key in self.keys if key.id not in PLAYING or self._screen.playback.shows_past]

    def choices(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """What the palette offers beside the keys: (words, what does it)."""
        screen = self._screen
        for key in (BY_VERDICT, *screen.view.columns):
            yield f"sort by {order_words(key)}", partial(self._see, sort=key, inverted=False)
        frame = screen.playback.frame
        for gpu in () if frame is None else frame.snapshot.gpus:
            yield f"go to GPU {gpu_label(gpu)}", partial(self._see, gpu=gpu.static.uuid)

    def _see(self, **changes: object) -> None:
        self._screen.see(replace(self._screen.view, **changes))


def _bound(handlers: Mapping[str, Callable[[Group], None]], group: Group) -> dict[str, Callable[[], None]]:
    return {key_id: partial(handler, group) for key_id, handler in handlers.items()}
