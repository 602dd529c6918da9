"""Reading traces: old and new layouts, and what a file can be instead: one line, or a salvage that counts."""

from __future__ import annotations

import gzip
import json
import random
import re
import zlib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from gputop.cli import main
from gputop.features.traces import chunks, trace_text
from gputop.features.traces.columns import Trace, TraceError
from gputop.features.traces.trace_analysis import analyse
from gputop.features.traces.trace_ranks import read_trace
from tests.support.command import trace_said
from tests.support.spoiled import spoil
from tests.support.synthetic_trace import planted, written


def text_of(document: Any) -> bytes:
    """As Kineto lays a file out: an event a line."""
    events = ",\n".join(json.dumps(event) for event in document.pop("traceEvents"))
    return (
        b'{"schemaVersion":1,\n'
        + json.dumps(document)[1:-1].encode()
        + b',"traceEvents":[\n'
        + events.encode()
        + b"\n]}"
    )


def read(path: Path, content: bytes) -> Trace:
    path.write_bytes(content)
    return read_trace(str(path))


CLEAN = text_of(planted("single_process", distributedInfo={"rank": 3, "world_size": 8}))
WHOLE = CLEAN.count(b'"kernel"')


def test_a_file_gives_its_events_its_gpu_its_rank_and_its_time(tmp_path: Path) -> None:
    trace = read(tmp_path / "t.json", CLEAN)
    assert len(trace.gpu) == WHOLE and trace.dropped_events == 0 and not trace.truncated
    assert (trace.rank, trace.world_size, trace.devices[0].sm_count) == (3, 8, 132)
    assert (
        trace.begin_unix_s is not None and 1_780_000_000.0 <= trace.begin_unix_s < 1_780_000_001.0
    )


def test_pieces_of_any_length_give_the_same_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = read(tmp_path / "t.json", CLEAN)
    for length in (3_000, 20_011):
        monkeypatch.setattr(trace_text, "PIECE_BYTES", length)
        monkeypatch.setattr(trace_text, "PIECE_BYTES", length)
        trace = read(tmp_path / "t.json", CLEAN)
        assert [len(table) for table in (trace.gpu, trace.calls, trace.spans)] == [
            len(table) for table in (whole.gpu, whole.calls, whole.spans)
        ]
        assert analyse(trace) == analyse(whole)
        assert trace.dropped_events == 0 and not trace.truncated and trace.rank == 3


def test_a_trace_of_rocm_is_named_and_not_read(tmp_path: Path) -> None:
    content = (
        text_of(planted("sync_points"))
        .replace(b'"cuda', b'"hip')
        .replace(b'"hip_runtime', b'"cuda_runtime')
    )
    with pytest.raises(TraceError, match="a trace of ROCm"):
        analyse(read(tmp_path / "t.json", content))


def gzipped(content: bytes) -> bytes:
    return gzip.compress(content, 1, mtime=0)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(
            lambda text: text[text.index(b"[\n{") : text.rindex(b"]") + 1], id="a bare list"
        ),
        pytest.param(lambda text: text.replace(b"\n", b""), id="one line"),
        pytest.param(gzipped, id="gzip"),
        pytest.param(
            lambda text: gzipped(text[:20_000]) + gzipped(text[20_000:]), id="several gzip members"
        ),
        pytest.param(lambda text: b"\xef\xbb\xbf" + text, id="a byte order mark"),
        pytest.param(
            lambda text: text.replace(b'"pid": 4000', b'"pid": "Spans"'), id="pid as text"
        ),
        pytest.param(
            lambda text: re.sub(rb'"ts": (\d+)', rb'"ts": "\1"', text), id="times as text"
        ),
        pytest.param(
            lambda text: text.replace(b'"correlation": 101', b'"correlation": 9223372036854775808'),
            id="2^63",
        ),
        pytest.param(
            lambda text: text.replace(b"aten::add", rb"a},{\"ph\":\"X\""), id="an event in a name"
        ),
    ],
)
def test_what_is_unusual_is_read_whole(change: Callable[[bytes], bytes], tmp_path: Path) -> None:
    trace = read(tmp_path / "t.json", change(CLEAN))
    assert (len(trace.gpu), trace.dropped_events, trace.truncated) == (WHOLE, 0, False)
    analyse(trace)


def first_kernel(text: bytes, old: bytes, new: bytes) -> bytes:
    at = text.index(old, text.index(b'"kernel"'))
    return text[:at] + new + text[at + len(old) :]


@pytest.mark.parametrize(
    ("change", "dropped", "kernels"),
    [
        pytest.param(lambda t: first_kernel(t, b"add_kernel", b'add"kernel'), 1, WHOLE - 1, id="a quote in a name"),
        pytest.param(lambda t: first_kernel(t, b'"blocks per SM": 2.0', b'"blocks per SM": nan'), 0, WHOLE, id="nan"),
        pytest.param(lambda t: first_kernel(t, b'"blocks per SM": 2.0', b'"blocks per SM": -inf'), 0, WHOLE, id="inf"),
        pytest.param(lambda t: first_kernel(t, b"add_kernel", b"add\xff\xfe"), 0, WHOLE, id="bad UTF-8"),
        pytest.param(lambda t: first_kernel(t, b'"dur": 500', b'"dur": -5'), 1, WHOLE - 1, id="a negative duration"),
        pytest.param(lambda t: first_kernel(t, b'"dur": 500, ', b""), 1, WHOLE - 1, id="no duration"),
        pytest.param(lambda t: first_kernel(t, b'"dur": 500', b'"dur": Infinity'), 1, WHOLE - 1, id="infinite"),
        pytest.param(lambda t: first_kernel(t, b'"dur": 500', b'"dur": "long"'), 1, WHOLE - 1, id="words"),
        pytest.param(lambda t: first_kernel(t, b'"dur": 500', b'"dur": 1e300'), 1, WHOLE - 1, id="endless"),
        pytest.param(lambda t: first_kernel(t, b'"device": 0', b'"device": [[0]]'), 1, WHOLE - 1, id="a list"),
        pytest.param(lambda t: first_kernel(t, b'{"device"', b'{"x": ' + b"[" * 200_000 + b', "device"'), 1, WHOLE - 1,
                     id="200,000 brackets"),
    ],
)  # fmt: skip
def test_damage_costs_the_event_that_it_is_in(
    change: Callable[[bytes], bytes], dropped: int, kernels: int, tmp_path: Path
) -> None:
    trace = read(tmp_path / "t.json", change(CLEAN))
    assert (trace.dropped_events, len(trace.gpu), trace.truncated, trace.rank) == (
        dropped,
        kernels,
        False,
        3,
    )
    analyse(trace)


@pytest.mark.parametrize("packed", [False, True])
def test_a_torn_file_gives_what_is_there_and_says_so(packed: bool, tmp_path: Path) -> None:
    content = gzipped(CLEAN) if packed else CLEAN
    trace = read(tmp_path / "t.json.tmp", content[: len(content) * 6 // 10])
    assert trace.truncated and trace.dropped_events == 0
    assert WHOLE // 3 < len(trace.gpu) < WHOLE
    (gpu,) = analyse(trace)
    assert gpu.verdict.confidence == "low" and any(
        "end of the file is missing" in note for note in gpu.verdict.notes
    )


def only(category: str, **more: Any) -> bytes:
    document = planted("busy")
    document["traceEvents"] = [
        {**e, **more} for e in document["traceEvents"] if e["cat"] == category
    ]
    return text_of(document)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"), (b"  \n ", "is empty"), (b"hello", "is not JSON"),
        (b"\x80\x04\x95memory snapshot", "is a pickle"), (b"PK\x03\x04zip", "is not JSON"),
        (b"SQLite format 3\x00" + b"\x00" * 200, "cannot be"), (b'{"a": 1}', "holds no traceEvents"),
        (b'{"traceEvents": []}', "no events that a GPU profiler writes"),
        (b"[[1, 2], [3, 4]]", "no events that a GPU profiler writes"),
        (gzipped(b"[[[1, 2], [3, 4]], []]"), "no events that a GPU profiler writes"), (only("cpu_op"), "no GPU work"),
        (only("cuda_runtime"), "CUDA calls but no kernels"), (only("kernel", dur=-1), "240 events have no times"),
    ],
)  # fmt: skip
def test_what_is_no_trace_is_said_in_one_line(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=said) as caught:
        analyse(read_trace(str(path)))
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_that_unfolds_without_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_text, "MOST_BYTES", 1 << 22)
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = packer.compress(b'{"traceEvents":[' + b" " * (16 << 20)) + packer.flush()
    with pytest.raises(TraceError, match="gzip bomb"):
        read(tmp_path / "t.json.gz", bomb)


def test_an_event_beyond_every_bound_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_text, "PIECE_BYTES", 10_000)
    monkeypatch.setattr(chunks, "LARGEST_EVENT", 30_000)
    with pytest.raises(TraceError, match="holds an event that is larger than any"):
        read(tmp_path / "t.json", first_kernel(CLEAN, b"add_kernel", b"a" * 80_000))


def test_events_that_are_all_damaged_are_no_event_that_is_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_text, "PIECE_BYTES", 10_000)
    monkeypatch.setattr(chunks, "LARGEST_EVENT", 30_000)
    monkeypatch.setattr(chunks, "PIECE_BYTES", 10_000)
    monkeypatch.setattr(chunks, "MOST_NESTED", 20)
    event = b'{"ph":"X","cat":"kernel","name":"a","pid":0,"tid":7,"ts":1,"dur":8x,"args":{}}'
    trace = read(tmp_path / "t.json", b'{"traceEvents":[' + b",\n".join([event] * 1000) + b"]}")
    assert trace.dropped_events == 1000


WRONG = (
    None,
    -1,
    1 << 70,
    1e300,
    "x" * 3000,
    [],
    {},
    [1],
    {"a": 1},
    True,
    "\x1b[31m",
    "kernel",
    "cuda_runtime",
)


def test_values_of_every_wrong_kind_end_in_a_report_or_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draw = random.Random(3)
    bases = [
        json.dumps(planted(cause, steps=2)) for cause in ("communication", "copies", "launch_bound")
    ]
    for _ in range(12):
        document = json.loads(draw.choice(bases))
        for _ in range(draw.randrange(1, 30)):
            spoil(document["traceEvents"], draw, WRONG)
        (tmp_path / "t.json").write_text(json.dumps(document))
        status, text = trace_said(capsys, str(tmp_path / "t.json"))
        assert status in (0, 1) or (status == 2 and text.count("\n") == 1), text
        assert "internal error" not in text and "\x1b" not in text


def test_a_trace_of_jax_is_named_as_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0"}},
        {
            "ph": "M",
            "pid": 1,
            "tid": 2,
            "name": "thread_name",
            "args": {"name": "Stream #118(Compute)"},
        },
        {"ph": "M", "pid": 9, "name": "process_name", "args": {"name": "/host:CPU"}},
        *(
            {"ph": "X", "pid": 1, "tid": 2, "ts": n, "dur": 0.5, "name": "loop_add_fusion"}
            for n in range(20)
        ),
    ]
    status, text = trace_said(capsys, str(written(tmp_path / "t.json", {"traceEvents": events})))
    assert status == 2 and text.count("\n") == 1
    assert "a trace of JAX, TensorFlow or XProf (its processes: /device:GPU:0, /host:CPU)" in text


def profiled(path: Path) -> Path:
    import torch
    from torch.profiler import profile, schedule
    from torch.utils.data import DataLoader

    loader = DataLoader(list(range(64)), batch_size=8)
    layer = torch.nn.Linear(8, 8)
    with profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=1, active=3, repeat=1),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(path)),
    ) as profiler:
        for batch in loader:
            layer(batch.float()).sum().item()
            profiler.step()
    return path


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch: pip install torch==2.13.0")
def test_a_real_trace_of_the_cpu_is_read_and_said_to_hold_no_gpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = profiled(tmp_path / "t.pt.trace.json.gz")
    trace = read_trace(str(path))
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    operators = [event for event in events if event.get("cat") == "cpu_op"]
    assert len(operators) > 10 and (trace.dropped_events, trace.truncated) == (0, False)
    assert len(trace.spans) >= len(operators)
    assert any(name.startswith("ProfilerStep#") for name in trace.names.texts)
    assert any("_SingleProcessDataLoaderIter.__next__" in name for name in trace.names.texts)
    assert main(["trace", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "no GPU work: profile with ProfilerActivity.CUDA" in error
