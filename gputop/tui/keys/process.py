"""What keys do to processes: filter, search, tags, columns, signals, environment, stacks, users.

The screens that they open are imported when they are opened. Live processes are reached through ``ProcessAccess``
only: without one (a demo, a recording) the keys that need it say so.
"""

from __future__ import annotations

from msgspec.structs import replace
from textual.app import App

from gputop.model.inspection import Identity, ProcessAccess
from gputop.model.snapshot import ProcessSample
from gputop.monitor import Frame
from gputop.paint import process_table
from gputop.paint.process_filter import FilterError, parse, remembered
from gputop.paint.theme import Theme
from gputop.paint.view import View

NO_ACCESS = "these processes do not run here: a demo or a recording shows them"
NONE = "no process is selected"
READ_ONLY = "read-only: start gputop without --read-only to send signals"


class ProcessKeys(App[int]):
    """The part of the main screen that acts on processes. Handlers are called ``_do_`` and the id of their key."""

    view: View
    frame: Frame | None
    _look: Theme

    def __init__(self, *, access: ProcessAccess | None = None, **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self._access = access
        self._past_filters: tuple[str, ...] = ()
        self._past_searches: tuple[str, ...] = ()

    def _see(self, view: View) -> None:
        """Show the main screen in another state."""
        raise NotImplementedError

    def _say(self, text: str) -> None:
        """Show a message for some seconds."""
        raise NotImplementedError

    # -- filter and search ------------------------------------------------------------------------------------------

    def _do_filter(self) -> None:
        from gputop.tui.screens.prompt import Prompt

        before = self.view.filter

        def taken(text: str | None) -> None:
            if text is None:
                self._see(replace(self.view, filter=before))
            else:
                self._past_filters = remembered(self._past_filters, text)

        question = "filter (gpu:3 user:ml mem>10G verdict:starved name~train !role:helper):"
        if self.size.width < 2 * len(question):
            question = "filter:"
        self.push_screen(Prompt(question, before.text, self._past_filters, self._try_filter), taken)

    def _try_filter(self, text: str) -> str | None:
        """Show what a filter lets through, while it is typed; what is wrong with it, if it means nothing."""
        try:
            self._see(replace(self.view, filter=parse(text), scroll=0))
        except FilterError as error:
            return str(error)
        return None

    def _do_search(self) -> None:
        from gputop.tui.screens.prompt import Prompt

        before = self.view

        def taken(text: str | None) -> None:
            if text is None:
                self._see(replace(self.view, search=before.search, process=before.process))
            else:
                self._past_searches = remembered(self._past_searches, text)

        def tried(text: str) -> str | None:
            found = text == "" or self._find(replace(self.view, search=text, process=before.process), 0)
            return None if found else "not found"

        self.push_screen(Prompt("search in command, user, pid, job:", "", self._past_searches, tried), taken)

    def _do_search_next(self) -> None:
        self._search_again(1)

    def _do_search_previous(self) -> None:
        self._search_again(-1)

    def _search_again(self, step: int) -> None:
        if not self.view.search:
            self._do_search()
        elif not self._find(self.view, step):
            self._say(f"no process holds {self.view.search!r} in its command, user, pid or job")

    def _find(self, view: View, step: int) -> bool:
        """Put the cursor on the next match; step 0 begins at the cursor's own row."""
        if self.frame is None:
            return False
        rows = process_table.shown_rows(self.frame, view)
        at = process_table.cursor(rows, self.frame, view)
        to = process_table.next_match(rows, view.search, at if step else at - 1, step or 1)
        if to is not None:
            self._see(replace(view, process=process_table.key_of(rows[to].process)))
        return to is not None

    # -- choosing ---------------------------------------------------------------------------------------------------

    def _selected(self) -> ProcessSample | None:
        """The process under the cursor."""
        if self.frame is None:
            return None
        rows = process_table.shown_rows(self.frame, self.view)
        at = process_table.cursor(rows, self.frame, self.view)
        return rows[at].process if 0 <= at < len(rows) else None

    def _do_tag(self) -> None:
        """Tag or untag the process under the cursor, and go one row down, as htop does."""
        if self.frame is None:
            return
        rows = process_table.shown_rows(self.frame, self.view)
        at = process_table.cursor(rows, self.frame, self.view)
        if 0 <= at < len(rows):
            key = process_table.key_of(rows[at].process)
            below = process_table.key_of(rows[min(at + 1, len(rows) - 1)].process)
            self._see(replace(self.view, tagged=self.view.tagged ^ {key}, process=below))

    def _do_untag(self) -> None:
        self._see(replace(self.view, tagged=frozenset()))

    def _do_columns(self) -> None:
        from gputop.tui.screens.columns import ColumnsScreen

        def chosen(columns: tuple[str, ...]) -> None:
            self._see(replace(self.view, columns=columns))

        self.push_screen(ColumnsScreen(self._look, self.view.glyphs, self.view.columns, chosen))

    def _do_users(self) -> None:
        from gputop.tui.screens.users import UsersScreen

        def chosen(text: str) -> None:
            self._past_filters = remembered(self._past_filters, text)
            self._try_filter(text)

        self.push_screen(UsersScreen(self._look, self.view.glyphs, lambda: self.frame, chosen))

    # -- reaching the processes -------------------------------------------------------------------------------------

    def _addressed(self) -> list[ProcessSample]:
        """The tagged processes that still show, each once, or else the one under the cursor."""
        tagged = self.view.tagged
        if not tagged or self.frame is None:
            return [one] if (one := self._selected()) is not None else []
        found = {(p.pid, p.starttime): p for p in self.frame.snapshot.processes if process_table.key_of(p) in tagged}
        return list(found.values())

    def _do_signal(self) -> None:
        who = self._addressed()
        if self.view.read_only:
            self._say(READ_ONLY)
        elif self._access is None:
            self._say(NO_ACCESS)
        elif not who:
            self._say("no process to send a signal to: those that were tagged have ended" if self.view.tagged else NONE)
        else:
            from gputop.paint.signal_list import Addressee
            from gputop.tui.screens.signal import SignalScreen

            addressees = [Addressee(_identity(p), p.static.user, p.static.command or p.static.name) for p in who]
            self.push_screen(SignalScreen(self._look, self.view.glyphs, addressees, self._access.send, self._signalled))

    def _signalled(self, words: str) -> None:
        self._see(replace(self.view, tagged=frozenset()))
        self._say(words)

    def _do_environment(self) -> None:
        process = self._reachable()
        if process is not None and self._access is not None:
            from gputop.tui.screens.environment import EnvironmentScreen

            environment = self._access.environment(_identity(process))
            command = process.static.command or process.static.name or ""
            self.push_screen(EnvironmentScreen(self._look, self.view.glyphs, environment, command))

    def _do_stacks(self) -> None:
        process, access, frame = self._reachable(), self._access, self.frame
        if process is None or access is None or frame is None:
            return
        from gputop.tui.screens.stacks import StacksScreen

        shown = process_table.shown_rows(frame, self.view)
        children = next((r.children for r in shown if r.process is process), ())
        loaders = [p for p in children if p.role == "loader" and p.starttime is not None]
        busiest = max(loaders, key=lambda p: p.cpu_pct or 0.0, default=None)
        loader = None if busiest is None else _identity(busiest)
        command = process.static.command or process.static.name or ""
        self.push_screen(
            StacksScreen(
                self._look,
                self.view.glyphs,
                process.pid,
                command,
                lambda: access.look(_identity(process), loader),
                may_copy=not self.view.read_only,
            )
        )

    def _reachable(self) -> ProcessSample | None:
        """The process under the cursor, if it can be asked anything; else the reason is said."""
        process = self._selected()
        if process is None or self._access is None:
            self._say(NO_ACCESS if self._access is None else NONE)
            return None
        return process


def _identity(process: ProcessSample) -> Identity:
    return Identity(process.pid, process.starttime)
