"""What the diagnosis needs of a command line, drawn from it once, so that the command itself may be masked or left out.

Pure. Sources call it where the facts of a process are made; a reader of recordings where a recording lacks them.
"""

from __future__ import annotations

from collections.abc import Sequence

SERVERS = (
    "vllm", "sglang", "tritonserver", "text-generation", "text-embeddings", "ollama", "llama-server",
    "llama_cpp.server", "uvicorn", "gunicorn", "hypercorn", "torchserve", "torch-model-server", "trtllm-serve",
    "lmdeploy", "bentoml", "mlserver", "fastchat", "xinference", "aphrodite", "koboldcpp", "local-ai", "nvidia-nim",
)  # fmt: skip
"""Prefixes of the names of programs that serve requests: their GPU waits for demand, not for data."""
NOT_LOADERS = (
    ("multiprocessing.resource_tracker", "multiprocessing's resource tracker"),
    ("multiprocess.resource_tracker", "multiprocess's resource tracker"),
    ("loky.backend.resource_tracker", "loky's resource tracker"),
    ("torch/_inductor/compile_worker", "torch.compile's worker"),
)
"""Descendants of a GPU process that never feed it, however busy they are: a part of their command line, their name."""
NOT_A_LOADER = "not a loader: "
"""The prefix of ``why`` for them."""

BESIDE = "R6 "
"""The prefix of ``why`` for a feeder that is not a descendant of the GPU process."""


def server_in(words: Sequence[str]) -> str | None:
    """The serving program that a command line starts: the executable, a module after -m, or a script.

    Later arguments do not count: ``train.py --data /home/vllm`` is not a server.
    """
    for place, word in enumerate(words[:8]):
        name = word.rsplit("/", 1)[-1].lower()
        if name.startswith(SERVERS):
            return next(server for server in SERVERS if name.startswith(server))
        interpreter = place == 0 and name.startswith(("python", "uv", "conda", "pixi", "poetry"))
        if not interpreter and not word.startswith("-") and word != "run":
            return None
    return None


def not_a_loader(command: str) -> str | None:
    """Why a command line cannot be a dataloader's; None when it may be one."""
    return next((NOT_A_LOADER + name for part, name in NOT_LOADERS if part in command), None)
