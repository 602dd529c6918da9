"""Every key, from the tables that bind them."""

from __future__ import annotations

from gputop.output.reference.page import Page, Section
from gputop.paint.fleet_keys import FLEET_KEYS
from gputop.paint.keys import KEYS, REPLAY_KEYS, Key


def _sections(keys: tuple[Key, ...], before: str = "") -> list[Section]:
    return [
        Section(
            before + (title if before else title[0].upper() + title[1:]),
            (),
            ("key", "what it does", "action"),
            tuple(
                (f"`{key.shown}`" if key.shown else "with a preset", key.does, f"`{key.id}`")
                for key in keys
                if key.section == title
            ),
        )
        for title in dict.fromkeys(key.section for key in keys)
    ]


def keys_page() -> Page:
    sections = [*_sections((*KEYS, *REPLAY_KEYS)), *_sections(FLEET_KEYS, "In `gputop fleet`: ")]
    return Page(
        "Keys",
        (
            "The action is the name under which a key can be changed in the configuration file: below `[keys]`, "
            '`quit = "q,x"` gives an action its keys, an empty text removes them. `gputop config --init` writes '
            "such a file, `gputop config --check` says what is wrong with it.",
        ),
        tuple(sections),
    )
