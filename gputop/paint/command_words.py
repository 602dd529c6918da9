"""A command line shortened to its job: interpreter and script by name, a launcher together with what it starts.

Pure. The whole command is shown in the details and by scrolling the column.
"""

from __future__ import annotations

import re
from functools import lru_cache

INTERPRETERS = ("python", "pypy")
LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "mpirun", "horovodrun")
LAUNCHING_MODULES = {"torch.distributed.run": "torchrun", "torch.distributed.launch": "torchrun",
                     "accelerate.commands.launch": "accelerate", "deepspeed.launcher.launch": "deepspeed"}  # fmt: skip
COUNTS = r"(?:--nproc[_-]per[_-]node|--num[_-]processes|--num[_-]gpus|-np|-n)(?:=(\w+))?$"
"""Options that say how many processes a launcher starts."""
WITH_VALUE = frozenset(("-X", "-W", "-c"))
"""Options of an interpreter that take the next word."""


@lru_cache(maxsize=512)
def job_words(command: str) -> str:
    """``python train.py --lr 1``, ``python -m vllm.serve``, ``torchrun 4 × train.py``; other programs by their name."""
    words = command.split()
    if not words:
        return command
    name, rest = _base(words[0]), words[1:]
    if name.rstrip("0123456789.") not in INTERPRETERS:
        return _launched(name, rest) if name in LAUNCHERS else " ".join([name, *rest])
    name = "python" if name.startswith("python") else name
    while rest and rest[0].startswith("-") and rest[0] != "-m":
        if rest[0] == "-c":
            return " ".join([name, *rest])
        rest = rest[2:] if rest[0] in WITH_VALUE else rest[1:]
    if rest[:1] == ["-m"] and len(rest) > 1:
        launcher = LAUNCHING_MODULES.get(rest[1])
        return _launched(launcher, rest[2:]) if launcher else " ".join([name, *rest])
    if not rest:
        return name
    script = _base(rest[0])
    return _launched(script, rest[1:]) if script in LAUNCHERS else " ".join([name, script, *rest[1:]])


def _base(word: str) -> str:
    return word.rstrip("/").rsplit("/", 1)[-1]


def _launched(launcher: str, rest: list[str]) -> str:
    """The launcher, how many processes it starts, and what: the first word that is a script, or -m's module."""
    number = ""
    for place, word in enumerate(rest):
        found = re.match(COUNTS, word)
        if found:
            number = found[1] or (rest[place + 1] if place + 1 < len(rest) else "")
        if word in ("-m", "--module") and place + 1 < len(rest):
            job = [rest[place + 1], *rest[place + 2 :]]
        elif word.endswith(".py"):
            job = [_base(word), *rest[place + 1 :]]
        else:
            continue
        return " ".join([launcher, *([number, "×"] if number else []), *job])
    return " ".join([launcher, *rest])
