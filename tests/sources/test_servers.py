"""Inference servers beside the GPUs: their own pages read, shown beside the verdict, recorded, replayed, reported."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from msgspec.structs import replace

from gputop.diagnosis.window.host_activity import serving_on
from gputop.model.redaction import Redactor
from gputop.model.server_words import bounds, server_lines
from gputop.model.serving import ServerRow, checked_server
from gputop.model.snapshot import (
    GpuSample,
    GpuStatic,
    Machine,
    ProcessSample,
    ProcessStatic,
    Snapshot,
)
from gputop.model.source import UsageError
from gputop.monitor import Monitor
from gputop.output.report_text import report_data, report_text
from gputop.paint.main_screen import main_screen
from gputop.paint.step_words import step_words
from gputop.paint.view import View
from gputop.report.job_report import report_snapshots
from gputop.sources.serving_page import Histogram, PageError, read_page
from gputop.sources.serving_reader import ServerWatch, addresses, with_rows
from gputop.sources.serving_window import ServerWindow, quantile
from tests.support.answering import Answer, answering
from tests.support.command import gputop, is_one_line
from tests.support.recording_frames import lines_of, read_back, read_lines

NOW = 1_780_000_000.0
VLLM_FIRST, VLLM_BETWEEN = (0.1, 0.25, 0.5, 1.0, 2.5, 640.0), (0.01, 0.025, 0.05, 0.075, 0.4)
SGLANG_FIRST, SGLANG_BETWEEN = (0.1, 0.2, 0.4, 400.0), (0.006, 0.008, 0.01, 8.0)


def buckets(name: str, edges: tuple[float, ...], times: dict[float, int], labels: str) -> str:
    """A histogram of so many observations of each length."""
    lines = [f"# TYPE {name} histogram"]
    for edge in (*edges, float("inf")):
        le = "+Inf" if edge == float("inf") else f"{float(edge)}"
        count = sum(number for length, number in times.items() if length <= edge)
        lines.append(f'{name}_bucket{{le="{le}",{labels}}} {float(count)}')
    return "\n".join([*lines, f"{name}_count{{{labels}}} {float(sum(times.values()))}"]) + "\n"


def vllm(
    requests: int, tokens: int, first: dict[float, int], between: dict[float, int], waiting: int = 3
) -> str:
    labels = 'engine="0",model_name="meta-llama/Llama-3.1-8B-Instruct"'
    rows = {
        "num_requests_running": 8.0, "num_requests_waiting": waiting, "kv_cache_usage_perc": 0.41,
        "prompt_tokens_total": 10 * tokens, "prompt_tokens_created": 1.78e9, "generation_tokens_total": tokens,
    }  # fmt: skip
    return (
        '# HELP python_info Python platform information\npython_info{implementation="CPython"} 1.0\n'
        + "".join(f"vllm:{name}{{{labels}}} {float(value)}\n" for name, value in rows.items())
        + f'vllm:num_requests_waiting_by_reason{{{labels},reason="capacity"}} {float(waiting)}\n'
        + f'vllm:request_success_total{{{labels},finished_reason="stop"}} {float(requests)}\n'
        + f'vllm:request_success_total{{{labels},finished_reason="abort"}} 0.0\n'
        + buckets("vllm:time_to_first_token_seconds", VLLM_FIRST, first, labels)
        + buckets("vllm:inter_token_latency_seconds", VLLM_BETWEEN, between, labels)
        + buckets("vllm:time_per_output_token_seconds", VLLM_BETWEEN, {9.0: 1}, labels)
    )


def sglang(requests: int, tokens: int, first: dict[float, int]) -> str:
    page, labels = "", 'model_name="meta-llama/Llama-3.1-8B-Instruct"'
    for rank in (0, 1):
        of_rank = f'engine_type="unified",{labels},pp_rank="0",tp_rank="{rank}"'
        page += f"sglang:num_running_reqs{{{of_rank}}} 4.0\n"
        for priority, waiting in (("", 5.0), ("1", 2.0)):
            page += f'sglang:num_queue_reqs{{{of_rank},priority="{priority}"}} {waiting}\n'
    return (
        page
        + f"sglang:prompt_tokens_total{{{labels}}} 8.128902e+06\nsglang:generation_tokens_total{{{labels}}} {tokens}\n"
        + f"sglang:num_requests_total{{{labels}}} {requests}\n"
        + buckets("sglang:time_to_first_token_seconds", SGLANG_FIRST, first, labels)
        + buckets("sglang:inter_token_latency_seconds", SGLANG_BETWEEN, {0.009: 5 * tokens}, labels)
    )


def triton(requests: int, first_ms: dict[float, int] | None = None) -> str:
    page = (
        "# HELP nv_inference_request_success Number of successful inference requests, all batch "
        "sizes\n"
    )
    for model in ("bert", "resnet"):
        page += f'nv_inference_request_success{{model="{model}",version="1"}} {requests}\n'
        page += f'nv_inference_pending_request_count{{model="{model}",version="1"}} 2\n'
        page += f'nv_inference_queue_duration_us{{model="{model}",version="1"}} 118\n'
    if first_ms is not None:
        edges = (100.0, 500.0, 2000.0, 5000.0)
        page += buckets(
            "nv_inference_first_response_histogram_ms", edges, first_ms, 'model="bert",version="1"'
        )
    return page


def tgi(requests: int, tokens: int) -> str:
    return (
        "# TYPE tgi_request_count counter\ntgi_request_count 900\n# TYPE tgi_request_success counter\n"
        f'tgi_request_success{{method="batch"}} 0\ntgi_request_success{{method="stream"}} {requests}\n'
        "# TYPE tgi_queue_size gauge\ntgi_queue_size 11\ntgi_batch_current_size 6\n"
        + buckets(
            "tgi_request_mean_time_per_token_duration", (0.01, 0.02), {0.015: requests}, 'kind="x"'
        )
        + f"tgi_request_generated_tokens_sum {tokens}\ntgi_request_generated_tokens_count {requests}\n"
        + f"tgi_request_input_length_sum {3 * tokens}\n"
    )


def row_of(*pages: str, apart_s: float = 10.0) -> ServerRow:
    window = ServerWindow("localhost:8000")
    return [window.add(apart_s * k, read_page(page)) for k, page in enumerate(pages)][-1]


def test_vllm_gives_rates_queue_and_quantiles_of_the_time_between_two_pages_alone() -> None:
    row = row_of(
        vllm(1000, 50_000, {30.0: 1000}, {3.0: 50_000}),
        vllm(1120, 64_300, {30.0: 1000, 0.3: 100, 1.7: 20}, {3.0: 50_000, 0.02: 14_200, 0.31: 100}),
    )
    assert (row.kind, row.window_s, row.error) == ("vllm", 10.0, None)
    assert (row.requests_per_s, row.tokens_per_s, row.prompt_tokens_per_s) == (
        12.0,
        1430.0,
        14_300.0,
    )
    assert (row.queue, row.running) == (3.0, 8.0)
    assert (row.first_token_p50_s, row.first_token_p99_s) == ((0.25, 0.5), (1.0, 2.5))
    assert (row.between_tokens_p50_s, row.between_tokens_p99_s) == ((0.01, 0.025), (0.01, 0.025))
    assert "first_token_p50_s" not in row.unavailable and row.first_response_p50_s is None


def test_memory_for_requests_is_read_by_the_names_of_each_server_and_of_its_fullest_engine() -> (
    None
):
    vllm_page = (
        'vllm:{fill}{{engine="0"}} 0.25\nvllm:{fill}{{engine="1"}} 0.985\nvllm:num_preemptions_total {preempted}\n'
        "vllm:prefix_cache_queries_total {asked}\nvllm:prefix_cache_hits_total {hit}\n"
    )
    for fill in ("kv_cache_usage_perc", "gpu_cache_usage_perc"):
        row = row_of(
            vllm_page.format(fill=fill, preempted=5, asked=1000, hit=900),
            vllm_page.format(fill=fill, preempted=25, asked=1400, hit=1000),
        )
        assert (row.kv_cache_pct, row.preemptions_per_s, row.prefix_hit_pct) == (98.5, 2.0, 25.0)
    sglang_page = (
        'sglang:token_usage{{tp_rank="0"}} 0.5\nsglang:token_usage{{tp_rank="1"}} 0.9\n'
        "sglang:prompt_tokens_total {0}\nsglang:cached_tokens_total {1}\nsglang:num_retracted_requests_total {2}\n"
    )
    row = row_of(sglang_page.format(1000, 0, 1), sglang_page.format(2000, 600, 11))
    assert (row.kv_cache_pct, row.preemptions_per_s, row.prefix_hit_pct) == (50.0, 1.0, 60.0)
    block = 'nv_trt_llm_kv_cache_block_metrics{{kv_cache_block_type="{}",model="tensorrt_llm",version="1"}} {}\n'
    request = (
        'nv_trt_llm_request_metrics{{model="tensorrt_llm",request_type="{}",version="1"}} {}\n'
    )
    row = row_of(triton(1) + block.format("used", 410) + block.format("fraction", 0.75)
                 + request.format("waiting", 9) + request.format("scheduled", 5))  # fmt: skip
    assert (row.kv_cache_pct, row.queue, row.running) == (75.0, 9.0, 5.0)
    row = row_of(tgi(1, 0), tgi(2, 0))
    assert (
        row.kv_cache_pct is None
        and row.unavailable["kv_cache_pct"] == "this TGI does not publish it"
    )
    assert (
        "preemptions, prefix hits, KV cache: this TGI does not publish it" in server_lines(row)[-1]
    )
    idle = row_of(vllm(1, 1, {}, {}) + vllm_page.format(fill="x", preempted=0, asked=5, hit=0))
    assert idle.prefix_hit_pct is None and "two readings" in idle.unavailable["prefix_hit_pct"]


def test_a_server_that_counts_when_requests_end_is_never_told_to_generate_nothing_while_they_run() -> (
    None
):
    page = (
        "sglang:num_running_reqs {0}\nsglang:gen_throughput {1}\nsglang:generation_tokens_total "
        "{2}\n"
    )
    window = ServerWindow("h:1")
    pages = [(4, 80.0, 0)] * 8 + [(4, 80.0, 2400), (0, 80.0, 2400), (0, 80.0, 2400)]
    rows = [window.add(float(t), read_page(page.format(*values))) for t, values in enumerate(pages)]
    assert [row.tokens_per_s for row in rows[:9]] == [None, *[80.0] * 8]
    assert rows[-1].tokens_per_s == pytest.approx(80.0 * 8 / 10), (
        "its rate stays where it was when nothing runs"
    )
    for kind in (tgi(5, 400), page.format(4, 0.0, 400)):
        row = row_of(kind, kind)
        assert row.tokens_per_s is None and row.unavailable["tokens_per_s"].endswith(
            "when their request ends"
        )
    idle = tgi(5, 400).replace("tgi_batch_current_size 6", "tgi_batch_current_size 0")
    assert row_of(idle, idle).tokens_per_s == 0.0


def test_sglang_is_read_once_for_ranks_that_share_a_request_and_the_queue_is_the_sum_over_priorities() -> (
    None
):
    row = row_of(sglang(100, 1000, {0.3: 100}), sglang(140, 3000, {0.3: 139, 900.0: 1}))
    assert (row.kind, row.requests_per_s, row.tokens_per_s) == ("sglang", 4.0, 200.0)
    assert (row.queue, row.running) == (5.0, 4.0)
    assert row.first_token_p50_s == (0.2, 0.4) and row.first_token_p99_s == (400.0, None)
    assert row.between_tokens_p99_s == (0.008, 0.010)


def test_triton_counts_over_its_models_and_its_first_response_is_not_called_a_first_token() -> None:
    row = row_of(triton(50, {80.0: 10}), triton(100, {80.0: 10, 700.0: 50}))
    assert (row.kind, row.requests_per_s, row.queue) == ("triton", 10.0, 4.0)
    assert row.first_token_p99_s is None and row.first_response_p99_s == (0.5, 2.0)
    assert "first response" in row.unavailable["first_token_p99_s"]
    assert (
        row.tokens_per_s is None and row.unavailable["tokens_per_s"] == "Triton does not count them"
    )
    plain = row_of(triton(50), triton(100))
    assert plain.first_response_p50_s is None
    assert "histogram_latencies=true" in plain.unavailable["first_response_p50_s"]


def test_tgi_gives_tokens_and_queue_and_says_that_it_does_not_time_the_first_token() -> None:
    row = row_of(tgi(100, 4000), tgi(150, 9000))
    assert (row.kind, row.requests_per_s, row.tokens_per_s, row.prompt_tokens_per_s) == (
        "tgi",
        5.0,
        500.0,
        1500.0,
    )
    assert (row.queue, row.running) == (11.0, 6.0)
    assert row.first_token_p50_s is None and "does not time" in row.unavailable["first_token_p50_s"]
    assert row.between_tokens_p50_s is None and "prompt" in row.unavailable["between_tokens_p50_s"]


def test_one_page_gives_gauges_and_no_rate() -> None:
    row = row_of(vllm(5, 5, {0.1: 5}, {}))
    assert (row.queue, row.requests_per_s, row.window_s) == (3.0, None, None)
    assert "two readings" in row.unavailable["requests_per_s"]


def test_what_a_gauge_cannot_be_is_not_measured_and_the_reason_names_it() -> None:
    page = vllm(1, 1, {}, {}, waiting=-5).replace("} 0.41", "} 77.0")
    row = row_of(page)
    assert (row.queue, row.kv_cache_pct, row.running) == (None, None, 8.0)
    assert row.unavailable["queue"] == "this vLLM says -5, which cannot be"
    assert row.unavailable["kv_cache_pct"] == "this vLLM says 77, which cannot be"


def test_without_a_request_in_the_window_there_is_no_quantile_and_the_rate_is_a_true_zero() -> None:
    page = vllm(5, 5, {0.1: 5}, {})
    row = row_of(page, page)
    assert (row.requests_per_s, row.tokens_per_s, row.first_token_p50_s) == (0.0, 0.0, None)
    assert row.unavailable["first_token_p50_s"] == "no request in the last 10 s"


def test_the_window_is_half_a_minute_and_a_restarted_server_begins_a_new_one() -> None:
    window = ServerWindow("h:1")
    rows = [window.add(float(t), read_page(tgi(10 * t, 0))) for t in range(61)]
    assert rows[-1].window_s == 30.0 and rows[-1].requests_per_s == pytest.approx(10.0)
    again = window.add(61.0, read_page(tgi(2, 0)))
    assert again.requests_per_s is None and again.window_s is None
    assert window.add(62.0, read_page(tgi(4, 0))).requests_per_s == pytest.approx(2.0)


def test_a_server_that_was_silent_has_no_figures_but_its_reason() -> None:
    window = ServerWindow("h:1")
    window.add(0.0, read_page(tgi(1, 0)))
    row = window.fail("timed out")
    assert (row.kind, row.error, row.queue, row.requests_per_s) == ("tgi", "timed out", None, None)


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("", "Prometheus"),
        ("<!DOCTYPE html><html><body>hello</body></html>\n", "Prometheus"),
        ('{"detail":"Not Found"}\n', "Prometheus"),
        ("node_load1 0.5\n", "vLLM, SGLang, Triton, TGI"),
        ("x" * 100_000 + "\n", "Prometheus"),
        ("tgi_queue_size 1\n" * 60_000, "more than 50,000 series"),
        ("tgi_queue_size 1\n" * 5_000, "more than 4,096 series of tgi_queue_size"),
        ("not a sample\n" * 60_000, "Prometheus"),
        (
            f'tgi_queue_size{{x="{"y" * 2000}"}} 1\n',
            "tgi_queue_size: x has 2,000 characters, at most 1,024",
        ),
        ("vllm:num_requests_waiting 3", "Prometheus"),
    ],
)
def test_what_is_no_page_of_a_server_is_refused_in_words(page: str, words: str) -> None:
    with pytest.raises(PageError, match=words):
        read_page(page)


def test_the_bounds_of_a_quantile_are_those_of_the_bucket_that_holds_it() -> None:
    none = Histogram((0.1, 1.0, float("inf")), (0.0, 0.0, 0.0))
    some = Histogram((0.1, 1.0, float("inf")), (50.0, 99.0, 100.0))
    assert quantile(none, some, 0.5) == (0.0, 0.1)
    assert quantile(none, some, 0.99) == (0.1, 1.0)
    assert quantile(none, some, 1.0) == (1.0, None)
    assert quantile(some, some, 0.5) is None
    assert [bounds(each) for each in ((0.0, 0.1), (0.1, 1.0), (0.25, 0.5), (2.0, 4.0), (80.0, None), None)] == [
        "at most 100 ms", "100 ms-1 s", "250-500 ms", "2-4 s", "above 80 s", "n/a",
    ]  # fmt: skip


def test_addresses_lead_to_the_metrics_and_only_settings_name_another_machine() -> None:
    assert addresses("http://localhost:8000") == ("http://localhost:8000/metrics",)
    assert addresses("http://127.0.0.1:8002/metrics, http://[::1]:30000/m?x=1", typed=True) == (
        "http://127.0.0.1:8002/metrics", "http://[::1]:30000/m?x=1",
    )  # fmt: skip
    assert addresses("http://gpu-7:8000") == ("http://gpu-7:8000/metrics",)
    with pytest.raises(UsageError, match="configuration file"):
        addresses("http://gpu-7:8000", typed=True)
    for wrong, words in (
        ("localhost:8000", "give an address like http://localhost:8000"),
        ("http://a:b@h/", "password"),
    ):
        with pytest.raises(UsageError, match=words):
            addresses(wrong)
    with pytest.raises(UsageError, match="at most 8"):
        addresses(",".join(f"http://localhost:{port}" for port in range(1, 10)))


@contextmanager
def serving(pages: list[str], status: int = 200, location: str = "") -> Iterator[str]:
    """A server that gives one page after the other, the last one again and again."""

    def answer(*_: object) -> Answer:
        body = pages.pop(0) if len(pages) > 1 else pages[0]
        return status, body.encode(), {"Location": location} if location else {}

    with answering(answer) as port:
        yield f"http://127.0.0.1:{port}/metrics"


def watched(url: str, wait_s: float = 20.0) -> ServerRow:
    watch = ServerWatch([url])
    watch.start()
    (row,) = watch.rates(wait_s)
    watch.close()
    return row


def test_a_living_server_is_read_until_it_gives_rates() -> None:
    with serving([tgi(100, 0), tgi(110, 0)]) as url:
        row = watched(url)
    assert row.kind == "tgi" and row.requests_per_s is not None and row.requests_per_s > 0.0
    assert row.place == url.split("/")[2]


def test_a_server_that_redirects_a_wrong_one_and_none_each_cost_one_line() -> None:
    with serving(["x"], 302, "http://169.254.169.254/") as url:
        assert "redirects are not followed" in (watched(url).error or "")
    with serving(["<html>\n"]) as url:
        row = watched(url)
    assert row.error == "answers, but not with a Prometheus page"
    shown = with_rows(moment(0, ()), [row])
    assert shown.notices[-1] == f"server {row.place}: {row.error}"
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    assert "refused" in (watched(f"http://127.0.0.1:{port}/metrics").error or "").lower()


def moment(
    k: int, rows: tuple[ServerRow, ...], servers: tuple[str | None, ...] = ("vllm", None)
) -> Snapshot:
    gpus = tuple(
        GpuSample(
            GpuStatic(i, f"GPU-{i}", "NVIDIA H100 80GB HBM3"),
            util_pct=90.0,
            sm_active_pct=70.0,
            sm_source="gpm",
        )
        for i in range(len(servers))
    )
    held = tuple(
        ProcessSample(100 + i, 1, gpu=i, static=ProcessStatic(server=server))
        for i, server in enumerate(servers)
    )
    return Snapshot(NOW + k, Machine("node"), gpus, held, servers=rows)


ROW = ServerRow(
    "localhost:8000", "vllm", 30.0, 12.0, 1430.0, 14_000.0, 3.0, 8.0, (0.25, 0.5), (1.0, 2.5)
)


def test_a_servers_figures_stand_at_the_gpus_that_its_program_runs_on() -> None:
    shown = moment(0, (ROW,))
    frame = Monitor().feed(shown)
    assert serving_on(shown, ROW) == {0}
    words = "vLLM localhost:8000: 12.0 requests/s, 1430 tokens/s, first token p99 1-2.5 s, queue 3"
    assert step_words(frame, shown.gpus[0]) == words and step_words(frame, shown.gpus[1]) == ""
    assert step_words(frame, shown.gpus[0], 24) == "1430 tokens/s, queue 3"
    full = moment(0, (replace(ROW, kv_cache_pct=98.6, preemptions_per_s=0.4),))
    assert (
        step_words(Monitor().feed(full), full.gpus[0])
        == f"{words}, KV cache 99 %, 0.40 preemptions/s"
    )
    assert (
        step_words(Monitor().feed(full), full.gpus[0], 39)
        == "1430 tokens/s, queue 3, KV cache 99 %"
    )
    painted = "\n".join(
        "".join(text for text, _ in row) for row in main_screen(frame, View(), 160, 48).rows
    )
    assert "1430 tokens/s" in painted


def test_a_server_that_no_gpu_can_be_told_of_stands_at_none_unless_there_is_one_gpu_only() -> None:
    assert serving_on(moment(0, (ROW,), (None,)), ROW) == {0}
    assert serving_on(moment(0, (ROW,), (None, None)), ROW) == frozenset()
    other = replace(ROW, place="localhost:8001")
    assert serving_on(moment(0, (ROW, other)), ROW) == frozenset()


def test_rows_travel_through_a_recording() -> None:
    shown = moment(0, (ROW, ServerRow("localhost:9", error="timed out")))
    assert [each.servers for each in read_back(shown, moment(1, ()))] == [shown.servers, ()]


@pytest.mark.parametrize(
    "wrong",
    [
        {"place": 3}, {"place": "h", "kind": "ollama"}, {"place": "h", "queue": -1}, {"place": "h", "queue": 1e300},
        {"place": "h", "queue": True}, {"place": "h", "first_token_p50_s": [2, 1]},
        {"place": "h", "first_token_p50_s": [1]}, {"place": "h", "unavailable": []}, {"place": "h", "error": 3}, [],
        None,
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_is_damage(wrong: object) -> None:
    frame = json.dumps({"k": "frame", "t": NOW, "servers": [wrong]}).encode()
    found, decoder = read_lines([lines_of(moment(0, ()))[0], frame])
    assert not found and decoder.damaged == 1


def test_text_from_a_server_is_made_harmless() -> None:
    row = checked_server(
        ServerRow("h\x1b[2J", error="no\x07", unavailable={"queue": "a\x1b", "made_up": "x"})
    )
    assert row is not None and "\x1b" not in row.place + (row.error or "") + str(row.unavailable)
    assert "made_up" not in row.unavailable


def test_a_redacted_snapshot_names_no_host_of_a_server() -> None:
    shown = Redactor().snapshot(
        moment(0, (replace(ROW, place="gpu-secret-7:8000", error="gpu-secret-7: refused"),))
    )
    assert "secret" not in str(shown.servers) and shown.servers[0].place.endswith(":8000")


def test_a_report_tells_what_was_served_and_how_long_the_server_was_silent() -> None:
    late = replace(
        ROW, requests_per_s=4.0, queue=9.0, first_token_p99_s=(5.0, 7.5), kv_cache_pct=99.0
    )
    silent = ServerRow("localhost:8000", "vllm", error="timed out")
    report = report_snapshots(
        moment(k, (silent if k < 10 else late if k < 20 else ROW,)) for k in range(60)
    )
    (served,) = report.servers
    assert (served.seconds, served.silent_s, served.queue_max) == (50.0, 10.0, 9.0)
    assert served.requests_per_s == pytest.approx((10 * 4 + 40 * 12) / 50)
    assert (served.first_token_p50_s, served.first_token_p99_s) == ((0.25, 0.5), (5.0, 7.5))
    text = report_text(report)
    assert "Server vLLM localhost:8000: 10.4 requests/s, 1430 tokens/s" in text
    assert "p99 at worst 5-7.5 s" in " ".join(
        text.split()
    ) and "silent for 10 s: timed out" in " ".join(text.split())
    assert "KV cache 99 %, at most 99 %" in " ".join(text.split())
    assert report_data(report)["servers"][0]["queue_max"] == 9.0


def test_another_machine_on_the_command_line_is_refused_in_one_line() -> None:
    done = gputop("once", "--server-url", "http://gpu-7:8000")
    assert done.returncode == 2 and is_one_line(done.stderr) and "--server-url" in done.stderr


def test_a_server_whose_gpus_cannot_be_told_stands_at_the_host_with_its_address() -> None:
    other = replace(ROW, place="localhost:8001", tokens_per_s=77.0)
    frame = Monitor().feed(moment(0, (ROW, other)))
    painted = "\n".join(
        "".join(text for text, _ in row) for row in main_screen(frame, View(), 160, 48).rows
    )
    host = next(line for line in painted.splitlines() if line.startswith("  cpu "))
    assert (
        "vLLM localhost:8000: 12.0 requests/s, 1430 tokens/s" in host
        and "1 more in `gputop once`" in host
    )
    assert painted.count("1430 tokens/s") == 1
    narrow = main_screen(frame, View(), 60, 48)
    assert "tokens/s" not in "".join(text for row in narrow.rows for text, _ in row), (
        "never without its server"
    )
