"""How to install gputop and what an optional part needs: the one place that names the distribution."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

DISTRIBUTION = "gputop-tui"
"""The name of the package's metadata; ``gputop`` on the package index is another program."""


PUBLISHED = False
"""Whether the package index has it. A release sets this, and README's lines with it, before it builds."""


def install(extra: str) -> str:
    """The command that installs one of the extras, for messages."""
    if PUBLISHED:
        return f"pip install '{DISTRIBUTION}[{extra}]'"
    return f"pip install '.[{extra}]' in a checkout of gputop"


def install_there() -> str:
    """The command that puts gputop on another machine, for messages."""
    return f"pipx install {DISTRIBUTION}" if PUBLISHED else "pipx install . in a checkout of gputop"


class Extra(Struct, frozen=True):
    """One optional part: the distribution that it needs first, and what it is for."""

    distribution: str
    purpose: str


EXTRAS: Mapping[str, Extra] = MappingProxyType({
    "fleet": Extra("httpcore", "gputop fleet"),
    "export": Extra("grpcio", "gputop export --pod-resources"),
    "web": Extra("textual-serve", "gputop serve"),
    "mcp": Extra("mcp", "gputop mcp"),
    "deep": Extra("py-spy", "Python stacks in the details of a process"),
    "png": Extra("resvg-py", "screenshots as PNG"),
    "perf": Extra("nvidia-cuda-cupti", "SM activity by counters, driver 580 and newer"),
    "perf-cu12": Extra("nvidia-cuda-cupti-cu12", "SM activity by counters, older drivers"),
})  # fmt: skip
"""The extras that people install, by name."""
