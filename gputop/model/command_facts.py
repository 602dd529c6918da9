"""Facts of a command line for the diagnosis, derived once, so that the command itself may be masked or left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

SERVERS = (
    "vllm", "sglang", "tritonserver", "text-generation", "text-embeddings", "ollama", "llama-server",
    "llama_cpp.server", "uvicorn", "gunicorn", "hypercorn", "torchserve", "torch-model-server", "trtllm-serve",
    "lmdeploy", "bentoml", "mlserver", "fastchat", "xinference", "aphrodite", "koboldcpp", "local-ai", "nvidia-nim",
)  # fmt: skip
"""Name prefixes of programs that serve requests.

Their GPU waits for demand, not for data.
"""
A_COMPILER, COMPILE_WORKER = "a compiler", "torch.compile's worker"
NOT_LOADERS = (
    ("multiprocessing.resource_tracker", "multiprocessing's resource tracker"),
    ("multiprocess.resource_tracker", "multiprocess's resource tracker"),
    ("loky.backend.resource_tracker", "loky's resource tracker"),
    ("torch/_inductor/compile_worker", COMPILE_WORKER),
    ("ray::DashboardAgent", "Ray's agent"),
    ("ray::RuntimeEnvAgent", "Ray's agent"),
    ("ray/dashboard/agent.py", "Ray's agent"),
    ("ray/_private/runtime_env/agent/main.py", "Ray's agent"),
    ("ray/_private/log_monitor.py", "Ray's log monitor"),
    ("wandb-core", "a tracker"),
    ("wandb-service", "a tracker"),
)
"""Descendants of a GPU process that are never loaders.

Each is a part of the command line, and a name.
"""
Rule = Literal["R1", "R2", "R3", "R4", "R5", "R6", "never"]
"""Rule that gave a process its role.

R1 to R4 are loaders proper, R5 is any other descendant of a GPU process, R6 its parent or a service; a ``never``
process feeds no GPU, however busy it is.
"""
BESIDE: Rule = "R6"
NEVER: Rule = "never"
NOT_A_LOADER = "not a loader: "


def why_words(rule: Rule, words: str) -> str:
    """Return a rule and its match as text: ``R1 comm pt_data_worker``."""
    return f"{NOT_A_LOADER}{words}" if rule == NEVER else f"{rule} {words}"


def server_in(words: Sequence[str]) -> str | None:
    """Return the serving program that a command line starts.

    The program is the executable, a module after -m, or a script. Later arguments do not count: ``train.py --data
    /home/vllm`` is not a server.
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
    """Return the kind of a command that cannot be a loader, None if it may be one."""
    return next((name for part, name in NOT_LOADERS if part in command), None)
