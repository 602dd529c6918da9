"""Whether this user sees the screen for the first time. Remembered by an empty file in the user's state directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.config import Settings

if TYPE_CHECKING:
    from gputop.paint.hint import Hint


def hint(settings: Settings) -> Hint:
    """The hint for a newcomer's first screen; empty ever after, and where nothing can be remembered."""
    from platformdirs import user_state_path

    seen = user_state_path("gputop") / "hint-was-shown"
    try:
        seen.parent.mkdir(parents=True, exist_ok=True)
        seen.touch(exist_ok=False)
    except OSError:
        # It is there already, or it cannot be made: a hint that comes back every time would be a nuisance.
        return ()
    from gputop.paint.hint import hint_of
    from gputop.paint.keys import KEYS
    from gputop.paint.rebinding import rebound

    return hint_of(rebound(KEYS, settings.keys)[0])
