"""Causes that look alike and are not: loading, waits on the device, other work; bounds, losses, names, collectives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gputop.features.traces.columns import TraceError
from gputop.features.traces.kernel_names import category, short_name
from gputop.features.traces.trace_report import TraceGpuReport
from tests.features.traces.conftest import Judge
from tests.support.command import trace_said
from tests.support.synthetic_trace import TraceMaker, written


def idle_us(report: TraceGpuReport, cause: str) -> int:
    m = report.measures
    return round(m.idle_cause_pct[cause] / 100.0 * m.window_ms * 1000.0)


def test_a_launch_call_of_400_ms_loads_a_module_and_is_no_slow_launching(judge: Judge) -> None:
    maker = TraceMaker()
    maker.launch(length=1000)
    maker.launch(length=1000, inside=400_000, latency=400_008)
    report = judge(maker)
    assert idle_us(report, "module_load") == pytest.approx(399_000, abs=50)
    assert idle_us(report, "launch_latency") < 60
    assert (report.verdict.id, report.verdict.level) == ("startup", "info")
    assert "warm-up" in report.verdict.remedy and "CUDA graphs" not in report.verdict.remedy


def stepped(
    judge: Judge, slow: set[int], call: str = "cudaMalloc", us: int = 60_000
) -> TraceGpuReport:
    """Four steps of 100 ms of kernels; in some of them a call of 60 ms comes first."""
    maker = TraceMaker()
    for step in maker.steps(4, ahead=100):
        if step in slow:
            maker.t = max(maker.t, maker.free)
            maker.call(call, maker.t, maker.t + us)
            maker.t += us
        for _ in range(100):
            maker.launch(length=1000)
    return judge(maker)


def test_memory_that_is_allocated_in_several_steps_is_the_loop_s_and_in_one_step_the_start_s(
    judge: Judge,
) -> None:
    loop = stepped(judge, {1, 2, 3})
    assert (loop.verdict.id, loop.verdict.cause, loop.verdict.level) == (
        "main_process",
        "allocator",
        "yellow",
    )
    assert "in the loop" in loop.verdict.headline and not loop.measures.once
    start = stepped(judge, {1}, us=300_000)
    assert (start.verdict.id, start.verdict.level) == ("startup", "info")
    assert start.verdict.headline == "STARTING UP: once: cudaMalloc 300 ms, 43 % of the time"
    assert start.measures.share_pct["idle"] == pytest.approx(43.0, abs=1.0)


@pytest.mark.parametrize(("us", "starts"), [(49_000, False), (51_000, True)])
def test_without_steps_a_call_for_memory_is_a_start_from_fifty_milliseconds_on(
    judge: Judge, us: int, starts: bool
) -> None:
    maker = TraceMaker()
    for _ in range(2):
        maker.launch(length=50_000)
        maker.call("cudaMalloc", maker.free + 10, maker.free + us)
        maker.t = maker.free + us
    maker.launch(length=50_000)
    assert bool(judge(maker).measures.once) is starts


def test_what_happened_once_hides_nothing_that_comes_again(judge: Judge) -> None:
    """A start of 4 s, and a loop that waits a third of the time: it is the cause, the start stands beside it."""
    maker = TraceMaker()
    maker.launch(length=1000)
    maker.call("cudaFree", maker.free + 10, maker.free + 4_000_000)
    maker.t = maker.free + 4_000_000
    for _ in range(100):
        maker.launch(length=30_000)
        maker.t = maker.free + 10
        maker.wait()
        maker.t += 20_000
    said = (report := judge(maker)).verdict
    assert (said.id, said.level) == (
        "main_process",
        "yellow",
    ) and "in the loop" not in said.headline
    assert said.evidence[-1] == "once: cudaFree 4.0 s (45 %): in no share of this"
    assert report.measures.share_pct["idle"] > 60.0


def test_without_steps_the_window_begins_at_the_first_kernel_and_the_copies_right_before_it(
    judge: Judge,
) -> None:
    maker = TraceMaker()
    maker.launch("Memcpy HtoD (Pinned -> Device)", 500, cat="gpu_memcpy")
    maker.t = maker.free + 900_000
    maker.launch("Memcpy HtoD (Pinned -> Device)", 700, cat="gpu_memcpy")
    maker.launch(length=100_000)
    assert judge(maker).measures.window_ms == pytest.approx(100.7)


def test_a_kernel_that_waits_400_ms_for_an_event_waits_on_the_device_and_no_host_is_blamed(
    judge: Judge,
) -> None:
    maker = TraceMaker()
    maker.launch("first_kernel", length=1000)
    maker.t = maker.free + 40
    maker.launch("waiting_kernel", length=9000, latency=400_000, stream=3)
    report = judge(maker)
    assert idle_us(report, "dependency") == pytest.approx(400_000 - 54, abs=1)
    # The host made no call for 1 ms, most of it while the GPU was busy.
    assert (idle_us(report, "host_work"), idle_us(report, "launch_latency")) == (41, 54)
    assert (report.verdict.id, report.verdict.level) == ("no_bottleneck_seen", "grey")
    assert (
        report.verdict.headline == "NOT JUDGED: once: a wait on the device 400 ms, 98 % of the time"
    )
    (row,) = report.measures.stream_waits
    assert (row.kernel, row.stream, row.after_stream, row.times) == ("waiting_kernel", 3, 7, 1)


def test_a_wait_inside_of_a_graph_says_so_and_is_not_called_unseen(judge: Judge) -> None:
    maker = TraceMaker()
    maker.call("cudaGraphLaunch", 1000, 1020, 7)
    for n in range(10):
        maker.work("node", 2000 + n * 1000, 100, 7)
    report = judge(maker)
    assert report.verdict.id == "stream_wait" and report.verdict.confidence == "medium"
    assert "waits inside of a graph before node, after node: 9 ×" in report.verdict.evidence[1]


def test_what_no_rule_takes_is_named_by_its_largest_loss_and_fails_a_gate(
    judge: Judge, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three losses below 20 % each are 42 % together."""
    maker = TraceMaker()
    for _ in maker.steps(4):
        maker.free = max(maker.free, maker.t + 20)
        maker.launch("gemm", 5_500)
        maker.launch("ncclDevKernel_AllReduce", 1_850)
        maker.launch("Memcpy DtoD (Device -> Device)", 950, cat="gpu_memcpy")
        maker.t = maker.free + 1_600
    path = str(written(tmp_path / "t.json", maker.document()))
    status, text = trace_said(capsys, path)
    assert status == 1
    assert "COMMUNICATION: 58 % compute; the largest loss is communication, 19 %" in text
    said = judge(maker).verdict
    assert (said.id, said.level, said.cause) == ("communication", "yellow", "communication")


def test_a_file_of_nothing_but_a_memset_is_too_little_to_judge(judge: Judge) -> None:
    maker = TraceMaker()
    maker.launch("Memset (Device)", 2, cat="gpu_memset")
    with pytest.raises(TraceError, match="too little GPU work to judge"):
        judge(maker)


# --- names ----------------------------------------------------------------------------------------------------------

FUSED = (
    "std::enable_if<(((8)>(0)))&&vllm::_typeConvert<c10::BFloat16>::exists, void>::type "
    "vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, long)"
)


@pytest.mark.parametrize(
    ("kernel", "short", "kind"),
    [
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_nn_align4>(P)",
         "cutlass_80_tensorop_s1688gemm_128x128_nn_align4", "gemm"),
        ("void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<int> > >(P)",
         "FlashAttnFwdSm90", "attention"),
        (FUSED, "fused_add_rms_norm_kernel", "normalisation"),
        ("std::enable_if<!(false), void>::type internal::gemvx::kernel<int, float>(int)", "gemvx::kernel", "gemm"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::AUnaryFunctor<float, float, float, "
         "at::native::binary_internal::MulFunctor<float> >, at::detail::Array<char*, 2> >(int)",
         "elementwise Mul", "elementwise"),
        ("void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<"
         "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}> >(int)",
         "elementwise direct_copy", "copy"),
        ("triton_poi_fused_addmm_gelu_view_15", "triton_poi_fused_addmm_gelu_view_15", "elementwise"),
        ("void fbgemm_gpu::linearize_index_kernel<int>(int)", "linearize_index_kernel", "other"),
        ("ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn", "gemm"),
        ("void (anonymous namespace)::softmax<c10::Half, 3>(void*)", "softmax", "reduction"),
        ("void a::b<c<d<e>>>::f<g>(h)", "f", "other"), ("", "", "other"),
        ("void at::native::(anonymous namespace)::batch_norm_backward<float>(float)", "batch_norm_backward",
         "normalisation"),
    ],
)  # fmt: skip
def test_a_name_is_short_tells_kernels_apart_and_has_a_category(
    kernel: str, short: str, kind: str
) -> None:
    assert (short_name(kernel), category(kernel)) == (short, kind)


def test_hostile_names_are_read_in_time_and_end_somewhere() -> None:
    for name in ("<" * 5000, "(" * 3000, "void ", "a" * 100_000, "std::enable_if<" * 200):
        assert isinstance(short_name(name), str) and category(name)


# --- steps ----------------------------------------------------------------------------------------------------------


def server(iterations: list[tuple[str, int]]) -> dict[str, Any]:
    maker = TraceMaker()
    for name, length in iterations:
        for _ in maker.steps(1, name):
            maker.launch(length=length)
            maker.wait()
    return maker.document()


DECODE = "execute_32_context_0(sq0sk0)_generation_{}(sq32sk99)"
SERVED = [
    ("execute_512_context_4(sq9)_generation_0(sq0)", 9000),
    *((DECODE.format(32 - n), 1000) for n in range(3)),
]


@pytest.mark.parametrize("name", ["execute", "execute_*_context*", "e"])
def test_steps_are_taken_by_the_begin_of_names_or_a_pattern(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(written(tmp_path / "t.json", server(SERVED)))
    data = json.loads(trace_said(capsys, path, "--json", "--step", name)[1])
    (gpu,) = data["ranks"][0]["gpus"]
    assert [round(row["ms"]) for row in gpu["steps_table"]] == [9, 1, 1, 1]
    decoding = json.loads(trace_said(capsys, path, "--json", "--step", "*context_0*")[1])
    assert decoding["ranks"][0]["gpus"][0]["steps"] == 3
    assert "no range called 'nothing'" in trace_said(capsys, path, "--step", "nothing")[1]


# --- bounds ---------------------------------------------------------------------------------------------------------
