"""What is written is what is read, and what a file says is checked before it is believed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from gputop.model.feeders import LOOK_STATES, VIAS, MainLooks, Outsider, WaitEnd, main_looks
from gputop.model.quantity import clean_text
from gputop.model.sm import COUNTERS_DENIED, COUNTERS_RELEASED, LACK_KINDS, SmLack
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
    Snapshot,
)
from gputop.recording.decode import Decoder
from gputop.recording.encode import Encoder, run_line
from gputop.recording.format import GPU_COLUMNS, HOST_COLUMNS, PROCESS_COLUMNS, RecordingError, RunFacts
from tests.support.examples import any_text, looks
from tests.support.recording_frames import T0, frame, frames, rounded


def read_back(snapshots: list[Snapshot]) -> list[Snapshot]:
    encoder, decoder = Encoder(), Decoder()
    lines = []
    for snapshot in snapshots:
        if not encoder.fits(snapshot):
            lines += encoder.key_lines(snapshot)
        lines += encoder.frame_lines(snapshot)
    found = [snapshot for line in lines if (snapshot := decoder.feed(line)) is not None]
    assert decoder.damaged == 0
    return found


def lines_of(snapshot: Snapshot) -> tuple[dict[str, Any], dict[str, Any]]:
    encoder = Encoder()
    (key,) = encoder.key_lines(snapshot)
    return json.loads(key), json.loads(encoder.frame_lines(snapshot)[-1])


def decoded(*lines: dict[str, Any] | bytes) -> tuple[list[Snapshot], Decoder]:
    decoder = Decoder()
    raw = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    return [found for line in raw if (found := decoder.feed(line)) is not None], decoder


TEXTS = any_text(20)
NUMBERS = st.one_of(
    st.none(), st.floats(allow_nan=True, allow_infinity=True, width=32), st.integers(-(2**60), 2**60), st.just(0.0)
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "number": NUMBERS,
    "whole": st.one_of(st.none(), st.integers(-(2**60), 2**60)),
    "flag": st.one_of(st.none(), st.booleans()),
    "text": st.one_of(st.none(), TEXTS),
}
TYPED_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "main_looks": st.one_of(
        st.none(),
        st.lists(st.tuples(st.sampled_from(sorted(LOOK_STATES)), st.integers(0, 999)), max_size=9).map(main_looks),
    ),
    "waits_for": st.one_of(
        st.none(),
        st.lists(
            st.builds(
                WaitEnd,
                st.sampled_from(sorted(VIAS)),
                st.integers(0, 100).map(float),
                st.lists(st.integers(1, 9999), max_size=3).map(tuple),
                TEXTS,
            ),
            max_size=2,
        ).map(tuple),
    ),
    "sm_lack": st.one_of(
        st.none(),
        st.builds(SmLack, st.lists(TEXTS, max_size=4).map(tuple), TEXTS, st.sampled_from((None, *sorted(LACK_KINDS)))),
    ),
    "outsiders": st.one_of(
        st.none(),
        st.lists(
            st.builds(Outsider, TEXTS, TEXTS, st.integers(0, 99_999).map(float), st.none(), st.none()), max_size=3
        ).map(tuple),
    ),
}
REASONS = st.dictionaries(TEXTS, TEXTS, max_size=2)


def values_of(columns: Any, **fixed: st.SearchStrategy[Any]) -> dict[str, st.SearchStrategy[Any]]:
    return {c.key: VALUES[c.check] if c.typed is None else TYPED_VALUES[c.key] for c in columns} | fixed


STATICS = st.builds(GpuStatic, st.integers(0, 9), TEXTS.filter(bool), TEXTS.filter(bool))
GPUS = st.builds(
    GpuSample,
    static=STATICS,
    unavailable=REASONS,
    **values_of(GPU_COLUMNS, sm_source=st.sampled_from(["gpm", "bound", "none"])),
)
PROCESSES = st.builds(
    ProcessSample,
    unavailable=REASONS,
    static=st.builds(ProcessStatic, TEXTS, TEXTS, TEXTS),
    **values_of(
        [c for c in PROCESS_COLUMNS if not c.path],
        pid=st.integers(1, 99),
        role=st.sampled_from(["gpu", "loader", "helper"]),
    ),
    feed=st.builds(FeedTime, *[NUMBERS] * len(FeedTime.__struct_fields__)),
    main=st.builds(MainTime, *[NUMBERS] * len(MainTime.__struct_fields__)),
)
SNAPSHOTS = st.builds(
    Snapshot,
    t=st.floats(1.0, 4e9),
    machine=st.builds(Machine, TEXTS.filter(bool), TEXTS, TEXTS),
    gpus=st.lists(GPUS, max_size=3).map(tuple),
    processes=st.lists(PROCESSES, max_size=4, unique_by=lambda p: (p.pid, p.starttime)).map(tuple),
    host=st.builds(HostSample, unavailable=REASONS, **values_of(HOST_COLUMNS)),
    events=st.lists(st.builds(Event, st.just(T0), st.just("mark"), TEXTS), max_size=2).map(tuple),
    stale=st.dictionaries(TEXTS, st.floats(0, 1e6), max_size=2),
    notices=st.lists(TEXTS, max_size=2).map(tuple),
)


@looks(10)
@given(SNAPSHOTS)
def test_any_snapshot_is_read_back_as_it_was_rounded(snapshot: Snapshot) -> None:
    once = rounded(snapshot)
    assert rounded(once) == once
    (back,) = read_back([snapshot])
    assert replace(back, machine=snapshot.machine) == once


def test_floats_keep_four_digits_but_bytes_counters_and_times_keep_their_steps() -> None:
    gpu = replace(
        frame(0).gpus[0],
        util_pct=12.34567,
        mem_used_bytes=85_899_345_921,
        energy_j=123_456_789.1234,
        lost_since=1_780_000_123.456,
        pcie_rx_bytes_per_s=1_234_567_890.0,
    )
    (back,) = read_back([replace(frame(0), gpus=(gpu,), t=1_780_000_000.1234)])
    assert back.gpus[0].util_pct == 12.35
    assert back.gpus[0].mem_used_bytes == 85_899_345_921
    assert back.gpus[0].energy_j == 123_456_789.123
    assert back.gpus[0].lost_since == 1_780_000_123.456
    assert back.gpus[0].pcie_rx_bytes_per_s == 1.235e9
    assert back.t == 1_780_000_000.123


LOOKS = MainLooks((("queue", 2), ("run", 1)))
LACK = SmLack(("no GPM", COUNTERS_DENIED), "set a capability; or be root", "denied")
OUTSIDERS = (Outsider("eve", "stress ng", 812.0), Outsider("bob", "cc1", 90.0))


def looked() -> tuple[dict[str, Any], dict[str, Any]]:
    """The lines of a frame whose host and first process have values of several parts."""
    given = frame(0)
    first = replace(given.processes[0], main_looks=LOOKS)
    gpus = tuple(replace(gpu, sm_lack=LACK) for gpu in given.gpus)
    host = replace(given.host, outsiders=OUTSIDERS)
    return lines_of(replace(given, processes=(first, *given.processes[1:]), host=host, gpus=gpus))


def test_values_of_several_parts_stand_beside_their_words_and_are_read_from_either() -> None:
    key, row = looked()
    host, process = key["host_cols"].index, key["proc_cols"].index
    assert row["host"][host("cpu_outsiders")] == "eve stress ng 812; bob cc1 90"
    assert row["procs"][0][process("main_waits")] == "queue 2, run 1"
    (back,), _ = decoded(key, row)
    # As recordings were before: the words alone.
    cells = [row["host"], *row["procs"]]
    for at, names in (((0,), "host_cols"), (range(1, len(cells)), "proc_cols")):
        place = key[names].index("outsiders" if names == "host_cols" else "main_looks")
        key[names][place] = "a column of tomorrow"
        for number in at:
            cells[number][place] = {"any": "thing"}
    (old,), _ = decoded(key, row)
    for found in (back, old):
        assert found.host.outsiders == OUTSIDERS and found.processes[0].main_looks == LOOKS
        assert found.processes[1].main_looks is None


@pytest.mark.parametrize(
    ("words", "looks"),
    [("", ()), ("queue 2, run 1", (("queue", 2), ("run", 1))), ("x, y z, 99999 3, lock 99999", (("other", 3),))],
)
def test_words_that_older_recordings_hold_become_values_as_far_as_they_can(words: str, looks: Any) -> None:
    key, row = looked()
    place = key["proc_cols"].index("main_looks")
    del key["proc_cols"][place]
    for cells in row["procs"]:
        del cells[place]
    row["procs"][0][key["proc_cols"].index("main_waits")] = words
    (back,), _ = decoded(key, row)
    assert back.processes[0].main_looks == MainLooks(looks)


@pytest.mark.parametrize(
    ("words", "lack"),
    [
        ("collecting: needs two samples", SmLack(("collecting: needs two samples",), kind="collecting")),
        (f"no GPM, {COUNTERS_RELEASED}", SmLack((f"no GPM, {COUNTERS_RELEASED}",), kind="released")),
        (f"{COUNTERS_DENIED}; be root; or ask", SmLack((COUNTERS_DENIED,), "be root; or ask", "denied")),
        ("no SM here; switch it on", SmLack(("no SM here",), "switch it on")),
        ("; odd; ", SmLack(("; odd; ",))),
    ],
)
def test_why_older_recordings_lack_sm_becomes_a_value_of_the_same_words(words: str, lack: SmLack) -> None:
    key, row = looked()
    names, cells = key["gpu_cols"], row["gpus"][0]
    cells[names.index("sm_reason")] = words
    names[names.index("sm_lack")] = "a column of tomorrow"
    (back,), _ = decoded(key, row)
    assert back.gpus[0].sm_lack == lack and back.gpus[0].sm_reason == words


def test_a_way_of_waiting_that_only_newer_versions_know_is_not_known() -> None:
    ends = WaitEnd("pipe", 66.7, tuple(range(4010, 4020))), WaitEnd("network", 33.3, (), "10.0.0.7:443")
    given = frame(0)
    processes = replace(given.processes[0], waits_for=ends), *given.processes[1:]
    key, row = lines_of(replace(given, processes=processes))
    names, cells = key["proc_cols"], row["procs"][0]
    assert cells[names.index("held_up_by")] == "67 % pipe 10 processes; 33 % network 10.0.0.7:443"
    (back,), _ = decoded(key, row)
    assert back.processes[0].waits_for == tuple(replace(end, pct=float(round(end.pct))) for end in ends)
    assert back.processes[1].waits_for is None
    cells[names.index("waits_for")][0][0] = "a way of tomorrow"
    (back,), _ = decoded(key, row)
    assert back.processes[0].waits_for is not None and back.processes[0].waits_for[0].via == "unknown"
    assert back.processes[0].waits_for[0].pids == ends[0].pids


def test_a_kind_of_lack_that_only_newer_versions_know_is_none() -> None:
    key, row = looked()
    row["gpus"][0][key["gpu_cols"].index("sm_lack")][2] = "a kind of tomorrow"
    (back,), _ = decoded(key, row)
    assert back.gpus[0].sm_lack == replace(LACK, kind=None) and back.gpus[1].sm_lack == LACK


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("main_looks", [1]), ("main_looks", "queue 2"), ("main_looks", {"queue": -1}), ("main_looks", {"queue": "2"}),
        ("main_looks", {str(number): 1 for number in range(99)}), ("outsiders", {"eve": 3}), ("outsiders", 5),
        ("outsiders", [["eve", "x"]]), ("outsiders", [["eve", 7, 8]]), ("outsiders", [["eve", "x", 1e30]]),
        ("outsiders", [["eve", "x", 1]] * 99), ("sm_lack", "no GPM"), ("sm_lack", [["no GPM"], ""]),
        ("sm_lack", [[3], "", None]), ("sm_lack", [["x"] * 99, "", None]), ("sm_lack", [["x"], 3, None]),
    ],
    ids=str,
)  # fmt: skip
def test_a_frame_with_a_value_whose_parts_are_wrong_is_dropped(column: str, value: object) -> None:
    key, row = looked()
    rows = {"outsiders": ("host_cols", row["host"]), "sm_lack": ("gpu_cols", row["gpus"][0])}
    names, cells = rows.get(column, ("proc_cols", row["procs"][0]))
    cells[key[names].index(column)] = value
    found, decoder = decoded(key, row)
    assert found == [] and decoder.damaged == 1


def test_a_newer_version_is_refused_with_what_to_do() -> None:
    key, _ = lines_of(frame(0))
    with pytest.raises(RecordingError, match=r"format 2.*update gputop"):
        decoded({**key, "v": 2})


@pytest.mark.parametrize(
    ("column", "value"),
    [("util_pct", "97"), ("util_pct", []), ("pstate", 1.5), ("lost_reason", 3), ("remap_failed", "no")],
)
def test_a_frame_with_a_cell_of_a_wrong_kind_is_dropped(column: str, value: object) -> None:
    key, row = lines_of(frame(0))
    row["gpus"][0][key["gpu_cols"].index(column)] = value
    found, decoder = decoded(key, row)
    assert found == []
    assert decoder.damaged == 1


@pytest.mark.parametrize("text", [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"1e30"])
def test_a_number_that_is_not_finite_is_read_as_not_measured(text: bytes) -> None:
    key, row = lines_of(frame(0))
    row["gpus"][0][key["gpu_cols"].index("util_pct")] = "HERE"
    (back,), _ = decoded(key, json.dumps(row).encode().replace(b'"HERE"', text))
    assert back.gpus[0].util_pct is None
    assert back.gpus[1].util_pct is not None


@pytest.mark.parametrize(
    "change",
    [
        {"t": None}, {"t": -1}, {"t": "now"}, {"t": 1e300}, {"gpus": 7}, {"gpus": [[1]]}, {"gpus": [{}]},
        {"procs": "x"}, {"procs": [7]}, {"host": {}}, {"host": [[]]}, {"na": []}, {"na": {"0": {"a": 1}}},
        {"na_procs": [[{}, [99]]]}, {"stale": [1]}, {"stale": {"nvml": "late"}}, {"notices": [1]}, {"notices": 5},
    ],
    ids=str,
)  # fmt: skip
def test_a_frame_of_wrong_types_is_dropped_and_the_next_one_read(change: dict[str, Any]) -> None:
    key, row = lines_of(frame(0))
    found, decoder = decoded(key, {**row, **change}, row)
    assert len(found) == 1
    assert decoder.damaged == 1
    assert found[0].events[0].kind == "gap"


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 100_000,
        b'{"k":"frame"',
        b"\xff\xfe",
        b"[]",
        b"null",
        b"1" * 5000,
        b'{"k":"key","v":true}',
        b'{"k":"key"}',
    ],
)
def test_a_line_that_is_not_of_the_format_is_counted_and_passed_over(line: bytes) -> None:
    key, row = lines_of(frame(0))
    found, decoder = decoded(key, line, row)
    assert len(found) == 1
    assert decoder.damaged == 1


def test_escape_and_direction_characters_never_come_out_of_a_recording() -> None:
    evil = "a\x1b[2Jb\x07\u202ec\x9b\ud800\nd"
    static = replace(frame(0).gpus[0].static, name=evil)
    process = replace(frame(0).processes[0], static=ProcessStatic(evil, evil, evil), waiting_on=evil)
    gpu = replace(frame(0).gpus[0], static=static, sm_lack=SmLack((evil,), evil), unavailable={evil: evil})
    given = replace(
        frame(0), gpus=(gpu,), processes=(process,), notices=(evil,), machine=Machine(evil, evil, evil),
        events=(Event(T0, "mark", evil),), stale={evil: 1.0},
    )  # fmt: skip
    (back,) = read_back([given])
    # The repr escapes exactly what a terminal would obey.
    assert repr(asdict(back)).count("a?[2Jb??c?? d") == 15
    assert "\\" not in repr(asdict(back))
    assert clean_text("träin 訓練 🚀 ↳") == "träin 訓練 🚀 ↳" and clean_text("x" * 10_000) == "x" * 4096


def test_facts_of_many_processes_fit_into_lines_that_a_reader_takes() -> None:
    rows = tuple(
        replace(frame(0).processes[0], pid=pid, static=ProcessStatic("ml", "é" * 4096, "python")) for pid in range(100)
    )
    given = replace(frame(0), processes=rows)
    assert max(map(len, Encoder().key_lines(given))) < 2 << 20
    (back,) = read_back([given])
    assert all(process.static.command == "é" * 4096 for process in back.processes)


def test_gaps_restarts_and_a_clock_set_back_are_events_of_the_frame_after() -> None:
    rebooted = Machine("node-17", "boot-2", "580.65")
    given = [frame(0), frame(3), frame(9), replace(frame(5)), replace(frame(6), machine=rebooted)]
    texts = [[event.text for event in snapshot.events if event.kind == "gap"] for snapshot in read_back(given)]
    assert texts == [[], [], ["no data for 6 s"], ["the clock was set back by 4 s"], ["the machine was restarted"]]


def test_derived_events_are_kept_for_jumping_and_never_fed_to_a_monitor() -> None:
    encoder, decoder = Encoder(), Decoder()
    lines = [*encoder.key_lines(frame(0)), *encoder.frame_lines(frame(0), [Event(T0, "throttle", "thermal", 1)])]
    for line in lines[:-1]:
        decoder.feed(line)
    assert decoder.derived == [Event(T0, "throttle", "thermal", 1)]
    back = decoder.feed(lines[-1])
    assert back is not None and back.events == ()


@pytest.mark.parametrize(
    ("event", "old"),
    [
        (Event(T0, "xid", "Xid 94: contained error", 0, xid=94), "Xid 94: contained error"),
        (Event(T0, "verdict", "dataloader_cpu", 1, verdict="dataloader_cpu"), "dataloader_cpu"),
        (Event(T0, "verdict", "launch_bound A", 1, verdict="launch_bound", flag="A"), "launch_bound A"),
        (Event(T0, "mark", "Xid 5 is healthy"), "Xid 5 is healthy"),
    ],
    ids=str,
)
def test_what_an_event_says_to_code_stands_beside_its_text(event: Event, old: str) -> None:
    encoder, decoder = Encoder(), Decoder()
    line = json.loads(encoder.frame_lines(frame(0), [event])[-2])
    assert line["text"] == old
    # A text that says nothing, as that of a user called like a verdict after redaction, changes nothing.
    others = {"xid", "verdict", "flag"}.intersection(line)
    wordless = {**line, "text": "user1"} if others else line
    before = {key: value for key, value in line.items() if key not in others}
    for each in (line, wordless, before):
        decoder.feed(json.dumps(each).encode())
    found = decoder.trailing + decoder.derived
    assert [(e.xid, e.verdict, e.flag) for e in found] == [(event.xid, event.verdict, event.flag)] * 3


def test_the_same_gpus_stay_the_same_objects_over_key_lines() -> None:
    encoder, decoder = Encoder(), Decoder()
    lines = []
    for snapshot in frames(3):
        lines += encoder.key_lines(snapshot) + encoder.frame_lines(snapshot)
    back = [s for line in lines if (s := decoder.feed(line)) is not None]
    assert back[0].gpus[0].static is back[2].gpus[0].static


# What ran, as the last line.


def test_a_run_is_read_back_and_its_secrets_are_masked_again() -> None:
    encoder, decoder = Encoder(), Decoder()
    for line in [*encoder.key_lines(frame(0)), *encoder.frame_lines(frame(0))]:
        decoder.feed(line)
    facts = RunFacts("python train.py --lr 0.1", 812.4, 137, "ab12")
    assert decoder.run is None and decoder.feed(run_line(facts)) is None and decoder.run == facts
    decoder.feed(run_line(RunFacts("python t.py --api-key Zq7xW9vK2mPl\x1b[31m", 1.0)))
    assert decoder.run is not None and decoder.run.exit_code is None
    assert "Zq7x" not in decoder.run.command and "\x1b" not in decoder.run.command


@pytest.mark.parametrize(
    "wrong",
    [
        {"command": 3},
        {"seconds": -1},
        {"seconds": "x"},
        {"exit_code": 999},
        {"exit_code": [1]},
        {"run": 5},
        {"run": "x"},
    ],
)
def test_a_run_that_cannot_be_is_damage(wrong: dict[str, object]) -> None:
    decoder = Decoder()
    decoder.feed(json.dumps({"k": "run", "command": "x", "seconds": 1.0} | wrong).encode())
    assert decoder.run is None and decoder.damaged == 1
