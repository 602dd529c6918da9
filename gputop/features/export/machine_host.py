"""The host of an exporter's page: the machine, and not the container or unit that the exporter itself runs in.

Under a limit of its own gputop shows what that limit leaves, which is right for a job that watches itself. An exporter
speaks for the node: the memory and cores that it may use are nobody's concern.
"""

from __future__ import annotations

import re
from pathlib import Path

from msgspec.structs import replace

from gputop.model.snapshot import HostSample, Snapshot

OTHER_NETWORK = "the exporter has a network of its own: the machine's interfaces are not seen"
NETWORK = ("net_rx_bytes_per_s", "net_tx_bytes_per_s")


class MachineHost:
    """Puts the machine's own numbers into snapshots. ``proc`` is the directory /proc."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = Path(proc)
        self._cores = self._cpu_count()
        self._has_own_network = self._other_network()

    def __call__(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with the machine's memory and cores; without rates of interfaces that are not the machine's."""
        return replace(snapshot, host=self._of_machine(snapshot.host))

    def _of_machine(self, host: HostSample) -> HostSample:
        memory = self._memory()
        if memory is not None:
            host = replace(host, mem_total_bytes=memory[0], mem_used_bytes=memory[1])
        if self._cores is not None:
            host = replace(host, cpu_count=self._cores)
        if self._has_own_network:
            missing = {**host.unavailable, **dict.fromkeys(NETWORK, OTHER_NETWORK)}
            host = replace(host, net_rx_bytes_per_s=None, net_tx_bytes_per_s=None, unavailable=missing)
        return host

    def _memory(self) -> tuple[float, float] | None:
        """Bytes in all and in use; None where the kernel does not say both."""
        try:
            text = (self._proc / "meminfo").read_text()
        except (OSError, ValueError):
            return None
        found = {
            name: 1024.0 * int(kib)
            for name, kib in re.findall(r"^(MemTotal|MemAvailable): +(\d+) kB$", text, re.MULTILINE)
        }
        total, available = found.get("MemTotal"), found.get("MemAvailable")
        if total is None or available is None or available > total:
            return None
        return total, total - available

    def _cpu_count(self) -> float | None:
        """Cores that are online; None where /proc does not say."""
        try:
            lines = (self._proc / "stat").read_text().splitlines()
        except (OSError, ValueError):
            return None
        return float(sum(re.match(r"cpu\d", line) is not None for line in lines)) or None

    def _other_network(self) -> bool:
        """Whether the first process has other interfaces than this one; False where that cannot be seen."""
        try:
            own, first = (_interfaces((self._proc / name / "net" / "dev").read_text()) for name in ("self", "1"))
        except (OSError, ValueError):
            return False
        return own != first


def _interfaces(text: str) -> set[str]:
    return set(re.findall(r"^ *([^ :]+):", text, re.MULTILINE))
