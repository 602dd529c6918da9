"""The screen of one process: exact at every size, its family and its threads, and words for what cannot be known."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace
from textual.app import App, ComposeResult

from gputop.model.inspection import Identity
from gputop.model.snapshot import ProcessSample, ProcessStatic
from gputop.model.threads import ThreadList, ThreadSample
from gputop.monitor import Frame, Monitor
from gputop.output.ansi import plain_text
from gputop.paint.details import DetailsView
from gputop.paint.glyphs import ASCII, COLOUR, MONO, Glyphs
from gputop.paint.process_details import find, process_details
from gputop.paint.process_tree import family
from gputop.paint.text import cells
from gputop.paint.theme import THEMES
from gputop.paint.view import ProcessKey, View
from gputop.sources.processes.thread_list import GONE, MOST_THREADS, ThreadWatch, read_threads
from gputop.tui.app import GputopApp
from gputop.tui.screens.gpu_details import GpuDetailsScreen
from gputop.tui.screens.process_details import ProcessDetailsScreen
from gputop.tui.terminal.lines import Lines
from tests.support.fake_app import playback_on
from tests.support.frames import MOMENT, demo_frame
from tests.support.scenes import gpu, snap, train, workers

SIZES = [(40, 10), (80, 24), (120, 36), (160, 48), (300, 100), (20, 5), (5, 3), (1, 1)]
THREADS = ThreadList(
    1.0,
    (
        ThreadSample(4711, "python", "S", 3.0, 0.0, "lock"),
        ThreadSample(4712, "cuda-EvtHandlr", "R", 80.0, 15.0),
        ThreadSample(4713, "pt_data_pin", "D", 1.0, 0.0, "disk"),
    ),
    3,
)


def _key(p: ProcessSample) -> ProcessKey:
    return p.pid, p.starttime, p.gpu


def _text(
    frame: Frame, p: ProcessSample, width: int = 140, height: int = 150, threads: ThreadList | None = THREADS
) -> str:
    return plain_text(process_details(frame, DetailsView(View()), _key(p), p, threads, width, height).rows)


def _fed(*processes: ProcessSample, seconds: int = 30) -> Frame:
    monitor = Monitor()
    frames = [monitor.feed(snap(tick, gpu(), processes)) for tick in range(seconds)]
    return frames[-1]


@pytest.mark.parametrize("glyphs", [COLOUR, MONO, ASCII], ids=lambda g: g.name)
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_every_size_is_filled_exactly_also_with_a_hostile_process(width: int, height: int, glyphs: Glyphs) -> None:
    hostile = "\x1b[2J\x1b]0;x\x07 訓練 \u202e evil e\u0301 [red]" + "x" * 4096
    static = ProcessStatic(hostile, hostile, hostile, hostile, hostile, hostile, hostile)
    bad = train(static=static, unavailable={"read_bytes_per_s": hostile})
    named = ThreadList(1.0, (ThreadSample(1, hostile, "S", None, None, None),), 1)
    frame = _fed(bad, *workers(3, 50.0, static=static))
    for first in (0, 9, 10**6):
        state = DetailsView(View(glyphs=glyphs), first, frame.snapshot.t - 5.0)
        rows = process_details(frame, state, _key(bad), bad, named, width, height).rows
        assert len(rows) == height
        assert {sum(cells(text) for text, _ in row) for row in rows} == {width}
        assert all(char.isprintable() for row in rows for text, _ in row for char in text)
        if glyphs is ASCII:
            assert all(text.isascii() for row in rows for text, _ in row)


def test_every_style_that_is_painted_exists_in_every_theme() -> None:
    frame, state, styles = demo_frame(), DetailsView(View(), 0, MOMENT - 30.0), set()
    for p in frame.snapshot.processes:
        rows = process_details(frame, state, _key(p), p, THREADS, 120, 150).rows
        styles |= {style for row in rows for _, style in row}
    assert len(styles) > 10
    for theme in THEMES.values():
        for style in styles:
            theme.look(style)


def test_the_whole_command_is_there_wrapped() -> None:
    p = train(static=ProcessStatic(command="python train.py " + " ".join(f"--option-{i}={i}" for i in range(20))))
    text = _text(_fed(p), p, width=80)
    assert "$ python train.py --option-0=0" in text
    assert "--option-19=19" in text
    assert "…" not in text.split("  CPU")[0]


def test_identity_and_reasons_are_said() -> None:
    static = ProcessStatic("ml", "python t.py", "python", "slurm 77", "pod-a", "DALI", "holds a GPU context")
    p = train(
        static=static, threads=214, pin_memory=True, unavailable={"read_bytes_per_s": "not permitted: run as root"}
    )
    text = _text(_fed(p), p)
    for words in ("user ml", "job slurm 77", "container pod-a", "role gpu", "why: holds a GPU context", "threads 214"):
        assert words in text
    assert "pin_memory on" in text
    assert "n/a read_bytes_per_s: not permitted: run as root" in text


def test_charts_and_lanes_show_what_the_history_holds() -> None:
    p = train(main=75.0, state="R", read_bytes_per_s=5e6)
    frame = _fed(p)
    rows = _text(frame, p).splitlines()
    assert any(row.startswith("  CPU") and row.endswith("100 %") for row in rows)
    assert any(row.startswith("  read") and row.endswith("5.0 MB/s") for row in rows)
    assert any(row.startswith("  write") and "nothing in this time" in row for row in rows)
    assert any(row.startswith("  main") and row.endswith("75 %") for row in rows)
    state = DetailsView(View(), 0, frame.snapshot.t - 5.0)
    reading = plain_text(process_details(frame, state, _key(p), p, None, 140, 60).rows)
    assert "CPU 75 %" in next(row for row in reading.splitlines() if row.startswith("  at "))


def test_a_series_without_values_gives_its_reason() -> None:
    p = train(read_bytes_per_s=None, unavailable={"read_bytes_per_s": "run as root for disk evidence"})
    row = next(row for row in _text(_fed(p), p).splitlines() if row.startswith("  read"))
    assert "n/a: run as root for disk evidence" in row


def test_a_loader_stands_below_its_gpu_process_with_the_rule_that_found_it() -> None:
    frame = demo_frame()
    loader = next(p for p in frame.snapshot.processes if p.role == "loader")
    rows = _text(frame, loader, threads=None).splitlines()
    at = next(i for i, row in enumerate(rows) if "its tree" in row)
    assert "GPU process" in rows[at + 2]
    chosen = next(row for row in rows[at:] if f" {loader.pid} " in row)
    assert "loader" in chosen and (loader.static.why or "") in chosen
    assert chosen.lstrip()[0] in "├└"


def test_a_worker_of_a_forkserver_joins_the_only_gpu_process_of_its_gpu() -> None:
    owner, (worker, nested) = train(), workers(2, 50.0)
    lost = replace(worker, ppid=99999)
    child = replace(nested, ppid=lost.pid)
    branches = family([child, lost, owner], child)
    assert [(b.process.pid, b.depth) for b in branches] == [(owner.pid, 0), (lost.pid, 1), (child.pid, 2)]
    second = train(pid=5555)
    assert [b.process.pid for b in family([lost, owner, second], lost)] == [lost.pid]


def test_parents_that_point_at_each_other_end_the_climb() -> None:
    a, b = replace(train(), pid=10, ppid=11), replace(train(), pid=11, ppid=10)
    assert {branch.process.pid for branch in family([a, b], a)} == {10, 11}


def test_what_a_dead_job_left_behind_is_listed() -> None:
    p = train()
    orphan = replace(workers(1, 100.0)[0], pid=7777, ppid=1, role="orphan")
    text = _text(_fed(p, orphan), p)
    assert "left behind by a dead job" in text
    assert "7777" in text.split("left behind")[1]
    assert "left behind" not in _text(_fed(p), p)


def test_an_ended_process_keeps_its_last_words_and_says_so() -> None:
    monitor = Monitor()
    p = train(main=40.0)
    for tick in range(30):
        monitor.feed(snap(tick, gpu(), [p]))
    frame = monitor.feed(snap(30, gpu(), []))
    text = _text(frame, p)
    assert "has ended" in text.splitlines()[1]
    assert "python train.py" in text
    assert any(row.startswith("  CPU") and row.endswith("100 %") for row in text.splitlines())
    never = plain_text(process_details(frame, DetailsView(View()), (1, 2, 0), None, None, 80, 24).rows)
    assert "not in the snapshot" in never


def test_threads_come_the_busiest_first_with_what_they_wait_on() -> None:
    p = train()
    rows = _text(_fed(p), p).splitlines()
    at = next(i for i, row in enumerate(rows) if "threads 3:" in row)
    assert [row.split()[0] for row in rows[at + 2 : at + 5]] == ["4712", "4711", "4713"]
    assert "1 disk wait" in rows[at] and "lock" in rows[at + 3]


def test_threads_in_a_replay_are_not_recorded_and_refusals_are_said() -> None:
    p = train()
    assert "not recorded" in _text(_fed(p), p, threads=None)
    assert "its threads cannot be listed: no" in _text(
        _fed(p), p, threads=ThreadList(1.0, reason="its threads cannot be listed: no")
    )


def _fake(proc: Path, pid: int, tids: dict[int, tuple[str, str, str, str]], starttime: int = 500) -> None:
    """A process in a made-up /proc: tid → (name, state, schedstat, wait channel)."""
    tail = " ".join(["0"] * 7 + ["5", "5"] + ["0"] * 4 + [str(len(tids)), "0", str(starttime), "0", "100"])
    (proc / str(pid)).mkdir(parents=True, exist_ok=True)
    (proc / str(pid) / "stat").write_text(f"{pid} (x) S 1 1 1 {tail}")
    for tid, (name, state, schedstat, channel) in tids.items():
        task = proc / str(pid) / "task" / str(tid)
        task.mkdir(parents=True, exist_ok=True)
        (task / "stat").write_text(f"{tid} ({name}) {state} 1 1 1 {tail}")
        (task / "schedstat").write_text(schedstat)
        (task / "wchan").write_text(channel)


def test_rates_of_threads_come_from_two_readings(tmp_path: Path) -> None:
    _fake(tmp_path, 9, {9: ("main", "S", "1000000000 0 5", "futex_wait_queue"), 7: ("a (b) c", "R", "0 0 1", "0")})
    first = read_threads(9, 500, None, 100.0, str(tmp_path))
    assert [(t.tid, t.name, t.run_pct) for t in first.threads] == [(9, "main", None), (7, "a (b) c", None)]
    assert [t.waiting_on for t in first.threads] == ["lock", None]
    _fake(tmp_path, 9, {9: ("main", "S", "2000000000 500000000 9", "0"), 7: ("a (b) c", "R", "0 0 1", "0")})
    second = read_threads(9, 500, first, 102.0, str(tmp_path))
    assert (second.threads[0].run_pct, second.threads[0].wait_pct) == (50.0, 25.0)


def test_another_process_with_the_same_pid_is_never_read(tmp_path: Path) -> None:
    _fake(tmp_path, 9, {9: ("other", "S", "1 1 1", "0")}, starttime=501)
    assert read_threads(9, 500, None, 1.0, str(tmp_path)) == ThreadList(1.0, reason=GONE)
    assert read_threads(8, 500, None, 1.0, str(tmp_path)).reason == GONE


def test_very_many_threads_are_counted_but_not_all_read(tmp_path: Path) -> None:
    _fake(tmp_path, 9, dict.fromkeys(range(9, 9 + MOST_THREADS + 20), ("t", "S", "1 1 1", "0")))
    listed = read_threads(9, 500, None, 1.0, str(tmp_path))
    assert (len(listed.threads), listed.total) == (MOST_THREADS, MOST_THREADS + 20)


def test_the_watch_reads_this_very_process_and_ends() -> None:
    read = threading.Event()
    times = iter(range(100))

    def clock() -> float:
        read.set()
        return float(next(times))

    watch = ThreadWatch(os.getpid(), None, clock=clock)
    watch.ask()
    assert read.wait(10.0)
    watch._thread.join(0.2)
    for _ in range(200):
        if watch.latest is not None:
            break
        watch._thread.join(0.05)
    assert watch.latest is not None and watch.latest.threads[0].tid == os.getpid()
    watch.close()
    watch._thread.join(10.0)
    assert not watch._thread.is_alive()


class Reader:
    """Hands out one list of threads, and knows whether it was closed."""

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self.latest: ThreadList | None = None
        self.asked, self.closed = 0, False

    def ask(self) -> None:
        self.asked += 1

    def close(self) -> None:
        self.closed = True


class Host(App[None]):
    """The screen alone, on one frame."""

    def __init__(self, frame: Frame, p: ProcessSample) -> None:
        super().__init__()
        self.frame, self.p = frame, p
        self.shown = View()
        self.readers: list[Reader] = []

    def compose(self) -> ComposeResult:
        yield Lines(THEMES["dark"])

    def see(self, view: View) -> None:
        self.shown = view

    def watch(self, identity: Identity) -> Reader:
        self.readers.append(Reader(identity))
        return self.readers[-1]

    def on_mount(self) -> None:
        get = (lambda: self.frame, lambda: self.shown, self.see)
        self.push_screen(ProcessDetailsScreen(THEMES["dark"], *get, _key(self.p), self.watch))

    def rows(self) -> list[str]:
        lines = self.screen.query_one(Lines)
        return ["".join(s.text for s in strip) for strip in lines.render_lines(lines.size.region)]


async def test_the_screen_reads_threads_while_it_is_open() -> None:
    frame = demo_frame()
    p = next(p for p in frame.snapshot.processes if p.role == "gpu")
    app = Host(frame, p)
    async with app.run_test(size=(120, 60)) as pilot:
        await pilot.pause()
        assert "reading them" in "\n".join(app.rows())
        (reader,) = app.readers
        assert reader.identity == Identity(p.pid, p.starttime) and reader.asked
        reader.latest = THREADS
        screen = app.screen
        assert isinstance(screen, ProcessDetailsScreen)
        screen._look()
        assert "cuda-EvtHandlr" in "\n".join(app.rows())
        await pilot.press("escape")
        await pilot.pause()
        assert reader.closed
        assert not isinstance(app.screen, ProcessDetailsScreen)


async def test_the_screen_remembers_a_process_that_ends_while_it_is_looked_at() -> None:
    monitor = Monitor()
    p = train()
    frame = monitor.feed(snap(0, gpu(), [p]))
    app = Host(frame, p)
    async with app.run_test(size=(100, 40)) as pilot:
        await pilot.pause()
        app.frame = monitor.feed(snap(1, gpu(), []))
        assert find(app.frame, _key(p)) is None
        screen = app.screen
        assert isinstance(screen, ProcessDetailsScreen)
        screen._look()
        assert "has ended" in app.rows()[1] and "python train.py" in "\n".join(app.rows())


class Access:
    """Reaches no process but hands out readers of threads."""

    def __init__(self) -> None:
        self.readers: list[Reader] = []

    def watch_threads(self, identity: Identity) -> Reader:
        self.readers.append(Reader(identity))
        return self.readers[-1]


def _main_screen(access: Access | None = None, view: View | None = None) -> GputopApp:
    return GputopApp(view or View(), "dark", playback_on(demo_frame()), access=access)  # type: ignore[arg-type]


async def test_enter_opens_the_process_under_the_cursor_and_escape_goes_back() -> None:
    app = _main_screen(Access())
    async with app.run_test(size=(140, 48)) as pilot:
        await pilot.press("home", "enter")
        assert isinstance(app.screen, ProcessDetailsScreen)
        await pilot.press("plus", "escape")
        assert not isinstance(app.screen, ProcessDetailsScreen)
        assert app.view.span_s == 300.0


async def test_enter_opens_the_gpu_while_the_focus_is_on_gpus_and_a_key_opens_it_anywhere() -> None:
    app = _main_screen()
    async with app.run_test(size=(140, 48)) as pilot:
        await pilot.press("tab", "tab", "j", "enter")
        assert isinstance(app.screen, GpuDetailsScreen)
        await pilot.press("]", "escape")
        gpus = [g.static.uuid for g in demo_frame().snapshot.gpus]
        assert app.view.gpu == gpus[2]
        await pilot.press("tab", "D")
        assert isinstance(app.screen, GpuDetailsScreen)


async def test_a_second_click_opens_what_the_first_has_selected() -> None:
    app = _main_screen()
    async with app.run_test(size=(160, 48)) as pilot:
        await pilot.pause()
        lines = app.screen.query_one(Lines)
        rows = ["".join(s.text for s in strip) for strip in lines.render_lines(lines.size.region)]
        gpu_row = next(i for i, row in enumerate(rows) if row.startswith("─ 3  H100"))
        await pilot.click(offset=(5, gpu_row))
        assert not isinstance(app.screen, GpuDetailsScreen)
        await pilot.click(offset=(5, gpu_row), times=2)
        assert isinstance(app.screen, GpuDetailsScreen)
        await pilot.press("escape")
        head = next(i for i, row in enumerate(rows) if "GPU-MEM" in row and "PID" in row)
        await pilot.click(offset=(20, head + 2), times=2)
        assert isinstance(app.screen, ProcessDetailsScreen)


async def test_a_demo_has_no_threads_to_read_and_live_has() -> None:
    access = Access()
    for app, words in ((_main_screen(), "not recorded"), (_main_screen(access), "reading them")):
        async with app.run_test(size=(140, 90)) as pilot:
            await pilot.press("home", "enter")
            lines = app.screen.query_one(Lines)
            text = "".join(s.text for strip in lines.render_lines(lines.size.region) for s in strip)
            assert words in text
    assert len(access.readers) == 1
