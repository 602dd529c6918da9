"""Where memory was allocated: a stack's own line of the user's code, and what the memory is for by where that is.

A snapshot says of an allocation only its stack, and of some (those of a profile) a category. The category of a stack is
therefore a convention, by the files and functions in it; without a stack there is none.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from msgspec import Struct

from gputop.system.plain_pickle import NotPlain

MOST_FRAMES = 256
"""Frames of a stack that are looked at, from the innermost on."""
_SHOWN_FRAMES = 12
_INSTALLED = re.compile(r"/(?:site|dist)-packages/|/lib/python3|<string>|<frozen|_dynamo|_inductor/")
_OF_PYTORCH = re.compile(r"(?:^|/)(?:torch|torchgen|triton|functorch)/")
NO_STACK = "no stack recorded"
NO_PYTHON = "no Python frame (C++ or the backward pass)"
Category = Literal[
    "parameters", "gradients", "optimizer", "activations", "inputs", "communication", "workspace", "other"
]
CATEGORIES: tuple[Category, ...] = (
    "parameters", "gradients", "optimizer", "activations", "inputs", "communication", "workspace", "other",
)  # fmt: skip
_RECORDED: dict[str, Category] = {
    "parameter": "parameters", "gradient": "gradients", "optimizer_state": "optimizer", "activation": "activations",
    "temporary": "activations", "autograd_detail": "activations", "input": "inputs",
}  # fmt: skip
"""The profiler's own categories (torch.profiler._memory_profiler.Category)."""
_WORDS: tuple[tuple[Category, str, str], ...] = (
    ("workspace", r"(?!)", r"getCurrentCUDABlas|[Ww]orkspace"),
    (
        "communication",
        r"torch/distributed/distributed_c10d|ProcessGroupNCCL",
        r"ncclAll|c10d::|_all_gather|_reduce_scatter",
    ),
    (
        "optimizer",
        r"torch/optim/|bitsandbytes/optim|/optimizers?(?:/|\.py)|deepspeed/ops/adam",
        r"_init_group|optimizer_step",
    ),
    (
        "gradients",
        r"torch/autograd/(?:__init__|graph)\.py",
        r"^backward$|_engine_run_backward|torch::autograd::Engine|AccumulateGrad",
    ),
    ("inputs", r"torch/utils/data/|dataloader", r"pin_memory|collate"),
    (
        "parameters",
        r"torch/nn/(?:init|parameter)\.py|modeling_utils\.py|safetensors",
        r"reset_parameters|load_state_dict|_apply$|convert$|from_pretrained",
    ),
    ("activations", r"torch/nn/modules/|torch/nn/functional\.py", r"^forward$|_call_impl|_wrapped_call"),
)
_BY_FRAME: tuple[tuple[Category, re.Pattern[str], re.Pattern[str]], ...] = tuple(
    (category, re.compile(files), re.compile(names)) for category, files, names in _WORDS
)
"""The first that a frame fits: its file or its function. Asked category by category, the innermost frames first."""


class AllocationStack(Struct, frozen=True):
    """One place of allocation: the innermost line of the user's code, the frames (innermost first), its category."""

    place: str
    frames: tuple[str, ...]
    category: Category


class Stacks:
    """Stacks by number. The same list of frames, and lists that say the same, are one."""

    def __init__(self) -> None:
        self.all: list[AllocationStack] = []
        self._by_list: dict[tuple[int, str], int] = {}
        self._by_stack: dict[AllocationStack, int] = {}
        self._lines: dict[int, tuple[str, str, str]] = {}

    def number(self, entry: dict[str, Any]) -> int:
        """The number of an event's or block's stack. Its frames must live as long as this. Raises NotPlain."""
        frames = entry.get("frames")
        if frames is None:
            frames = _legacy(entry)
        recorded = entry.get("category")
        category = recorded if isinstance(recorded, str) else ""
        key = (id(frames), category)
        number = self._by_list.get(key)
        if number is None:
            stack = self._stack(frames, category)
            number = self._by_stack.setdefault(stack, len(self.all))
            if number == len(self.all):
                self.all.append(stack)
            self._by_list[key] = number
        return number

    def _stack(self, frames: Any, category_name: str) -> AllocationStack:
        if not isinstance(frames, (list, tuple)):
            raise NotPlain("is not a memory snapshot: a stack is no list")
        lines = [self._line(frame) for frame in frames[:MOST_FRAMES]]
        category = _RECORDED.get(category_name) or _category(lines)
        python = [line for line in lines if line[0].endswith(".py")]
        if not python:
            return AllocationStack(NO_PYTHON if lines else NO_STACK, (), category)
        strangers = [line for line in python if not _OF_PYTORCH.search(line[0])]
        own_line = next((line for line in strangers if not _INSTALLED.search(line[0])), (strangers or python)[0])
        return AllocationStack(own_line[2], tuple(line[2] for line in python[:_SHOWN_FRAMES]), category)

    def _line(self, frame: Any) -> tuple[str, str, str]:
        """A frame's file, function and words."""
        line = self._lines.get(id(frame))
        if line is None:
            if not isinstance(frame, dict):
                raise NotPlain("is not a memory snapshot: a frame is no dictionary")
            file, name, number = str(frame.get("filename", "")), str(frame.get("name", "")), frame.get("line")
            short = "/".join(file.rsplit("/", 2)[-2:])
            where = f"{short}:{number}" if isinstance(number, int) and number > 0 else short
            line = self._lines[id(frame)] = (file[:500], name[:500], f"{where} {name}"[:300])
        return line


def _legacy(entry: dict[str, Any]) -> Any:
    """The frames of a block as PyTorch 2.0 wrote it, in its history."""
    history = entry.get("history")
    if isinstance(history, list) and history and isinstance(history[0], dict):
        return history[0].get("frames", _NONE)
    return _NONE


_NONE: list[Any] = []


def _category(lines: list[tuple[str, str, str]]) -> Category:
    for category, files, names in _BY_FRAME:
        if any(files.search(file) or names.search(name) for file, name, _ in lines):
            return category
    return "other"
