"""Return install commands for gputop and its extras.

Messages use them. No other module names the distribution.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from importlib import metadata
from urllib.parse import unquote, urlsplit

from msgspec import Struct

DISTRIBUTION = "gputop-tui"
"""The name of the package's metadata; ``gputop`` on the package index is another program."""
CHECKOUT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
"""The folder that holds the package; the project's own folder where gputop runs from a checkout."""


def install(extra: str) -> str:
    """Return the command that installs an extra.

    The command installs beside the running gputop. It names the checkout or the wheel that gputop was installed from,
    else the package index.
    """
    return f"{_pip()} install {shlex.quote(f'{_origin() or DISTRIBUTION}[{extra}]')}"


def install_there() -> str:
    """Return the command that installs gputop on another machine."""
    origin = _origin()
    if origin is None:
        return f"pipx install {DISTRIBUTION}"
    if origin.endswith(".whl"):
        return f"pipx install {os.path.basename(origin)}"
    return "pipx install . in a checkout of gputop"


def _origin() -> str | None:
    """Return the checkout or wheel that gputop was installed from.

    None for the package index.
    """
    if os.path.exists(os.path.join(CHECKOUT, "pyproject.toml")):
        return CHECKOUT
    try:  # PEP 610: written by pip, pipx and uv for whatever was not installed by its name alone
        record = json.loads(
            metadata.distribution(DISTRIBUTION).read_text("direct_url.json") or "{}"
        )
        url = urlsplit(record.get("url", ""))
    except (metadata.PackageNotFoundError, ValueError, AttributeError):
        return None
    return unquote(url.path) if url.scheme == "file" else None


def _pip() -> str:
    """Return how to call the pip of this interpreter."""
    on_path = shutil.which("pip")
    own = on_path is not None and os.path.dirname(on_path) == os.path.dirname(sys.executable)
    return "pip" if own else f"{shlex.quote(sys.executable)} -m pip"


class Extra(Struct, frozen=True):
    """Optional part: its distribution and its purpose."""

    distribution: str
    purpose: str


EXTRAS: Mapping[str, Extra] = {
    "fleet": Extra("httpcore", "gputop fleet"),
    "export": Extra("grpcio", "gputop export --pod-resources"),
    "web": Extra("textual-serve", "gputop serve"),
    "mcp": Extra("mcp", "gputop mcp"),
    "deep": Extra("py-spy", "Python stacks in the details of a process"),
    "png": Extra("resvg-py", "screenshots as PNG"),
    "perf": Extra("nvidia-cuda-cupti", "SM activity by counters, driver 580 and newer"),
    "perf-cu12": Extra("nvidia-cuda-cupti-cu12", "SM activity by counters, older drivers"),
}
"""Installable extras by name."""
