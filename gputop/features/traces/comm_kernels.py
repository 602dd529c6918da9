"""Communication kernels by name, and kernels without a known name that may communicate.

A name must hold a library's namespace or prefix, or an operation between GPUs in full. A bare ``dispatch`` or
``combine`` says nothing: `flash_fwd_splitkv_combine_kernel` computes. Each family has a public source with its kernels.
"""

from __future__ import annotations

import re
from functools import lru_cache

from gputop.features.traces.kernel_names import qualified

_FAMILIES: tuple[str, ...] = (
    # NCCL, MSCCL, and MSCCL++ (microsoft/mscclpp src/ext/collectives: mscclpp::allreduceAllPairs …).
    r"^(?:\w+::)*(?:nccl|msccl)",
    # DeepEP and its relatives (deepseek-ai/DeepEP csrc/kernels: deep_ep::legacy::internode::dispatch,
    # deep_ep::elastic::combine_impl; branch hybrid-ep: hybrid_ep::dispatch_kernel; deepseek-ai/profile-data:
    # dpsk::ep::internode::combine; Mooncake and NIXL keep DeepEP's layout).
    r"\b(?:deep_?ep|hybrid_ep|nixl_ep|mooncake)\w*::",
    r"(?:^|::)ep::",
    r"\b(?:internode|intranode|internode_ll|intranode_ll)::",
    # pplx-kernels and pplx-garden (perplexityai/pplx-garden p2p-all-to-all/a2a-kernels: a2a_dispatch_send_kernel),
    # FlashInfer (include/flashinfer/comm: ulysses_a2a_kernel), flux (bytedance/flux: pre_attn_qkv_pack_a2a_kernel).
    r"\bpplx\w*::",
    r"(?<![a-z])a2a(?![a-z])",
    # UCCL (uccl-project/uccl ep/src: uccl::internode_ll::dispatch).
    r"\buccl\w*::",
    r"\bep_?(?:dispatch|combine)_?(?:int(?:er|ra)|low_?latency|sync|all|copy)",
    r"(?<![a-z])int(?:er|ra)_?node(?![a-z]*_?(?:gemm|attn))",
    # TensorRT-LLM, FlashInfer (NVIDIA/TensorRT-LLM cpp/tensorrt_llm/kernels/communicationKernels: moeA2ADispatchKernel,
    # moeAllToAllKernel, allreduce_fusion_kernel_oneshot_lamport, oneShotAllReduceKernel).
    r"moe_?a2a|lamport",
    # TransformerEngine (transformer_engine/common/comm_gemm_overlap/userbuffers/userbuffers.cu: kuserbuffers_pushsend,
    # userbuffers_fp16_sum_inplace_gpu_rr_rs_oop).
    r"userbuffers",
    # NVSHMEM (NVIDIA/nvshmem src/host/stream: alltoall_on_stream_kernel, nvshmemi_proxy_quiet_entrypoint).
    r"nvshmem",
    r"(?:fcollect|rdxn|barrier|broadcast|alltoall|reducescatter|sync|signal_wait_until)_on_stream_kernel",
    # PyTorch's symmetric memory (pytorch/pytorch torch/csrc/distributed/c10d: c10d::nvshmem_extension::allToAllV,
    # multimem_all_reduce_kernel, two_shot_all_reduce_kernel_inplace, put_signal_kernel).
    r"\b(?:c10d|symm_mem|symmetric_memory)::",
    r"multimem_|(?:put|get|wait)_signal_kernel",
    # vLLM, SGLang, aiter (ROCm/aiter csrc/include: cross_device_reduce_2stage, reduce_scatter_cross_device_store,
    # allreduce_prototype_twoshot), Triton-distributed (allreduce_two_shot_push_intra_node_kernel, barrier_all_kernel).
    r"cross_device_|quick_?reduce::|barrier_all",
    # Operations between GPUs, in full. Blocks and warps reduce among their own threads (block_all_reduce_sum).
    r"(?<!block_)(?<!warp_)(?<!block)(?<!warp)all_?reduce|all_?gather|reduce_?scatter|all_?(?:to|2)_?all(?![a-z]*_?gemm)",
)  # fmt: skip
_COMMUNICATES = re.compile("|".join(_FAMILIES), re.IGNORECASE)
_COMPUTES = re.compile(
    r"gemm|gemv|matmul|flash_(?!comm)|fmha|scatter_gather_elementwise", re.IGNORECASE
)
"""Fused with a product or attention, a kernel computes; so does one that gathers by an index."""


@lru_cache(maxsize=4096)
def is_communication(kernel: str) -> bool:
    """Whether a kernel moves data between GPUs, by its name without template arguments and parameters."""
    name = qualified(kernel)
    return _COMMUNICATES.search(name) is not None and _COMPUTES.search(name) is None
