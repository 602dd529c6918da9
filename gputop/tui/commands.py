"""What the main screen can be told to do: its keys, the command palette, and the user's own keys for both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar

from msgspec.structs import replace
from textual import events
from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen

from gputop.config import Reload
from gputop.paint.keys import KEYS, REPLAY_KEYS, Key
from gputop.paint.layout import density
from gputop.paint.main_screen import Painter
from gputop.paint.process_columns import SORTABLE, known
from gputop.paint.rebinding import rebound
from gputop.paint.theme import THEMES, Theme
from gputop.paint.view_changes import VIEW_KEYS, after_key
from gputop.tui.keys.time import TimeKeys

NO_KEYS: Mapping[str, str] = MappingProxyType({})
PRIORITY = ("interrupt", "suspend", "section", "palette")
"""Keys that Textual's own screen would take for itself otherwise."""
PLAYING = {key.id for key in REPLAY_KEYS}


def _action(key: Key) -> str:
    # Textual knows its palette by this action, and binds no key of its own to it then.
    return "command_palette" if key.id == "palette" else f"act('{key.id}')"


class Commands(TimeKeys):
    """The part of the main screen that turns keys, palette entries and a changed configuration into commands."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(key.keys, _action(key), key.does, id=key.id, show=False, priority=key.id in PRIORITY)
        for key in (*KEYS, *REPLAY_KEYS)
    ]

    _keys: tuple[Key, ...]
    _painter: Painter
    _sorting: bool

    def _wear(self, theme: Theme) -> None:
        """Draw the main screen in another theme."""
        raise NotImplementedError

    def _drop_hint(self) -> None:
        """Take the hint for newcomers away."""
        raise NotImplementedError

    def _bind(self, wanted: Mapping[str, str]) -> None:
        """Give the commands the user's keys; what is wrong with them `gputop config --check` tells."""
        main, past = ([key.id for key in table] for table in (KEYS, REPLAY_KEYS))
        self._keys = (*rebound(KEYS, wanted, past)[0], *rebound(REPLAY_KEYS, wanted, main)[0])
        # Textual applies its keymap to all bindings at every key: it is given only what differs.
        usual = {key.id: key.keys for key in (*KEYS, *REPLAY_KEYS)}
        self.set_keymap({key.id: key.keys for key in self._keys if key.keys != usual[key.id]})

    def _take_settings(self, change: Reload) -> None:
        """The configuration file has changed: theme, columns and keys change while the screen runs."""
        if change.settings is not None:
            settings = change.settings
            self._bind(settings.keys)
            self.view = replace(self.view, columns=known(settings.columns), density=density(settings.density))
            if settings.theme in THEMES and not self._look.colourless:
                self._wear(THEMES[settings.theme])
        self._say("; ".join(change.messages) or "the configuration was read again")

    def on_key(self, event: events.Key) -> None:
        if not self._sorting:
            return
        self._sorting = False
        event.stop()
        key = SORTABLE.get(event.key.lower())
        view = replace(self.view, message=None)
        self._see(view if key is None else replace(view, sort=key, inverted=event.key.isupper()))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action != "act":
            return True
        if parameters[0] in ("interrupt", "suspend"):
            return True
        # While a sort letter is awaited or another screen is open, letters are not commands.
        if self._sorting or len(self.screen_stack) > 1:
            return False
        if self._player is not None:
            # In the past the space bar plays.
            return parameters[0] != "tag"
        return parameters[0] not in PLAYING

    async def action_act(self, key_id: str) -> None:
        """Run the command of one key; ids as in ``gputop.paint.keys``."""
        self._drop_hint()
        if self._player is not None and key_id in PLAYING:
            self._play(self._player, key_id)
        elif (handler := getattr(self, f"_do_{key_id}", None)) is not None:
            handler()
        elif self.frame is not None and key_id in VIEW_KEYS:
            rows = self._painter.shown_rows(self.frame, self.view)
            self._see(after_key(self.view, key_id, self.frame, self._painter.process_room, rows))

    def action_command_palette(self) -> None:
        from gputop.tui.palette import Palette

        if not isinstance(self.screen, Palette):
            self.push_screen(Palette())

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The command palette offers every key's command, and nothing else."""
        for key in self._keys:
            if key.id in PLAYING and self._player is None:
                continue
            yield SystemCommand(key.does, f"key {key.shown}", partial(self._command, key.id))

    async def _command(self, key_id: str) -> None:
        if self.check_action("act", (key_id,)):
            await self.action_act(key_id)
