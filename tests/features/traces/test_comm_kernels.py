"""Communication between GPUs is known by the names of today's libraries, and suspected without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputop.features.traces.comm_kernels import is_communication
from tests.features.traces.conftest import Judge
from tests.support.command import trace_said
from tests.support.synthetic_trace import TraceMaker, written

COMMUNICATES = (
    "ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevKernelArgs)",
    "void deep_ep::internode::dispatch<false, 8, false, 8>(int4*, float*)",
    "void deep_ep::legacy::intranode::cached_notify_combine<8>(void**, int*)",
    "void deep_ep::elastic::dispatch_impl<1>(int)",
    "void dpsk::ep::internode::combine<false, 8, __nv_bfloat16>(int4*, float*)",
    "void hybrid_ep::dispatch_kernel<4, 128>(int)",
    "void uccl::internode_ll::dispatch<8>(int)", "void pplx::a2a_dispatch_send_kernel<true>(int)",
    "a2a_combine_recv_kernel<16>", "EpCombineInterNodeV1KernelLowLatency",
    "void tensorrt_llm::kernels::moe_alltoall::moeA2ADispatchKernel<8>(int)",
    "void tensorrt_llm::kernels::moeAllToAllKernel(int)",
    "void tensorrt_llm::kernels::oneShotAllReduceKernel<half, 8>(int)", "void kuserbuffers_pushsend(int*, int*)",
    "void userbuffers_fp16_sum_inplace_gpu_rr_rs_oop<8>(int)", "void mscclpp::allreduceNvls<half>(half*)",
    "void quickreduce::allreduce_prototype_twoshot<half>(half const*)",
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 4>(int)",
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<8>(int)",
    "void flashinfer::ulysses::ulysses_a2a_kernel<1>()", "alltoall_on_stream_kernel", "nvshmemi_proxy_quiet_entrypoint",
    "void c10d::nvshmem_extension::allToAllV(void*, void*, long*)",
    "void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 2>(c10::BFloat16**)",
    "kernel_dispatch_token_intra_node", "allreduce_two_shot_push_intra_node_kernel", "all_to_all_single_kernel",
)  # fmt: skip
COMPUTES = (
    "void flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128> >(Flash_fwd_params)",
    "void flash::flash_fwd_splitkv_combine_kernel<1>(int)", "flash::FlashAttnFwdCombine",
    "kernel_gqa_fwd_batch_decode_combine_kv", "moe_dispatch_kernel", "void fused_moe_dispatch<float>(int)",
    "combineKernel", "void vllm::moe::moe_align_block_size_kernel<int>(int)",
    "void tensorrt_llm::kernels::finalizeMoeRoutingKernel<half>(int)", "_fwd_kernel_ep_scatter_1",
    "ep_topk_reduce_kernel", "void at::native::_scatter_gather_elementwise_kernel<128>(int)",
    "void at::native::vectorized_gather_kernel<16>(char*)", "block_all_reduce_sum_f32_kernel",
    "kernel_fused_gemm_allreduce", "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<all_gather> >(P)",
    "void vllm::rms_norm<all_reduce_tag>(float*)", "triton_poi_fused_add_dispatch_3",
)  # fmt: skip


@pytest.mark.parametrize("kernel", COMMUNICATES)
def test_kernels_of_today_s_libraries_communicate(kernel: str) -> None:
    assert is_communication(kernel)


@pytest.mark.parametrize("kernel", COMPUTES)
def test_kernels_that_dispatch_combine_or_gather_on_one_gpu_compute(kernel: str) -> None:
    assert not is_communication(kernel)


def one_beside_compute(
    name: str, *, blocks: float = 2.0, length: int = 1000, stream: int = 27
) -> TraceMaker:
    """Steps of 1 ms of compute and then 1 ms of one kernel on another stream, with nothing beside it."""
    maker = TraceMaker()
    for _ in maker.steps(20):
        for _ in range(10):
            maker.launch(length=100)
        maker.t = max(maker.t, maker.free)
        maker.launch(name=name, length=length, stream=stream, blocks=blocks)
        maker.t = max(maker.t, maker.free)
    return maker


@pytest.mark.parametrize("kernel", COMMUNICATES[::5])
def test_exposed_all_to_all_is_communication_whatever_the_library(
    kernel: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(written(tmp_path / "t.json", one_beside_compute(kernel).document()))
    status, text = trace_said(capsys, path)
    assert status == 1 and "COMMUNICATION: 50 % of the time the GPU only communicates" in text


RANKS = {"distributedInfo": {"rank": 0, "world_size": 8}}


def test_a_long_kernel_on_a_stream_of_its_own_in_a_job_of_ranks_is_perhaps_communication(
    judge: Judge,
) -> None:
    report = judge(one_beside_compute("dispatchKernel", blocks=0.15).document(**RANKS))
    said = report.verdict
    assert (said.id, said.level, said.confidence) == ("communication", "yellow", "low")
    assert "only dispatchKernel runs: unknown, perhaps communication" in said.headline
    assert report.measures.unknown_comm is not None


def test_an_unknown_kernel_that_is_alone_on_its_gpu_is_perhaps_communication_too(
    judge: Judge,
) -> None:
    maker = TraceMaker()
    for _ in maker.steps(20):
        maker.launch(name="ring_exchange_v3", length=1200, blocks=0.15)
        maker.t = maker.free - 50
    said = judge(maker.document(**RANKS)).verdict
    assert (said.id, said.level, said.confidence) == ("communication", "yellow", "low")


@pytest.mark.parametrize(
    ("name", "world", "blocks", "length", "stream"),
    [
        ("dispatchKernel", 1, 0.15, 1000, 27),
        ("dispatchKernel", 8, 0.9, 1000, 27),
        ("dispatchKernel", 8, 0.15, 900, 27),
        ("dispatchKernel", 8, 0.15, 1000, 7),
        ("ampere_sgemm_32x32_tn", 8, 0.15, 1000, 27),
    ],
    ids=["one rank", "most of the chip", "short", "the stream of the others", "a product"],
)
def test_other_kernels_without_a_known_name_compute(
    name: str, world: int, blocks: float, length: int, stream: int, judge: Judge
) -> None:
    made = one_beside_compute(name, blocks=blocks, length=length, stream=stream)
    report = judge(made.document(distributedInfo={"rank": 0, "world_size": world}))
    assert report.measures.unknown_comm is None and report.verdict.id != "communication"


@pytest.mark.parametrize(("hidden_us", "is_doubted"), [(0, True), (900, False)])
def test_a_smaller_part_of_unknown_kernels_takes_the_confidence_from_a_clean_bill(
    hidden_us: int, is_doubted: bool, judge: Judge
) -> None:
    maker = TraceMaker()
    for step in maker.steps(20):
        for _ in range(70):
            maker.launch(length=100)
        begin = maker.free - hidden_us
        maker.work("ring_exchange_v3", begin, 1200, 9_000_000 + step, stream=27, blocks=0.15)
        maker.free = begin + 1200
        maker.t = maker.free - 50
    said = judge(maker.document(**RANKS)).verdict
    assert said.id == "no_bottleneck_seen"
    assert (said.confidence == "low") is is_doubted
    assert any("only ring_exchange_v3 runs" in note for note in said.notes) is is_doubted
