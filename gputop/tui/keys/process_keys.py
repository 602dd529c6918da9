"""Keys for processes: sorting, filters, search, tags, signals and inspection.

The screens that they open are imported when they are opened. Live processes are reached through ``ProcessAccess``
only: without one (a demo, a recording) the keys that need it say so.
"""

from __future__ import annotations

import signal
from contextlib import suppress
from functools import partial

from msgspec.structs import replace

from gputop.model.expression import ExpressionError
from gputop.model.inspection import ProcessIdentity
from gputop.model.snapshot import ProcessSample
from gputop.paint import process_table
from gputop.paint.process_columns import BY_VERDICT, COLUMNS
from gputop.paint.process_filter import may_become_field, parse
from gputop.paint.view import View
from gputop.tui.main_screen import MainScreen

NO_ACCESS = "these processes cannot be reached from here: a recording or a browser shows them"
NONE = "no process is selected"
NONE_LEFT = "no process to send a signal to: those that were tagged have ended"
ALWAYS_SORTS = ("gpu_mem_time_pct",)
"""Columns that the menu of orders has even where they are not shown: the bandwidth of the GPU's memory."""
READ_ONLY = "read-only: start gputop without --read-only to send signals"


class ProcessKeys(MainScreen):
    """Sorts, finds, chooses and reaches processes."""

    # -- sorting ----------------------------------------------------------------------------------------------------

    def press_sort(self) -> None:
        """Ask for a column, by its letter or from the list."""
        from gputop.tui.screens.menu import Menu

        offered = dict.fromkeys(self.view.columns + ALWAYS_SORTS)
        keys = sorted(offered, key=lambda key: not COLUMNS[key].letter)
        choices = [
            ("", BY_VERDICT, BY_VERDICT),
            *((COLUMNS[key].letter, COLUMNS[key].head, key) for key in keys),
        ]
        at = 1 + keys.index(self.view.sort) if self.view.sort in keys else 0

        def sort_by(chosen: tuple[str, bool] | None) -> None:
            if chosen is not None:
                self.change(sort=chosen[0], inverted=chosen[1])

        self.push_screen(Menu("sort by", choices, at, "Shift: reversed"), sort_by)

    # -- filter and search ------------------------------------------------------------------------------------------

    def press_filter(self) -> None:
        from gputop.tui.screens.prompt import Prompt

        before = self.view.filter

        def taken(text: str | None) -> None:
            if text is None:
                self.change(filter=before)
            else:
                self.filter_by(text)

        question = "filter (gpu:3 user:ml mem>10G verdict:starved name~train !role:helper):"
        if self.size.width < 2 * len(question):
            question = "filter:"
        self.push_screen(Prompt(question, before.text, self._try_filter), taken)

    def filter_by(self, text: str) -> None:
        """Show the processes that pass a filter."""
        # The name of a job may hold quotes of both kinds.
        with suppress(ExpressionError):
            self.change(filter=parse(text), scroll=0)

    def _try_filter(self, text: str) -> str | None:
        """Apply a filter while the user types; return its mistake.

        A word that may become the name of a field is not looked for yet: the last filter stays.
        """
        try:
            expression = parse(text)
            if not may_become_field(text):
                self.change(filter=expression, scroll=0)
        except ExpressionError as error:
            return str(error)
        return None

    def press_search(self) -> None:
        from gputop.tui.screens.prompt import Prompt

        before = self.view

        def taken(text: str | None) -> None:
            if text is None:
                self.change(search=before.search, process=before.process)

        def tried(text: str) -> str | None:
            has_match = text == "" or self._find(
                replace(self.view, search=text, process=before.process), 0
            )
            return None if has_match else "not found"

        self.push_screen(Prompt("search in command, user, pid, job:", "", tried), taken)

    def press_match_next(self) -> None:
        self._search_again(1)

    def press_match_previous(self) -> None:
        self._search_again(-1)

    def _search_again(self, step: int) -> None:
        """Go to the next (1) or previous (-1) match."""
        if not self.view.search:
            self.press_search()
        elif not self._find(self.view, step):
            self.say(f"no process with {self.view.search!r} in its command, user, pid or job")

    def _find(self, view: View, step: int) -> bool:
        """Put the cursor on the next match.

        Step 0 begins at the cursor's own row."""
        if self.frame is None:
            return False
        rows = process_table.shown_rows(self.frame, view)
        at = process_table.cursor(rows, self.frame, view)
        to = process_table.next_match(rows, view.search, at if step else at - 1, step or 1)
        if to is not None:
            self.see(replace(view, process=process_table.key_of(rows[to].process)))
        return to is not None

    # -- choosing ---------------------------------------------------------------------------------------------------

    def _selected(self) -> ProcessSample | None:
        return None if self.frame is None else process_table.selected_process(self.frame, self.view)

    def press_tag(self) -> None:
        """Toggle the tag of the selected process and move down."""
        if self.frame is None:
            return
        rows = process_table.shown_rows(self.frame, self.view)
        at = process_table.cursor(rows, self.frame, self.view)
        if 0 <= at < len(rows):
            key = process_table.key_of(rows[at].process)
            below = process_table.key_of(rows[min(at + 1, len(rows) - 1)].process)
            self.change(tagged=self.view.tagged ^ {key}, process=below)

    def press_tag_tree(self) -> None:
        """Toggle the tags of the selected process's branch."""
        selected, tagged = self._selected(), self.view.tagged
        if self.frame is not None and selected is not None:
            processes = self.frame.snapshot.processes
            branch = {process_table.key_of(p) for p in process_table.branch_of(processes, selected)}
            self.change(tagged=tagged - branch if branch <= tagged else tagged | branch)

    def press_untag(self) -> None:
        self.change(tagged=frozenset())

    def press_columns(self) -> None:
        from gputop.tui.screens.process_screens import ColumnsScreen

        self.push_screen(
            ColumnsScreen(self.view.columns, lambda columns: self.change(columns=columns))
        )

    def press_users(self) -> None:
        from gputop.tui.screens.pages import UsersScreen

        self.push_screen(UsersScreen(self, self.filter_by))

    # -- reaching the processes -------------------------------------------------------------------------------------

    def _addressed(self) -> list[ProcessSample]:
        """Return the tagged processes, or the selected one."""
        tagged = self.view.tagged
        if not tagged or self.frame is None:
            return [selected] if (selected := self._selected()) is not None else []
        processes = [p for p in self.frame.snapshot.processes if process_table.key_of(p) in tagged]
        return list({_identity(p): p for p in processes}.values())

    def press_signal(self, number: int | None = None) -> None:
        """Ask for a signal, or confirm a given ``number``."""
        processes = self._addressed()
        if self.view.read_only:
            self.say(READ_ONLY)
        elif self.access is None:
            self.say(NO_ACCESS)
        elif not processes:
            self.say(NONE_LEFT if self.view.tagged else NONE)
        else:
            from gputop.paint.signal_rows import Addressee
            from gputop.tui.screens.process_screens import SignalScreen

            addressees = [
                Addressee(_identity(p), p.static.user, p.static.command or p.static.name)
                for p in processes
            ]
            self.push_screen(SignalScreen(addressees, self.access.send, self._signalled, number))

    def press_terminate(self) -> None:
        self.press_signal(signal.SIGTERM)

    def press_kill(self) -> None:
        self.press_signal(signal.SIGKILL)

    def press_interrupt_process(self) -> None:
        self.press_signal(signal.SIGINT)

    def _signalled(self, words: str) -> None:
        self.press_untag()
        self.say(words)

    def press_environment(self) -> None:
        process = self._reachable()
        if process is not None and self.access is not None:
            from gputop.tui.screens.process_screens import EnvironmentScreen

            environment = self.access.environment(_identity(process))
            self.push_screen(EnvironmentScreen(environment, _command(process)))

    def press_stacks(self) -> None:
        """Open stacks of the selected process and its busiest loader."""
        process, access, frame = self._reachable(), self.access, self.frame
        if process is None or access is None or frame is None:
            return
        from gputop.tui.screens.process_screens import StacksScreen

        shown = process_table.shown_rows(frame, self.view)
        children = next((row.children for row in shown if row.process is process), ())
        loaders = [p for p in children if p.role == "loader" and p.starttime is not None]
        busiest = max(loaders, key=lambda p: p.cpu_pct or 0.0, default=None)
        loader = None if busiest is None else _identity(busiest)
        look = partial(access.look, _identity(process), loader)
        self.push_screen(StacksScreen(process.pid, _command(process), look))

    def _reachable(self) -> ProcessSample | None:
        """Return the selected process, or say why it is unreachable."""
        process = self._selected()
        if process is None or self.access is None:
            self.say(NO_ACCESS if self.access is None else NONE)
            return None
        return process


def _identity(process: ProcessSample) -> ProcessIdentity:
    return ProcessIdentity(process.pid, process.starttime)


def _command(process: ProcessSample) -> str:
    return process.static.command or process.static.name or ""
