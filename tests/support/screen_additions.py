"""What a contributor adds to the screen: a column, keys, a theme."""

from __future__ import annotations

from tests.support.additions import Addition, Patch

COLUMN = Addition(
    "a column of the process table",
    1,
    (
        Patch(
            "gputop/paint/process_columns.py",
            '    "tree_threads": ("threads", "TREE-THR", "threads of the process and of all below it"),\n',
            after="TREE_TOTALS = {\n",
        ),
    ),
    """
def test_a_column_is_chosen_filtered_by_and_explained() -> None:
    process = train(threads=11)
    assert COLUMNS["tree_threads"].show(process, (process,)).strip() == "22"
    assert passes(parse("tree_threads>20"), process, (process,), "")
    assert load(None, {"GPUTOP_COLUMNS": "pid,tree_threads"}, {})[0].columns == ("pid", "tree_threads")
    assert "tree_threads" in page_text("filters")
""",
)

KEY = Addition(
    "a key",
    2,
    (
        Patch(
            "gputop/paint/keys.py",
            '    Key("added", "f11", "F11", "say that a key was added", "everywhere"),\n',
            after="\nKEYS: tuple[Key, ...] = (\n",
        ),
        Patch(
            "gputop/tui/keys/everywhere_keys.py",
            """    def added(self) -> None:
        self._screen.say("a key was added")

""",
            after="""    def leave(self) -> None:
        self._screen.leave()

""",
        ),
        Patch(
            "gputop/tui/keys/everywhere_keys.py",
            '    "added": EverywhereKeys.added,\n',
            after='    "quit": EverywhereKeys.leave,\n',
        ),
    ),
    """
async def test_a_key_runs_its_handler_is_rebound_and_explained() -> None:
    for wanted, pressed in (({}, "f11"), ({"added": "ctrl+b"}, "ctrl+b")):
        app = GputopApp(View(), "dark", playback_on(demo_frame(), Handed()), keys=wanted)
        async with shown(app, (100, 30)) as pilot:
            await pilot.press(pressed)
            await pilot.pause()
            assert app.view.message == "a key was added"
    assert "say that a key was added" in text_of(help_rows(COLOUR, 120))
    assert "F11" in page_text("keys")
""",
)

PAGE_KEY = Addition(
    "a key of a page",
    3,
    (
        Patch(
            "gputop/paint/keys.py",
            '    Key("help_added", "f11", "F11", "close the help, as a test has it", "help"),\n',
            after="PAGE_KEYS: tuple[Key, ...] = (\n",
        ),
        Patch(
            "gputop/tui/page_keys.py",
            '    "help_added": "added",\n',
            after="ACTIONS: Mapping[str, str] = MappingProxyType({\n",
        ),
        Patch(
            "gputop/tui/screens/pages.py",
            """    def action_added(self) -> None:
        self.action_close()

""",
            after="""        self._keys = keys
        self._selected = selected

""",
        ),
    ),
    """
async def test_a_key_of_a_page_does_something_is_rebound_and_explained() -> None:
    for wanted, pressed in (({}, "f11"), ({"help_added": "ctrl+b"}, "ctrl+b")):
        app = GputopApp(View(), "dark", playback_on(demo_frame(), Handed()), keys=wanted)
        async with shown(app, (100, 30)) as pilot:
            await pilot.press("question_mark")
            await pilot.pause()
            assert isinstance(app.screen, HelpScreen)
            await pilot.press(pressed)
            await pilot.pause()
            assert not isinstance(app.screen, HelpScreen)
    assert "close the help, as a test has it" in page_text("keys")
""",
)

THEME = Addition(
    "a theme",
    1,
    (
        Patch(
            "gputop/paint/theme.py",
            '    "added": ThemeRow(DARK, about="of a test"),\n',
            after="""PALETTES: Mapping[str, ThemeRow] = MappingProxyType({
""",
        ),
    ),
    """
def test_a_theme_is_chosen_drawn_and_explained() -> None:
    assert load(None, {}, {"theme": "added"})[0].theme == "added"
    assert THEMES["added"].looks == THEMES["dark"].looks
    assert "added (of a test)" in page_text("settings") and "added" in page_text("options")
    assert "added" in SCRIPTS.joinpath("bash").read_text()
""",
)

VIEW_KEY = Addition(
    "a key that only changes what is shown",
    2,
    (
        Patch(
            "gputop/paint/keys.py",
            '    Key("sort_host_memory", "ctrl+g", "ctrl+g", "sort by host memory", "processes"),\n',
            after="\nKEYS: tuple[Key, ...] = (\n",
        ),
        Patch(
            "gputop/paint/view_changes.py",
            '    "sort_host_memory": lambda view: sorted_by(view, "rss_bytes"),\n',
            after="CHOICES: Mapping[str, Callable[[View], View]] = MappingProxyType({\n",
        ),
    ),
    """
async def test_a_key_that_only_changes_what_is_shown_does_so_and_is_explained() -> None:
    app = GputopApp(View(), "dark", playback_on(demo_frame(), Handed()))
    async with shown(app, (100, 30)) as pilot:
        await pilot.press("ctrl+g")
        assert app.view.sort == "rss_bytes"
    assert "sort by host memory" in page_text("keys")
""",
)

SCREEN_ADDITIONS = (COLUMN, KEY, VIEW_KEY, PAGE_KEY, THEME)
