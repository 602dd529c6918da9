"""Is every GPU there and healthy."""

from __future__ import annotations

from gputop.fleet.query import Alert, Planted, Query

_OWN = 'gpu="0",uuid="GPU-0",instance="n1:9401"'
_THROTTLED = "gputop_gpu_throttle_seconds_total"
QUERIES = (
    Query(
        "down", "health", "Exporters down", "GPUs", "max_over_time({up}[{w}]) == 0",
        "The last scrapes of this target all failed: the host, its network or its exporter is down. One failed scrape "
        "says nothing.",
        "Check whether the host answers at all; then systemctl status gputop-export, or the pod of the DaemonSet.",
        alert=Alert("GpuExporterDown", "", "1m", "critical",
                    Planted(series=(("up{UP}", 0.0),)), Planted(series=(("up{UP}", 1.0),))),
    ),
    Query(
        "late", "health", "Drivers late or hung", "GPUs", "{gputop_up} == 0",
        "The exporter answers and has no current values: the driver hangs, or there is no GPU.",
        "Run gputop doctor on the host: it says which call hangs. A driver that hangs usually needs a reboot.", None,
        Alert("GpuDriverLate", "", "5m", "critical",
              Planted(series=((f"gputop_up{{{_OWN}}}", 0.0),)), Planted(series=((f"gputop_up{{{_OWN}}}", 1.0),))),
    ),
    Query(
        "vanished", "health", "GPUs that vanished", "GPUs",
        "count by ({host}) (last_over_time({util}[10m:1m])) - count by ({host}) ({util}) > 0",
        "Fewer GPUs of this host are exported than in the last ten minutes: one fell off the bus, or was drained.",
        "dmesg | grep -i xid on the host. Xid 79 means that the GPU fell off the bus: drain the node and reset it.",
    ),
    Query(
        "lost", "health", "Unreadable GPUs", "flag", "max by ({by}) ({gputop_gpu_lost}) == 1",
        "The driver lists the GPU and calls on it fail or hang.",
        "Drain the node; reset the GPU or reboot.", None,
        Alert("GpuLost", "", "2m", "critical", Planted(series=((f"gputop_gpu_lost{{{_OWN}}}", 1.0),)), Planted()),
    ),
    Query(
        "temperature", "health", "Temperature", "celsius", "{temp}",
        "Temperature of the chip. What matters is whether clocks are cut for it: see throttled.",
        "Airflow, fans, dust, inlet temperature; neighbours in the same chassis.",
        alert=Alert("GpuHot", " > 85", "10m", "warning",
                    Planted(({"temp": 90.0},)), Planted(({"temp": 70.0},))),
    ),
    Query(
        "throttled", "health", "Time with clocks held down by heat or power brake", "ratio",
        'sum by ({by}) ({gputop_gpu_throttle_seconds_total.rate.5m|'
        'reason=~"hardware_thermal|software_thermal|hardware_slowdown|power_brake"})',
        "Share of time in which heat or the power brake cut the clocks. A power cap is not among them: that is how a "
        "busy GPU normally runs.",
        "Cooling, or the power supply of the chassis. The job that runs there slows all its peers down.", None,
        Alert("GpuThrottled", " > 0.1", "10m", "warning",
              Planted(series=((f'{_THROTTLED}{{{_OWN},reason="hardware_thermal"}}', (0.0, 30.0)),)),
              Planted(series=((f'{_THROTTLED}{{{_OWN},reason="power_cap"}}', (0.0, 60.0)),))),
    ),
    Query(
        "power_sawtooth", "health", "Power that swings", "ratio",
        "{power.stddev_over_time.10m} / {power.avg_over_time.10m}",
        "Spread of power over its mean. A training job near 0 is steady; above 0.3 it stops and starts: it waits for "
        "data, for checkpoints or for other ranks, whatever its utilisation says.",
        "Look at starved and gap for the same GPU; gputop trace shows the step.",
    ),
    Query(
        "ecc_uncorrected", "health", "Uncorrected ECC, last hour", "GPUs",
        'sum by ({by}) ({gputop_gpu_ecc_errors_total.increase.1h|kind="uncorrected",counter="volatile"}) > 0',
        "Uncorrected ECC errors in the last hour: what this GPU computed may be wrong, and its job usually dies.",
        "Drain the node, reset the GPU; replace it when they come back or row remapping has failed.",
        "{ecc.increase.1h} > 0",
        Alert("GpuUncorrectedEcc", "", "0m", "critical",
              Planted(({"ecc": (0.0, 1.0)},)), Planted(({"ecc": 3.0},))),
    ),
    Query(
        "xid", "health", "Xid errors", "GPUs",
        "sum by ({by}, xid) ({gputop_gpu_xid_errors_total.increase.10m}) > 0 or sum by ({by}, xid) "
        "({gputop_gpu_xid_errors_total} unless {gputop_gpu_xid_errors_total} offset 10m) > 0",
        "Xid errors of the last ten minutes by number. 13, 31, 43 and 45 point at the program; 48, 63, 64, 74, 79, 94 "
        "and 95 at the hardware. A number that is seen for the first time counts, too.",
        "Cordon the node at 48, 63, 64, 74, 79, 94, 95; tell the job's owner at the others.",
        "max by ({by}) ({DCGM_FI_DEV_XID_ERRORS} > 0)",
        Alert("GpuXid", "", "0m", "warning",
              Planted(series=((f'gputop_gpu_xid_errors_total{{{_OWN},xid="79"}}', (0.0, 1.0)),
                              ('DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-0",HOST="n1"}', 79.0))),
              Planted(series=((f'gputop_gpu_xid_errors_total{{{_OWN},xid="79"}}', 4.0),
                              ('DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-0",HOST="n1"}', 0.0)))),
    ),
    Query(
        "row_remap", "health", "Row remap due or failed", "flag",
        "max by ({by}) ({gputop_gpu_remap_pending} or {gputop_gpu_remap_failed}) == 1",
        "Memory rows wait for a reset to be remapped, or could not be.",
        "Drain and reset the GPU; where it failed, replace it.",
        "max by ({by}) ({DCGM_FI_DEV_ROW_REMAP_FAILURE}) > 0",
    ),
)  # fmt: skip
