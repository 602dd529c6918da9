"""The machine around the GPUs, on made-up /proc and /sys folders and once on the real ones."""

from __future__ import annotations

import os
import time
from pathlib import Path
from threading import Event

import psutil
import pytest

from gputop.cli import mute_psutil
from gputop.model.snapshot import FabricPort
from gputop.sources import fabric as watching
from gputop.sources import host
from gputop.sources.fabric import FabricCollector, FabricReading, FabricWatch
from gputop.sources.host import HostCollector
from tests.proc_trees.fake_proc import FakeProc
from tests.support.fabric_tree import FabricTree

_T = 1_780_000_000.0
_GIB = 1024**3
_BOOT = 1_700_000_000


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeProc:
    fake = FakeProc(tmp_path)
    # In a test alone: in gputop the folder belongs to the program that it runs in.
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(fake.proc))
    monkeypatch.setattr(os, "getloadavg", lambda: (1.25, 1.0, 0.5))
    _cpu(fake, busy=1000, idle=3000)
    fake.write(
        "proc/meminfo",
        "MemTotal:       16777216 kB\nMemFree:         1000 kB\nMemAvailable:   12582912 kB\n"
        "Buffers: 0 kB\nCached: 0 kB\nActive: 0 kB\nInactive: 0 kB\nShmem: 0 kB\n"
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
    fake.write("proc/stat", f"cpu  {busy} 0 0 {idle} 0 0 0 0 0 0\ncpu0 1 2 3 4\nbtime {_BOOT}\n")


def _pressure(fake: FakeProc, name: str, total_us: int) -> None:
    fake.write(
        f"proc/pressure/{name}",
        f"some avg10=99.00 avg60=99.00 avg300=99.00 total={total_us}\nfull avg10=0\n",
    )


def _network(fake: FakeProc, interfaces: dict[str, tuple[int, int]]) -> None:
    lines = ["Inter-| Receive", " face |bytes packets"]
    lines += [
        f"{name}: {rx} 1 0 0 0 0 0 0 {tx} 1 0 0 0 0 0 0" for name, (rx, tx) in interfaces.items()
    ]
    fake.write("proc/net/dev", "\n".join(lines) + "\n")


def _disks(fake: FakeProc, sectors: dict[str, tuple[int, int]]) -> None:
    lines = [
        f" 8 0 {name} 1 0 {read} 0 1 0 {written} 0 0 0 0"
        for name, (read, written) in sectors.items()
    ]
    fake.write("proc/diskstats", "\n".join(lines) + "\n")


def _denied() -> tuple[float, float, float]:
    raise PermissionError


def _collector(fake: FakeProc) -> HostCollector:
    return HostCollector(str(fake.proc), str(fake.sys))


def test_the_first_reading_has_levels_but_no_rates(machine: FakeProc) -> None:
    sample = _collector(machine).read(_T)
    assert (sample.load1, sample.load5, sample.load15) == (1.25, 1.0, 0.5)
    assert sample.swap_total_bytes == 2 * _GIB
    assert sample.uptime_s == pytest.approx(time.time() - _BOOT, abs=5.0)
    assert (sample.mem_total_bytes, sample.mem_used_bytes) == (16 * _GIB, 4 * _GIB)
    assert sample.swap_used_bytes == _GIB
    for key in (
        "cpu_pct",
        "disk_read_bytes_per_s",
        "net_rx_bytes_per_s",
        "psi_cpu_pct",
        "psi_io_pct",
        "psi_mem_pct",
    ):
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
    _disks(
        machine,
        {
            **dict.fromkeys(names, (0, 0)),
            "nvme0n1": (0, 0),
            "nvme0c0n1": (0, 0),
            "nvme0c1n1": (0, 0),
        },
    )
    collector.read(_T)
    paths = {"nvme0n1": (0, 3000), "nvme0c0n1": (600, 1000), "nvme0c1n1": (400, 2000)}
    _disks(machine, {**dict.fromkeys(names, (2000, 4000)), **paths})
    sample = collector.read(_T + 2)
    assert sample.disk_read_bytes_per_s == (2000 + 1000) * 512 / 2
    assert sample.disk_write_bytes_per_s == (4000 + 3000) * 512 / 2


def test_network_counts_hardware_and_neither_loopback_nor_what_stands_on_it(
    machine: FakeProc,
) -> None:
    (machine.sys / "class/net/eth0/device").mkdir(parents=True)
    (machine.sys / "class/net/docker0").mkdir(parents=True)
    collector = _collector(machine)
    _network(machine, {"lo": (0, 0), "eth0": (0, 0), "docker0": (0, 0)})
    collector.read(_T)
    _network(machine, {"lo": (900, 900), "eth0": (4000, 200), "docker0": (700, 700)})
    sample = collector.read(_T + 2)
    assert (sample.net_rx_bytes_per_s, sample.net_tx_bytes_per_s) == (2000.0, 100.0)


def test_a_clock_that_steps_back_costs_one_pair_and_gives_no_false_rate(machine: FakeProc) -> None:
    collector = _collector(machine)
    collector.read(_T)
    _pressure(machine, "io", 100_000)
    sample = collector.read(_T - 3600)
    assert sample.psi_io_pct is None
    assert sample.unavailable["psi_io_pct"] == "the clock stepped back"
    _pressure(machine, "io", 200_000)
    assert collector.read(_T - 3599).psi_io_pct == 10.0


def test_cores_are_those_that_affinity_and_the_cgroup_leave(
    machine: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_an_empty_machine_gives_reasons_and_never_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeProc(tmp_path)
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(fake.proc))
    monkeypatch.setattr(os, "getloadavg", _denied)
    collector = _collector(fake)
    for moment in (_T, _T + 3):
        sample = collector.read(moment)
        for key in (
            "cpu_pct",
            "load1",
            "mem_used_bytes",
            "mem_total_bytes",
            "swap_used_bytes",
            "swap_total_bytes",
            "uptime_s",
            "load5",
            "load15",
            "psi_mem_pct",
        ):
            assert getattr(sample, key) is None
            assert sample.unavailable[key]
        assert "net/dev" in sample.unavailable["net_rx_bytes_per_s"]
        assert "cannot read" in sample.unavailable["disk_read_bytes_per_s"]


def test_this_machine_is_read_with_believable_values() -> None:
    collector = HostCollector()
    collector.read(_T)
    sample = collector.read(_T + 2)
    assert sample.mem_total_bytes is not None and sample.mem_used_bytes is not None
    assert 0 < sample.mem_used_bytes < sample.mem_total_bytes
    assert sample.cpu_count is not None and 0 < sample.cpu_count <= len(os.sched_getaffinity(0))
    assert sample.load1 is not None


def _rows(path: str) -> dict[str, list[str]]:
    """The words of each line of a file of /proc, by its first word."""
    lines = Path(path).read_text().replace(":", ": ").splitlines()
    return {words[0].rstrip(":"): words[1:] for words in map(str.split, lines) if words}


def test_psutil_says_of_this_machine_what_proc_says() -> None:
    """The values that are read by psutil and below its rules, beside the kernel's own files."""
    collector = HostCollector()
    sample = collector.read(_T)
    memory = {key: int(words[0]) * 1024 for key, words in _rows("/proc/meminfo").items()}
    within = 0.02 * memory["MemTotal"]
    if sample.mem_total_bytes == memory["MemTotal"]:
        used = memory["MemTotal"] - memory["MemAvailable"]
        assert sample.mem_used_bytes == pytest.approx(used, abs=within)
    assert sample.swap_total_bytes == memory["SwapTotal"]
    swapped = memory["SwapTotal"] - memory["SwapFree"]
    assert sample.swap_used_bytes == pytest.approx(swapped, abs=within)
    up = float(Path("/proc/uptime").read_text().split()[0])
    assert sample.uptime_s == pytest.approx(up, abs=3.0)
    loads = [float(word) for word in Path("/proc/loadavg").read_text().split()[:3]]
    assert [sample.load1, sample.load5, sample.load15] == pytest.approx(loads, abs=2.0)
    ticks = [int(word) / os.sysconf("SC_CLK_TCK") for word in _rows("/proc/stat")["cpu"][:8]]
    times = host._cpu_times()
    assert times.every == pytest.approx(sum(ticks), abs=5.0)
    assert times.busy == pytest.approx(sum(ticks) - ticks[3] - ticks[4], abs=5.0)
    links = _rows("/proc/net/dev")
    counters = psutil.net_io_counters(pernic=True, nowrap=False)
    assert counters.keys() == {name for name, words in links.items() if len(words) == 16}
    for name, nic in counters.items():
        assert nic.bytes_recv >= 0 and int(links[name][0]) <= nic.bytes_recv + 10**9
    assert host.network_bytes("/sys") == pytest.approx(host.network_bytes("/sys"), abs=10**9)


def test_a_container_without_some_lines_of_proc_gets_no_warning(
    machine: FakeProc, recwarn: pytest.WarningsRecorder
) -> None:
    machine.write("proc/meminfo", "MemTotal: 16777216 kB\nMemFree: 12582912 kB\n")
    mute_psutil()
    sample = _collector(machine).read(_T)
    assert sample.mem_total_bytes == 16 * _GIB
    assert sample.mem_used_bytes == pytest.approx(4 * _GIB, rel=0.01)
    assert not recwarn.list


@pytest.mark.filterwarnings("error")
def test_a_program_that_makes_errors_of_warnings_loses_the_value_alone(machine: FakeProc) -> None:
    machine.write("proc/meminfo", "MemTotal: 16777216 kB\nMemFree: 12582912 kB\n")
    machine.write("proc/vmstat", "")
    sample = _collector(machine).read(_T)
    assert sample.unavailable["mem_used_bytes"] == "cannot read /proc/meminfo"
    assert sample.unavailable["swap_total_bytes"] == "cannot read /proc/meminfo"
    assert sample.load1 == 1.25


# InfiniBand, RoCE and EFA ports: files as the drivers lay them out, rates, gaps, links in trouble, what is said.

GB = 1e9


@pytest.fixture
def tree(tmp_path: Path) -> FabricTree:
    return FabricTree(tmp_path)


def _read(tree: FabricTree) -> tuple[FabricCollector, FabricReading]:
    collector = FabricCollector(str(tree.sys))
    return collector, collector.read(0.0)


def _port(reading: FabricReading, name: str) -> FabricPort:
    return next(port for port in reading.ports if port.name == name)


def test_infiniband_counts_words_of_four_bytes(tree: FabricTree) -> None:
    port = tree.mlx5(0)
    tree.count(port, port_rcv_data=1000, port_xmit_data=500)
    collector, first = _read(tree)
    assert first.missing["fabric_rx_bytes_per_s"] == "needs two readings"
    assert first.values["fabric_peak_bytes_per_s"] == 50 * GB
    tree.count(port, port_rcv_data=1000 + 3_000_000, port_xmit_data=500 + 1_000_000)
    reading = collector.read(2.0)
    assert reading.values["fabric_rx_bytes_per_s"] == 6e6
    assert reading.values["fabric_tx_bytes_per_s"] == 2e6
    assert (reading.ports[0].kind, reading.ports[0].width) == ("InfiniBand", "4X NDR")


def test_efa_counts_bytes_and_its_drops(tree: FabricTree) -> None:
    port = tree.efa(0)
    tree.count(port, rx_drops=5)
    collector, first = _read(tree)
    assert first.values["fabric_drops"] == 5
    tree.count(port, rx_bytes=4000, tx_bytes=2000, rx_drops=12, retrans_pkts=3)
    reading = collector.read(2.0)
    assert (reading.values["fabric_rx_bytes_per_s"], reading.values["fabric_tx_bytes_per_s"]) == (
        2000.0,
        1000.0,
    )
    assert (reading.values["fabric_drops"], reading.values["fabric_retransmits"]) == (12, 3)
    assert reading.values["fabric_link_errors"] is None
    assert reading.missing["fabric_link_errors"] == "the ports do not count this"
    assert reading.ports[0].kind == "EFA"


def test_a_counter_that_falls_is_a_gap_and_no_traffic(tree: FabricTree) -> None:
    port = tree.mlx5(0)
    tree.count(port, port_rcv_data=10_000, out_of_buffer=900)
    collector, _ = _read(tree)
    tree.count(port, port_rcv_data=100, out_of_buffer=10)
    reading = collector.read(2.0)
    assert reading.values["fabric_rx_bytes_per_s"] is None
    assert reading.missing["fabric_rx_bytes_per_s"] == "a counter was reset"
    assert reading.values["fabric_drops"] == 900
    tree.count(port, port_rcv_data=200, out_of_buffer=15)
    reading = collector.read(4.0)
    assert reading.values["fabric_rx_bytes_per_s"] == 200.0
    assert reading.values["fabric_drops"] == 905


def test_a_link_that_was_up_and_is_down_is_told_and_a_port_never_used_is_not(
    tree: FabricTree,
) -> None:
    used, spare, off = tree.mlx5(0), tree.mlx5(1), tree.mlx5(2)
    tree.count(used, port_rcv_data=7)
    tree.set(spare, state="1: DOWN", phys_state="2: Polling", rate="10 Gb/sec (4X SDR)")
    tree.count(off, port_rcv_data=7)
    tree.set(off, state="1: DOWN", phys_state="3: Disabled")
    collector, reading = _read(tree)
    assert reading.values["fabric_ports_down"] == 0
    tree.set(used, state="1: DOWN", phys_state="2: Polling", rate="10 Gb/sec (4X SDR)")
    reading = collector.read(2.0)
    assert reading.values["fabric_ports_down"] == 1
    assert _port(reading, used).trouble == "link down"
    assert _port(reading, spare).trouble == _port(reading, off).trouble == ""
    assert reading.values["fabric_peak_bytes_per_s"] is None
    # One that carried something since boot was connected, also before anybody watched.
    assert FabricCollector(str(tree.sys)).read(0.0).values["fabric_ports_down"] == 1


def test_a_link_is_slow_against_itself_and_against_most_of_its_like(tree: FabricTree) -> None:
    tree.mlx5(9, rate="200 Gb/sec (4X HDR)", board="MT_0007")
    slow = tree.mlx5(0, rate="200 Gb/sec (2X NDR)")
    others = [tree.mlx5(number) for number in (1, 2, 3)]
    collector, reading = _read(tree)
    assert _port(reading, slow).trouble == "200 instead of 400 Gb/s"
    assert reading.values["fabric_ports_degraded"] == 1
    tree.set(slow, rate="400 Gb/sec (4X NDR)")
    for port in others:
        tree.set(port, rate="100 Gb/sec (1X NDR)")
    readings = [collector.read(float(moment)) for moment in range(2, 8)]
    assert readings[-1].values["fabric_ports_degraded"] == 3
    assert _port(readings[-1], others[0]).trouble == "100 instead of 400 Gb/s"


def test_an_adapter_that_hangs_holds_nobody_up_and_is_not_shown_as_if_it_answered(
    tree: FabricTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.mlx5(0)
    hangs, goes_on = Event(), Event()

    def read(self: FabricCollector, now: float) -> FabricReading:
        hangs.set()
        goes_on.wait(60.0)
        raise OSError

    monkeypatch.setattr(FabricCollector, "read", read)
    watch = FabricWatch(str(tree.sys))
    assert watch.newest(0.0).missing["fabric_drops"] == "the ports have not answered yet"
    assert hangs.wait(60.0)
    monkeypatch.setattr(watching, "HUNG_S", 0.0)
    assert watch.newest(1.0).missing["fabric_drops"].startswith("the ports have not answered for")
    watch.close()
    goes_on.set()
