"""The parts of `gputop fleet`, a file each: `gputop fleet demo` is demo.py."""

from __future__ import annotations
