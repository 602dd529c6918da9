"""What the helper says, as the rest of gputop knows it: addresses and values by their catalogue keys."""

from __future__ import annotations

from gputop.sources.activity.counters.protocol import SampleLine, shown

NOT_COUNTED = "not among the counters of this chip's one pass"


def kernel_pci(address: str | None) -> str | None:
    """NVML's PCI address as the kernel writes it: ``00000000:3B:00.0`` is ``0000:3b:00.0``."""
    domain, _, rest = (address or "").lower().partition(":")
    try:
        return f"{int(domain, 16):04x}:{rest}" if rest.count(":") == 1 else None
    except ValueError:
        return None


def values_of(line: SampleLine) -> tuple[dict[str, float], dict[str, str]]:
    """A believed sample by catalogue key, and why the rest is not there."""
    halves = [line.dram_r, line.dram_w]
    dram = line.dram if line.dram is not None else None if None in halves else sum(half or 0.0 for half in halves)
    given = {
        "sm_active_pct": line.sm,
        "graphics_active_pct": line.gr,
        "tensor_active_pct": line.tensor,
        "dram_active_pct": dram,
    }
    values = {key: value for key, raw in given.items() if (value := shown(raw)) is not None}
    return values, {key: NOT_COUNTED for key in given if key not in values}
