"""/sys/class/infiniband as the drivers lay it out: some of the files that each has, and what they say at rest.

Names are those of the kernel's documentation and of the drivers' counter tables (mlx5, efa).
"""

from __future__ import annotations

from pathlib import Path

PMA = (
    "excessive_buffer_overrun_errors", "link_downed", "link_error_recovery", "local_link_integrity_errors",
    "port_rcv_data", "port_rcv_errors", "port_xmit_data", "port_xmit_discards", "port_xmit_wait", "symbol_error",
)  # fmt: skip
MLX5 = (
    "duplicate_request", "implied_nak_seq_err", "local_ack_timeout_err", "out_of_buffer", "out_of_sequence",
    "packet_seq_err", "rnr_nak_retry_err", "roce_adp_retrans",
)  # fmt: skip
EFA = ("tx_bytes", "tx_pkts", "rx_bytes", "rx_pkts", "rx_drops", "retrans_bytes", "retrans_pkts")


class FabricTree:
    """Writes and rewrites the files of ports below ``sys``."""

    def __init__(self, root: Path) -> None:
        self.sys = root / "sys"
        self.ports = self.sys / "class/infiniband"

    def mlx5(
        self,
        number: int,
        *,
        rate: str = "400 Gb/sec (4X NDR)",
        ethernet: bool = False,
        board: str = "MT_0838",
    ) -> str:
        """An adapter with one port; gives the port's name."""
        name = f"mlx5_{number}"
        counters = {f"counters/{key}": "0" for key in PMA} | {
            f"hw_counters/{key}": "0" for key in MLX5
        }
        device = {"board_id": board, "hca_type": "MT4129", "node_type": "1: CA"}
        return self._port(name, "Ethernet" if ethernet else "InfiniBand", rate, counters, device)

    def efa(self, number: int) -> str:
        counters = {f"hw_counters/{key}": "0" for key in EFA}
        return self._port(
            f"rdmap{number}s0",
            "Unknown",
            "100 Gb/sec (4X EDR)",
            counters,
            {"node_type": "7: unspecified"},
        )

    def _port(
        self, name: str, layer: str, rate: str, counters: dict[str, str], device: dict[str, str]
    ) -> str:
        for key, value in device.items():
            self._write(f"{name}/{key}", value)
        for key in ("counters", "hw_counters"):
            if any(counter.startswith(f"{key}/") for counter in counters):
                self._write(f"{name}/ports/1/{key}/lifespan", "10")
        port = f"{name}/1"
        state = {
            "link_layer": layer,
            "rate": rate,
            "state": "4: ACTIVE",
            "phys_state": "5: LinkUp",
            "lid": "0x3",
        }
        self.set(port, **(counters | state))
        return port

    def set(self, port: str, **values: object) -> None:
        """Rewrite files of a port, by their path below it."""
        device, _, number = port.partition("/")
        for key, value in values.items():
            self._write(f"{device}/ports/{number}/{key}", str(value))

    def count(self, port: str, **values: int) -> None:
        """Rewrite counters by their names alone."""
        device, _, number = port.partition("/")
        for key, value in values.items():
            (file,) = (self.ports / device / "ports" / number).glob(f"*/{key}")
            file.write_text(f"{value}\n")

    def _write(self, path: str, text: str) -> None:
        file = self.ports / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
