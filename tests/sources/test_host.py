"""The machine around the GPUs, on made-up /proc and /sys folders and once on the real ones."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from gputop.model.snapshot import HostSample
from gputop.sources import readers
from gputop.sources.host import HostCollector
from gputop.sources.selection import MachineOptions
from tests.proc_trees.fake_proc import FakeProc

_T = 1_780_000_000.0
_GIB = 1024**3


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeProc:
    fake = FakeProc(tmp_path)
    monkeypatch.setattr(os, "getloadavg", lambda: (1.25, 1.0, 0.5))
    _cpu(fake, busy=1000, idle=3000)
    fake.write(
        "proc/meminfo",
        "MemTotal:       16777216 kB\nMemFree:         1000 kB\nMemAvailable:   12582912 kB\n"
        "SwapTotal:       2097152 kB\nSwapFree:        1048576 kB\n",
    )
    fake.write("proc/vmstat", "pswpin 0\npswpout 0\n")
    for name in ("cpu", "io", "memory"):
        _pressure(fake, name, 0)
    fake.write("proc/diskstats", "")
    _network(fake, {"lo": (1, 1)})
    (fake.sys / "block").mkdir(parents=True)
    fake.write("proc/self/cgroup", "0::/\n")
    return fake


def _cpu(fake: FakeProc, busy: int, idle: int) -> None:
    fake.write("proc/stat", f"cpu  {busy} 0 0 {idle} 0 0 0 0 0 0\ncpu0 1 2 3 4\n")


def _pressure(fake: FakeProc, name: str, total_us: int) -> None:
    fake.write(f"proc/pressure/{name}", f"some avg10=99.00 avg60=99.00 avg300=99.00 total={total_us}\nfull avg10=0\n")


def _network(fake: FakeProc, interfaces: dict[str, tuple[int, int]]) -> None:
    lines = ["Inter-| Receive", " face |bytes packets"]
    lines += [f"{name}: {rx} 1 0 0 0 0 0 0 {tx} 1 0 0 0 0 0 0" for name, (rx, tx) in interfaces.items()]
    fake.write("proc/net/dev", "\n".join(lines) + "\n")


def _disks(fake: FakeProc, sectors: dict[str, tuple[int, int]]) -> None:
    lines = [f" 8 0 {name} 1 0 {read} 0 1 0 {written} 0 0 0 0" for name, (read, written) in sectors.items()]
    fake.write("proc/diskstats", "\n".join(lines) + "\n")


def _denied() -> tuple[float, float, float]:
    raise PermissionError


def _collector(fake: FakeProc) -> HostCollector:
    return HostCollector(str(fake.proc), str(fake.sys))


def test_the_first_reading_has_levels_but_no_rates(machine: FakeProc) -> None:
    sample = _collector(machine).read(_T)
    assert sample.load1 == 1.25
    assert (sample.mem_total_bytes, sample.mem_used_bytes) == (16 * _GIB, 4 * _GIB)
    assert sample.swap_used_bytes == _GIB
    for key in ("cpu_pct", "disk_read_bytes_per_s", "net_rx_bytes_per_s", "psi_cpu_pct", "psi_io_pct", "psi_mem_pct"):
        assert getattr(sample, key) is None
        assert sample.unavailable[key] == "needs two readings"


def test_processor_use_is_the_busy_share_of_all_cores_without_iowait(machine: FakeProc) -> None:
    collector = _collector(machine)
    machine.write("proc/stat", "cpu  100 0 0 100 100 0 0 0 50 0\n")
    collector.read(_T)
    machine.write("proc/stat", "cpu  160 0 0 120 120 0 0 0 90 0\n")
    assert collector.read(_T + 1).cpu_pct == pytest.approx(60.0)


def test_pressure_is_over_our_own_interval_not_the_kernels_average(machine: FakeProc) -> None:
    collector = _collector(machine)
    collector.read(_T)
    _pressure(machine, "cpu", 500_000)
    _pressure(machine, "io", 100_000)
    sample = collector.read(_T + 2)
    assert (sample.psi_cpu_pct, sample.psi_io_pct, sample.psi_mem_pct) == (25.0, 5.0, 0.0)


def test_missing_pressure_files_are_said_and_take_nothing_else_away(machine: FakeProc) -> None:
    collector = _collector(machine)
    for name in ("cpu", "io", "memory"):
        (machine.proc / "pressure" / name).unlink()
    sample = collector.read(_T)
    assert sample.psi_cpu_pct is None
    assert "CONFIG_PSI" in sample.unavailable["psi_cpu_pct"]
    assert sample.load1 == 1.25


def test_each_disk_byte_is_counted_once(machine: FakeProc) -> None:
    for name in ("sda", "dm-0", "md0", "loop0", "zram0", "nvme0n1", "nvme0c0n1", "nvme0c1n1"):
        (machine.sys / "block" / name / "slaves").mkdir(parents=True)
    (machine.sys / "block/dm-0/slaves/sda").mkdir()
    (machine.sys / "block/md0/slaves/sda").mkdir()
    names = ("sda", "sda1", "dm-0", "md0", "loop0", "zram0")
    collector = _collector(machine)
    _disks(machine, {**dict.fromkeys(names, (0, 0)), "nvme0n1": (0, 0), "nvme0c0n1": (0, 0), "nvme0c1n1": (0, 0)})
    collector.read(_T)
    paths = {"nvme0n1": (0, 3000), "nvme0c0n1": (600, 1000), "nvme0c1n1": (400, 2000)}
    _disks(machine, {**dict.fromkeys(names, (2000, 4000)), **paths})
    sample = collector.read(_T + 2)
    assert sample.disk_read_bytes_per_s == (2000 + 1000) * 512 / 2
    assert sample.disk_write_bytes_per_s == (4000 + 3000) * 512 / 2


def test_network_counts_hardware_and_neither_loopback_nor_what_stands_on_it(machine: FakeProc) -> None:
    (machine.sys / "class/net/eth0/device").mkdir(parents=True)
    (machine.sys / "class/net/docker0").mkdir(parents=True)
    collector = _collector(machine)
    _network(machine, {"lo": (0, 0), "eth0": (0, 0), "docker0": (0, 0)})
    collector.read(_T)
    _network(machine, {"lo": (900, 900), "eth0": (4000, 200), "docker0": (700, 700)})
    sample = collector.read(_T + 2)
    assert (sample.net_rx_bytes_per_s, sample.net_tx_bytes_per_s) == (2000.0, 100.0)


def test_in_a_container_the_virtual_interface_is_the_network(machine: FakeProc) -> None:
    collector = _collector(machine)
    _network(machine, {"lo": (0, 0), "eth0": (0, 0)})
    collector.read(_T)
    _network(machine, {"lo": (900, 900), "eth0": (4000, 200)})
    assert collector.read(_T + 2).net_rx_bytes_per_s == 2000.0


def test_disks_and_network_keep_their_value_between_slow_readings(machine: FakeProc) -> None:
    collector = _collector(machine)
    _network(machine, {"eth0": (0, 0)})
    collector.read(_T)
    _network(machine, {"eth0": (4000, 0)})
    assert collector.read(_T + 2).net_rx_bytes_per_s == 2000.0
    _network(machine, {"eth0": (999_000, 0)})
    assert collector.read(_T + 3).net_rx_bytes_per_s == 2000.0


def test_a_clock_that_steps_back_costs_one_pair_and_gives_no_false_rate(machine: FakeProc) -> None:
    collector = _collector(machine)
    collector.read(_T)
    _pressure(machine, "io", 100_000)
    sample = collector.read(_T - 3600)
    assert sample.psi_io_pct is None
    assert sample.unavailable["psi_io_pct"] == "the clock stepped back"
    _pressure(machine, "io", 200_000)
    assert collector.read(_T - 3599).psi_io_pct == 10.0


def test_a_device_that_vanishes_gives_no_negative_rate(machine: FakeProc) -> None:
    collector = _collector(machine)
    _network(machine, {"eth0": (5000, 5000), "eth1": (9000, 9000)})
    collector.read(_T)
    _network(machine, {"eth0": (5000, 5000)})
    assert collector.read(_T + 2).net_rx_bytes_per_s == 0.0


def test_cores_are_those_that_affinity_and_the_cgroup_leave(machine: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))
    machine.group("")
    assert _collector(machine).read(_T).cpu_count == 16
    machine.write("proc/self/cgroup", "0::/job/step\n")
    machine.group("job", cpu_max="400000 100000\n")
    machine.group("job/step", cpu_max="max 100000\n")
    assert _collector(machine).read(_T).cpu_count == 4.0
    machine.group("job/step", cpu_max="250000 100000\n")
    assert _collector(machine).read(_T).cpu_count == 2.5


def test_memory_is_the_cgroups_where_its_limit_is_lower(machine: FakeProc) -> None:
    machine.group("")
    machine.write("proc/self/cgroup", "0::/job\n")
    machine.group(
        "job",
        memory_max=f"{8 * _GIB}\n",
        memory_current=f"{5 * _GIB}\n",
        memory_stat=f"anon 1\ninactive_file {2 * _GIB}\n",
    )
    sample = _collector(machine).read(_T)
    assert (sample.mem_total_bytes, sample.mem_used_bytes) == (8 * _GIB, 3 * _GIB)


def test_an_empty_machine_gives_reasons_and_never_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeProc(tmp_path)
    monkeypatch.setattr(os, "getloadavg", _denied)
    collector = _collector(fake)
    for moment in (_T, _T + 3):
        sample = collector.read(moment)
        for key in ("cpu_pct", "load1", "mem_used_bytes", "mem_total_bytes", "swap_used_bytes", "psi_mem_pct"):
            assert getattr(sample, key) is None
            assert sample.unavailable[key]
        assert "net/dev" in sample.unavailable["net_rx_bytes_per_s"]
        assert "diskstats" in sample.unavailable["disk_read_bytes_per_s"]


def test_this_machine_is_read_with_believable_values() -> None:
    collector = HostCollector()
    collector.read(_T)
    sample = collector.read(_T + 2)
    assert sample.mem_total_bytes is not None and sample.mem_used_bytes is not None
    assert 0 < sample.mem_used_bytes < sample.mem_total_bytes
    assert sample.cpu_count is not None and 0 < sample.cpu_count <= len(os.sched_getaffinity(0))
    assert sample.load1 is not None


@pytest.mark.parametrize(
    ("text", "used"),
    [
        ("MemTotal: 2048 kB\nMemFree: 1024 kB\nMemAvailable: 1024 kB\n", 1 << 20),
        ("MemTotal: 2048 kB\nMemFree: 256 kB\nBuffers: 256 kB\nCached: 512 kB\n", 1 << 20),
        ("MemTotal: 2048 kB\nMemFree: 1024 kB\nMemAvailable: 9999 kB\n", 1 << 20),
    ],
)
def test_memory_is_known_from_half_of_the_kernels_file(machine: FakeProc, text: str, used: int) -> None:
    machine.write("proc/meminfo", text)
    sample = _collector(machine).read(_T)
    assert sample.mem_used_bytes == used
    assert sample.swap_used_bytes is None and sample.unavailable["swap_used_bytes"]


def test_the_time_that_reading_the_host_begins_with_is_that_of_its_counters(
    machine: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, read_at = [100.0], list[float]()

    class Slow:
        ports = ()

        def __init__(self, proc: str) -> None:
            now[0] += 0.4

        def read(self, at: float) -> HostSample:
            read_at.append(at)
            return HostSample()

    monkeypatch.setattr(readers, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr("gputop.sources.host.HostCollector", Slow)
    reader = readers.MachineReader(MachineOptions(proc=str(machine.proc)))
    reader.read_host((), {}, knew_gpus=False)
    assert read_at == [100.4]
