"""Keys for processes: sorting, filters, search, tags, signals and inspection.

The screens that they open are imported when they are opened. Live processes are reached through ``ProcessAccess``
only: without one (a demo, a recording) the keys that need it say so.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from gputop.model.expression import ExpressionError
from gputop.model.inspection import ProcessIdentity
from gputop.model.snapshot import ProcessSample
from gputop.monitor import Frame
from gputop.paint import process_table
from gputop.paint.process_columns import BY_VERDICT, COLUMNS, may_become_field, parse, remembered
from gputop.paint.view import View
from gputop.tui.screens import MainScreen

NO_ACCESS = "these processes cannot be reached from here: a recording or a browser shows them"
NONE = "no process is selected"
NONE_LEFT = "no process to send a signal to: those that were tagged have ended"
READ_ONLY = "read-only: start gputop without --read-only to send signals"


class ProcessKeys:
    """Sorts, finds, chooses and reaches processes."""

    def __init__(self, screen: MainScreen) -> None:
        self._screen = screen
        self._past_filters: tuple[str, ...] = ()
        self._past_searches: tuple[str, ...] = ()

    def handlers(self) -> dict[str, Callable[[], object]]:
        """Return the handlers by key id."""
        return {
            "sort": self.sort,
            "filter": self.filter,
            "search": self.search,
            "match_next": partial(self.search_again, 1),
            "match_previous": partial(self.search_again, -1),
            "search_next": partial(self.search_again, 1),
            "search_previous": partial(self.search_again, -1),
            "tag": self.tag,
            "tag_tree": self.tag_tree,
            "untag": self.untag,
            "signal": self.signal,
            "terminate": partial(self.signal, signal.SIGTERM),
            "kill": partial(self.signal, signal.SIGKILL),
            "interrupt_process": partial(self.signal, signal.SIGINT),
            "environment": self.environment,
            "stacks": self.stacks,
            "users": self.users,
            "columns": self.columns,
        }

    # -- sorting ----------------------------------------------------------------------------------------------------

    def sort(self) -> None:
        """Ask for a column, by its letter or from the list."""
        from gputop.tui.screens.menu import Menu

        screen = self._screen
        view = screen.view
        keys = sorted(view.columns, key=lambda key: not COLUMNS[key].letter)
        choices = [("", BY_VERDICT, BY_VERDICT), *((COLUMNS[key].letter, COLUMNS[key].head, key) for key in keys)]
        at = 1 + keys.index(view.sort) if view.sort in keys else 0
        footer = "Shift and a letter: reversed"
        screen.push_screen(Menu("sort by", choices, at, footer=footer), self._sort_by)

    def _sort_by(self, chosen: tuple[str, bool] | None) -> None:
        if chosen is not None:
            key, inverted = chosen
            self._screen.change(sort=key, inverted=inverted)

    # -- filter and search ------------------------------------------------------------------------------------------

    def filter(self) -> None:
        from gputop.tui.screens.prompt import Prompt

        screen = self._screen
        before = screen.view.filter

        def taken(text: str | None) -> None:
            if text is None:
                screen.change(filter=before)
            else:
                screen.change(filter=parse(text), scroll=0)
                self._past_filters = remembered(self._past_filters, text)

        question = "filter (gpu:3 user:ml mem>10G verdict:starved name~train !role:helper):"
        if screen.size.width < 2 * len(question):
            question = "filter:"
        screen.push_screen(Prompt(question, before.text, self._past_filters, self._try_filter), taken)

    def _try_filter(self, text: str) -> str | None:
        """Apply a filter while the user types; return its mistake.

        A word that may become the name of a field is not looked for yet: the last filter stays.
        """
        try:
            expression = parse(text)
            if may_become_field(text):
                return None
            self._screen.change(filter=expression, scroll=0)
        except ExpressionError as error:
            return str(error)
        return None

    def search(self) -> None:
        from gputop.tui.screens.prompt import Prompt

        screen = self._screen
        before = screen.view

        def taken(text: str | None) -> None:
            if text is None:
                screen.change(search=before.search, process=before.process)
            else:
                self._past_searches = remembered(self._past_searches, text)

        def tried(text: str) -> str | None:
            has_match = text == "" or self._find(replace(screen.view, search=text, process=before.process), 0)
            return None if has_match else "not found"

        screen.push_screen(Prompt("search in command, user, pid, job:", "", self._past_searches, tried), taken)

    def search_again(self, step: int) -> None:
        """Go to the next (1) or previous (-1) match."""
        view = self._screen.view
        if not view.search:
            self.search()
        elif not self._find(view, step):
            self._screen.say(f"no process with {view.search!r} in its command, user, pid or job")

    def _find(self, view: View, step: int) -> bool:
        """Put the cursor on the next match.

        Step 0 begins at the cursor's own row."""
        frame = self._frame
        if frame is None:
            return False
        rows = process_table.shown_rows(frame, view)
        at = process_table.cursor(rows, frame, view)
        to = process_table.next_match(rows, view.search, at if step else at - 1, step or 1)
        if to is not None:
            self._screen.see(replace(view, process=process_table.key_of(rows[to].process)))
        return to is not None

    # -- choosing ---------------------------------------------------------------------------------------------------

    @property
    def _frame(self) -> Frame | None:
        return self._screen.playback.frame

    def _selected(self) -> ProcessSample | None:
        return None if self._frame is None else process_table.selected_process(self._frame, self._screen.view)

    def tag(self) -> None:
        """Toggle the tag of the selected process and move down."""
        frame, view = self._frame, self._screen.view
        if frame is None:
            return
        rows = process_table.shown_rows(frame, view)
        at = process_table.cursor(rows, frame, view)
        if 0 <= at < len(rows):
            key = process_table.key_of(rows[at].process)
            below = process_table.key_of(rows[min(at + 1, len(rows) - 1)].process)
            self._screen.see(replace(view, tagged=view.tagged ^ {key}, process=below))

    def tag_tree(self) -> None:
        """Toggle the tags of the selected process's branch."""
        frame, view = self._frame, self._screen.view
        selected = self._selected()
        if frame is None or selected is None:
            return
        branch = {process_table.key_of(p) for p in process_table.branch_of(frame.snapshot.processes, selected)}
        tagged = view.tagged - branch if branch <= view.tagged else view.tagged | branch
        self._screen.see(replace(view, tagged=tagged))

    def untag(self) -> None:
        self._screen.change(tagged=frozenset())

    def columns(self) -> None:
        from gputop.tui.screens.process_screens import ColumnsScreen

        screen = self._screen

        def chosen(columns: tuple[str, ...]) -> None:
            screen.change(columns=columns)

        screen.push_screen(ColumnsScreen(screen.view.columns, chosen))

    def users(self) -> None:
        from gputop.tui.screens.pages import UsersScreen

        screen = self._screen

        def chosen(text: str) -> None:
            self._past_filters = remembered(self._past_filters, text)
            self._try_filter(text)

        screen.push_screen(UsersScreen(screen, chosen))

    # -- reaching the processes -------------------------------------------------------------------------------------

    def _addressed(self) -> list[ProcessSample]:
        """Return the tagged processes, or the selected one."""
        frame, tagged = self._frame, self._screen.view.tagged
        if not tagged or frame is None:
            return [selected] if (selected := self._selected()) is not None else []
        by_identity = {(p.pid, p.starttime): p for p in frame.snapshot.processes if process_table.key_of(p) in tagged}
        return list(by_identity.values())

    def signal(self, number: int | None = None) -> None:
        """Ask for a signal, or confirm a given ``number``."""
        screen, processes = self._screen, self._addressed()
        if screen.view.read_only:
            screen.say(READ_ONLY)
        elif screen.access is None:
            screen.say(NO_ACCESS)
        elif not processes:
            screen.say(NONE_LEFT if screen.view.tagged else NONE)
        else:
            from gputop.paint.process_actions import Addressee
            from gputop.tui.screens.process_screens import SignalScreen

            addressees = [Addressee(_identity(p), p.static.user, p.static.command or p.static.name) for p in processes]
            screen.push_screen(SignalScreen(addressees, screen.access.send, self._signalled, number))

    def _signalled(self, words: str) -> None:
        self.untag()
        self._screen.say(words)

    def environment(self) -> None:
        screen, process = self._screen, self._reachable()
        if process is not None and screen.access is not None:
            from gputop.tui.screens.process_screens import EnvironmentScreen

            environment = screen.access.environment(_identity(process))
            screen.push_screen(EnvironmentScreen(environment, _command(process)))

    def stacks(self) -> None:
        """Open stacks of the selected process and its busiest loader."""
        screen, process, frame = self._screen, self._reachable(), self._frame
        access = screen.access
        if process is None or access is None or frame is None:
            return
        from gputop.tui.screens.process_screens import StacksScreen

        shown = process_table.shown_rows(frame, screen.view)
        children = next((r.children for r in shown if r.process is process), ())
        loaders = [p for p in children if p.role == "loader" and p.starttime is not None]
        busiest = max(loaders, key=lambda p: p.cpu_pct or 0.0, default=None)
        loader = None if busiest is None else _identity(busiest)
        screen.push_screen(
            StacksScreen(
                process.pid,
                _command(process),
                lambda: access.look(_identity(process), loader),
                may_copy=not screen.view.read_only,
            )
        )

    def _reachable(self) -> ProcessSample | None:
        """Return the selected process, or say why it is unreachable."""
        process = self._selected()
        if process is None or self._screen.access is None:
            self._screen.say(NO_ACCESS if self._screen.access is None else NONE)
            return None
        return process


def _identity(process: ProcessSample) -> ProcessIdentity:
    return ProcessIdentity(process.pid, process.starttime)


def _command(process: ProcessSample) -> str:
    return process.static.command or process.static.name or ""
