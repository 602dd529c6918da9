"""Lines of a recording: what is written is what is read, and the design page says enough to write them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from gputop.cli import main
from gputop.model.clean_text import clean_text
from gputop.model.feeders import LookState, MainLooks, Outsider, Via, WaitEnd
from gputop.model.sm import COUNTERS_DENIED, LackKind, SmLack
from gputop.model.snapshot import (
    Event,
    FeedTime,
    GpuSample,
    GpuStatic,
    HostSample,
    Machine,
    MainTime,
    ProcessSample,
    ProcessStatic,
    Role,
    Snapshot,
)
from gputop.recording.check import decode_line
from gputop.recording.decode import LineDecoder
from gputop.recording.device_health import HEALTH_KEYS
from gputop.recording.encode import LineEncoder, encode_line
from gputop.recording.format import MOST_LINE_BYTES, Line, RecordingError, RunFacts
from gputop.recording.reader import Recording
from gputop.recording.rounding import rounded
from tests.support.examples import any_text, looks
from tests.support.recording_frames import T0, frame, lines_of, read_back, read_lines, recorded

TEXTS = any_text(20).map(clean_text)
NUMBERS = st.one_of(
    st.none(),
    st.floats(allow_nan=True, allow_infinity=True, width=32),
    st.integers(-(2**60), 2**60).map(float),
    st.just(0.0),
)
COUNTS = st.one_of(st.none(), st.integers(0, 2**60))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "Number | None": NUMBERS,
    "Count | None": COUNTS,
    "bool | None": st.one_of(st.none(), st.booleans()),
    "Text | None": st.one_of(st.none(), TEXTS),
}
REASONS = st.dictionaries(TEXTS, TEXTS, max_size=2)
PERCENT = st.integers(0, 100).map(float)


def some(strategy: st.SearchStrategy[Any], most: int) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), st.lists(strategy, max_size=most).map(tuple))


def values_of(kind: type[Any]) -> dict[str, st.SearchStrategy[Any]]:
    return {key: VALUES[note] for key, note in kind.__annotations__.items() if note in VALUES}


LOOKS = st.lists(
    st.tuples(st.sampled_from(get_args(LookState)), st.integers(0, 999)), max_size=9
).map(tuple)
ENDS = st.builds(
    WaitEnd,
    st.sampled_from(get_args(Via)),
    PERCENT,
    st.lists(st.integers(1, 9999), max_size=3).map(tuple),
    TEXTS,
)
LACKS = st.builds(
    SmLack,
    st.lists(TEXTS, max_size=4).map(tuple),
    TEXTS,
    st.sampled_from((None, *get_args(LackKind))),
)
GPUS = st.builds(
    GpuSample,
    **values_of(GpuSample)
    | {
        "static": st.builds(GpuStatic, st.integers(0, 9), TEXTS.filter(bool), TEXTS.filter(bool)),
        "sm_lack": st.one_of(st.none(), LACKS),
        "sm_source": st.sampled_from(["gpm", "bound", "none"]),
        "unavailable": REASONS,
    },
)
PROCESSES = st.builds(
    ProcessSample,
    **values_of(ProcessSample)
    | {
        "pid": st.integers(1, 99), "role": st.sampled_from(get_args(Role)),
        "main_looks": st.one_of(st.none(), st.builds(MainLooks, LOOKS)), "waits_for": some(ENDS, 2),
        "feed": st.builds(FeedTime, **values_of(FeedTime)), "main": st.builds(MainTime, **values_of(MainTime)),
        "static": st.builds(ProcessStatic, TEXTS, TEXTS, TEXTS), "unavailable": REASONS,
    },
)  # fmt: skip
HOSTS = st.builds(
    HostSample,
    **values_of(HostSample)
    | {
        "outsiders": some(st.builds(Outsider, TEXTS, TEXTS, PERCENT, COUNTS, COUNTS), 3),
        "unavailable": REASONS,
    },
)
SNAPSHOTS = st.builds(
    Snapshot, t=st.floats(1.0, 4e9), machine=st.builds(Machine, TEXTS.filter(bool), TEXTS, TEXTS),
    gpus=st.lists(GPUS, max_size=3).map(tuple),
    processes=st.lists(PROCESSES, max_size=4, unique_by=lambda p: (p.pid, p.starttime)).map(tuple), host=HOSTS,
    events=st.lists(st.builds(Event, st.just(T0), st.just("mark"), TEXTS), max_size=2).map(tuple),
    stale=st.dictionaries(TEXTS, st.floats(0, 1e6), max_size=2), notices=st.lists(TEXTS, max_size=2).map(tuple),
)  # fmt: skip


@looks(10)
@given(SNAPSHOTS)
def test_any_snapshot_is_read_back_as_it_was_rounded(snapshot: Snapshot) -> None:
    once = rounded(snapshot)
    assert rounded(once) == once
    (back,) = read_back(once)
    assert replace(back, machine=snapshot.machine) == once


def test_a_recorded_machine_without_processes_is_one_without_processes() -> None:
    given = replace(rounded(frame(0)), processes=())
    (back,) = read_back(given)
    assert [gpu.unavailable for gpu in back.gpus] == [gpu.unavailable for gpu in given.gpus]


def test_floats_keep_four_digits_but_bytes_counters_and_times_keep_their_steps() -> None:
    gpu = replace(
        frame(0).gpus[0], util_pct=12.34567, mem_used_bytes=85_899_345_921.4, energy_j=123_456_789.1234,
        lost_since=1_780_000_123.456, pcie_rx_bytes_per_s=1_234_567_890.0,
    )  # fmt: skip
    back = rounded(replace(frame(0), gpus=(gpu,), t=1_780_000_000.1234))
    assert back.gpus[0].util_pct == 12.35
    assert back.gpus[0].mem_used_bytes == 85_899_345_921
    assert back.gpus[0].energy_j == 123_456_789.123
    assert back.gpus[0].lost_since == 1_780_000_123.456
    assert back.gpus[0].pcie_rx_bytes_per_s == 1.235e9
    assert back.t == 1_780_000_000.123


PERIOD = {"gpus": [0], "period_s": 3.0, "source": "power", "first_s": 3.0}


def changed(**parts: dict[str, Any]) -> list[bytes]:
    """The lines of one frame with other values: of its ``gpu``, ``process`` or ``host``, or of the ``frame`` itself."""
    looked = replace(
        frame(0).processes[0],
        main_looks=MainLooks((("queue", 2), ("run", 1))),
        waits_for=(WaitEnd("pipe", 80.0),),
    )
    host = replace(frame(0).host, outsiders=(Outsider("eve", "stress ng", 812.0),))
    gpu = replace(
        frame(0).gpus[0], sm_lack=SmLack(("no GPM", COUNTERS_DENIED), "be root", "denied")
    )
    *before, line = lines_of(replace(frame(0), gpus=(gpu,), processes=(looked,), host=host))
    row = json.loads(line)
    for part, values in parts.items():
        sample = {
            "gpu": row["gpus"][0],
            "process": row["processes"][0],
            "host": row["host"],
            "frame": row,
        }[part]
        sample.update(values)
    return [*before, json.dumps(row).encode()]


@pytest.mark.parametrize(
    "change",
    [
        {"frame": {"t": None}}, {"frame": {"t": -1}}, {"frame": {"t": "now"}}, {"frame": {"t": 1e11}},
        {"frame": {"gpus": 7}}, {"frame": {"gpus": [[1]]}}, {"frame": {"gpus": [{}, {}]}},
        {"frame": {"processes": "x"}}, {"frame": {"processes": [7]}}, {"frame": {"processes": [{}]}},
        {"frame": {"host": []}}, {"frame": {"stale": [1]}}, {"frame": {"stale": {"nvml": "late"}}},
        {"frame": {"notices": [1]}}, {"frame": {"notices": 5}}, {"frame": {"lasting": [{}]}},
        {"frame": {"lasting": [{"gpu": 0, "quiet_since": "soon"}]}}, {"frame": {"repeats": ["more"]}},
        {"frame": {"periods": [PERIOD | {"period_s": 0}]}}, {"frame": {"periods": [PERIOD | {"gpus": []}]}},
        {"frame": {"periods": [PERIOD | {"source": "guess"}]}}, {"frame": {"periods": [PERIOD | {"grown_t": -1}]}},
        {"gpu": {"util_pct": "97"}}, {"gpu": {"util_pct": []}}, {"gpu": {"pstate": 1.5}}, {"gpu": {"util_pct": 1e30}},
        {"gpu": {"lost_reason": 3}}, {"gpu": {"remap_failed": "no"}}, {"gpu": {"sm_source": "a source of tomorrow"}},
        {"gpu": {"unavailable": []}}, {"gpu": {"unavailable": {"a": 1}}}, {"gpu": {"lost_reason": "x" * 9999}},
        {"gpu": {"sm_lack": "no GPM"}}, {"gpu": {"sm_lack": {"reasons": [3]}}},
        {"gpu": {"sm_lack": {"reasons": ["x"] * 99}}}, {"process": {"pid": -1}}, {"process": {"pid": 2**63}},
        {"process": {"main_looks": {"counts": [["queue", -1]]}}}, {"process": {"main_looks": {"queue": 2}, "pid": "x"}},
        {"process": {"waits_for": [["pipe", 80]]}}, {"host": {"outsiders": {"eve": 3}}},
        {"host": {"outsiders": [{"user": "eve", "name": "x", "cpu_pct": 1e30}]}},
        {"host": {"outsiders": [{"user": "eve", "name": "x", "cpu_pct": 1}] * 99}},
    ],
    ids=str,
)  # fmt: skip
def test_a_frame_with_a_value_that_cannot_be_is_dropped_and_the_next_one_read(
    change: dict[str, Any],
) -> None:
    good = json.loads(changed()[-1])
    found, decoder = read_lines([*changed(**change), json.dumps(good | {"t": T0 + 1}).encode()])
    assert len(found) == decoder.damaged == 1
    assert found[0].events[0].is_damage


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 100_000, b'{"k":"frame","gpus":' + b"[" * 100_000, b'{"k":"frame"', b"\xff\xfe", b"[]", b"null",
        b"1" * 5000, b'{"k":"machine","version":true}', b'{"k":"machine"}',
        b'{"k":"frame","t":1,"processes":[' + b'{"pid":1},' * 299_999 + b'{"pid":1}]}',
    ],
    ids=lambda line: line[:40],
)  # fmt: skip
def test_a_line_that_is_not_of_the_format_is_counted_and_passed_over(line: bytes) -> None:
    *before, good = changed()
    found, decoder = read_lines([*before, line, good])
    assert len(found) == decoder.damaged == 1


def test_a_line_of_a_kind_that_nobody_knows_is_skipped() -> None:
    *before, good = changed()
    found, decoder = read_lines([*before, b'{"k":"note","text":["\\u001b[2J"]}', good])
    assert len(found) == 1 and not decoder.damaged


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (
            b'{"k":"machine","version":3,"gpus":"of another form"}',
            r"format 3.*reads format 2: update gputop",
        ),
        (b'{"k":"machine","version":1}', r"format 1.*reads format 2: record again"),
        (
            b'{"k":"key","v":1,"host":"node","gpu_cols":["util_pct"]}',
            r"format 1.*reads format 2: record again",
        ),
    ],
)
def test_another_format_is_refused_with_what_to_do(head: bytes, said: str) -> None:
    with pytest.raises(RecordingError, match=said):
        read_lines([head])


def test_escape_and_direction_characters_never_come_out_of_a_recording() -> None:
    evil = "a\x1b[2Jb\x07\u202ec\x9b\ud800\nd"
    static = replace(frame(0).gpus[0].static, name=evil)
    process = replace(frame(0).processes[0], static=ProcessStatic(evil, evil, evil), mount=evil)
    gpu = replace(
        frame(0).gpus[0], static=static, sm_lack=SmLack((evil,), evil), unavailable={evil: evil}
    )
    given = replace(
        frame(0), gpus=(gpu,), processes=(process,), notices=(evil,), machine=Machine(evil, evil, evil),
        events=(Event(T0, "mark", evil),), stale={evil: 1.0},
    )  # fmt: skip
    # Half a character costs its line when another program writes it; a recorder writes none.
    for written in (given, replace(given, notices=("\x1b",))):
        (back,) = read_back(written)
        # The repr escapes exactly what a terminal would obey.
        assert repr(asdict(back)).count("a?[2Jb??c?? d") == 15 - (written is not given)
        assert "\\" not in repr(asdict(back))
    assert (
        clean_text("träin 訓練 🚀 ↳") == "träin 訓練 🚀 ↳"
        and clean_text("x" * 10_000) == "x" * 4096
    )


def test_a_frame_of_more_processes_than_a_line_holds_is_cut() -> None:
    full = replace(
        frame(0).processes[0], unavailable={f"key{n}": "not to be seen " * 40 for n in range(9)}
    )
    given = replace(frame(0), processes=tuple(replace(full, pid=pid) for pid in range(5000)))
    assert max(map(len, lines_of(given))) < MOST_LINE_BYTES
    (back,) = read_back(given)
    assert 1000 < len(back.processes) < 4096


HEALTHY = {"recovery_action": 0, "nvlink_count": 18, "nvlink_active": 18, "nvlink_down": "none"}
NAMES = [key.encode() for key in HEALTH_KEYS]
NO_MODULE = {"fan_pct": "no fan", "module_power_w": "not supported by this GPU"}


def with_health(k: int, **changed: Any) -> Snapshot:
    """The frame ``k`` of two GPUs, of which the first has these values of its health."""
    snapshot = rounded(frame(k))
    ill, well = (replace(gpu, **HEALTHY, unavailable=NO_MODULE) for gpu in snapshot.gpus)
    return replace(snapshot, gpus=(replace(ill, **changed), well))


def cards_of(snapshots: Iterable[Snapshot]) -> list[tuple[GpuSample, ...]]:
    """The GPUs of each snapshot."""
    return [snapshot.gpus for snapshot in snapshots]


def a_change() -> list[Snapshot]:
    """Six frames; in the fourth a link is down, and the sixth does not say so any more."""
    down = {"nvlink_active": 17, "nvlink_down": "4"}
    gone = {"nvlink_active": None, "unavailable": {**NO_MODULE, "nvlink_active": "unknown error"}}
    changes: list[dict[str, Any]] = [{}, {}, {}, down, down, gone]
    return [with_health(k, **change) for k, change in enumerate(changes)]


def test_health_is_written_where_it_changes_and_read_back_in_each_frame() -> None:
    snapshots = a_change()
    lines = lines_of(*snapshots)
    kinds = [json.loads(line)["k"] for line in lines if b'"process"' not in line[:16]]
    assert kinds == [
        *("machine", "health", "frame", "frame", "frame"),
        *("health", "frame", "frame", "health", "frame"),
    ]
    assert not any(key in line for line in lines if b'"frame"' in line[:14] for key in NAMES)
    assert cards_of(read_back(*snapshots)) == cards_of(snapshots)


def test_each_member_has_all_health_so_that_reading_may_begin_there(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl.gz"
    snapshots = [with_health(k, nvlink_down="4" if k == 1 else "none") for k in range(130)]
    recording = Recording(str(recorded(path, snapshots)))
    assert cards_of(recording.snapshots()) == cards_of(snapshots)
    for begin in (1.0, 2.0, 59.0, 60.0, 119.0, 129.0):
        assert cards_of(recording.snapshots(T0 + begin)) == cards_of(snapshots[int(begin) :])
    recording.close()


def test_health_goes_on_after_a_gap_in_time() -> None:
    snapshots = [with_health(0), with_health(1), with_health(600)]
    found = read_back(*snapshots)
    assert [gpu.nvlink_active for snapshot in found for gpu in snapshot.gpus] == [18] * 6
    assert [event.text for event in found[2].events] == ["no data for 599 s"]


@pytest.mark.parametrize(
    ("damaged", "known"),
    [(b'{"k":"health","gpus":[{"nvlink_down":17}]}', False), (b"\0\0\0", False),
     (b'{"k":"frame","t":"late"}', True), (b'{"k":"event"}', True)],
    ids=["health", "bytes", "frame", "event"],
)  # fmt: skip
def test_health_whose_line_may_be_lost_is_not_that_of_before(damaged: bytes, known: bool) -> None:
    lines = lines_of(*a_change())
    before = max(
        number for number, line in enumerate(lines[:-4]) if line.startswith(b'{"k":"frame')
    )
    found, decoder = read_lines([*lines[: before + 1], damaged, lines[before]])
    assert decoder.damaged == 1
    first = found[-1].gpus[0]
    assert first.nvlink_active == (18 if known else None)
    assert ("nvlink_active" in first.unavailable) is not known
    assert first.util_pct is not None and first.unavailable["fan_pct"] == "no fan"


def test_an_older_recording_has_health_in_its_frames() -> None:
    machine, *_ = lines_of(with_health(0))
    line = {"k": "frame", "t": T0, "gpus": [{"recovery_action": 2, "nvlink_down": "4"}, {}]}
    (found,), decoder = read_lines([machine, json.dumps(line).encode()])
    assert decoder.damaged == 0
    assert [(gpu.recovery_action, gpu.nvlink_down) for gpu in found.gpus] == [
        (2, "4"),
        (None, None),
    ]


def test_gaps_restarts_and_a_clock_set_back_are_events_of_the_frame_after() -> None:
    rebooted = Machine("node-17", "boot-2", "580.65")
    given = [frame(0), frame(3), frame(9), replace(frame(5)), replace(frame(6), machine=rebooted)]
    texts = [
        [event.text for event in snapshot.events if event.kind == "gap"]
        for snapshot in read_back(*given)
    ]
    assert texts == [
        [],
        [],
        ["no data for 6 s"],
        ["the clock was set back by 4 s"],
        ["the machine was restarted"],
    ]


def test_derived_events_are_never_fed_to_a_monitor() -> None:
    encoder, decoder = LineEncoder(), LineDecoder()
    lines = [
        encoder.begin_member(frame(0)),
        *encoder.frame_lines(frame(0), [Event(T0, "throttle", "thermal", 1)]),
    ]
    for line in lines[:-1]:
        decoder.feed(line)
    back = decoder.feed(lines[-1])
    assert back is not None and back.events == ()


def test_a_run_is_read_back_and_its_secrets_are_masked_again() -> None:
    facts = RunFacts("python train.py --lr 0.1", 812.4, 137, "ab12")
    _, decoder = read_lines([*lines_of(frame(0)), encode_line(facts)])
    assert decoder.run == facts
    _, decoder = read_lines(
        [encode_line(RunFacts("python t.py --api-key Zq7xW9vK2mPl\x1b[31m", 1.0))]
    )
    assert decoder.run is not None and decoder.run.exit_code is None
    assert "Zq7x" not in decoder.run.command and "\x1b" not in decoder.run.command


@pytest.mark.parametrize(
    "wrong",
    [
        {"command": 3}, {"seconds": -1}, {"seconds": "x"}, {"exit_code": 999}, {"exit_code": [1]}, {"run": 5},
        {"run": "x"},
    ],
)  # fmt: skip
def test_a_run_that_cannot_be_is_damage(wrong: dict[str, object]) -> None:
    _, decoder = read_lines(
        [json.dumps({"k": "run", "command": "x", "seconds": 1.0} | wrong).encode()]
    )
    assert decoder.run is None and decoder.damaged == 1


PAGE = (Path(__file__).parents[2] / "docs" / "design" / "recording.md").read_text(encoding="utf-8")
EXAMPLES = [
    line
    for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
]


def example(kind: str) -> dict[str, Any]:
    return next(row for line in EXAMPLES if (row := json.loads(line))["k"] == kind)


def test_every_kind_of_line_has_an_example_that_is_valid() -> None:
    assert {json.loads(line)["k"] for line in EXAMPLES} == {
        "machine",
        "process",
        "health",
        "frame",
        "event",
        "run",
    }
    for line in EXAMPLES:
        assert isinstance(decode_line(line.encode()), Line)


def test_a_recording_by_another_program_is_reported_and_diagnosed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = example("frame")
    frame["gpus"][0] |= {"util_pct": 20.0, "sm_active_pct": 15.0}
    frame["processes"][0] |= {"main_run_pct": 95.0, "main": {}, "gpu_mem_bytes": 6e10}
    frames = [frame | {"t": frame["t"] + second} for second in range(60)]
    rows = [example("machine"), example("process"), *frames, example("event"), example("run")]
    path = tmp_path / "made.gputop.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["report", str(path), "--json"]) in (0, 1)
    report = json.loads(capsys.readouterr().out)
    assert (report["frames"], report["command"]) == (60, "python train.py")
    assert main(["diagnose", str(path), "--json"]) in (0, 1)
    (gpu,) = json.loads(capsys.readouterr().out)["gpus"]
    assert gpu["state"] == "starved" and gpu["verdict"] != "collecting"
