"""`gputop trace` as people type it: what it prints, its options, its exit status, and what it never lets through."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from gputop.cli import main
from gputop.features.traces.host_causes import CAUSES as IDLE_CAUSES
from tests.support.command import trace_said
from tests.support.spoiled import checked_page
from tests.support.synthetic_trace import TraceMaker, planted, written

NASTY = 'x\x1b[31m<script>alert(1)</script>"\u202e&'


@pytest.fixture
def trace(tmp_path: Path) -> str:
    return str(written(tmp_path / "t.pt.trace.json.gz", planted("single_process")))


def test_json_has_every_key_of_the_schema_and_its_shares_sum_to_100(
    trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, text = trace_said(capsys, trace, "--json")
    data = json.loads(text)
    assert (data["schema"], data["kind"], data["truncated"], data["dropped_events"]) == (
        1,
        "trace",
        False,
        0,
    )
    assert data["straggler"] is None
    (gpu,) = data["ranks"][0]["gpus"]
    keys = (
        "index name sm_count window_ms steps step_ms share_pct comm_pct overlap_pct idle_cause_pct under util_pct "
        "sm_active_pct sm_high_pct sm_source queue_empty_pct launch_delay_us verdict level "
        "busy_not_working confidence evidence remedy notes best_case_step_ms steps_table kernels syncs"
    )
    assert set(keys.split()) <= set(gpu)
    assert sum(gpu["share_pct"].values()) == pytest.approx(100.0, abs=0.01)
    assert set(gpu["idle_cause_pct"]) == set(IDLE_CAUSES)
    assert gpu["best_case_step_ms"] == pytest.approx(12.0, abs=0.1)


def test_the_page_is_one_file_without_scripts_that_says_what_the_text_says(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "page.html"
    status, text = trace_said(capsys, trace, "-o", str(target))
    assert (status, text) == (1, f"gputop: wrote {target}\n")
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    page = target.read_text(encoding="utf-8")
    said = checked_page(page)
    for words in (
        "MAIN PROCESS",
        "DataLoader(num_workers=4–8)",
        "data loading 40.0 %",
        "aten::stack",
        "add_kernel",
    ):
        assert words in said
    assert (
        "http:" not in page
        and "default-src 'none'" in page
        and "prefers-color-scheme" in page
        and "@media print" in page
    )
    assert trace_said(capsys, trace, "--html")[1] == page


def test_what_a_trace_says_reaches_neither_terminal_nor_page_unescaped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    maker = TraceMaker()
    for _ in maker.steps(3):
        maker.span(NASTY, maker.t, maker.t + 900)
        maker.t += 1000
        maker.launch(NASTY, 300)
        maker.wait(None)
    document = maker.document()
    document["deviceProperties"][0]["name"] = NASTY
    path = str(written(tmp_path / "t<b>.json", document))
    _, text = trace_said(capsys, path)
    assert "\x1b" not in text and "\u202e" not in text
    _, page = trace_said(capsys, path, "--html")
    assert (
        "<script" not in page
        and "<b>" not in page.replace("<b>3", "").partition("<body>")[0]
        and "\x1b" not in page
    )
    checked_page(page)


@pytest.mark.parametrize(
    ("level", "cause", "status"),
    [("yellow", "single_process", 1), ("red", "single_process", 0), ("none", "low_sm", 0), ("red", "low_sm", 1),
     ("yellow", "busy", 0)],
)  # fmt: skip
def test_the_exit_status_is_what_a_pipeline_asked_for(
    level: str, cause: str, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "t.json", planted(cause))
    assert trace_said(capsys, str(path), "--fail-on", level)[0] == status


def test_a_part_of_the_steps_and_fewer_kernels(
    trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, text = trace_said(capsys, trace, "--steps", "2-3", "--top", "0")
    assert "#2" in text and "#3" in text and "#4" not in text and "add_kernel" not in text
    assert "only 2 steps" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--steps", "5-2"], "--steps must be"), (["--steps", "x"], "--steps must be"),
        (["--steps", "90"], "no step 90"), (["--step", "trian"], "no range called 'trian'"), (["--top", "-1"], "--top"),
        (["--top", "x"], "--top"), (["--ranks", "x"], "--ranks must be"), (["--ranks", "7"], "no rank 7"),
        (["--compare"], "--compare takes two traces"), (["--json", "--html"], "not allowed with argument"),
        (["-o", "/nowhere/x.html"], "/nowhere/x.html"), (["--fail-on", "blue"], "--fail-on"),
        (["--fail-on", "slower:5"], "belongs to --compare"),
    ],
)  # fmt: skip
def test_wrong_use_is_one_line_and_status_2(
    words: list[str], said: str, trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = main(["trace", trace, *words])
    except SystemExit as end:
        status = int(end.code or 0)
    error = capsys.readouterr().err
    assert status == 2 and said in error and error.count("\n") == 1


@pytest.mark.parametrize("name", ["nothing.json", "folder", "x.nsys-rep", "empty.json"])
def test_what_cannot_be_read_is_one_line_and_status_2(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "x.nsys-rep").write_bytes(b"NSYS")
    (tmp_path / "empty.json").write_bytes(b"")
    status, text = trace_said(capsys, str(tmp_path / name))
    assert status == 2 and text.count("\n") == 1 and name in text


def test_before_and_after(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = str(written(tmp_path / "before.json", planted("single_process")))
    after = str(written(tmp_path / "after.json", planted("busy")))
    status, text = trace_said(capsys, "--compare", before, after)
    assert status == 0
    assert re.search(r"idle: data loading +40.0 +0.0 +−40.0 +%", text)
    assert text.startswith("about the same: 20.0 → 20.0 ms a step")
    assert trace_said(capsys, "--compare", before, after, "--ascii")[1].isascii()
    status, text = trace_said(capsys, "--compare", after, before, "--json", "--fail-on", "yellow")
    data = json.loads(text)
    assert (status, data["kind"], data["after"]["verdict"]) == (
        1,
        "trace_comparison",
        "main_process",
    )
    assert (
        "before"
        in checked_page(trace_said(capsys, "--compare", before, after, "--html")[1]).lower()
    )


def steps_of(length_us: int, gpu: str = "NVIDIA A100-SXM4-80GB") -> dict[str, Any]:
    """Five steps of one kernel that takes so long."""
    maker = TraceMaker()
    for _ in maker.steps(5):
        maker.launch(length=length_us)
        maker.wait()
    document = maker.document()
    document["deviceProperties"][0]["name"] = gpu
    return document


@pytest.mark.parametrize(
    ("before", "after"), [((10_000, 4_000), (10_100, 6_000)), ((4_000, 9_000), (4_400, 9_100))]
)
def test_a_comparison_is_of_the_same_gpu_in_both_and_says_which(
    before: tuple[int, int],
    after: tuple[int, int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The GPU that is idle most is another one in each: it is not compared with the other."""
    paths = []
    for name, lengths in (("before", before), ("after", after)):
        document: dict[str, Any] = {"traceEvents": []}
        for device, length in enumerate(lengths):
            maker = TraceMaker(device=device)
            for _ in maker.steps(4):
                maker.launch(length=length)
                maker.t = maker.free + 100
            document = maker.document(traceEvents=[]) | {
                "traceEvents": [*document["traceEvents"], *maker.events]
            }
        paths.append(str(written(tmp_path / f"{name}.json", document)))
    data = json.loads(trace_said(capsys, "--compare", *paths, "--json")[1])
    index = data["before"]["index"]
    assert data["after"]["index"] == index and data["gpu"] == f"rank 0, GPU {index}"
    assert (
        f"compared: rank 0, GPU {index}, which changed most of 2"
        in trace_said(capsys, "--compare", *paths)[1]
    )


def test_a_comparison_says_how_much_slower_and_fails_from_the_users_limit_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fast = str(written(tmp_path / "fast.json", steps_of(10_000)))
    slow = str(written(tmp_path / "slow.json", steps_of(11_000, "Tesla V100-SXM2-16GB")))
    status, text = trace_said(capsys, "--compare", fast, slow)
    first, second, third = text.splitlines()[:3]
    assert (status, first, second) == (
        1,
        "slower: 10.0 → 11.0 ms a step (+10 %)",
        "compared: rank 0, GPU 0",
    )
    assert third == "different GPUs: NVIDIA A100-SXM4-80GB → Tesla V100-SXM2-16GB"
    assert trace_said(capsys, "--compare", fast, slow, "--fail-on", "slower:12")[0] == 0
    assert trace_said(capsys, "--compare", fast, slow, "--fail-on", "slower:9")[0] == 1
    status, text = trace_said(capsys, "--compare", slow, fast, "--json")
    data = json.loads(text)
    assert (
        status == 0
        and data["different_gpus"]
        and data["change_pct"] == pytest.approx(-9.1, abs=0.1)
    )
    assert "faster" in data["headline"]
    bare = str(written(tmp_path / "bare.json", long_trace()))
    status, text = trace_said(capsys, "--compare", fast, bare)
    assert status == 0 and text.startswith("cannot be judged: only steps can be compared")
    status, text = trace_said(capsys, "--compare", fast, bare, "--fail-on", "slower:5")
    assert status == 2 and text.count("\n") == 1 and "only steps can be compared" in text


def long_trace() -> dict[str, Any]:
    maker = TraceMaker()
    for _ in range(5):
        maker.launch(length=900_000)
        maker.t = maker.free
    return maker.document()


def test_redaction_leaves_no_path_and_changes_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], trace: str
) -> None:
    document = planted("launch_bound")
    span = {
        "ph": "X", "cat": "python_function", "name": "/home/alice/secret/train.py(7): step", "pid": 4000, "tid": 4000,
    }  # fmt: skip
    document["traceEvents"].append({**span, "ts": 1000, "dur": 20_000})
    path = str(written(tmp_path / "alice.json", document))
    plain = trace_said(capsys, path)[1]
    assert "train.py" in plain
    for form in ([], ["--html"], ["--json"]):
        said = trace_said(capsys, path, "--redact", *form)[1]
        assert "alice" not in said and "secret" not in said and str(tmp_path) not in said
        assert "main_process" in said
    data, redacted = (
        json.loads(trace_said(capsys, trace, "--json", *more)[1]) for more in ([], ["--redact"])
    )
    for both in (data, redacted):
        both.pop("files")
        both["ranks"][0].pop("file")
    assert redacted == data


def two_gpus(outside_us: int = 5000) -> dict[str, Any]:
    """A trace in which GPU 0 works in steps, and GPU 1 only before them."""
    loop, before = TraceMaker(), TraceMaker(device=1)
    before.t = 100
    for _ in range(3):
        before.launch(length=outside_us)
    for _ in loop.steps(6):
        for _ in range(10):
            loop.launch(length=100)
        loop.wait()
    document = loop.document()
    document["traceEvents"] += before.events
    return document


def test_steps_are_chosen_on_the_gpus_that_have_them_and_the_others_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(written(tmp_path / "t.json", two_gpus()))
    status, text = trace_said(capsys, path, "--steps", "2-3", "--json")
    (rank,) = json.loads(text)["ranks"]
    assert status == 0 and [gpu["index"] for gpu in rank["gpus"]] == [0]
    assert rank["notes"] == ["GPU 1 is left out: no work in any step"]
    status, text = trace_said(capsys, path, "--steps", "12-13")
    assert status == 2 and "no step 12–13: it has 0–5" in text


@pytest.mark.parametrize(
    ("kernels", "length_us", "pause_us", "words"),
    [
        (1, 0.02, 0, "1 kernel, 0.02 µs of work in 0.02 µs"),
        (3, 4, 13, "3 kernels, 12 µs of work in 38 µs"),
        (3, 100, 5000, "3 kernels, 300 µs of work in 10.3 ms"),
        (1000, 1, 0, "1000 kernels, 1 ms of work in 1 ms"),
        (40, 2, 2000, "40 kernels, 80 µs of work in 78.1 ms"),
        (3, 5000, 20, None),
        (25, 100, 0, None),
    ],
)
def test_too_little_work_of_a_gpu_is_not_judged(
    kernels: int,
    length_us: float,
    pause_us: int,
    words: str | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    maker = TraceMaker()
    begin = 1000.0
    for number in range(kernels):
        maker.work("gemm_kernel", begin, length_us, number + 1)  # type: ignore[arg-type]
        begin += length_us + pause_us
    status, text = trace_said(capsys, str(written(tmp_path / "t.json", maker.document())))
    if words is None:
        assert status != 2
    else:
        assert status == 2 and f"too little GPU work to judge: {words}" in text


def test_a_gpu_that_did_too_little_is_left_out_and_the_others_are_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = two_gpus(outside_us=100)
    path = str(written(tmp_path / "t.json", document))
    _, text = trace_said(capsys, path)
    words = "GPU 1 is left out: too little GPU work to judge: 3 kernels, 300 µs of work in 300 µs"
    assert f"note: {words}" in " ".join(text.split())
