"""gputop: top for GPUs that shows how much of a busy GPU works, and says why the rest does not.

The public names are loaded when they are first used: ``import gputop`` loads nothing else. Their types are in the stub
beside this file.
"""

__version__ = "1.0.0"

_HOMES = {
    "snapshot": "gputop.api.reading",
    "frames": "gputop.api.reading",
    "watch": "gputop.api.watch",
    "mark": "gputop.api.reading",
    "load": "gputop.api.reading",
    "trace": "gputop.api.reading",
    "dataloader_bench": "gputop.api.batches",
    "max_batch": "gputop.api.largest_batch",
}
"""The public names, each with the module that it is loaded from (PEP 562)."""
__all__ = [
    "__version__", "dataloader_bench", "frames", "load", "mark", "max_batch", "snapshot", "trace", "watch",
]  # fmt: skip


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'gputop' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
