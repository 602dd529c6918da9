"""Allocation stacks: the user's line, and the memory's category.

A snapshot stores the stack of an allocation and, with the profiler, a category. Without a recorded category, files and
functions in the stack decide it by convention.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, get_args

from msgspec import Struct

from gputop.model.foreign_values import text_of, whole_number
from gputop.system.plain_pickle import NotPlain

MOST_FRAMES = 256
"""Frames of a stack that are examined, from the innermost on."""
_SHOWN_FRAMES = 12
LONGEST_NAME, LONGEST_TEXT = 500, 300
"""Characters of a file's or function's name that are examined, and of a frame that are shown."""
LARGEST_LINE = (1 << 31) - 1
_INSTALLED = re.compile(
    r"/(?:site|dist)-packages/|/lib/python3|<string>|<frozen|_dynamo|_inductor/"
    # Windows: Programs/Python/Python312/Lib, miniconda3/envs/NAME/lib, pyenv-win/versions/3.12.1/Lib.
    r"|^[A-Za-z]:/(?i:.*(?:python|conda|pyenv)[^/]*/(?:[^/]+/){0,2}lib/)"
)
_OF_PYTORCH = re.compile(r"(?:^|/)(?:torch|torchgen|triton|functorch)/")
NO_STACK = "no stack recorded"
NO_PYTHON = "no Python frame (C++ or the backward pass)"
Category = Literal[
    "parameters",
    "gradients",
    "optimizer",
    "activations",
    "inputs",
    "communication",
    "workspace",
    "other",
]
CATEGORIES: tuple[Category, ...] = get_args(Category)
_RECORDED: dict[str, Category] = {
    "parameter": "parameters", "gradient": "gradients", "optimizer_state": "optimizer", "activation": "activations",
    "temporary": "activations", "autograd_detail": "activations", "input": "inputs",
}  # fmt: skip
"""The profiler's own categories (torch.profiler._memory_profiler.Category)."""
_WORDS: tuple[tuple[Category, str, str], ...] = (
    ("workspace", r"(?!)", r"getCurrentCUDABlas|[Ww]orkspace"),
    ("communication", r"torch/distributed/distributed_c10d|ProcessGroupNCCL",
     r"ncclAll|c10d::|_all_gather|_reduce_scatter"),
    ("optimizer", r"torch/optim/|bitsandbytes/optim|/optimizers?(?:/|\.py)|deepspeed/ops/adam",
     r"_init_group|optimizer_step"),
    ("gradients", r"torch/autograd/(?:__init__|graph)\.py",
     r"^backward$|_engine_run_backward|torch::autograd::Engine|AccumulateGrad"),
    ("inputs", r"torch/utils/data/|dataloader", r"pin_memory|collate"),
    ("parameters", r"torch/nn/(?:init|parameter)\.py|modeling_utils\.py|safetensors",
     r"reset_parameters|load_state_dict|_apply$|convert$|from_pretrained"),
    ("activations", r"torch/nn/modules/|torch/nn/functional\.py", r"^forward$|_call_impl|_wrapped_call"),
)  # fmt: skip
"""Category, files and functions that mark it. The first category with a matching frame wins."""
_BY_FRAME = tuple(
    (category, re.compile(files), re.compile(names)) for category, files, names in _WORDS
)
_OTHER = len(_BY_FRAME)


class AllocationStack(Struct, frozen=True):
    """Place of an allocation: the user's innermost line, frames (innermost first), category."""

    place: str
    frames: tuple[str, ...]
    category: Category


class _Line(Struct, frozen=True):
    """One frame: file, text, rank of its category in ``_BY_FRAME``."""

    file: str
    text: str
    category_rank: int


class Stacks:
    """Numbered stacks. Equal stacks share one number."""

    def __init__(self) -> None:
        self.all: list[AllocationStack] = []
        self._by_frames: dict[tuple[str, tuple[int, ...]], int] = {}
        self._by_stack: dict[AllocationStack, int] = {}
        self._lines: dict[int, _Line] = {}
        self._kept: list[Any] = []
        """The frames, which are known by their ids. Each event has its own list of them."""

    def number(self, entry: dict[str, Any]) -> int:
        """Return the number of an event's or block's stack. Raises NotPlain."""
        frames = entry.get("frames")
        if frames is None:
            frames = _legacy_frames(entry)
        recorded = entry.get("category")
        # Only the profiler's own words: with others, one list would be read many times.
        category = ""
        if isinstance(recorded, str) and recorded in _RECORDED:
            category = recorded
        if not isinstance(frames, (list, tuple)):
            raise NotPlain("is not a memory snapshot: a stack is no list")
        examined = frames[:MOST_FRAMES]
        key = (category, tuple(map(id, examined)))
        number = self._by_frames.get(key)
        if number is None:
            stack = self._stack(examined, category)
            number = self._by_stack.setdefault(stack, len(self.all))
            if number == len(self.all):
                self.all.append(stack)
            self._by_frames[key] = number
        return number

    def _stack(self, frames: Sequence[Any], recorded: str) -> AllocationStack:
        lines = [self._line(frame) for frame in frames]
        rank = min((line.category_rank for line in lines), default=_OTHER)
        category = _RECORDED.get(recorded) or ("other" if rank == _OTHER else _BY_FRAME[rank][0])
        python = [line for line in lines if line.file.endswith(".py")]
        if not python:
            return AllocationStack(NO_PYTHON if lines else NO_STACK, (), category)
        strangers = [line for line in python if not _OF_PYTORCH.search(line.file)]
        own_line = next(
            (line for line in strangers if not _INSTALLED.search(line.file)),
            (strangers or python)[0],
        )
        return AllocationStack(
            own_line.text, tuple(line.text for line in python[:_SHOWN_FRAMES]), category
        )

    def _line(self, frame: Any) -> _Line:
        line = self._lines.get(id(frame))
        if line is None:
            if not isinstance(frame, dict):
                raise NotPlain("is not a memory snapshot: a frame is no dictionary")
            # Windows writes backslashes; from here on a path has one form.
            file = text_of(frame.get("filename"), LONGEST_NAME).replace("\\", "/")
            name = text_of(frame.get("name"), LONGEST_NAME)
            number = whole_number(frame.get("line"), 1, LARGEST_LINE)
            short = "/".join(file.rsplit("/", 2)[-2:])
            where = short if number is None else f"{short}:{number}"
            self._kept.append(frame)
            line = self._lines[id(frame)] = _Line(
                file, f"{where} {name}"[:LONGEST_TEXT], _category_rank(file, name)
            )
        return line


@lru_cache(1 << 16)
def _category_rank(file: str, name: str) -> int:
    """Rank of the first category that a frame matches."""
    matches = (
        at
        for at, (_, files, names) in enumerate(_BY_FRAME)
        if files.search(file) or names.search(name)
    )
    return next(matches, _OTHER)


_NONE: list[Any] = []


def _legacy_frames(entry: dict[str, Any]) -> Any:
    """Frames of a block in PyTorch 2.0's format, which has a history."""
    history = entry.get("history")
    if not isinstance(history, list) or not history:
        return _NONE
    first = history[0]
    return first.get("frames", _NONE) if isinstance(first, dict) else _NONE
